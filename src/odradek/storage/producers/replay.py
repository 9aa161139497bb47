"""Snapshots of a log's producers, and rebuilding their state from one and the records behind it."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from odradek.model import UNKNOWN_OFFSET
from odradek.records.batch import BatchHeader, Buffer, parse_header
from odradek.records.errors import CorruptRecords
from odradek.storage import names
from odradek.storage.files import FileSystem
from odradek.storage.index.transaction_index import AbortedEntry, TransactionIndex
from odradek.storage.log.recovery import walk_segment
from odradek.storage.log.segments import LogSegments
from odradek.storage.producers.end_marker import parse_end_marker
from odradek.storage.producers.producer_snapshot import (
    CorruptSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from odradek.storage.producers.producer_state import (
    NO_COORDINATOR_EPOCH,
    CompletedTransaction,
    ProducerState,
    ProducerStateManager,
)

logger: Final = logging.getLogger(__name__)


def replay_producers(
    file_system: FileSystem,
    directory: str,
    segments: LogSegments,
    producers: ProducerStateManager,
    log_end_offset: int,
    recovered_from: int = UNKNOWN_OFFSET,
) -> None:
    """Brings `producers` to the log end.

    Starts from the newest snapshot that is not beyond the log end and can be read; snapshots that
    are beyond it or cannot be read are removed. After a recovery the transaction indexes of the
    segments from `recovered_from` on are rebuilt, and later snapshots are not trusted but rebuilt
    as well: retention may remove the records with the same facts.

    A segment that is damaged is read as far as it can be, and the rest is told in the log: the
    records behind it can still be read. A producer whose last batches the damage hides may be
    refused when it goes on, and a batch that it sends again may be appended twice.

    Raises:
        OSError: the disk failed.
    """
    newest = log_end_offset
    if recovered_from >= 0:
        newest = min(newest, recovered_from)
        # The active one too, which may have lost all its records.
        for segment in segments.between(recovered_from, log_end_offset + 1):
            segment.transactions.clear()
    load_snapshot(file_system, directory, segments, producers, newest)
    start_offset = producers.map_end_offset
    if start_offset < log_end_offset:
        for segment in segments.between(start_offset, log_end_offset):
            if recovered_from >= 0 and segment.base_offset > start_offset:
                producers.map_end_offset = segment.base_offset
                take_snapshot(file_system, directory, producers)
            place = segment.locate(max(start_offset, segment.base_offset))
            if place is not None:
                indexed = None
                if 0 <= recovered_from <= segment.base_offset:
                    indexed = segment.transactions
                end = walk_segment(
                    segment,
                    partial(replay_into, producers, indexed),
                    from_position=place.position,
                    next_offset=place.base_offset,
                    check=False,
                )
                if end.reason is not None:
                    logger.warning(
                        "%s: %s; what producers have sent from offset %d on is not known",
                        segment.file.path,
                        end.reason,
                        end.next_offset,
                    )
            segment.release()
    producers.commit()
    producers.map_end_offset = log_end_offset
    if recovered_from >= 0 and segments.active.base_offset == log_end_offset:
        take_snapshot(file_system, directory, producers)


def take_snapshot(file_system: FileSystem, directory: str, producers: ProducerStateManager) -> None:
    """Writes a snapshot of the producers at the log end, unless there is one.

    Raises:
        OSError: there is no new snapshot; the old ones are as they were.
    """
    offset = producers.map_end_offset
    if producers.snapshot_offset == offset:
        return
    path = names.segment_file(directory, offset, names.SNAPSHOT_SUFFIX)
    file_system.replace(path, encode_snapshot(producers.active()), sync=False)
    producers.snapshot_offset = offset


def open_in_snapshot(file_system: FileSystem, directory: str, offset: int) -> list[int]:
    """The producers whose transactions the snapshot at `offset` has open, if there is one.

    Raises:
        OSError: the disk failed.
    """
    path = names.segment_file(directory, offset, names.SNAPSHOT_SUFFIX)
    if file_system.size(path) < 0:
        return []
    try:
        states = decode_snapshot(file_system.read_bytes(path))
    except CorruptSnapshot:
        # No replay begins there.
        return []
    return [state.producer_id for state in states if state.txn_first_offset >= 0]


def load_snapshot(
    file_system: FileSystem,
    directory: str,
    segments: LogSegments,
    producers: ProducerStateManager,
    log_end_offset: int,
) -> None:
    """Loads the newest usable snapshot; without one the state is empty, at offset 0."""
    for offset in sorted(snapshot_offsets(file_system, directory), reverse=True):
        path = names.segment_file(directory, offset, names.SNAPSHOT_SUFFIX)
        if offset <= log_end_offset:
            try:
                states = decode_snapshot(file_system.read_bytes(path))
                _check_origin(states, offset, segments)
                producers.load(states, offset)
                return
            except CorruptSnapshot:
                # An older one, or the records themselves, have the same facts.
                pass
        file_system.remove(path)
    producers.load([], 0)


def _check_origin(states: Sequence[ProducerState], offset: int, segments: LogSegments) -> None:
    """Compares the newest batch of a snapshot with the log.

    Raises:
        CorruptSnapshot: it is another log's.
    """
    newest = max(states, key=lambda state: state.last_offset, default=None)
    if newest is None or newest.last_offset < segments.first.base_offset:
        return
    if newest.last_offset >= offset:
        raise CorruptSnapshot(f"it knows offset {newest.last_offset}")
    segment = segments.floor(newest.last_offset)
    if segment is None:
        return
    try:
        place = segment.locate(newest.last_offset)
    except CorruptRecords:
        # Damaged records say nothing about the snapshot.
        return
    if place is None or place.base_offset > newest.last_offset:
        return
    header = parse_header(segment.read(place.position, place.size_bytes))
    if header.producer_id != newest.producer_id:
        raise CorruptSnapshot(f"offset {newest.last_offset} has another producer")


def snapshot_offsets(file_system: FileSystem, directory: str) -> list[int]:
    """The offsets of the snapshots in a log's directory."""
    offsets = []
    for name in file_system.list_directory(directory):
        parsed = names.parse_segment_file(name)
        if parsed is not None and parsed[1] == names.SNAPSHOT_SUFFIX:
            offsets.append(parsed[0])
    return offsets


