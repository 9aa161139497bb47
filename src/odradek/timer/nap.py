"""Nap: how the owner of a timer sleeps where no event loop does it for him.

Three things end a nap: its time, on the timer's clock; somebody who wakes the sleeper; and a clock
that was moved by hand. A clock that stands does not hold the sleeper for ever: then the time is the
machine's.
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
        """From here on a move of the clock wakes."""
        self._unsubscribe = self._clock.subscribe(self.wake)

    def get_up(self) -> None:
        """Moves of the clock are nothing to us any more."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def wake(self) -> None:
        """Ends the present sleep, or the next one before it begins; from any thread."""
        self._bell.set()

    def expect(self) -> None:
        """Forgets who has woken so far. Then look once more before you `sleep`, so that an earlier
        hand-over is not missed."""
        self._bell.clear()

    def sleep(self, duration_ms: int) -> bool:
        """Sleeps so long at most; whether somebody woke it before."""
        wait_s = self._clock.wait_s(duration_ms)
        return self._bell.wait(min(duration_ms / 1000 if wait_s is None else wait_s, LONGEST_S))
