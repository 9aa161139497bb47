"""The cleaner's memory: for each key of the dirty records the offset of its newest record.

A table of 16-byte entries, linearly probed. The first half is a 64-bit hash of the key, 0 in
an empty entry; the second holds 24 bits of another hash and 40 bits of offset, counted from
the first dirty one. Keys themselves are not kept, so the memory is bounded whatever their
length. Two keys are taken for one only when 88 bits agree: among five million keys that happens
once in 10^13 times, and since Python's hash of bytes is keyed with a secret of the process, no
client can search for such a pair.

Entries are never removed. The table is a `vec` of machine words: compiled code reads and writes it
without making an object for each word.
"""

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

ENTRY_BYTES: Final = 16
_POSITIVE: Final = 0x7FFFFFFFFFFFFFFF
_OFFSET_BITS: Final = 40
_OFFSET_MASK: Final = (1 << 40) - 1
# Makes the second hash differ from the first.
_SALT: Final = b"\xa5second"
# How much of the table is cleared at once: less than a tenth of a millisecond's worth.
_CLEARED_WORDS: Final = 1 << 14


class OffsetMap:
    """Keys to offsets, in `memory_bytes` of which the share `load_factor` is used at most.

    `first_offset` is the smallest that will be stored. The memory is reserved at once, but has to
    be cleared before the first key, which takes long if it is large: `clear_some`.
    """

    def __init__(self, memory_bytes: int, load_factor: float, first_offset: int) -> None:
        slots = max(memory_bytes // ENTRY_BYTES, 2)
        self._slots: i64 = slots
        self._first_offset: i64 = first_offset
        # One place stays empty, so that every search ends.
        self.capacity = max(min(int(slots * load_factor), slots - 1), 1)
        self.size = 0
        # The offset up to which, inclusive, the map knows all keys.
        self.latest_offset = first_offset - 1
        self._table = vec[i64](capacity=2 * slots)

    @property
    def is_clear(self) -> bool:
        """Whether the memory is ready for keys."""
        return len(self._table) == 2 * self._slots

    def clear_some(self) -> None:
        """Clears another part of the memory."""
        table = self._table
        end: i64 = min(len(table) + _CLEARED_WORDS, 2 * self._slots)
        while len(table) < end:
            table = append(table, 0)
        self._table = table

    def put(self, key: bytes, offset: i64) -> bool:
        """Stores that `key` was written at `offset`, above all earlier ones; false if there is no
        room."""
        table = self._table
        relative = offset - self._first_offset
        if relative > _OFFSET_MASK:
            return False
        first: i64 = hash(key)
        if first == 0:
            first = 1
        second: i64 = hash(_SALT + key)
        entry = (second & _POSITIVE) >> _OFFSET_BITS << _OFFSET_BITS | relative
        at = (first & _POSITIVE) % self._slots * 2
        while True:
            held: i64 = table[at]
            if held == first:
                known: i64 = table[at + 1]
                if (known ^ entry) >> _OFFSET_BITS == 0:
                    table[at + 1] = entry
                    return True
            if held == 0:
                break
            at += 2
            if at == 2 * self._slots:
                at = 0
        if self.size >= self.capacity:
            return False
        table[at] = first
        table[at + 1] = entry
        self.size += 1
        return True

    def is_newest(self, key: bytes, offset: i64) -> bool:
        """Whether the map knows of no newer record of `key` than the one at `offset`."""
        table = self._table
        relative = offset - self._first_offset
        first: i64 = hash(key)
        if first == 0:
            first = 1
        at = (first & _POSITIVE) % self._slots * 2
        while True:
            held: i64 = table[at]
            if held == 0:
                return True
            if held == first:
                entry: i64 = table[at + 1]
                newest = entry & _OFFSET_MASK
                # No two records have one offset: the entry is this record's own.
                if newest == relative:
                    return True
                second: i64 = hash(_SALT + key)
                if (second & _POSITIVE ^ entry) >> _OFFSET_BITS == 0:
                    return relative > newest
            at += 2
            if at == 2 * self._slots:
                at = 0
