"""Reads a broker's data directory where it lies: partitions, bounds, records. Never writes.

The directory may belong to a running broker, so everything here copes with files that grow,
are rolled, compacted or deleted meanwhile. What counts is the high watermark: records above
it may still be taken back. A broker writes it down every few seconds and when it stops; it
can be asked for the newest one instead (`kafka.bootstrap.servers` beside `path`).

Files are read, never mapped: a mapped file that its broker truncates would end the process.
A tail that is no whole batch ends a segment; when the high watermark promises more than the
files hold, that is loss of data and reported as such by whoever asked.
"""

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from odradek.model import TopicPartition
from odradek.records.batch import (
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    is_partial,
    parse_header,
    split_batches,
)
from odradek.records.errors import CorruptRecords
from odradek.records.reader import iter_records
from odradek.storage.checkpoints import parse_offsets
from odradek.storage.names import (
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_partition_directory,
    parse_segment_file,
    partition_directory,
    segment_file,
)
from pyspark_odradek.chunks import Chunk
from pyspark_odradek.errors import MissingData

READ_BYTES: Final = 4 << 20
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_LENGTH: Final = struct.Struct(">i")


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
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError as error:
            raise MissingData(f"{self.topic_partition} is deleted") from error
        parsed = filter(None, map(parse_segment_file, names))
        return sorted(base for base, suffix in parsed if suffix == LOG_SUFFIX)

    def read(self, start: int, end: int) -> Iterator[Chunk]:
        """Whole batches that together hold the records from `start` up to `end`.

        The first and the last chunk may hold records outside of that.

        Raises:
            MissingData: the files do not hold what lies between the two.
        """
        offset = start
        base = -1
        while offset < end:
            base = self._segment_for(offset, base)
            for chunk in self._read_segment(base, max(offset, base), end):
                offset = chunk.next_offset
                yield chunk
                if offset >= end:
                    return

    def offset_for_time(self, timestamp_ms: int, end: int) -> int | None:
        """The first offset below `end` whose record is at or after a time, if there is one."""
        bases = self.base_offsets()
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            entries = self._time_index(base)
            earlier = bisect_left(entries, timestamp_ms, key=_timestamp)
            # A closed segment's time index ends with its largest timestamp.
            if following is not None and entries and earlier == len(entries):
                continue
            start = base + entries[earlier - 1][1] + 1 if earlier else base
            found = self._scan_for_time(base, start, timestamp_ms, end)
            if found is not None:
                return found
        return None

    def _segment_for(self, offset: int, after: int) -> int:
        """The segment to read on in, once the one that begins at `after` is at its end."""
        bases = self.base_offsets()
        index = bisect_right(bases, offset) - 1
        if index >= 0 and bases[index] > after:
            return bases[index]
        following = bisect_right(bases, after)
        if after < 0 and bases:
            raise MissingData(
                f"{self.topic_partition}: offset {offset} is wanted, the first is {bases[0]}"
            )
        if following >= len(bases):
            raise MissingData(f"{self.topic_partition}: the files end at offset {offset}")
        return bases[following]

    def _read_segment(self, base: int, start: int, end: int) -> Iterator[Chunk]:
        """Chunks of one segment, from the batch of `start` to that of `end` or the tail."""
        try:
            descriptor = os.open(segment_file(self.directory, base, LOG_SUFFIX), os.O_RDONLY)
        except FileNotFoundError as error:
            raise MissingData(f"{self.topic_partition}: segment {base} is deleted") from error
        try:
            position = self._position_of(base, start)
            while True:
                data, headers = _read_batches(descriptor, position)
                if not headers:
                    self._check_tail(base, position, len(data))
                    return
                position += headers[-1].end_position
                wanted = [header for header in headers if _overlaps(header, start, end)]
                if wanted:
                    used = memoryview(data)[wanted[0].position : wanted[-1].end_position]
                    yield Chunk(used, wanted[-1].next_offset)
                if headers[-1].next_offset >= end:
                    return
        finally:
            os.close(descriptor)

    def _check_tail(self, base: int, position: int, left_bytes: int) -> None:
        """Only the last segment may end with what is no batch: it is being written, or torn."""
        if left_bytes and self.base_offsets()[-1] != base:
            raise MissingData(f"{self.topic_partition}: segment {base} is torn at {position}")

    def _position_of(self, base: int, offset: int) -> int:
        """A position at or before the batch that holds `offset`."""
        entries = _index_entries(segment_file(self.directory, base, INDEX_SUFFIX), _OFFSET_ENTRY)
        index = bisect_right(entries, offset - base, key=lambda entry: entry[0]) - 1
        return entries[index][1] if index >= 0 else 0

    def _time_index(self, base: int) -> list[tuple[int, int]]:
        """Timestamps with the relative offsets up to which none is larger."""
        return _index_entries(segment_file(self.directory, base, TIME_INDEX_SUFFIX), _TIME_ENTRY)

    def _scan_for_time(self, base: int, start: int, timestamp_ms: int, end: int) -> int | None:
        for chunk in self._read_segment(base, start, end):
            for header in split_batches(chunk.records):
                if header.magic == 2 and header.max_timestamp < timestamp_ms:
                    continue
                for record in iter_records(chunk.records[header.position : header.end_position]):
                    if record.offset >= end:
                        return None
                    if record.timestamp >= timestamp_ms and record.offset >= start:
                        return record.offset
        return None


