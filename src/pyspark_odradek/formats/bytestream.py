"""A stream of bytes, from which Avro and Protobuf read item by item."""

import struct
from typing import Final

from pyspark_odradek.formats.errors import Undecodable

_LONGEST_VARINT: Final = 10
_MOST_BITS: Final = 64
# The most items without bytes that a value may have: otherwise a short value could claim any number
# of items.
_MOST_EMPTY_ITEMS: Final = 1 << 16


class ByteStream:
    """A value and the position of its reader."""

    __slots__ = ("_at", "_data", "_most_items")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._most_items = len(data) + _MOST_EMPTY_ITEMS

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self._at >= len(self._data)

    def take(self, count: int) -> bytes:
        """Reads bytes.

        Raises:
            Undecodable: there are too few.
        """
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise Undecodable(f"it ends at byte {len(self._data)}, in the middle of a field")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def rest(self) -> bytes:
        """Reads all remaining bytes."""
        return self.take(len(self._data) - self._at)

    def varint(self) -> int:
        """Reads an unsigned number of seven bits a byte.

        Raises:
            Undecodable: it does not end.
        """
        value = 0
        for place in range(_LONGEST_VARINT):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80 and value >> _MOST_BITS == 0:
                return value
        raise Undecodable("a number has more than 64 bits")

    def zigzag(self) -> int:
        """Reads a signed number with its sign in the last bit.

        Raises:
            Undecodable: it does not end.
        """
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def expect(self, count: int) -> None:
        """Checks that so many items can follow.

        Raises:
            Undecodable: they cannot.
        """
        self._most_items -= count
        if self._most_items < 0:
            raise Undecodable(f"it has no bytes for {count} items")

    def fixed(self, layout: struct.Struct) -> int | float:
        """Reads a number of a fixed size.

        Raises:
            Undecodable: there are too few bytes.
        """
        number: int | float = layout.unpack(self.take(layout.size))[0]
        return number

    def text(self, data: bytes) -> str:
        """Reads text.

        Raises:
            Undecodable: the bytes are not UTF-8.
        """
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise Undecodable("a text is not UTF-8") from None
