"""Periodic work, as a task of the owner's timer: nothing sleeps for it.

All housekeeping of a broker is made of these. A failed round is reported to the timer's `on_error`,
like any task's failure, and does not end the rounds: retention that stops at its first full disk
would fill all others.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from odradek.timer.timer import Timer
from odradek.timer.timer_task import TimerTask, clamp, name_of


@mypyc_attr(allow_interpreted_subclasses=True)
class PeriodicTask(TimerTask):
    """Calls `work` every `interval_ms()` until it is cancelled; the first time after one.

    The interval is read again each time, so it may be a setting that changes.
    """

    def __init__(
        self, timer: Timer, interval_ms: Callable[[], int], work: Callable[[], object]
    ) -> None:
        super().__init__(_at_least_one(interval_ms()))
        self._timer = timer
        self._interval_ms = interval_ms
        self._work = work
        timer.add(self)

    def run(self) -> None:
        """Does the work, and goes back into the timer unless the work has cancelled it."""
        try:
            self._work()
        finally:
            if not self.cancelled:
                self._come_round()

    def _come_round(self) -> None:
        """Waits as long as the last time if the interval cannot be determined; determining it may
        cancel."""
        try:
            self.delay_ms = _at_least_one(self._interval_ms())
        finally:
            if not self.cancelled:
                self._timer.add(self)

    def describe(self) -> str:
        """Describes the work for people."""
        return f"a round of {name_of(self._work)}"


def _at_least_one(interval_ms: int) -> int:
    """An interval that a timer can count, of 1 ms at least: with 0 the timer would never be
    idle."""
    return max(clamp(interval_ms), 1)
