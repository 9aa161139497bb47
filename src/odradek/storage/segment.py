"""A segment: a stretch of the log in one file, with its offset, time and transaction index.

The file holds whole batches, one behind the other; the name is the base offset. Only the last
segment of a log is written to. The indexes are opened when first needed, so that a broker
with ten thousand logs touches only what is read.

Appending writes the file first and the indexes after it: an index never names what is not
there. If either fails, both are taken back, so that an append is in the segment or is not.
"""

import struct
from collections.abc import Sequence
from typing import Final

from odradek.model import NO_TIMESTAMP
from odradek.records.batch import BatchHeader
from odradek.records.errors import CorruptRecords
from odradek.storage import names
from odradek.storage.files import Buffer, File, FileSystem
from odradek.storage.offset_index import OffsetIndex
from odradek.storage.time_index import TimeIndex
from odradek.storage.transaction_index import TransactionIndex

# What an offset index entry can say: the distance from the base offset has 31 bits.
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
# Positions have 31 bits too.
MAX_SEGMENT_BYTES: Final = 2**31 - 1

_HEADER_BYTES: Final = 61
_LOG_OVERHEAD_BYTES: Final = 12
_MAGIC_POSITION: Final = 16
_SCAN_BYTES: Final = 8192
_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_TIMESTAMP: Final = struct.Struct(">q")
_MIN_BATCH_BYTES: Final = 26


class BatchPlace:
    """Where a batch lies in its segment; `last_offset` is the offset of its last record."""

    def __init__(
        self,
        position: int,
        size_bytes: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
    ) -> None:
        self.position = position
        self.size_bytes = size_bytes
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp


class BatchScanner:
    """Walks the batches of a file from a position on, reading headers only."""

    def __init__(self, file: File, position: int) -> None:
        self._file = file
        self._position = position
        self._window = b""
        self._window_position = position

    def next(self) -> BatchPlace | None:
        """The next batch, None at the end of the file or where it is cut off.

        Raises:
            CorruptRecords: what lies there is no batch.
        """
        position = self._position
        at = position - self._window_position
        if at + _HEADER_BYTES > len(self._window):
            at = 0
            self._window_position = position
            self._window = self._file.read(position, _SCAN_BYTES)
        if at + _MIN_BATCH_BYTES > len(self._window):
            return None
        place = self._parse(at, position)
        self._position = position + place.size_bytes
        return place if self._position <= self._file.size else None

    def _parse(self, at: int, position: int) -> BatchPlace:
        window = self._window
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(window, at)
        magic = window[at + _MAGIC_POSITION]
        size_bytes = length + _LOG_OVERHEAD_BYTES
        if magic > 2 or size_bytes < (_HEADER_BYTES if magic == 2 else _MIN_BATCH_BYTES):
            raise CorruptRecords(f"{self._file.path}: there is no batch at position {position}")
        last_offset = base_offset
        max_timestamp = NO_TIMESTAMP
        if magic == 2 and at + _HEADER_BYTES <= len(window):
            last_offset += _LAST_OFFSET_DELTA.unpack_from(window, at + 23)[0]
            max_timestamp = _TIMESTAMP.unpack_from(window, at + 35)[0]
        elif magic == 1:
            max_timestamp = _TIMESTAMP.unpack_from(window, at + 18)[0]
        return BatchPlace(position, size_bytes, base_offset, last_offset, max_timestamp)


