"""`Idleness`: the share of its time in which the event loop's thread has nothing to do."""

from time import thread_time
from typing import Final

from odradek.clock import Clock

_LEAST_SPAN_S: Final = 1.0


class Idleness:
    """Of the time between two looks that are a second apart at least; made and asked on the loop's
    thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._looked_ms = clock.monotonic_ms()
        self._used_s = thread_time()
        self._share = 1.0

    def read(self) -> float:
        """The share, between 0 and 1."""
        now_ms, used_s = self._clock.monotonic_ms(), thread_time()
        span_s = (now_ms - self._looked_ms) / 1000
        if span_s >= _LEAST_SPAN_S:
            self._share = min(max(1 - (used_s - self._used_s) / span_s, 0.0), 1.0)
            self._looked_ms, self._used_s = now_ms, used_s
        return self._share
