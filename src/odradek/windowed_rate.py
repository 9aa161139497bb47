"""A rate per second, measured over windows of time: Kafka's quotas compare it with their limits.

The windows are whole, and all but the last count even when nothing happened in them: a burst at the
beginning may use up the limit of all these windows.
"""

from math import ceil
from typing import Final

LONGEST_MS: Final = 2**31 - 1
"""The longest time that a response can name."""


class WindowedRate:
    """The rate per second over the last `windows` windows, the current one included."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows: Final = windows
        self._window_ms: Final = window_ms
        # The beginning and the amount of the windows in which something happened, oldest first. A
        # deque would take more room than all of them: a broker has two rates for each client.
        self._counted: Final[list[list[int]]] = []
        self._sum = 0

    def record(self, now_ms: int, amount: int) -> None:
        """Counts what has happened."""
        start_ms = now_ms - now_ms % self._window_ms
        if not self._counted or self._counted[-1][0] != start_ms:
            self._counted.append([start_ms, 0])
        self._counted[-1][1] += amount
        self._sum += amount

    def per_second(self, now_ms: int) -> float:
        """The rate now."""
        oldest_ms = self._oldest_ms(now_ms)
        while self._counted and self._counted[0][0] < oldest_ms:
            self._sum -= self._counted.pop(0)[1]
        return self._sum * 1000 / self._span_ms(now_ms)

    def wait_ms(self, now_ms: int, limit: int) -> int:
        """How long nothing may happen for the rate to be down to `limit` a second: one window at
        most, since what ends with it counts no more."""
        if self.per_second(now_ms) <= limit:
            return 0
        if limit == 0:
            return self._window_ms
        return min(ceil(self._sum * 1000 / limit) - self._span_ms(now_ms), self._window_ms)

    def excess_ms(self, now_ms: int, limit: float) -> int:
        """How long nothing may happen until the counted amount is down to `limit` a second: Kafka
        throttles clients for this time, which may be longer than one window."""
        if self.per_second(now_ms) <= limit:
            return 0
        excess_ms = round(min(self._sum * 1000 / limit, LONGEST_MS))
        return max(excess_ms - self._span_ms(now_ms), 1)

    def _oldest_ms(self, now_ms: int) -> int:
        return now_ms - now_ms % self._window_ms - (self._windows - 1) * self._window_ms

    def _span_ms(self, now_ms: int) -> int:
        return max(now_ms - self._oldest_ms(now_ms), 1)
