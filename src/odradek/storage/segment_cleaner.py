"""Reads segments for the cleaner, and writes the cleaned one that takes their place.

Both work in steps, each of which may run on another thread: between two
steps nothing is held but the objects here, which belong to one round. A step is one window of
`window_bytes`, or one batch that is larger: compiled code keeps the interpreter for as long as
that takes, and the event loop waits.

The cleaned segment is written beside the old ones, with `.cleaned` behind its names, synced,
and handed over; putting it in their place is the log's own doing (`LocalLog.replace_segments`).
"""

from collections.abc import Iterator, Sequence

from odradek.records.batch import BatchHeader, Buffer, is_partial, parse_header
from odradek.records.errors import CorruptRecords
from odradek.storage import names
from odradek.storage.batch_cleaner import BatchCleaner, collect_batch_keys
from odradek.storage.cleaned_transactions import CleanedTransactions
from odradek.storage.files import File, FileSystem
from odradek.storage.offset_map import OffsetMap
from odradek.storage.segment import MAX_SEGMENT_BYTES, LogSegment


class Source:
    """A segment to read: a handle of its own, and what has to be known of it.

    `drop_legacy_tombstones` says that the segment is older than `delete.retention.ms`.
    """

    def __init__(self, file: File, base_offset: int, drop_legacy_tombstones: bool = False) -> None:
        self.file = file
        self.base_offset = base_offset
        self.drop_legacy_tombstones = drop_legacy_tombstones
        self.position = 0
        self._least_offset = base_offset

    @property
    def is_done(self) -> bool:
        """Whether all was read."""
        return self.position >= self.file.size

    def batches(self, window_bytes: int) -> Iterator[tuple[Buffer, BatchHeader]]:
        """The batches of about one window; the position moves behind them as they are taken.

        Raises:
            CorruptRecords: the file does not end with a batch, or offsets do not rise.
        """
        window = self.file.read(self.position, window_bytes)
        if is_partial(window, 0):
            size_bytes = 12 + int.from_bytes(window[8:12]) if len(window) >= 12 else 0
            window = self.file.read(self.position, size_bytes)
            if not window or is_partial(window, 0):
                raise CorruptRecords(f"{self.file.path}: no batch at position {self.position}")
        at = 0
        while at < len(window) and not is_partial(window, at):
            header = parse_header(window, at)
            at = header.end_position
            # No checksum covers the offset.
            if header.last_offset < self._least_offset:
                raise CorruptRecords(
                    f"{self.file.path}: offset {header.last_offset} at position {self.position}, "
                    f"where {self._least_offset} is due"
                )
            self._least_offset = header.last_offset + 1
            yield window, header
            self.position += header.size_bytes


class KeyCollector:
    """Fills an `OffsetMap` from the dirty segments."""

    def __init__(
        self, offsets: OffsetMap, transactions: CleanedTransactions, end_offset: int, window: int
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._end_offset = end_offset
        self._window_bytes = window
        self._from_offset = offsets.latest_offset + 1
        # Whether the map is full, or the end of what may be cleaned was reached.
        self.is_done = False

    def step(self, source: Source) -> int:
        """Reads a window of a segment; returns how many bytes.

        Raises:
            BrokerError: the segment is damaged.
            OSError: the disk failed.
        """
        start = source.position
        for buffer, header in source.batches(self._window_bytes):
            if header.last_offset >= self._end_offset or not self._collect(buffer, header):
                self.is_done = True
                break
        return source.position - start

    def _collect(self, buffer: Buffer, header: BatchHeader) -> bool:
        if header.last_offset < self._from_offset:
            return True
        return collect_batch_keys(
            buffer, header, self._from_offset, self._offsets, self._transactions
        )


class SegmentCleaner:
    """Writes one cleaned segment for a group of old ones.

    `has_changed` says whether it differs from what it was made of.
    """

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        base_offset: int,
        index_interval_bytes: int,
        max_index_bytes: int,
        cleaner: BatchCleaner,
        transactions: CleanedTransactions,
        window_bytes: int,
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._max_index_bytes = max_index_bytes
        self._cleaner = cleaner
        self._transactions = transactions
        self._window_bytes = window_bytes
        self._segment: LogSegment | None = None
        self.has_changed = False

    def step(self, source: Source) -> int:
        """Cleans a window of a segment of the group; returns how many bytes were read and written.

        Raises:
            BrokerError: the segment is damaged.
            OSError: the disk failed.
        """
        segment = self._opened()
        read_from = source.position
        written_from = segment.size_bytes
        self._clean_window(segment, source)
        return source.position - read_from + segment.size_bytes - written_from

    def seal(self) -> int:
        """Closes the cleaned segment, nothing more will be written; returns 0.

        Raises:
            OSError: the disk failed, or is full.
        """
        self._opened().seal()
        return 0

    def finish(self, modified_ms: int) -> int:
        """Has all of it on the disk, as old as the newest of the group says; returns 0.

        Raises:
            OSError: the disk failed.
        """
        segment = self._opened()
        segment.file.sync()
        paths = [path for path in segment.paths()[1:] if self._file_system.size(path) > 0]
        for path in paths:
            self._file_system.sync(path)
        self._file_system.set_modified_ms(segment.paths()[0], modified_ms)
        segment.release()
        return 0

    def discard(self) -> int:
        """Removes what was written; returns 0.

        Raises:
            OSError: the disk failed; the next start removes it.
        """
        if self._segment is not None:
            self._segment.release()
            for path in self._segment.paths():
                self._file_system.remove(path)
        return 0

    def _opened(self) -> LogSegment:
        if self._segment is None:
            for suffix in names.SEGMENT_SUFFIXES:
                path = names.segment_file(self._directory, self._base_offset, suffix)
                self._file_system.remove(path + names.CLEANED_SUFFIX)
            self._segment = LogSegment(
                self._file_system,
                self._directory,
                self._base_offset,
                self._index_interval_bytes,
                self._max_index_bytes,
                0,
                create=True,
                suffix=names.CLEANED_SUFFIX,
            )
        return self._segment

    def _clean_window(self, segment: LogSegment, source: Source) -> None:
        buffers: list[Buffer] = []
        size_bytes = 0
        for buffer, header in source.batches(self._window_bytes):
            cleaned = self._cleaner.clean(
                buffer, header, drop_legacy_tombstones=source.drop_legacy_tombstones
            )
            self.has_changed = self.has_changed or not isinstance(cleaned, memoryview)
            if cleaned is not None:
                buffers.append(cleaned)
                size_bytes += len(cleaned)
        if segment.size_bytes + size_bytes > MAX_SEGMENT_BYTES:
            raise CorruptRecords(f"{source.file.path}: cleaned, it would not fit into a segment")
        if buffers:
            segment.append(buffers, _headers(buffers), size_bytes)
        for entry in self._transactions.take_retained():
            segment.transactions.append(entry)


def _headers(buffers: Sequence[Buffer]) -> list[BatchHeader]:
    headers = []
    for buffer in buffers:
        position = 0
        while position < len(buffer):
            header = parse_header(buffer, position)
            headers.append(header)
            position = header.end_position
    return headers