class LogSegment:
    """One segment. `size_bytes` is the length of its file.

    `max_timestamp` is the largest of its records. `created_ms` is when it was made, by the
    broker's clock, -1 for one that was there before: the time of its file counts then.
    """

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        base_offset: int,
        index_interval_bytes: int,
        max_index_bytes: int,
        created_ms: int,
        create: bool = False,
        suffix: str = "",
    ) -> None:
        self.base_offset = base_offset
        self._created_ms = created_ms
        self.index_interval_bytes = index_interval_bytes
        self.max_index_bytes = max_index_bytes
        self._file_system = file_system
        self._directory = directory
        self._suffix = suffix
        self.file = file_system.open(self._path(names.LOG_SUFFIX), create=create)
        self._bytes_since_last_entry = 0
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.transactions = TransactionIndex(file_system, self._path(names.TXN_INDEX_SUFFIX))
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset
        self._timestamps_loaded = create
        self._first_timestamp = NO_TIMESTAMP
        if create:
            self.offset_index.create()
            self.time_index.create()

    @property
    def size_bytes(self) -> int:
        """The length of the segment's file."""
        return self.file.size

    @property
    def directory(self) -> str:
        """The directory that the segment lies in."""
        return self._directory

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, opened on first use."""
        if self._offset_index is None:
            path = self._path(names.INDEX_SUFFIX)
            index = OffsetIndex(self._file_system, path, self.base_offset, self.max_index_bytes)
            self._offset_index = index
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, opened on first use."""
        if self._time_index is None:
            path = self._path(names.TIME_INDEX_SUFFIX)
            # Kafka gives both indexes the same number of bytes.
            index = TimeIndex(self._file_system, path, self.base_offset, self.max_index_bytes)
            self._time_index = index
        return self._time_index

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment, -1 when there is none."""
        self._load_timestamps()
        return self._max_timestamp

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, -1 when it has none."""
        self._load_timestamps()
        return self._first_timestamp

    @property
    def created_ms(self) -> int:
        """When the segment was made; of one that was there before, when it was written last."""
        if self._created_ms < 0:
            self._created_ms = self.modified_ms
        return self._created_ms

    @property
    def modified_ms(self) -> int:
        """When the segment's file was written last."""
        return self._file_system.modified_ms(self.file.path)

    @property
    def newest_ms(self) -> int:
        """How new the newest record is: its timestamp, else the age of the segment."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch that holds the largest timestamp."""
        self._load_timestamps()
        return self._offset_of_max_timestamp

    def should_roll(
        self,
        waiting_bytes: int,
        size_bytes: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
        segment_bytes: int,
        segment_ms: int,
    ) -> bool:
        """Whether an append like this belongs into a new segment.

        `waiting_bytes` are those that will be written here before it. Time is counted from the
        first record's timestamp, or from the making of the segment when records have none.
        """
        held = self.file.size + waiting_bytes
        if held == 0:
            return False
        if held + size_bytes > min(segment_bytes, MAX_SEGMENT_BYTES):
            return True
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if self.offset_index.is_full or self.time_index.is_nearly_full:
            return True
        return self._waited_ms(max_timestamp, now_ms) > segment_ms

    def append(
        self, buffers: Sequence[Buffer], headers: Sequence[BatchHeader], size_bytes: int
    ) -> None:
        """Writes `buffers`, which hold the batches of `headers`, and indexes them.

        Raises:
            OSError: nothing was appended.
        """
        start = self.file.size
        self._load_timestamps()
        self.file.append(buffers, size_bytes)
        try:
            position = start
            for header in headers:
                self.index_batch(
                    position, header.size_bytes, header.last_offset, header.max_timestamp
                )
                position += header.size_bytes
        except OSError:
            self._take_back(start, headers[0].base_offset)
            raise
        assert position == self.file.size, (
            f"{self.file.path}: batches end at {position}, the file at {self.file.size}"
        )

    def index_batch(
        self, position: int, size_bytes: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Notes a batch that lies at `position`; adds index entries when they are due."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if position == 0:
            self._first_timestamp = max_timestamp
        if self._bytes_since_last_entry > self.index_interval_bytes:
            self._add_entries(last_offset, position)
            self._bytes_since_last_entry = 0
        self._bytes_since_last_entry += size_bytes

    def locate(self, offset: int) -> BatchPlace | None:
        """The first batch whose last offset is `offset` or above; None at the end.

        Raises:
            CorruptRecords: the records are damaged.
        """
        try:
            return self._locate(offset)
        except CorruptRecords:
            # Either the index misleads, which can be mended, or the records are damaged.
            self.rebuild_indexes()
            return self._locate(offset)

    def locate_timestamp(self, timestamp: int, from_offset: int) -> BatchPlace | None:
        """The first batch from `from_offset` on with a record not older than `timestamp`.

        Raises:
            CorruptRecords: the records are damaged.
        """
        try:
            return self._locate_timestamp(timestamp, from_offset)
        except CorruptRecords:
            self.rebuild_indexes()
            return self._locate_timestamp(timestamp, from_offset)

    def scan(self, position: int = 0) -> BatchScanner:
        """Walks the batches from `position` on, where one begins."""
        return BatchScanner(self.file, position)

    def read(self, position: int, size_bytes: int) -> bytes:
        """The bytes from `position`, up to the end of the segment."""
        return self.file.read(position, min(size_bytes, self.file.size - position))

    def next_offset(self) -> int:
        """The offset after the last record; the base offset when the segment is empty."""
        if self.file.size == 0:
            return self.base_offset
        index = self.offset_index
        scanner = self.scan(index.entry(index.entry_count - 1)[1] if index.entry_count else 0)
        last_offset = self.base_offset - 1
        place = scanner.next()
        while place is not None:
            last_offset = place.last_offset
            place = scanner.next()
        return last_offset + 1

    def cut(self, position: int, next_offset: int) -> int:
        """Cuts the file at `position`, where the batch of `next_offset` would begin."""
        dropped = self.file.size - position
        self._take_back(position, next_offset)
        return dropped

    def begin_rebuild(self) -> None:
        """Empties the indexes; `index_batch` for every batch fills them again."""
        self.offset_index.clear()
        self.time_index.clear()
        self._bytes_since_last_entry = 0
        self._forget_timestamps()
        self._timestamps_loaded = True

    def rebuild_indexes(self) -> None:
        """Makes the offset and time index anew from the headers of the batches.

        The transaction index stays: its entries cannot be told from one segment's records.

        Raises:
            CorruptRecords: the records are damaged; what lies before is indexed.
        """
        self.begin_rebuild()
        scanner = self.scan()
        place = scanner.next()
        while place is not None:
            self.index_batch(
                place.position, place.size_bytes, place.last_offset, place.max_timestamp
            )
            place = scanner.next()

    def indexes_are_sane(self) -> bool:
        """Whether both indexes can belong to this segment, as far as their ends tell."""
        if self.file.size == 0:
            return self.offset_index.entry_count == 0 and self.time_index.entry_count == 0
        return self.offset_index.is_sane(self.file.size) and self.time_index.is_sane()

    def seal(self) -> None:
        """Writes the closing time entry and cuts the indexes to size: no append follows."""
        self._load_timestamps()
        if self._max_timestamp > NO_TIMESTAMP:
            self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        self._trim()

    def close(self) -> None:
        """Leaves the files as a reader expects them and lets go of them."""
        if self._timestamps_loaded and self.file.size > 0:
            self.seal()
        else:
            self._trim()
        self.release()

    def release(self) -> None:
        """Lets go of all files, as they are."""
        self.file.close()
        self.transactions.close()
        if self._offset_index is not None:
            self._offset_index.release()
        if self._time_index is not None:
            self._time_index.release()

    def paths(self) -> list[str]:
        """The files that the segment may consist of."""
        return [self._path(suffix) for suffix in names.SEGMENT_SUFFIXES]

    def rename_files(self, suffix: str) -> None:
        """Puts `suffix` behind the names of all files, in the place of an earlier one."""
        before = self.paths()
        self._suffix = suffix
        # The log goes last: an index without a log is litter, a log without indexes is a segment.
        for path, target in reversed(list(zip(before, self.paths(), strict=True))):
            if self._file_system.size(path) >= 0:
                self._file_system.rename(path, target)
        self._note_paths()

    def moved(self, directory: str) -> None:
        """Notes that the segment's directory has been renamed."""
        self._directory = directory
        self._note_paths()

    def _path(self, suffix: str) -> str:
        return names.segment_file(self._directory, self.base_offset, suffix) + self._suffix

    def _note_paths(self) -> None:
        self.file.renamed(self._path(names.LOG_SUFFIX))
        self.transactions.renamed(self._path(names.TXN_INDEX_SUFFIX))
        if self._offset_index is not None:
            self._offset_index.renamed(self._path(names.INDEX_SUFFIX))
        if self._time_index is not None:
            self._time_index.renamed(self._path(names.TIME_INDEX_SUFFIX))

    def _add_entries(self, last_offset: int, position: int) -> None:
        # A full index asks for a roll; until that comes a look-up just scans a little further.
        if not self.offset_index.is_full:
            self.offset_index.append(last_offset, position)
        if not self.time_index.is_nearly_full:
            self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)

    def _take_back(self, position: int, next_offset: int) -> None:
        self.file.truncate(position)
        self.offset_index.truncate_to(next_offset)
        self.time_index.truncate_to(next_offset)
        self.transactions.truncate_to(next_offset)
        self._bytes_since_last_entry = 0
        self._forget_timestamps()

    def _forget_timestamps(self) -> None:
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp = NO_TIMESTAMP
        self._timestamps_loaded = False

    def _locate(self, offset: int) -> BatchPlace | None:
        indexed_offset, position = self.offset_index.lookup(offset)
        scanner = BatchScanner(self.file, position)
        place = scanner.next()
        if position > 0 and (place is None or place.last_offset != indexed_offset):
            raise CorruptRecords(
                f"{self.offset_index.path}: offset {indexed_offset} is not at {position}"
            )
        while place is not None and place.last_offset < offset:
            place = scanner.next()
        return place

    def _locate_timestamp(self, timestamp: int, from_offset: int) -> BatchPlace | None:
        if self.max_timestamp < timestamp:
            return None
        indexed_timestamp, indexed_offset = self.time_index.lookup(timestamp)
        place = self._locate(max(indexed_offset, from_offset))
        if place is None:
            return None
        if indexed_offset >= from_offset and indexed_timestamp >= 0:
            self._check_time_entry(place, indexed_timestamp, indexed_offset)
        scanner = BatchScanner(self.file, place.position)
        found = scanner.next()
        while found is not None and found.max_timestamp < timestamp:
            found = scanner.next()
        return found

    def _check_time_entry(self, place: BatchPlace, timestamp: int, offset: int) -> None:
        if place.last_offset != offset or place.max_timestamp != timestamp:
            raise CorruptRecords(
                f"{self.time_index.path}: the batch of offset {offset} does not have the "
                f"timestamp {timestamp}"
            )

    def _load_timestamps(self) -> None:
        """What appends keep up to date, read back from the files after a reopening."""
        if self._timestamps_loaded:
            return
        try:
            self._read_timestamps()
        except CorruptRecords:
            self.rebuild_indexes()

    def _read_timestamps(self) -> None:
        first = self.scan().next()
        if first is not None:
            self._first_timestamp = first.max_timestamp
            index = self.time_index
            place = self._locate(index.last_offset)
            if index.entry_count > 0:
                if place is None:
                    raise CorruptRecords(f"{index.path}: {index.last_offset} is beyond the end")
                self._check_time_entry(place, index.last_timestamp, index.last_offset)
                self._max_timestamp = index.last_timestamp
                self._offset_of_max_timestamp = index.last_offset
            self._catch_up(0 if place is None else place.position)
        self._timestamps_loaded = True

    def _catch_up(self, position: int) -> None:
        """Takes in the timestamps from `position` on, which the time index may lack."""
        scanner = self.scan(position)
        place = scanner.next()
        while place is not None:
            if place.max_timestamp > self._max_timestamp:
                self._max_timestamp = place.max_timestamp
                self._offset_of_max_timestamp = place.last_offset
            place = scanner.next()

    def _waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        if self.file.size == 0:
            return 0
        self._load_timestamps()
        if self._first_timestamp >= 0 and max_timestamp >= 0:
            return max_timestamp - self._first_timestamp
        return now_ms - self.created_ms

    def _trim(self) -> None:
        if self._offset_index is not None:
            self._offset_index.trim()
        if self._time_index is not None:
            self._time_index.trim()
