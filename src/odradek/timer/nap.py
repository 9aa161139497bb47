"""Nap: the sleep of a timer's owner without an event loop.

Three things end a nap: its time, on the timer's clock; a call of `wake`; and a move of the clock by
hand. On a clock that stands the time is the machine's, so the sleep ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, final

from odradek.clock import Clock

LONGEST_S: Final = 86_400.0


@final
class Nap:
    """Sleeping on `clock`, between `lie_down` and `get_up`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bell = threading.Event()
        self._unsubscribe: Callable[[], None] | None = None

    def lie_down(self) -> None:
        """Begins: from here on a move of the clock wakes."""
        self._unsubscribe = self._clock.subscribe(self.wake)

    def get_up(self) -> None:
        """Ends: moves of the clock have no effect any more."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def wake(self) -> None:
        """Ends the present sleep, or the next one before it begins; from any thread."""
        self._bell.set()

    def expect(self) -> None:
        """Forgets earlier wake-ups. The caller looks once more before it calls `sleep`, so that no
        hand-over is missed."""
        self._bell.clear()

    def sleep(self, duration_ms: int) -> bool:
        """Sleeps so long at most; returns whether it was woken before."""
        wait_s = self._clock.wait_s(duration_ms)
        return self._bell.wait(min(duration_ms / 1000 if wait_s is None else wait_s, LONGEST_S))
