"""Reads one partition's files in place, while their broker may be changing them. Never writes.

Segments are rolled, deleted, and merged by the cleaner while we read. So an offset counts, never a
file: a read finds the segment with the next offset, opens it, and checks again that it is the right
one and where the next one begins. The open file then has all records between the two, whatever
happens to its name:

    0.log, 100.log, 200.log     0.log is read to its end, offset 100 is next
    0.log,          200.log     0 and 100 were merged meanwhile: 100 is in the new 0.log,
                                which is opened and read from offset 100 on

A cleaned segment that is being swapped in (`.swap`) is complete, and has its offsets as long as no
segment has its final name. An index only hints at a position, since it may belong to the segment
that was there before: it is believed when a batch with the right checksum begins there. Files are
read, never mapped: a mapped file that its broker truncates would end the process.

Offsets that are in no file are skipped if compaction removed them, which has to be proved: a closed
segment that ends before the next begins may have been truncated, so there must be a trace that only
compaction leaves.
"""

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.records.batch import (
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    is_partial,
    parse_header,
    split_batches,
)
from odradek.records.errors import CorruptRecords
from odradek.records.reader import iter_records, read_batch
from odradek.storage.checkpoints import parse_offsets
from odradek.storage.names import (
    CLEANER_CHECKPOINT,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    leading_offset,
    parse_segment_file,
    segment_file,
)
from odradek.system_calls import OPEN_FLAGS, pread
from odradek.tables.errors import MissingData
from odradek.tables.scan.chunks import Chunk

READ_BYTES: Final = 4 << 20
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_LENGTH: Final = struct.Struct(">i")
# How often a file may be missing at its opening, because the cleaner has renamed it.
_ATTEMPTS: Final = 100


class Place(NamedTuple):
    """A segment's place in its log: `end` is where the next begins, None for the last one."""

    base: int
    end: int | None
    suffix: str


