"""Zigzag varints, as records of magic 2 have them. Compiled: the inner step of every walk.

The readers take `bytes`, whose single bytes compiled code reaches without making an object (of a
memoryview or bytearray it would make one each). Past the end they raise IndexError, which the
caller turns into a corrupt record, so no step compares positions.

The hot loops of `walk` and `columnar` take their varints packed, value and size in one
integer: that travels in a register, a tuple does not (2 against 7 ns).
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from odradek.records.errors import InvalidRecords

# Of a packed varint: its size, the bit that makes it negative; `packed >> 4` is its value if
# it is not.
SIZE_MASK: Final = 7
NEGATIVE: Final = 8
# What is left of -1 without its size: the length of a field that is null.
_NULL: Final = 1
# Makes a shift to the right by seven logical where a value uses its sign bit.
_WITHOUT_TOP_SEVEN: Final = (1 << 57) - 1


def read_packed(data: bytes, position: i64) -> i64:
    """`value << 3 | size in bytes` of the 32-bit varint at `position`, still zigzag.

    Raises:
        InvalidRecords: it takes more than 5 bytes or 32 bits.
        IndexError: the data ends inside it.
    """
    byte: i64 = data[position]
    if byte < 0x80:
        return byte << 3 | 1
    value: i64 = byte & 0x7F
    byte = data[position + 1]
    if byte < 0x80:
        return (value | byte << 7) << 3 | 2
    return _read_packed_rest(data, position + 2, value | (byte & 0x7F) << 7)


def _read_packed_rest(data: bytes, position: i64, value: i64) -> i64:
    size: i64 = 2
    byte: i64 = 0x80
    while byte >= 0x80:
        if size == 5:
            raise InvalidRecords("a varint takes more than 5 bytes")
        byte = data[position]
        value |= (byte & 0x7F) << (7 * size)
        position += 1
        size += 1
    if value > 0xFFFFFFFF:
        raise InvalidRecords("a varint has more than 32 bits")
    return value << 3 | size


def field_end(packed: i64, start: i64, end: i64) -> i64:
    """Where the field ends that begins at `start`, in a record that goes to `end`.

    `packed` is the length before it, maybe that of null.

    Raises:
        InvalidRecords: the length is negative, or leaves no room for what must follow.
    """
    if packed & NEGATIVE:
        if packed >> 3 != _NULL:
            raise InvalidRecords("a field has a negative length")
        return start
    start += packed >> 4
    # At least the header count follows, so a field that reaches the end is too long.
    if start >= end:
        raise InvalidRecords("a field does not end within its record")
    return start


def read_varint(data: bytes, position: i64) -> tuple[i64, i64]:
    """The 32-bit varint at `position`, and the position behind it.

    Raises:
        InvalidRecords: it takes more than 5 bytes or 32 bits.
        IndexError: the data ends inside it.
    """
    packed = read_packed(data, position)
    return packed >> 4 ^ -(packed >> 3 & 1), position + (packed & 7)


def read_varlong(data: bytes, position: i64) -> tuple[i64, i64]:
    """The 64-bit varint at `position`, and the position behind it.

    Raises:
        InvalidRecords: it takes more than 10 bytes or 64 bits.
        IndexError: the data ends inside it.
    """
    byte: i64 = data[position]
    position += 1
    value: i64 = byte & 0x7F
    shift: i64 = 7
    while byte >= 0x80:
        byte = data[position]
        position += 1
        if shift == 63 and byte > 1:
            raise InvalidRecords("a varint takes more than 64 bits")
        value |= (byte & 0x7F) << shift
        shift += 7
    # The mask makes the shift logical where an i64 has used its sign bit.
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), position


def append_varint(out: bytearray, value: int) -> None:
    """Writes a signed value of up to 64 bits at the end of `out`."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def write_varint(out: BytesWriter, value: i64) -> None:
    """Writes a signed value at the end of `out`."""
    rest = value << 1 ^ value >> 63
    while rest & ~0x7F:
        out.append(u8(rest & 0x7F | 0x80))
        rest = rest >> 7 & _WITHOUT_TOP_SEVEN
    out.append(u8(rest))


def varint_size(value: i64) -> i64:
    """How many bytes a signed value takes."""
    rest = value << 1 ^ value >> 63
    size: i64 = 1
    while rest & ~0x7F:
        rest = rest >> 7 & _WITHOUT_TOP_SEVEN
        size += 1
    return size
