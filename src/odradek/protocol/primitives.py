"""Kafka's primitive types, read from a frame and written to buffers.

A `Reader` never trusts a length: it is compared with the rest of the frame before anything is
allocated or skipped, and every count of elements is bounded by the bytes that so many elements need
at least. Malformed input raises a `ProtocolError` that names the position, and nothing else.

Reading goes through a window: a small `bytes` copy of the frame from the current position,
because compiled code indexes `bytes` in a nanosecond or two but a memoryview in thirty.
Records are skipped over, not copied: they are slices of the frame.

"Flexible" message versions (KIP-482) write lengths as unsigned varints of length + 1 and
end every structure with tagged fields; the others use fixed-size lengths with -1 for null.
Both styles share one method here, told apart by the `flexible` argument.
"""

from functools import lru_cache
from struct import Struct
from typing import Final
from uuid import UUID

from mypy_extensions import i64

Buffer = bytes | bytearray | memoryview

WINDOW_BYTES: Final = 1024
INT32_MAX: Final = 0x7FFFFFFF
INT16_MAX: Final = 0x7FFF
NO_TAGS: Final = b"\x00"
ZERO_UUID_BYTES: Final = bytes(16)

_INT64: Final = Struct(">q")
_SMALL_VARINTS: Final = [bytes((value,)) for value in range(128)]