@dataclass(frozen=True)
class PartitionFiles:
    """The directory of one partition."""

    topic_partition: TopicPartition
    directory: str

    def base_offsets(self) -> list[int]:
        """Where its segments begin, in order.

        Raises:
            MissingData: the directory is gone.
        """
        return [place.base for place in self.places()]

    def places(self) -> list[Place]:
        """Its segments, in order.

        Lists the directory until two lists are equal: a list made during a rename may lack the file
        under both names.

        Raises:
            MissingData: the directory is gone.
        """
        found = self._list()
        while (again := self._list()) != found:
            found = again
        bases = sorted(found)
        ends = [*bases[1:], None]
        return [Place(base, end, found[base]) for base, end in zip(bases, ends, strict=bool(bases))]

    def read(self, start: int, end: int) -> Iterator[Chunk]:
        """Whole batches that together hold the records from `start` up to `end`.

        The first and the last chunk may hold records outside of that.

        Raises:
            MissingData: the files lack records between the two.
        """
        offset = start
        while offset < end:
            with self._open(offset) as segment:
                reached = offset
                for chunk in segment.read(offset, end):
                    reached = chunk.next_offset
                    yield chunk
                offset = self._behind(segment, offset, reached, end)

    def offset_for_time(self, timestamp_ms: int, end: int) -> int | None:
        """The first offset below `end` whose record is at or after a time, if there is one."""
        bases = self.base_offsets()
        offset: int | None = bases[0] if bases else None
        while offset is not None and offset < end:
            with self._open(offset) as segment:
                found = segment.offset_for_time(timestamp_ms, offset, end)
                if found is not None:
                    return found
                offset = segment.place.end
        return None

    def _list(self) -> dict[int, str]:
        """The suffix of every existing segment, by its base offset."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError as error:
            raise MissingData(f"{self.topic_partition} is deleted") from error
        found: dict[int, str] = {}
        for name in names:
            suffix = SWAP_SUFFIX if name.endswith(SWAP_SUFFIX) else ""
            parsed = parse_segment_file(name.removesuffix(SWAP_SUFFIX))
            # Both are whole as long as both are there.
            if parsed is not None and parsed[1] == LOG_SUFFIX and found.get(parsed[0]) != "":
                found[parsed[0]] = suffix
        return found

    @contextmanager
    def _open(self, offset: int) -> "Iterator[OpenSegment]":
        """The segment that holds an offset, opened while it was at `place`."""
        descriptor, place = self._descriptor(offset)
        try:
            yield OpenSegment(self, descriptor, place)
        finally:
            os.close(descriptor)

    def _descriptor(self, offset: int) -> tuple[int, Place]:
        for _ in range(_ATTEMPTS):
            place = self._place_of(offset)
            path = segment_file(self.directory, place.base, LOG_SUFFIX) + place.suffix
            try:
                descriptor = os.open(path, os.O_RDONLY | OPEN_FLAGS)
            except FileNotFoundError:
                continue
            if self._place_of(offset) == place and _is_file(path, descriptor):
                return descriptor, place
            os.close(descriptor)
        raise MissingData(
            f"{self.topic_partition}: the segment of offset {offset} is replaced faster than it "
            "can be opened"
        )

    def _place_of(self, offset: int) -> Place:
        places = self.places()
        index = bisect_right(places, offset, key=lambda place: place.base) - 1
        if index >= 0:
            return places[index]
        if not places:
            raise MissingData(f"{self.topic_partition}: there is no segment")
        first = places[0].base
        raise MissingData(
            f"{self.topic_partition}: offset {offset} is wanted, the first is {first}", first
        )

    def _behind(self, segment: "OpenSegment", start: int, reached: int, end: int) -> int:
        """The place to continue from after a segment that was read from `start` on."""
        following = segment.place.end
        if reached >= end or (following is None and reached > start):
            # The last segment may have grown, or may not be the last one any more.
            return reached
        if following is None:
            raise MissingData(f"{self.topic_partition}: the files end at offset {reached}")
        if segment.is_torn:
            raise MissingData(
                f"{self.topic_partition}: segment {segment.place.base} is torn at "
                f"{segment.position}",
                following,
            )
        if reached < following and not self._was_compacted(segment):
            raise MissingData(
                f"{self.topic_partition}: segment {segment.place.base} ends at offset {reached}, "
                f"the next begins at {following}, and there is no trace of compaction",
                following,
            )
        return max(reached, following)

    def _was_compacted(self, segment: "OpenSegment") -> bool:
        return (
            self.topic_partition in self._cleaned_offsets()
            or self._has_replaced_segments()
            or segment.has_gaps()
        )

    def _cleaned_offsets(self) -> dict[TopicPartition, int]:
        return read_checkpoint(os.path.dirname(self.directory), CLEANER_CHECKPOINT)

    def _has_replaced_segments(self) -> bool:
        """Whether segments wait for their removal that retention, which begins at the front, cannot
        have removed."""
        first = self.base_offsets()[0]
        endings = (LOG_SUFFIX + SWAP_SUFFIX, LOG_SUFFIX + DELETED_SUFFIX)
        return any(
            name.endswith(endings) and leading_offset(name) >= first
            for name in os.listdir(self.directory)
        )


class OpenSegment:
    """An open segment, and its place when it was opened.

    After a `read` to its end, `position` is the end in the file, and `is_torn` says that more bytes
    follow, which are no batch.
    """

    def __init__(self, files: PartitionFiles, descriptor: int, place: Place) -> None:
        self._files = files
        self._descriptor = descriptor
        self.place = place
        self.position = 0
        self.is_torn = False

    def read(self, start: int, end: int) -> Iterator[Chunk]:
        """Chunks from the batch of `start` on to that of `end`, or of all that is left."""
        self.position = self._position_of(start)
        while True:
            data, headers = _read_batches(self._descriptor, self.position)
            if not headers:
                self.is_torn = bool(data)
                return
            wanted = [header for header in headers if header.next_offset > start]
            if wanted:
                last = next((h for h in wanted if h.next_offset >= end), wanted[-1])
                used = memoryview(data)[wanted[0].position : last.end_position]
                yield Chunk(used, last.next_offset)
                if last.next_offset >= end:
                    return
            self.position += headers[-1].end_position

    def offset_for_time(self, timestamp_ms: int, start: int, end: int) -> int | None:
        """The first offset of [start, end) in this segment at or after a time."""
        entries = self._entries(TIME_INDEX_SUFFIX, _TIME_ENTRY)
        earlier = bisect_left(entries, timestamp_ms, key=lambda entry: entry[0])
        # A closed segment's time index ends with its largest timestamp.
        if self.place.end is not None and entries and earlier == len(entries):
            return None
        if earlier:
            start = max(start, self.place.base + entries[earlier - 1][1] + 1)
        for chunk in self.read(start, end):
            for record in _later_records(chunk.records, timestamp_ms):
                if record[0] >= end:
                    return None
                if record[0] >= start and record[1] >= timestamp_ms:
                    return record[0]
        return None

    def has_gaps(self) -> bool:
        """Whether offsets are missing between its records, which only compaction does."""
        position, expected = 0, self.place.base
        while headers := _read_batches(self._descriptor, position)[1]:
            for header in headers:
                if header.base_offset != expected or _is_thinned(header):
                    return True
                expected = header.next_offset
            position += headers[-1].end_position
        return False

    def _position_of(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`."""
        entries = self._entries(INDEX_SUFFIX, _OFFSET_ENTRY)
        index = bisect_right(entries, offset - self.place.base, key=lambda entry: entry[0]) - 1
        if index < 0 or not self._is_batch_before(entries[index][1], offset):
            return 0
        return entries[index][1]

    def _is_batch_before(self, position: int, offset: int) -> bool:
        """Whether a valid batch begins there that is not behind an offset."""
        data, headers = _read_batches(self._descriptor, position)
        if not headers or headers[0].base_offset > offset:
            return False
        try:
            read_batch(data, headers[0], check_crc=True)
        except BrokerError:
            return False
        return True

    def _entries(self, suffix: str, entry: struct.Struct) -> list[tuple[int, int]]:
        path = segment_file(self._files.directory, self.place.base, suffix) + self.place.suffix
        return _index_entries(path, entry)


