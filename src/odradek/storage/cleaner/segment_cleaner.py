"""Reads segments for the cleaner, and writes the cleaned one that takes their place.

Both work in steps. Some touch the disk and are for another thread: `Source.fill` reads a window
of a segment, `SegmentCleaner.write` writes what is kept of it. The steps between them only compute,
a few batches at a time, within a tenth of a millisecond: compiled code keeps the interpreter
meanwhile, and the event loop waits. Between two steps a round holds only the objects here.

The cleaned segment is written beside the old ones, with `.cleaned` behind its names, synced,
and handed over; the log itself replaces the old ones (`LocalLog.replace_segments`).
"""

from collections.abc import Iterator
from typing import Final

from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_BYTES,
    MAGIC_POSITION,
    BatchHeader,
    Buffer,
    is_partial,
    parse_header,
)
from odradek.records.errors import CorruptRecords
from odradek.storage import names
from odradek.storage.cleaner.batch_cleaner import BatchCleaner, collect_batch_keys
from odradek.storage.cleaner.cleaned_transactions import CleanedTransactions
from odradek.storage.cleaner.offset_map import OffsetMap
from odradek.storage.files import File, FileSystem
from odradek.storage.log.segment import MAX_SEGMENT_BYTES, LogSegment

# The bounds of a computing step: so many bytes or batches, whichever comes first, and one at least.
# Compressed batches become larger.
_SLICE_BYTES: Final = 8 * 1024
_PACKED_SLICE_BYTES: Final = 2 * 1024
_SLICE_BATCHES: Final = 16


class Source:
    """A segment to read: a separate handle, and the facts about it.

    `drop_legacy_tombstones` says that the segment is older than `delete.retention.ms`.
    """

    def __init__(self, file: File, base_offset: int, drop_legacy_tombstones: bool = False) -> None:
        self.file = file
        self.base_offset = base_offset
        self.drop_legacy_tombstones = drop_legacy_tombstones
        self.position = 0
        self._least_offset = base_offset
        self._window = b""
        # The position of the next batch in the window.
        self._next = 0

    @property
    def is_done(self) -> bool:
        """Whether all was read."""
        return self.position >= self.file.size

    @property
    def has_batch(self) -> bool:
        """Whether a whole batch is left in the window."""
        return not is_partial(self._window, self._next)

    @property
    def is_plain(self) -> bool:
        """Whether the next batch is plain: neither compressed nor of an old format."""
        header = self._window[self._next : self._next + HEADER_BYTES]
        magic = header[MAGIC_POSITION : MAGIC_POSITION + 1]
        attributes = int.from_bytes(header[ATTRIBUTES_POSITION : ATTRIBUTES_POSITION + 2])
        return magic == b"\x02" and attributes & CODEC_MASK == 0

    def fill(self, window_bytes: int) -> int:
        """Reads a window, or one batch that is larger; returns how many bytes.

        Raises:
            CorruptRecords: the file does not end with a batch.
            OSError: the disk failed.
        """
        window = self.file.read(self.position, window_bytes)
        if is_partial(window, 0):
            size_bytes = 12 + int.from_bytes(window[8:12]) if len(window) >= 12 else 0
            window = self.file.read(self.position, size_bytes)
            if not window or is_partial(window, 0):
                raise CorruptRecords(f"{self.file.path}: no batch at position {self.position}")
        self._window = window
        self._next = 0
        return len(window)

    def batches(self) -> Iterator[tuple[Buffer, BatchHeader]]:
        """The next few batches, plain ones or others; the position moves as they are taken.

        Raises:
            CorruptRecords: offsets do not rise.
        """
        is_plain = self.is_plain
        end = self._next + (_SLICE_BYTES if is_plain else _PACKED_SLICE_BYTES)
        for _ in range(_SLICE_BATCHES):
            if self._next >= end or not self.has_batch or self.is_plain != is_plain:
                return
            header = parse_header(self._window, self._next)
            # No checksum covers the offset.
            if header.last_offset < self._least_offset:
                raise CorruptRecords(
                    f"{self.file.path}: offset {header.last_offset} at position {self.position}, "
                    f"where {self._least_offset} is due"
                )
            self._least_offset = header.last_offset + 1
            yield self._window, header
            self._next = header.end_position
            self.position += header.size_bytes


class KeyCollector:
    """Fills an `OffsetMap` from the dirty segments."""

    def __init__(
        self, offsets: OffsetMap, transactions: CleanedTransactions, end_offset: int
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._end_offset = end_offset
        self._from_offset = offsets.latest_offset + 1
        # Whether the map is full, or the first uncleanable offset was reached.
        self.is_done = False

    def step(self, source: Source) -> int:
        """Notes the keys of a few batches that were read; returns 0.

        Raises:
            BrokerError: the segment is damaged.
        """
        for buffer, header in source.batches():
            if header.last_offset >= self._end_offset or not self._collect(buffer, header):
                self.is_done = True
                break
        return 0

    def _collect(self, buffer: Buffer, header: BatchHeader) -> bool:
        if header.last_offset < self._from_offset:
            return True
        return collect_batch_keys(
            buffer, header, self._from_offset, self._offsets, self._transactions
        )


class SegmentCleaner:
    """Writes one cleaned segment for a group of old ones.

    `has_changed` says whether it differs from the old segments.
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
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._max_index_bytes = max_index_bytes
        self._cleaner = cleaner
        self._transactions = transactions
        self._segment: LogSegment | None = None
        # Kept bytes that are not written yet.
        self._kept: list[Buffer] = []
        self._headers: list[BatchHeader] = []
        self._kept_bytes = 0
        self.has_changed = False

    def step(self, source: Source) -> int:
        """Cleans a few batches that were read from a segment of the group; returns 0.

        Raises:
            BrokerError: the segment is damaged.
        """
        for buffer, header in source.batches():
            cleaned = self._cleaner.clean(
                buffer, header, drop_legacy_tombstones=source.drop_legacy_tombstones
            )
            self.has_changed = self.has_changed or not isinstance(cleaned, memoryview)
            if cleaned is not None:
                self._keep(cleaned)
        return 0

    @property
    def has_kept(self) -> bool:
        """Whether there are kept bytes to write."""
        return bool(self._kept)

    def write(self) -> int:
        """Writes the bytes kept since the last call; returns how many.

        Raises:
            CorruptRecords: it would not fit into a segment.
            OSError: the disk failed, or is full.
        """
        segment = self._opened()
        size_bytes = self._kept_bytes
        if segment.size_bytes + size_bytes > MAX_SEGMENT_BYTES:
            raise CorruptRecords(f"{segment.file.path}: it would not fit into a segment")
        segment.append(self._kept, self._headers, size_bytes)
        for entry in self._transactions.take_retained():
            segment.transactions.append(entry)
        self._kept, self._headers, self._kept_bytes = [], [], 0
        return size_bytes

    def seal(self) -> int:
        """Closes the cleaned segment, nothing more will be written; returns 0.

        Raises:
            OSError: the disk failed, or is full.
        """
        self._opened().seal()
        return 0

    def finish(self, modified_ms: int) -> int:
        """Syncs all files to the disk, with the time of the newest of the group; returns 0.

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
        """Removes the written files; returns 0.

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

    def _keep(self, cleaned: Buffer) -> None:
        self._kept.append(cleaned)
        self._kept_bytes += len(cleaned)
        position = 0
        # A batch of an old format may become several messages.
        while position < len(cleaned):
            header = parse_header(cleaned, position)
            self._headers.append(header)
            position = header.end_position
