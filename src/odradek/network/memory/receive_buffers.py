"""Receive buffers, pooled for all connections of a broker.

A connection owns a buffer only while bytes wait in it: between reads an idle connection has none,
so ten thousand idle clients cost no buffers, and a busy broker reads again and again into the same
memory, which the processor's caches already hold. Large frames are received directly into a buffer
of their size class; reusing those matters more, because fresh pages cost as much as copying would.

A buffer may be given back only when nothing refers to frames in it any more (see
`Connection`). Sizes are powers of two, so that a slightly larger frame still fits.
"""

from typing import Final, final

READ_BUFFER_BYTES: Final = 256 * 1024
SETUP_BUFFER_BYTES: Final = 4 * 1024  # for a client before its login or its turn


@final
class ReceiveBuffer:
    """Memory to receive into, with the view that frames are cut from."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.data = bytearray(capacity)
        self.view = memoryview(self.data)


@final
class BufferPool:
    """Free buffers by size class; keeps at most `retained_max_bytes` of them."""

    def __init__(self, retained_max_bytes: int = 32 * 1024 * 1024) -> None:
        self.retained_bytes = 0
        self._retained_max_bytes = retained_max_bytes
        self._free: dict[int, list[ReceiveBuffer]] = {}

    def take(self, size_bytes: int) -> ReceiveBuffer:
        """A buffer of at least `size_bytes`, 0 being that of a read; its old content is still in
        it."""
        capacity = size_class(size_bytes)
        free = self._free.get(capacity)
        if not free:
            return ReceiveBuffer(capacity)
        self.retained_bytes -= capacity
        return free.pop()

    def give(self, buffer: ReceiveBuffer) -> None:
        """Takes a buffer back; the giver must not touch it again."""
        if self.retained_bytes + buffer.capacity > self._retained_max_bytes:
            return
        self.retained_bytes += buffer.capacity
        free = self._free.get(buffer.capacity)
        if free is None:
            free = self._free[buffer.capacity] = []
        free.append(buffer)


def size_class(size_bytes: int) -> int:
    """The capacity that serves `size_bytes`, 0 being one read: the next power of two."""
    if size_bytes == 0:
        return READ_BUFFER_BYTES
    return max(SETUP_BUFFER_BYTES, 1 << (size_bytes - 1).bit_length())
