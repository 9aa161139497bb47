"""Splits received bytes into answers.

Small frames are gathered in one buffer and copied out of it; a frame that does not fit into the
buffer gets its own memory, and is received directly into that. So only the kernel copies an answer
of many MiB.

Before the end of the handshake the server may be any program: the first bytes of a TLS server's
alert are, as a size, a third of a gigabyte. Answers are small until then.
"""

from typing import Final

from odradek.protocol.framing import SIZE_BYTES, frame_size

HANDSHAKE_MAX_BYTES: Final = 1 << 20
RESPONSE_MAX_BYTES: Final = 1 << 30
_CHUNK_BYTES: Final = 64 * 1024


class FrameReceiver:
    """Asked for room by `get_buffer`, told by `buffer_updated` how much of it was filled."""

    def __init__(self, frame_max_bytes: int = RESPONSE_MAX_BYTES) -> None:
        self.frame_max_bytes = frame_max_bytes
        self._chunk = bytearray(_CHUNK_BYTES)
        self._filled = 0
        self._frame: bytearray | None = None
        self._frame_filled = 0

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes; never empty."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._chunk)[self._filled :]

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Takes in `count` bytes; returns the frames that they complete.

        Raises:
            ProtocolError: a frame has a size that no answer has.
        """
        if self._frame is None:
            self._filled += count
            return self._take_frames()
        self._frame_filled += count
        if self._frame_filled < len(self._frame):
            return []
        frame, self._frame = self._frame, None
        return [memoryview(frame)]

    def _take_frames(self) -> list[memoryview]:
        frames: list[memoryview] = []
        position = 0
        while self._filled - position >= SIZE_BYTES:
            size = frame_size(self._chunk, position, self.frame_max_bytes)
            start = position + SIZE_BYTES
            if self._filled - start < size:
                if size > len(self._chunk) - SIZE_BYTES:
                    self._begin_large(start, size)
                    return frames
                break
            frames.append(memoryview(bytes(memoryview(self._chunk)[start : start + size])))
            position = start + size
        self._move_to_front(position)
        return frames

    def _begin_large(self, start: int, size: int) -> None:
        received = self._filled - start
        self._frame = bytearray(size)
        self._frame[:received] = memoryview(self._chunk)[start : self._filled]
        self._frame_filled = received
        self._filled = 0

    def _move_to_front(self, position: int) -> None:
        if position:
            left = self._filled - position
            self._chunk[:left] = self._chunk[position : self._filled]
            self._filled = left
