"""Rebuilding the producer state of a log from a snapshot and the records behind it."""

from odradek.records.batch import BatchHeader, Buffer
from odradek.storage import names
from odradek.storage.end_marker import parse_end_marker
from odradek.storage.files import FileSystem
from odradek.storage.producer_snapshot import CorruptSnapshot, decode_snapshot
from odradek.storage.producer_state import ProducerStateManager
from odradek.storage.recovery import walk_segment
from odradek.storage.segments import LogSegments


def replay_producers(
    file_system: FileSystem,
    directory: str,
    segments: LogSegments,
    producers: ProducerStateManager,
    log_end_offset: int,
) -> int:
    """Makes `producers` what it has to be at the log end; returns the snapshot's offset, 0: none.

    Starts from the newest snapshot that is not beyond the log end and can be read; snapshots
    that are beyond it or cannot be read are removed.

    Raises:
        OSError: the disk failed.
    """
    load_snapshot(file_system, directory, producers, log_end_offset)
    start_offset = producers.map_end_offset
    if start_offset < log_end_offset:
        for segment in segments.between(start_offset, log_end_offset):
            place = segment.locate(max(start_offset, segment.base_offset))
            if place is not None:
                walk_segment(
                    segment,
                    lambda header, batch: replay_batch(producers, header, batch),
                    from_position=place.position,
                    next_offset=place.base_offset,
                    check=False,
                )
    producers.commit()
    producers.map_end_offset = log_end_offset
    return start_offset


def load_snapshot(
    file_system: FileSystem, directory: str, producers: ProducerStateManager, log_end_offset: int
) -> None:
    """Loads the newest usable snapshot; without one the state is empty, at offset 0."""
    for offset in sorted(snapshot_offsets(file_system, directory), reverse=True):
        path = names.segment_file(directory, offset, names.SNAPSHOT_SUFFIX)
        if offset <= log_end_offset:
            try:
                producers.load(decode_snapshot(file_system.read_bytes(path)), offset)
                return
            except CorruptSnapshot:
                # An older one, or the records themselves, say the same.
                pass
        file_system.remove(path)
    producers.load([], 0)


def snapshot_offsets(file_system: FileSystem, directory: str) -> list[int]:
    """The offsets of the snapshots in a log's directory."""
    offsets = []
    for name in file_system.list_directory(directory):
        parsed = names.parse_segment_file(name)
        if parsed is not None and parsed[1] == names.SNAPSHOT_SUFFIX:
            offsets.append(parsed[0])
    return offsets


def replay_batch(producers: ProducerStateManager, header: BatchHeader, batch: Buffer) -> None:
    """Takes in one batch that is in the log already."""
    if header.producer_id < 0 or header.last_offset < producers.map_end_offset:
        return
    if not header.is_control:
        # An empty one too: compaction kept it for the sequence that it ends with.
        producers.update(header)
        return
    if header.record_count == 0:
        return
    marker = parse_end_marker(batch)
    if marker is not None:
        producers.complete(header, marker.is_commit, marker.coordinator_epoch)