def read_checkpoint(log_dir: str, name: str) -> dict[TopicPartition, int]:
    """The offsets that a checkpoint of a log directory has; none if it is missing."""
    try:
        with open(os.path.join(log_dir, name), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return {}
    # Apache Kafka makes these files empty and fills them some time later.
    return parse_offsets(data) if data else {}


def _is_file(path: str, descriptor: int) -> bool:
    """Whether the name still is that of the open file."""
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _is_thinned(header: BatchHeader) -> bool:
    """Whether records were removed from a batch; for old message sets that is unknown."""
    return header.record_count <= header.last_offset_delta


def _later_records(batches: memoryview, timestamp_ms: int) -> Iterator[tuple[int, int]]:
    """Offset and time of all records in batches that have one at or after a time."""
    for header in split_batches(batches):
        if header.magic == 2 and header.max_timestamp < timestamp_ms:
            continue
        for record in iter_records(batches[header.position : header.end_position]):
            yield record.offset, record.timestamp


def _read_batches(descriptor: int, position: int) -> tuple[bytes, list[BatchHeader]]:
    """Whole batches from `position` on; none at the end."""
    data = pread(descriptor, READ_BYTES, position)
    if len(data) < LOG_OVERHEAD_BYTES:
        return data, []
    size_bytes = LOG_OVERHEAD_BYTES + _LENGTH.unpack_from(data, 8)[0]
    if len(data) < size_bytes <= os.fstat(descriptor).st_size - position:
        data = pread(descriptor, size_bytes, position)
    return data, _whole_batches(data)


def _whole_batches(data: bytes) -> list[BatchHeader]:
    """The batches before a tail that is none: cut off, or zeros."""
    headers: list[BatchHeader] = []
    position = 0
    while not is_partial(data, position):
        try:
            header = parse_header(data, position)
        except CorruptRecords:
            break
        headers.append(header)
        position = header.end_position
    return headers


def _index_entries(path: str, entry: struct.Struct) -> list[tuple[int, int]]:
    """The entries of an index in use: rising, with a tail of zeros where it is preallocated."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    whole = len(data) - len(data) % entry.size
    entries: list[tuple[int, int]] = []
    for first, second in entry.iter_unpack(data[:whole]):
        if second == 0 and entries:
            break
        entries.append((first, second))
    return entries
