"""The offset index of a segment: finds the position to start reading at for an offset.

An entry is 8 bytes, big-endian: the offset relative to the segment's base, and a position
in the segment's file. It is sparse: one entry for about every `index.interval.bytes` of
records, so a look-up finds the last entry not above the target and the segment is read on
from there. An entry names the *last* offset of a batch and the position where that batch
begins.
"""

import struct
from typing import Final

from odradek.storage.files import FileSystem
from odradek.storage.index.index_file import IndexFile

ENTRY_BYTES: Final = 8
_ENTRY: Final = struct.Struct(">ii")
_RELATIVE_OFFSET: Final = struct.Struct(">i")


class OffsetIndex(IndexFile):
    """Offsets rise strictly, positions do not fall. Look-up is a binary search."""

    def __init__(
        self, file_system: FileSystem, path: str, base_offset: int, max_bytes: int
    ) -> None:
        super().__init__(file_system, path, base_offset, max_bytes, ENTRY_BYTES)
        self.last_offset = base_offset
        if self.entry_count > 0:
            self.last_offset = self.entry(self.entry_count - 1)[0]

    def entry(self, index: int) -> tuple[int, int]:
        """The offset and the position of an entry."""
        relative, position = _ENTRY.unpack_from(self._mapped(), index * ENTRY_BYTES)
        return self.base_offset + relative, position

    def append(self, offset: int, position: int) -> None:
        """Adds an entry; the index is not full and `offset` is above the last one."""
        assert self.entry_count == 0 or offset > self.last_offset, (
            f"{self.path}: offset {offset} after {self.last_offset}"
        )
        _ENTRY.pack_into(
            self._mapped_for_append(),
            self.entry_count * ENTRY_BYTES,
            offset - self.base_offset,
            position,
        )
        self.entry_count += 1
        self.last_offset = offset

    def truncate_to(self, offset: int) -> None:
        """Drops the entries of `offset` and above."""
        self._keep(self.index_of(offset - 1) + 1 if offset > self.base_offset else 0)
        self.last_offset = self.base_offset
        if self.entry_count > 0:
            self.last_offset = self.entry(self.entry_count - 1)[0]

    def clear(self) -> None:
        """Forgets all entries."""
        super().clear()
        self.last_offset = self.base_offset

    def is_sane(self, segment_bytes: int) -> bool:
        """Whether the ends of the index can belong to a segment of that size."""
        if not self.is_whole:
            return False
        if self.entry_count == 0:
            return True
        offset, position = self.entry(self.entry_count - 1)
        return offset >= self.base_offset and 0 < position < segment_bytes

    def index_of(self, target_offset: int) -> int:
        """The index of the last entry not above the target, -1 when there is none."""
        if self.entry_count == 0:
            return -1
        entries = self._mapped()
        relative = target_offset - self.base_offset
        low = -1
        high = self.entry_count - 1
        while low < high:
            middle = (low + high + 1) >> 1
            if _RELATIVE_OFFSET.unpack_from(entries, middle * ENTRY_BYTES)[0] <= relative:
                low = middle
            else:
                high = middle - 1
        return low

    def index_before(self, position: int) -> int:
        """The index of the last entry below a position, -1 when there is none."""
        low = -1
        high = self.entry_count - 1
        while low < high:
            middle = (low + high + 1) >> 1
            if self.entry(middle)[1] < position:
                low = middle
            else:
                high = middle - 1
        return low
