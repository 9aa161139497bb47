"""The transaction index of a segment: the aborted transactions whose markers lie in it.

An entry is 34 bytes, big-endian: version (2 bytes, 0), producer id, first offset, last offset
and last stable offset (8 each). The file exists only where a transaction was aborted. It is
read by those who want committed data: a transaction may begin in an older segment than the
one that ends it, so a reader looks on through later segments until the entry's last stable
offset covers all that it read.
"""

import struct
from typing import Final, NamedTuple

from odradek.storage.files import File, FileSystem
from odradek.storage.offset_metadata import AbortedTransaction

ENTRY_BYTES: Final = 34
_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedEntry(NamedTuple):
    """An aborted transaction; `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The entries of one segment, in the order of their markers."""

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self.path = path
        self._file_system = file_system
        self._file: File | None = None
        self._entries: list[AbortedEntry] | None = None

    def entries(self) -> list[AbortedEntry]:
        """All entries; a part of an entry at the end, torn by a crash, is left out."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def append(self, entry: AbortedEntry) -> None:
        """Adds an entry; markers come in the order of their offsets."""
        entries = self.entries()
        assert not entries or entries[-1].last_offset < entry.last_offset, (
            f"{self.path}: marker at {entry.last_offset} after {entries[-1].last_offset}"
        )
        if self._file is None:
            self._file = self._file_system.open(self.path, create=True)
        self._file.append([_ENTRY.pack(_VERSION, *entry)], ENTRY_BYTES)
        entries.append(entry)

    def collect(
        self, fetch_offset: int, upper_offset: int, found: list[AbortedTransaction]
    ) -> bool:
        """Adds what a reader of [fetch offset, upper offset) has to skip.

        Returns whether the search is over: later segments cannot add anything.
        """
        for entry in self.entries():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_offset:
                found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper_offset:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose markers lie at `offset` or above."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if len(kept) < len(self.entries()) and self._file_system.size(self.path) >= 0:
            self._file_system.truncate(self.path, len(kept) * ENTRY_BYTES)
            if self._file is not None:
                self._file.size = len(kept) * ENTRY_BYTES
        self._entries = kept

    def clear(self) -> None:
        """Forgets all entries and removes the file."""
        self.close()
        self._file_system.remove(self.path)
        self._entries = []

    def renamed(self, path: str) -> None:
        """Notes that the file has moved to `path`."""
        self.path = path
        if self._file is not None:
            self._file.renamed(path)

    def close(self) -> None:
        """Lets the file go."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> list[AbortedEntry]:
        if self._file_system.size(self.path) <= 0:
            return []
        data = self._file_system.read_bytes(self.path)
        whole = len(data) // ENTRY_BYTES * ENTRY_BYTES
        return [AbortedEntry(*fields[1:]) for fields in _ENTRY.iter_unpack(data[:whole])]
