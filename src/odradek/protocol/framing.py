"""The frames of a stream: a four-byte size, then as many bytes.

Sans I/O: the caller owns the buffer and knows which part of it has been received. A size
that is negative, zero, or larger than `socket.request.max.bytes` ends the connection, and is
found out as soon as its four bytes are there, before any memory is set aside for the frame.
"""

from struct import Struct
from typing import Final

from odradek.protocol.primitives import ProtocolError

SIZE_BYTES: Final = 4
_SIZE: Final = Struct(">i")


def frame_size(buffer: bytearray, position: int, frame_max_bytes: int) -> int:
    """The size of the frame whose size field is at `position`, without that field.

    Raises:
        ProtocolError: the size is not between 1 and `frame_max_bytes`.
    """
    size: int = _SIZE.unpack_from(buffer, position)[0]
    if size <= 0 or size > frame_max_bytes:
        raise ProtocolError(f"a frame of {size} bytes; 1 to {frame_max_bytes} are taken", position)
    return size


def encode_size(size_bytes: int) -> bytes:
    """The size field of a frame."""
    return _SIZE.pack(size_bytes)
