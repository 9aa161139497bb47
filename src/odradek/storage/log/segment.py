"""A segment: a stretch of the log in one file, with its offset, time and transaction index.

The file holds whole batches, one behind the other; its name is the base offset. Only the last
segment of a log is written to. The indexes are opened when first needed, so that a broker with ten
thousand logs opens only those that are read.

Appending writes the file first and the indexes after it: an index never names a missing batch. If
either fails, both are undone, so that an append is in the segment as a whole or not at all.

An index is a hint. Every entry that a look-up uses is compared with its batch; if they differ, both
indexes are rebuilt from the records, unless these are damaged.
"""

from collections.abc import Sequence
from typing import Final

from odradek.model import NO_TIMESTAMP
from odradek.records.batch import BatchHeader
from odradek.records.errors import CorruptRecords
from odradek.storage import names
from odradek.storage.errors import MisleadingIndex, half_done
from odradek.storage.files import Buffer, FileSystem
from odradek.storage.index.offset_index import OffsetIndex
from odradek.storage.index.time_index import TimeIndex
from odradek.storage.index.transaction_index import AbortedEntry, TransactionIndex
from odradek.storage.log.batch_scanner import BatchPlace, BatchScanner

# The bound of an offset index entry: the distance from the base offset has 31 bits.
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
# Positions have 31 bits too.
MAX_SEGMENT_BYTES: Final = 2**31 - 1


