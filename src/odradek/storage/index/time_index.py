"""The time index of a segment: finds the offset to start looking at for a timestamp.

An entry is 12 bytes, big-endian: a timestamp and an offset relative to the segment's base.
It says that the segment's largest timestamp up to and including that offset is this one, so
timestamps rise strictly. The offset is the last of the batch that holds the timestamp, as
Kafka writes it and its dump tool checks it.
"""

import struct
from typing import Final

from odradek.model import NO_TIMESTAMP
from odradek.storage.files import FileSystem
from odradek.storage.index.index_file import IndexFile

ENTRY_BYTES: Final = 12
_ENTRY: Final = struct.Struct(">qi")
_TIMESTAMP: Final = struct.Struct(">q")


class TimeIndex(IndexFile):
    """Timestamps and offsets both rise strictly. Look-up is a binary search."""

    def __init__(
        self, file_system: FileSystem, path: str, base_offset: int, max_bytes: int
    ) -> None:
        super().__init__(file_system, path, base_offset, max_bytes, ENTRY_BYTES)
        self.last_timestamp = NO_TIMESTAMP
        self.last_offset = base_offset
        self._load_last()

    def entry(self, index: int) -> tuple[int, int]:
        """The timestamp and the offset of an entry."""
        timestamp, relative = _ENTRY.unpack_from(self._mapped(), index * ENTRY_BYTES)
        return timestamp, self.base_offset + relative

    def index_of(self, target_timestamp: int) -> int:
        """The index of the last entry not above the target, -1 when there is none."""
        low = -1
        high = self.entry_count - 1
        while low < high:
            middle = (low + high + 1) >> 1
            if _TIMESTAMP.unpack_from(self._mapped(), middle * ENTRY_BYTES)[0] <= target_timestamp:
                low = middle
            else:
                high = middle - 1
        return low

    @property
    def is_nearly_full(self) -> bool:
        """Whether only the last entry is free, which a roll needs for its closing entry."""
        return self.entry_count >= self.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int) -> bool:
        """Adds an entry if the timestamp is above the last one; returns whether it did."""
        if timestamp <= self.last_timestamp or self.is_full:
            return False
        entries = self._mapped_for_append()
        position = self.entry_count * ENTRY_BYTES
        _ENTRY.pack_into(entries, position, timestamp, offset - self.base_offset)
        self.entry_count += 1
        self.last_timestamp = timestamp
        self.last_offset = offset
        return True

    def truncate_to(self, offset: int) -> None:
        """Drops the entries of `offset` and above."""
        low = 0
        high = self.entry_count
        while low < high:
            middle = (low + high) >> 1
            if self.entry(middle)[1] < offset:
                low = middle + 1
            else:
                high = middle
        self._keep(low)
        self._load_last()

    def clear(self) -> None:
        """Forgets all entries."""
        super().clear()
        self._load_last()

    def is_sane(self) -> bool:
        """Whether the ends of the index are possible."""
        if not self.is_whole:
            return False
        if self.entry_count == 0:
            return True
        return self.last_offset >= self.base_offset and self.entry(0)[0] <= self.last_timestamp

    def _load_last(self) -> None:
        self.last_timestamp = NO_TIMESTAMP
        self.last_offset = self.base_offset
        if self.entry_count > 0:
            self.last_timestamp, self.last_offset = self.entry(self.entry_count - 1)