class ProtocolError(Exception):
    """Malformed bytes of a message; the connection has to be closed."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} (at byte {position} of the frame)")
        self.reason = reason
        self.position = position


class NodeEndpoint:
    """The address of a broker that a response names (KIP-951)."""

    def __init__(self, node_id: int, host: str, port: int, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


@lru_cache(maxsize=4096)
def uuid_from_bytes(data: bytes) -> UUID | None:
    """The id in its 16 wire bytes; all zeros mean "none". Remembered, since making one is slow."""
    return None if data == ZERO_UUID_BYTES else UUID(bytes=data)


class Reader:
    """Takes values off a frame, front to back.

    Invariant: `_window` holds the frame's bytes from `_start`, `_limit` of them; the next
    byte to read is `_window[_at]`, which is the frame's byte `_start + _at`.
    """

    def __init__(self, frame: memoryview, position: int = 0) -> None:
        self._frame = frame
        self._size: i64 = len(frame)
        self._window = b""
        self._limit: i64 = 0
        self._start: i64 = position
        self._at: i64 = 0

    @property
    def position(self) -> int:
        """Index in the frame of the next byte."""
        return self._start + self._at

    @property
    def remaining(self) -> int:
        """How many bytes of the frame are left."""
        return self._size - self._start - self._at

    def _take(self, count: i64) -> i64:
        """Moves over `count` bytes; returns the index in the window where they begin."""
        at = self._at
        if at + count > self._limit:
            self._refill(count)
            at = 0
        self._at = at + count
        return at

    def _refill(self, count: i64) -> None:
        start = self._start + self._at
        left = self._size - start
        if count > left:
            raise ProtocolError(f"{count} bytes expected, {left} left", start)
        end = start + (count if count > WINDOW_BYTES else WINDOW_BYTES)
        self._window = self._frame[start:end].tobytes()
        self._limit = len(self._window)
        self._start = start
        self._at = 0

    def skip(self, count: int) -> None:
        """Leaves `count` bytes unread."""
        self._check_length(count)
        self._start += self._at + count
        self._window = b""
        self._limit = 0
        self._at = 0

    def _check_length(self, count: i64) -> None:
        left = self._size - self._start - self._at
        if count < 0 or count > left:
            raise ProtocolError(f"length {count} where {left} bytes are left", self.position)

    def boolean(self) -> bool:
        """One byte; anything but zero is true."""
        return self._window_byte(self._take(1)) != 0

    def _window_byte(self, at: i64) -> i64:
        value: i64 = self._window[at]
        return value

    def int8(self) -> int:
        """A signed byte."""
        value = self._window_byte(self._take(1))
        return value - 0x100 if value >= 0x80 else value

    def int16(self) -> int:
        """Two bytes, signed."""
        at = self._take(2)
        data = self._window
        high: i64 = data[at]
        low: i64 = data[at + 1]
        value = high << 8 | low
        return value - 0x10000 if value >= 0x8000 else value

    def int32(self) -> int:
        """Four bytes, signed."""
        value = self._unsigned32(self._take(4))
        return value - 0x100000000 if value >= 0x80000000 else value

    def int64(self) -> int:
        """Eight bytes, signed."""
        at = self._take(8)
        high = self._unsigned32(at)
        if high >= 0x80000000:
            high -= 0x100000000
        return high << 32 | self._unsigned32(at + 4)

    def _unsigned32(self, at: i64) -> i64:
        data = self._window
        a: i64 = data[at]
        b: i64 = data[at + 1]
        c: i64 = data[at + 2]
        d: i64 = data[at + 3]
        return a << 24 | b << 16 | c << 8 | d

    def uvarint(self) -> int:
        """An unsigned varint of at most five bytes that fits a signed 32-bit integer."""
        value: i64 = 0
        shift: i64 = 0
        while shift < 35:
            byte = self._window_byte(self._take(1))
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > INT32_MAX:
                    raise ProtocolError(f"varint {value} is out of range", self.position)
                return value
            shift += 7
        raise ProtocolError("a varint is longer than five bytes", self.position)

    def uuid(self) -> UUID | None:
        """Sixteen bytes; the zero id is `None`."""
        at = self._take(16)
        return uuid_from_bytes(self._window[at : at + 16])

    def nullable_string(self, flexible: bool) -> str | None:
        """UTF-8 text or null; bytes that are none become U+FFFD, as with every client in Java."""
        length: i64 = self.uvarint() - 1 if flexible else self.int16()
        if length < 0:
            self._check_null(length)
            return None
        at = self._take(length)
        return self._window[at : at + length].decode("utf-8", "replace")

    def _check_null(self, length: i64) -> None:
        if length < -1:
            raise ProtocolError(f"length {length} is negative", self.position)

    def string(self, flexible: bool) -> str:
        """UTF-8 text that must not be null."""
        text = self.nullable_string(flexible)
        if text is None:
            raise ProtocolError("null where text is required", self.position)
        return text

    def nullable_bytes(self, flexible: bool) -> memoryview | None:
        """A slice of the frame (not a copy), or null."""
        length: i64 = self.uvarint() - 1 if flexible else self.int32()
        if length < 0:
            self._check_null(length)
            return None
        position = self._start + self._at
        self.skip(length)
        return self._frame[position : position + length]

    def nullable_array_length(self, flexible: bool, element_bytes: int) -> int:
        """How many elements follow, -1 for null; each needs at least `element_bytes`."""
        count: i64 = self.uvarint() - 1 if flexible else self.int32()
        if count < -1:
            raise ProtocolError(f"an array of {count} elements", self.position)
        left = self._size - self._start - self._at
        if count * element_bytes > left:
            raise ProtocolError(f"{count} elements in {left} bytes", self.position)
        return count

    def array_length(self, flexible: bool, element_bytes: int) -> int:
        """How many elements follow in an array that must not be null."""
        count = self.nullable_array_length(flexible, element_bytes)
        if count < 0:
            raise ProtocolError("null where an array is required", self.position)
        return count

    def tag_count(self) -> int:
        """How many tagged fields follow; each is a tag, a size and that many bytes."""
        count = self.uvarint()
        if count * 2 > self.remaining:
            raise ProtocolError(f"{count} tagged fields in {self.remaining} bytes", self.position)
        return count

    def skip_tagged_field(self) -> None:
        """Leaves out the value of a tag that was just read: its size and as many bytes."""
        self.skip(self.uvarint())

    def skip_tags(self) -> None:
        """Leaves out all tagged fields of a structure: those of newer versions, mostly none."""
        count = self.tag_count()
        while count > 0:
            self.uvarint()
            self.skip_tagged_field()
            count -= 1

    def tagged_end(self) -> int:
        """Reads the size of a tagged field that is going to be read; returns where it ends."""
        size = self.uvarint()
        self._check_length(size)
        return self.position + size

    def check_at(self, end: int) -> None:
        """Checks that a tagged field was as long as it said."""
        if self.position != end:
            raise ProtocolError(f"a tagged field should end at byte {end}", self.position)


def uvarint_bytes(value: int) -> bytes:
    """`value` as an unsigned varint."""
    if value < 128:
        return _SMALL_VARINTS[value]
    data = bytearray()
    while value >= 128:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


class Writer:
    """Collects a message as a list of buffers.

    Small values are joined into one `bytes`; buffers handed to `buffer` (records) go out as
    they are, between two such pieces, and are never copied.
    """

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._parts: list[bytes] = []

    def raw(self, data: bytes) -> None:
        """Bytes that are already encoded."""
        self._parts.append(data)

    def int8(self, value: int) -> None:
        """A signed byte."""
        self._parts.append(value.to_bytes(1, "big", signed=True))

    def int16(self, value: int) -> None:
        """Two bytes, signed."""
        self._parts.append(value.to_bytes(2, "big", signed=True))

    def int32(self, value: int) -> None:
        """Four bytes, signed."""
        self._parts.append(value.to_bytes(4, "big", signed=True))

    def int64(self, value: int) -> None:
        """Eight bytes, signed."""
        self._parts.append(_INT64.pack(value))

    def uvarint(self, value: int) -> None:
        """An unsigned varint."""
        self._parts.append(uvarint_bytes(value))

    def uuid(self, value: UUID | None) -> None:
        """Sixteen bytes; `None` is the zero id."""
        self._parts.append(ZERO_UUID_BYTES if value is None else value.bytes)

    def string(self, text: str, flexible: bool) -> None:
        """UTF-8 text.

        Raises:
            ValueError: it is longer than 32767 bytes, which no client can read.
        """
        data = text.encode("utf-8")
        size = len(data)
        if size > INT16_MAX:
            raise ValueError(f"text of {size} bytes does not fit a string field")
        if flexible:
            self.uvarint(size + 1)
        else:
            self.int16(size)
        self._parts.append(data)

    def nullable_string(self, text: str | None, flexible: bool) -> None:
        """UTF-8 text or null."""
        if text is not None:
            self.string(text, flexible)
        elif flexible:
            self.uvarint(0)
        else:
            self.int16(-1)

    def array_length(self, count: int, flexible: bool) -> None:
        """The number of elements that follow; -1 is null."""
        if flexible:
            self.uvarint(count + 1)
        else:
            self.int32(count)

    def buffers(self, data: list[Buffer], flexible: bool) -> None:
        """One field of bytes made of several buffers, which are not copied."""
        size = 0
        for piece in data:
            size += len(piece)
        self.array_length(size, flexible)  # bytes and arrays write their length alike
        if size > 0:
            self._cut()
            self._buffers.extend(data)

    def null_bytes(self, flexible: bool) -> None:
        """A null field of bytes."""
        self.array_length(-1, flexible)

    def no_tags(self, flexible: bool) -> None:
        """Ends a structure that has no tagged fields to write."""
        if flexible:
            self._parts.append(NO_TAGS)

    def tagged(self, tag: int, value: bytes) -> None:
        """One tagged field; the caller has written how many there are."""
        self.uvarint(tag)
        self.uvarint(len(value))
        self._parts.append(value)

    def _cut(self) -> None:
        if self._parts:
            self._buffers.append(b"".join(self._parts))
            self._parts = []

    def finish(self) -> list[Buffer]:
        """The message; nothing may be written afterwards."""
        self._cut()
        return self._buffers

    def to_bytes(self) -> bytes:
        """The message as one piece, for those without records."""
        return b"".join(self.finish())


def encode_node_endpoints(endpoints: list[NodeEndpoint]) -> bytes:
    """The value of the tagged field that Produce (10+) and Fetch (16+) share."""
    writer = Writer()
    writer.array_length(len(endpoints), True)
    for endpoint in endpoints:
        writer.int32(endpoint.node_id)
        writer.string(endpoint.host, True)
        writer.int32(endpoint.port)
        writer.nullable_string(endpoint.rack, True)
        writer.no_tags(True)
    return writer.to_bytes()


def decode_node_endpoints(reader: Reader) -> list[NodeEndpoint]:
    """The reverse of `encode_node_endpoints`."""
    endpoints = []
    for _ in range(reader.array_length(True, 11)):
        endpoints.append(
            NodeEndpoint(
                reader.int32(),
                reader.string(True),
                reader.int32(),
                reader.nullable_string(True),
            )
        )
        reader.skip_tags()
    return endpoints
