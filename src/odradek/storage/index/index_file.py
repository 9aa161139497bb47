"""The file behind both indexes: fixed-size entries, mapped into memory when used.

The file grows by doubling, in allocated blocks, up to `max_bytes`, and is cut to its entries
when the segment is rolled or closed. Kafka makes the file as large as it may become, sparse;
here a write to a hole on a full disk would end the process with SIGBUS, and ten thousand
partitions would show a terabyte of files. After a crash the unused end is zeros; recovery
rebuilds the index, a reader stops at the first zero entry.

The mapping is a `Handle`: the pool may drop it at any time, entries are kept by the kernel.
"""

import mmap
from typing import Final

from odradek.storage.files import FileSystem, Handle

_FIRST_BYTES: Final = 4096


class IndexFile(Handle):
    """A file of entries of `entry_bytes` each; `entry_count` of them count."""

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        base_offset: int,
        max_bytes: int,
        entry_bytes: int,
    ) -> None:
        super().__init__()
        self.path = path
        self.base_offset = base_offset
        self.entry_bytes = entry_bytes
        self.max_entries = max(max_bytes // entry_bytes, 1)
        file_bytes = file_system.size(path)
        self.was_missing = file_bytes < 0
        self.entry_count = max(file_bytes, 0) // entry_bytes
        self._file_bytes = max(file_bytes, 0)
        self._file_system = file_system
        self._map: mmap.mmap | None = None

    @property
    def is_full(self) -> bool:
        """Whether no further entry fits: the segment has to be rolled."""
        return self.entry_count >= self.max_entries

    @property
    def is_whole(self) -> bool:
        """Whether the file exists and has only whole entries, as a closed index must."""
        return not self.was_missing and self._file_bytes == self.entry_count * self.entry_bytes

    @property
    def used_bytes(self) -> int:
        """The bytes of all entries."""
        return self.entry_count * self.entry_bytes

    def create(self) -> None:
        """Makes the empty file, so that the directory looks as Kafka's does."""
        self._file_system.open(self.path, create=True)

    def trim(self) -> None:
        """Cuts the file to its entries and releases the mapping."""
        self.release()
        used = self.used_bytes
        # The size is asked again: an extension that a full disk refused may be half done.
        if self._file_system.size(self.path) != used:
            self._file_system.truncate(self.path, used)
        self._file_bytes = used

    def clear(self) -> None:
        """Forgets all entries."""
        self.entry_count = 0
        self._file_system.open(self.path, create=True)
        self.trim()

    def release(self) -> None:
        """Gives the descriptor back; the next use takes a new one."""
        if self._map is not None:
            self._file_system.pool.discard(self)
            self._map.close()
            self._map = None

    def renamed(self, path: str) -> None:
        """Notes that the file has moved to `path`."""
        self.path = path

    def _keep(self, entry_count: int) -> None:
        """Drops the entries behind the first ones, and clears them in the file."""
        if entry_count < self.entry_count:
            start = entry_count * self.entry_bytes
            self._mapped()[start : self.used_bytes] = bytes(self.used_bytes - start)
            self.entry_count = entry_count

    def _mapped(self) -> mmap.mmap:
        """The mapping, of all that the file holds."""
        self.recently_used = True
        if self._map is None:
            self._map = self._file_system.map(self.path, self._file_bytes)
            self._file_system.pool.add(self)
        return self._map

    def _mapped_for_append(self) -> mmap.mmap:
        """The mapping, with room for one more entry."""
        if (self.entry_count + 1) * self.entry_bytes > self._file_bytes:
            self.release()
            doubled = max(self._file_bytes * 2, _FIRST_BYTES)
            self._file_system.map(self.path, doubled).close()
            self._file_bytes = doubled
        return self._mapped()