def remove_snapshots(
    file_system: FileSystem, directory: str, above: int = UNKNOWN_OFFSET, below: int = 1 << 63
) -> None:
    """Removes the snapshots of a log between two offsets, all of them if none is given.

    Raises:
        OSError: some are still there.
    """
    for offset in snapshot_offsets(file_system, directory):
        if above < offset < below:
            file_system.remove(names.segment_file(directory, offset, names.SNAPSHOT_SUFFIX))


def replay_into(
    producers: ProducerStateManager,
    index: TransactionIndex | None,
    header: BatchHeader,
    batch: Buffer,
) -> None:
    """Takes in one batch; the transaction that it aborts is added to `index`, if that is given."""
    completed = replay_batch(producers, header, batch)
    if index is not None and completed is not None and completed.is_aborted:
        index.append(
            AbortedEntry(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producers.last_stable_offset(completed),
            )
        )


def replay_batch(
    producers: ProducerStateManager, header: BatchHeader, batch: Buffer
) -> CompletedTransaction | None:
    """Takes in one batch that is in the log already; the transaction that it ends, if any."""
    if header.producer_id < 0 or header.last_offset < producers.map_end_offset:
        return None
    if not header.is_control:
        # An empty one too: compaction kept it for the sequence that it ends with.
        producers.update(header)
        return None
    return replay_marker(producers, header, batch)


def replay_marker(
    producers: ProducerStateManager, header: BatchHeader, batch: Buffer
) -> CompletedTransaction | None:
    """Takes in a producer's control batch; the transaction that it ends, if any.

    A batch that compaction has emptied was kept for its epoch: its transaction has no record left.
    """
    if header.record_count == 0:
        known = producers.get(header.producer_id)
        coordinator_epoch = NO_COORDINATOR_EPOCH if known is None else known.coordinator_epoch
        return producers.complete(header, True, coordinator_epoch)
    marker = parse_end_marker(batch)
    if marker is None:
        return None
    return producers.complete(header, marker.is_commit, marker.coordinator_epoch)
