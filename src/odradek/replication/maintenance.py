"""Work that comes round again, as a task of the broker's timer: nothing sleeps for it."""

from collections.abc import Callable

from odradek.timer import Timer, TimerTask


class PeriodicTask(TimerTask):
    """Calls `work` every `interval_ms` until it is cancelled; the first time after one."""

    def __init__(self, timer: Timer, interval_ms: int, work: Callable[[], None]) -> None:
        super().__init__(max(interval_ms, 1))
        self._timer = timer
        self._work = work
        timer.add(self)

    def run(self) -> None:
        """Works, and goes back into the timer unless the work cancelled it."""
        self._work()
        if not self.cancelled:
            self._timer.add(self)
