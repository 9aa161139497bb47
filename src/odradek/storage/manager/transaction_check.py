"""Checks whether a transaction index agrees with the records, and rebuilds it if not.

A closed index has a check file beside it, which is sufficient. An index without one, after a crash
or from Apache Kafka, is accepted if it is well-formed and each entry leads to the marker that ended
the transaction. Only segments that have one of the two files are looked at, so a start costs
nothing where no transaction was ever aborted.

The rebuild begins at the newest producer snapshot before the segment, since a transaction may have
begun long before the segment that holds its marker.
"""

import struct
from functools import partial
from typing import Final

from odradek.records.batch import parse_header
from odradek.records.errors import CorruptRecords
from odradek.storage import names
from odradek.storage.files import FileSystem
from odradek.storage.index.transaction_index import ENTRY_BYTES, decode_entries, encode_check
from odradek.storage.log.recovery import walk_segment
from odradek.storage.log.segment import LogSegment
from odradek.storage.log.segments import LogSegments
from odradek.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from odradek.storage.producers.producer_state import ProducerStateManager
from odradek.storage.producers.replay import replay_into, snapshot_offsets

_VERSION: Final = struct.Struct(">h")


def find_damage(segment: LogSegment, end_offset: int) -> str | None:
    """Finds damage in the transaction index of a segment that ends at `end_offset`.

    Raises:
        OSError: the disk failed.
    """
    index = segment.transactions
    data = index.read()
    check = index.read_check()
    if check is not None:
        return None if check == encode_check(data) else "it is not what its check file tells"
    # The next orderly end writes the check file.
    index.is_sealed = False
    return malformed(data, segment.base_offset, end_offset) or _unmarked(segment)


def malformed(data: bytes, base_offset: int, end_offset: int) -> str | None:
    """Finds what is malformed in the index itself; it belongs to the offsets up to `end_offset`."""
    if len(data) % ENTRY_BYTES:
        return f"{len(data)} bytes are not a whole number of entries"
    least = base_offset
    for number, entry in enumerate(decode_entries(data)):
        if _VERSION.unpack_from(data, number * ENTRY_BYTES)[0] != 0:
            return f"entry {number} is of an unknown version"
        if not (least <= entry.last_offset < end_offset and _is_ordered(*entry[1:])):
            return f"entry {number} speaks of a transaction that cannot end in this segment"
        least = entry.last_offset + 1
    return None


def rebuild(
    file_system: FileSystem, segments: LogSegments, segment: LogSegment, end_offset: int
) -> None:
    """Rebuilds the transaction index of a segment that ends at `end_offset`.

    Raises:
        OSError: the disk failed.
    """
    producers = ProducerStateManager(segment.directory)
    _load_snapshot_before(file_system, segment, producers)
    segment.transactions.clear()
    for each in segments.between(producers.map_end_offset, end_offset):
        index = segment.transactions if each is segment else None
        walk_segment(each, partial(replay_into, producers, index), check=False)
    if segment is not segments.active:
        segment.transactions.seal(sync=True)


def _is_ordered(first_offset: int, last_offset: int, last_stable_offset: int) -> bool:
    """Whether the offsets of an entry are possible: another producer's older transaction may keep
    the last stable offset back."""
    return 0 <= first_offset <= last_offset and 0 <= last_stable_offset <= last_offset + 1


def _unmarked(segment: LogSegment) -> str | None:
    """Describes the first entry that does not lead to the marker of its producer."""
    for entry in segment.transactions.entries():
        try:
            place = segment.locate(entry.last_offset)
        except CorruptRecords:
            # Damaged records say nothing about the index.
            continue
        if place is None or place.base_offset != entry.last_offset:
            return f"no marker has the offset {entry.last_offset}"
        header = parse_header(segment.read(place.position, place.size_bytes))
        if not header.is_control or header.producer_id != entry.producer_id:
            return f"offset {entry.last_offset} is no marker of producer {entry.producer_id}"
    return None


def _load_snapshot_before(
    file_system: FileSystem, segment: LogSegment, producers: ProducerStateManager
) -> None:
    for offset in sorted(snapshot_offsets(file_system, segment.directory), reverse=True):
        if offset > segment.base_offset:
            continue
        path = names.segment_file(segment.directory, offset, names.SNAPSHOT_SUFFIX)
        try:
            producers.load(decode_snapshot(file_system.read_bytes(path)), offset)
            return
        except CorruptSnapshot:
            # An older one, or the records themselves, have the same facts.
            continue