class LogSegment:
    """One segment. `size_bytes` is the length of its file.

    `max_timestamp` is the largest of its records. `created_ms` is the time of its creation, by the
    broker's clock; -1 for a segment from before the start, for which the time of its file is taken.
    `appended_ms` is the time of the last append, set by the appending code; -1 for a segment
    without one since the start, for which the time of its file is taken.
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
        initial_file_bytes: int = 0,
    ) -> None:
        self.base_offset = base_offset
        self._created_ms = created_ms
        self.appended_ms = created_ms
        self.index_interval_bytes = index_interval_bytes
        self.max_index_bytes = max_index_bytes
        self._file_system = file_system
        self._directory = directory
        self._suffix = suffix
        self.file = file_system.open(self._path(names.LOG_SUFFIX), create=create)
        self._bytes_since_last_entry = 0
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.transactions = TransactionIndex(
            file_system, self._path(names.TXN_INDEX_SUFFIX), self._path(names.TXN_CHECK_SUFFIX)
        )
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset
        self._timestamps_loaded = create
        self._first_timestamp = NO_TIMESTAMP
        if create:
            if initial_file_bytes > 0:
                self.file.reserve(initial_file_bytes)
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
        """The time of the segment's creation; if it is older than the start, the time of its
        file."""
        if self._created_ms < 0:
            self._created_ms = self.modified_ms
        return self._created_ms

    @property
    def modified_ms(self) -> int:
        """When the segment's file was written last."""
        return self._file_system.modified_ms(self.file.path)

    @property
    def newest_ms(self) -> int:
        """The time of the newest record: its timestamp, or without one the time of the last
        append."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self.appended_ms if self.appended_ms >= 0 else self.modified_ms

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

        `waiting_bytes` will be written here before it. Time is counted from the first record's
        timestamp, or from the segment's creation when records have none.
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
        self,
        buffers: Sequence[Buffer],
        headers: list[BatchHeader],
        size_bytes: int,
        aborted: Sequence[AbortedEntry] = (),
    ) -> None:
        """Writes `buffers`, which hold the batches of `headers`, and indexes them.

        `aborted` are the transactions whose markers are among them.

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
            for entry in aborted:
                self.transactions.append(entry)
        except OSError as error:
            self._undo_append(start, headers[0].base_offset, error)
            raise
        assert position == self.file.size, (
            f"{self.file.path}: batches end at {position}, the file at {self.file.size}"
        )

    def index_batch(
        self, position: int, size_bytes: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Takes in a batch at `position`; adds index entries when they are due."""
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
        except MisleadingIndex:
            self._mend_indexes()
            return self._locate(offset)

    def locate_timestamp(self, timestamp: int, from_offset: int) -> BatchPlace | None:
        """The first batch from `from_offset` on with a record not older than `timestamp`.

        Raises:
            CorruptRecords: the records are damaged.
        """
        try:
            return self._locate_timestamp(timestamp, from_offset)
        except MisleadingIndex:
            self._mend_indexes()
            return self._locate_timestamp(timestamp, from_offset)

    def scan(self, position: int = 0) -> BatchScanner:
        """Walks the batches from `position` on, where one begins."""
        return BatchScanner(self.file, position, self.base_offset)

    def read(self, position: int, size_bytes: int) -> bytes:
        """The bytes from `position`, up to the end of the segment."""
        return self.file.read(position, min(size_bytes, self.file.size - position))

    def next_offset(self) -> int:
        """The offset after the last record; the base offset when the segment is empty.

        Raises:
            CorruptRecords: the segment does not end with a whole batch.
        """
        last = self.locate(self.offset_index.last_offset)
        scanner = self.scan(0 if last is None else last.position)
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
        """Rebuilds the offset and time index from the headers of the batches.

        The transaction index stays: its entries cannot be told from one segment's records.

        Raises:
            OSError: the disk refused; what is indexed so far is right.
            CorruptRecords: the records are damaged; those before the damage are indexed.
        """
        self.begin_rebuild()
        try:
            self._index_all()
        except OSError:
            # The largest of those so far would pass for the segment's.
            self._forget_timestamps()
            raise

    def _index_all(self) -> None:
        scanner = self.scan()
        place = scanner.next()
        while place is not None:
            self.index_batch(
                place.position, place.size_bytes, place.last_offset, place.max_timestamp
            )
            place = scanner.next()

    def indexes_are_sane(self) -> bool:
        """Whether both indexes may belong to this segment, by their last entries."""
        if self.file.size == 0:
            return self.offset_index.entry_count == 0 and self.time_index.entry_count == 0
        return self.offset_index.is_sane(self.file.size) and self.time_index.is_sane()

    def seal(self) -> None:
        """Writes the closing time entry and cuts all files to size: no append follows."""
        self._load_timestamps()
        self._close_indexes()
        self.transactions.seal(sync=False)

    def close(self) -> None:
        """Leaves the files as a reader expects them and lets go of them."""
        if self._timestamps_loaded and self.file.size > 0:
            self._close_indexes()
        else:
            self._trim()
        # The only file besides the log that the next start needs.
        self.transactions.seal(sync=True)
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
        self.renamed(suffix)
        # The log last: an index without a log is removed, but a log without indexes is a segment.
        # The offset index first: every log has one, so where it is missing others may be too.
        pairs = list(zip(before, self.paths(), strict=True))
        for path, target in [*pairs[1:], pairs[0]]:
            if self._file_system.size(path) >= 0:
                self._file_system.rename(path, target)

    def renamed(self, suffix: str) -> None:
        """Notes that all files have `suffix` behind their names."""
        self._suffix = suffix
        self._note_paths()

    def moved(self, directory: str) -> None:
        """Notes that the segment's directory has been renamed."""
        self._directory = directory
        self._note_paths()

    def _path(self, suffix: str) -> str:
        return names.segment_file(self._directory, self.base_offset, suffix) + self._suffix

    def _note_paths(self) -> None:
        self.file.renamed(self._path(names.LOG_SUFFIX))
        self.transactions.renamed(
            self._path(names.TXN_INDEX_SUFFIX), self._path(names.TXN_CHECK_SUFFIX)
        )
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

    def _undo_append(self, start: int, next_offset: int, cause: OSError) -> None:
        try:
            self._take_back(start, next_offset)
        except OSError:
            raise half_done(self.file.path, cause) from cause

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
        """Like `locate`, but raises MisleadingIndex if the index has to be rebuilt first."""
        place: BatchPlace | None
        index = self.offset_index.index_of(offset)
        if index < 0:
            scanner = self.scan()
            place = scanner.next()
        else:
            scanner, place = self._follow_entry(index)
        while place is not None and place.last_offset < offset:
            place = scanner.next()
        if place is not None and place.base_offset > offset:
            # A gap of compaction, or a damaged offset, which the next batch gives away.
            scanner.next()
        return place

    def _follow_entry(self, index: int) -> tuple[BatchScanner, BatchPlace]:
        """The batch that an entry of the offset index names, with the scanner to read on behind
        it."""
        offset, position = self.offset_index.entry(index)
        # No entry is written for the first batch.
        if not 0 < position < self.file.size:
            raise MisleadingIndex(self.offset_index.path, f"there is no batch at {position}")
        scanner = self.scan(position)
        try:
            place = scanner.next()
        except CorruptRecords as error:
            raise MisleadingIndex(self.offset_index.path, error.message) from error
        if place is None or place.last_offset != offset:
            raise MisleadingIndex(self.offset_index.path, f"offset {offset} is not at {position}")
        return scanner, place

    def _locate_timestamp(self, timestamp: int, from_offset: int) -> BatchPlace | None:
        if self.max_timestamp < timestamp:
            return None
        place = self._last_not_newer(timestamp, from_offset)
        if place is None:
            return None
        scanner = self.scan(place.position)
        found = scanner.next()
        while found is not None and found.max_timestamp < timestamp:
            found = scanner.next()
        return found

    def _last_not_newer(self, timestamp: int, from_offset: int) -> BatchPlace | None:
        """The place to look for `timestamp` from: no record between `from_offset` and it is as
        new."""
        index = self.time_index.index_of(timestamp)
        if index >= 0:
            indexed_timestamp, indexed_offset = self.time_index.entry(index)
            if indexed_offset > from_offset:
                return self._indexed_place(indexed_timestamp, indexed_offset)
        return self._locate(from_offset)

    def _indexed_place(self, timestamp: int, offset: int) -> BatchPlace:
        """The batch of an entry of the time index, if it has the entry's timestamp."""
        place = self._locate(offset)
        if place is None or place.last_offset != offset or place.max_timestamp != timestamp:
            raise MisleadingIndex(
                self.time_index.path,
                f"the batch of offset {offset} does not have the timestamp {timestamp}",
            )
        return place

    def _mend_indexes(self) -> None:
        """Rebuilds the indexes from the records, which are checked to be complete before.

        Raises:
            CorruptRecords: the records are damaged; the indexes are as they were.
        """
        scanner = self.scan()
        while scanner.next() is not None:
            pass
        self.rebuild_indexes()
        self._trim()

    def _load_timestamps(self) -> None:
        """Loads the timestamps that appends keep up to date, from the files after a reopening."""
        if self._timestamps_loaded:
            return
        try:
            self._read_timestamps()
        except MisleadingIndex:
            self._mend_indexes()

    def _read_timestamps(self) -> None:
        first = self.scan().next()
        if first is not None:
            index = self.time_index
            position = 0
            if index.entry_count > 0:
                position = self._indexed_place(index.last_timestamp, index.last_offset).position
                self._max_timestamp = index.last_timestamp
                self._offset_of_max_timestamp = index.last_offset
            self._catch_up(position)
            self._first_timestamp = first.max_timestamp
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

    def _close_indexes(self) -> None:
        if self._max_timestamp > NO_TIMESTAMP:
            self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        self._trim()

    def _trim(self) -> None:
        if self.file.is_reserved:
            self.file.truncate(self.file.size)
        if self._offset_index is not None:
            self._offset_index.trim()
        if self._time_index is not None:
            self._time_index.trim()
