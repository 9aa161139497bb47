"""Finds the frames in what was received: a four-byte size, then as many bytes.

Sans I/O: the caller owns the buffer and says which part of it holds received bytes. Nothing
is copied. A size that is negative, or larger than `socket.request.max.bytes`, ends the
connection at once; it is checked as soon as its four bytes are there, before any memory is
set aside for the frame.
"""

from struct import Struct
from typing import Final

from mypy_extensions import i64

from odradek.protocol.primitives import ProtocolError

SIZE_BYTES: Final = 4
_SIZE: Final = Struct(">i")


def frame_size(buffer: bytearray, position: int, frame_max_bytes: int) -> int:
    """The size of the frame whose size field is at `position`, without that field.

    Raises:
        ProtocolError: the size is negative, zero, or larger than `frame_max_bytes`.
    """
    size: int = _SIZE.unpack_from(buffer, position)[0]
    if size <= 0 or size > frame_max_bytes:
        raise ProtocolError(f"a frame of {size} bytes; 1 to {frame_max_bytes} are taken", position)
    return size


def find_frames(
    buffer: bytearray, start: int, end: int, frame_max_bytes: int
) -> list[tuple[int, int]]:
    """The complete frames in `buffer[start:end]`, as (begin, end) without their size fields.

    What follows the last one (from its end, or from `start` when there is none) is the
    beginning of a frame that has not arrived in full; `bytes_wanted` says how much it needs.

    Raises:
        ProtocolError: a size is out of bounds. Frames before it are given up too: their
            connection is about to be closed.
    """
    frames: list[tuple[int, int]] = []
    position: i64 = start
    limit: i64 = end
    while limit - position >= SIZE_BYTES:
        begin = position + SIZE_BYTES
        frame_end = begin + frame_size(buffer, position, frame_max_bytes)
        if frame_end > limit:
            break
        frames.append((begin, frame_end))
        position = frame_end
    return frames


def bytes_wanted(buffer: bytearray, start: int, end: int, frame_max_bytes: int) -> int:
    """How many more bytes complete the size field or the frame that begins at `start`.

    Raises:
        ProtocolError: as for `frame_size`.
    """
    if end - start < SIZE_BYTES:
        return SIZE_BYTES - (end - start)
    return SIZE_BYTES + frame_size(buffer, start, frame_max_bytes) - (end - start)


def encode_size(size_bytes: int) -> bytes:
    """The size field of a frame."""
    return size_bytes.to_bytes(SIZE_BYTES, "big")
