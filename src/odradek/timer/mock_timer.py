"""MockTimer: the timer whose clock only the caller moves, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from odradek.clock import ManualClock
from odradek.timer.system_timer import UNLIMITED, SystemTimer, log_error
from odradek.timer.timer_task import TimerTask


@mypyc_attr(allow_interpreted_subclasses=True)
class MockTimer(SystemTimer):
    """A `SystemTimer` that never waits: `advance_clock(350)` makes it 350 ms later.

    Time goes from one due moment to the next, so a task sees the clock at its own deadline, and one
    that adds itself again every 100 ms runs three times in 350 ms. A task may move the clock as
    well: tasks that become due by that run after it has returned.
    """

    def __init__(
        self,
        tick_ms: int = 1,
        wheel_size: int = 20,
        clock: ManualClock | None = None,
        on_error: Callable[[TimerTask, BaseException], object] = log_error,
    ) -> None:
        """Creates a timer on `clock`, or on a new clock that starts at 0."""
        self.manual_clock = clock if clock is not None else ManualClock()
        super().__init__(self.manual_clock, tick_ms, wheel_size, on_error)

    def advance_clock(self, timeout_ms: int) -> bool:
        """Moves the clock on by `timeout_ms`; all tasks due by then have run on return, including
        hand-overs of tasks. A task that hands itself over again never ends, like one that adds
        itself again with no delay.

        Raises:
            TypeError: the time is no whole number.
            ValueError: it is negative, or more than a clock can count.
        """
        clock = self.manual_clock
        timeout_ms = clock.check_move(timeout_ms)
        if self._running:
            clock.advance(timeout_ms)
            return False
        until_ms = clock.monotonic_ms() + timeout_ms
        any_due = self._run_until(until_ms)
        clock.advance(max(0, until_ms - clock.monotonic_ms()))
        # Subscribers of the clock may have handed tasks over.
        return self._run_until(until_ms) or any_due

    def _run_until(self, moment_ms: int) -> bool:
        """Runs what is due by then, or by a later moment to which a task has moved the clock."""
        clock = self.manual_clock
        any_due = self.advance(0, UNLIMITED)
        while (due_ms := self.next_due_ms()) is not None:
            now_ms = clock.monotonic_ms()
            if due_ms > max(moment_ms, now_ms):
                break
            clock.advance(max(0, due_ms - now_ms))
            any_due = self.advance(0, UNLIMITED) or any_due
        return any_due