class DataDirectory:
    """The partitions in one or more log directories of a broker, and their bounds."""

    def __init__(self, log_dirs: tuple[str, ...]) -> None:
        self._log_dirs = log_dirs

    def partitions(self) -> dict[TopicPartition, PartitionFiles]:
        """Every partition there is, those on their way out excepted.

        Raises:
            FileNotFoundError: a directory does not exist.
        """
        found: dict[TopicPartition, PartitionFiles] = {}
        for log_dir in self._log_dirs:
            for name in os.listdir(log_dir):
                topic_partition = parse_partition_directory(name)
                path = os.path.join(log_dir, name)
                if topic_partition is not None and os.path.isdir(path):
                    found[topic_partition] = PartitionFiles(topic_partition, path)
        return found

    def partition(self, topic_partition: TopicPartition) -> PartitionFiles:
        """One partition.

        Raises:
            MissingData: there is no such partition.
        """
        for log_dir in self._log_dirs:
            path = os.path.join(log_dir, partition_directory(topic_partition))
            if os.path.isdir(path):
                return PartitionFiles(topic_partition, path)
        raise MissingData(f"{topic_partition} is not in {', '.join(self._log_dirs)}")

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Up to where records were committed when the broker last wrote it down."""
        return self._checkpoint(HIGH_WATERMARK_CHECKPOINT)

    def log_start_offset(self, topic_partition: TopicPartition) -> int:
        """The first offset that may be read."""
        bases = self.partition(topic_partition).base_offsets()
        written = self._checkpoint(LOG_START_OFFSET_CHECKPOINT).get(topic_partition, 0)
        return max(written, bases[0]) if bases else written

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        for log_dir in self._log_dirs:
            try:
                with open(os.path.join(log_dir, name), "rb") as file:
                    data = file.read()
            except FileNotFoundError:
                continue
            # Apache Kafka makes these files empty and fills them some time later.
            if data:
                offsets.update(parse_offsets(data))
        return offsets


def _timestamp(entry: tuple[int, int]) -> int:
    return entry[0]


def _overlaps(header: BatchHeader, start: int, end: int) -> bool:
    return header.next_offset > start and header.base_offset < end


def _read_batches(descriptor: int, position: int) -> tuple[bytes, list[BatchHeader]]:
    """Whole batches from `position` on; none at the end of what can be read."""
    data = os.pread(descriptor, READ_BYTES, position)
    if len(data) < LOG_OVERHEAD_BYTES:
        return data, []
    size_bytes = LOG_OVERHEAD_BYTES + _LENGTH.unpack_from(data, 8)[0]
    if size_bytes > len(data):
        data = os.pread(descriptor, size_bytes, position)
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
