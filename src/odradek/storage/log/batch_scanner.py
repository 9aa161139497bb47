"""Walks the batches of a segment by their headers, for look-ups and for rebuilding indexes.

Checksums are not compared, but the fields of a header have to fit: lengths, the file's end, and
offsets that rise from batch to batch. No checksum covers a batch's offset, so this is how a damaged
one is noticed.
"""

import struct
from typing import Final

from odradek.model import NO_TIMESTAMP
from odradek.records.errors import CorruptRecords
from odradek.storage.files import File

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
    """The batches of `file` from `position` on; none ends below `least_offset`.

    An offset index could not name one 2^31 above it either.
    """

    def __init__(self, file: File, position: int, least_offset: int) -> None:
        self._file = file
        self._position = position
        self._least_offset = least_offset
        self._end_offset = least_offset + (1 << 31)
        self._window = b""
        self._window_position = position

    def next(self) -> BatchPlace | None:
        """The next batch, None at the end of the file.

        Raises:
            CorruptRecords: there is no batch, or not one that may follow.
        """
        position = self._position
        at = position - self._window_position
        if at + _HEADER_BYTES > len(self._window):
            if position == self._file.size:
                return None
            at = 0
            self._window_position = position
            self._window = self._file.read(position, _SCAN_BYTES)
        place = self._parse(at, position)
        if not self._least_offset <= place.last_offset < self._end_offset:
            raise CorruptRecords(
                f"{self._file.path}: offset {place.last_offset} at position {position}, "
                f"where one from {self._least_offset} on is due"
            )
        self._position = position + place.size_bytes
        self._least_offset = place.last_offset + 1
        return place

    def _parse(self, at: int, position: int) -> BatchPlace:
        window = self._window
        if at + _MIN_BATCH_BYTES > len(window):
            raise self._torn(position)
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(window, at)
        magic = window[at + _MAGIC_POSITION]
        size_bytes = length + _LOG_OVERHEAD_BYTES
        if magic > 2 or size_bytes < (_HEADER_BYTES if magic == 2 else _MIN_BATCH_BYTES):
            raise CorruptRecords(f"{self._file.path}: there is no batch at position {position}")
        if position + size_bytes > self._file.size:
            raise self._torn(position)
        last_offset = base_offset
        max_timestamp = NO_TIMESTAMP
        if magic == 2:
            last_offset += _LAST_OFFSET_DELTA.unpack_from(window, at + 23)[0]
            max_timestamp = _TIMESTAMP.unpack_from(window, at + 35)[0]
        elif magic == 1:
            max_timestamp = _TIMESTAMP.unpack_from(window, at + 18)[0]
        return BatchPlace(position, size_bytes, base_offset, last_offset, max_timestamp)

    def _torn(self, position: int) -> CorruptRecords:
        return CorruptRecords(f"{self._file.path}: the file ends within the batch at {position}")
