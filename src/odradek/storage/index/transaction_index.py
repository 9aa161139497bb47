"""The transaction index of a segment: the aborted transactions whose markers lie in it.

An entry is 34 bytes, big-endian: version (2 bytes, 0), producer id, first offset, last offset and
last stable offset (8 each). The file exists only where a transaction was aborted. Readers of
committed data use it: a transaction may begin in an older segment than the one that ends it, so a
reader looks through later segments until an entry's last stable offset covers all its records.

Without an entry aborted records would pass for committed ones, and Kafka's format does not tell
whether one is missing. So a closed segment whose index has entries gets a file of ours beside it:
`.txncheck`, with their number and their CRC-32C, as text. Kafka ignores it. `transaction_check`
compares the two with each other and with the records.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from fastcrc import crc32

from odradek.storage.files import File, FileSystem
from odradek.storage.log.offset_metadata import AbortedTransaction

ENTRY_BYTES: Final = 34
_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedEntry(NamedTuple):
    """An aborted transaction; `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_check(data: bytes) -> bytes:
    """The check file of an index with this content."""
    return f"0\n{len(data) // ENTRY_BYTES} {int(crc32.iscsi(data)):08x}\n".encode()


def decode_entries(data: bytes) -> list[AbortedEntry]:
    """The entries of an index; a part of one at the end, torn by a crash, is left out."""
    whole = len(data) // ENTRY_BYTES * ENTRY_BYTES
    return [AbortedEntry(*fields[1:]) for fields in _ENTRY.iter_unpack(data[:whole])]


class TransactionIndex:
    """The entries of one segment, in the order of their markers."""

    def __init__(self, file_system: FileSystem, path: str, check_path: str) -> None:
        self.path = path
        self.check_path = check_path
        self._file_system = file_system
        self._file: File | None = None
        self._entries: list[AbortedEntry] | None = None
        # Whether the check file is up to date; an empty index has none.
        self.is_sealed = True

    def entries(self) -> list[AbortedEntry]:
        """All entries."""
        if self._entries is None:
            self._entries = decode_entries(self.read())
        return self._entries

    def read(self) -> bytes:
        """The file as it is, nothing where there is none."""
        return self._file_system.read_bytes(self.path) if self.exists else b""

    def read_check(self) -> bytes | None:
        """The check file as it is, None where there is none."""
        if self._file_system.size(self.check_path) < 0:
            return None
        return self._file_system.read_bytes(self.check_path)

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._file_system.size(self.path) >= 0

    def append(self, entry: AbortedEntry) -> None:
        """Adds an entry; markers come in the order of their offsets."""
        entries = self.entries()
        assert not entries or entries[-1].last_offset < entry.last_offset, (
            f"{self.path}: marker at {entry.last_offset} after {entries[-1].last_offset}"
        )
        self._break_seal()
        if self._file is None:
            self._file = self._file_system.open(self.path, create=True)
        self._file.append([_ENTRY.pack(_VERSION, *entry)], ENTRY_BYTES)
        entries.append(entry)

    def seal(self, *, sync: bool) -> None:
        """Writes the check file, at the end of appends."""
        if self.is_sealed:
            return
        if self.entries():
            data = b"".join([_ENTRY.pack(_VERSION, *entry) for entry in self.entries()])
            if sync:
                self._file_system.sync(self.path)
            self._file_system.replace(self.check_path, encode_check(data), sync=sync)
        self.is_sealed = True

    def collect(
        self, fetch_offset: int, upper_offset: int, found: list[AbortedTransaction]
    ) -> bool:
        """Adds the entries that a reader of [fetch offset, upper offset) has to skip.

        Returns whether the search is over: later segments cannot have more.
        """
        entries = self.entries()
        for index in range(_first_ending_at(entries, fetch_offset), len(entries)):
            entry = entries[index]
            if entry.first_offset < upper_offset:
                found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper_offset:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose markers lie at `offset` or above."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if len(kept) < len(self.entries()) and self.exists:
            self._break_seal()
            self._file_system.truncate(self.path, len(kept) * ENTRY_BYTES)
            if self._file is not None:
                self._file.size = len(kept) * ENTRY_BYTES
        self._entries = kept

    def clear(self) -> None:
        """Forgets all entries and removes the files."""
        self.close()
        self._file_system.remove(self.path)
        self._file_system.remove(self.check_path)
        self._entries = []
        self.is_sealed = True

    def renamed(self, path: str, check_path: str) -> None:
        """Notes that the files have moved."""
        self.path = path
        self.check_path = check_path
        if self._file is not None:
            self._file.renamed(path)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _break_seal(self) -> None:
        if self.is_sealed:
            self._file_system.remove(self.check_path)
            self.is_sealed = False


def _first_ending_at(entries: Sequence[AbortedEntry], offset: int) -> int:
    """The index of the first entry whose marker is not below an offset."""
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) >> 1
        if entries[middle].last_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low
