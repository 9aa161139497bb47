"""The memory that requests in flight may hold, over all connections (`queued.max.request.bytes`).

A frame is charged when its size becomes known and released when its request is answered. As
in Kafka a frame may begin while *anything* is left, so one large request cannot starve, and
the bound is exceeded by at most one frame. A frame that has begun is paid for as a whole, so
it can always be finished: waiting can never turn into a deadlock.
"""

from collections.abc import Callable
from typing import final


@final
class RequestMemory:
    """Counts bytes; a connection that cannot begin a frame leaves a callback and waits."""

    def __init__(self, max_bytes: int = -1) -> None:
        self.limited = max_bytes > 0
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def left_bytes(self) -> int:
        """The rest of the limit, in bytes."""
        return max(self.max_bytes - self.used_bytes, 0)

    def try_charge(self, size_bytes: int) -> bool:
        """Charges a frame, or returns False when nothing is left."""
        if self.used_bytes >= self.max_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Releases a frame's bytes and wakes all waiting connections."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, f"released {-self.used_bytes} bytes that nobody charged"
        if self._waiting and self.used_bytes < self.max_bytes:
            waiting, self._waiting = self._waiting, []
            for wake in waiting:
                wake()

    def wait(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once when there is memory again; it must only schedule work."""
        self._waiting.append(wake)
