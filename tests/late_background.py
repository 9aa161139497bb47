"""`LateBackground`: work is done when a test says so, and the test sees what comes between."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from odradek.background import InlineBackground


class LateBackground:
    """Keeps work and deferred actions in their order while it `is_late`; else does them at once."""

    def __init__(self, *, is_late: bool = True) -> None:
        self.is_late = is_late
        self.work: deque[Callable[[], None]] = deque()

    def submit(self, work: Any, on_done: Any, on_error: Any) -> None:
        self.defer(partial(InlineBackground().submit, work, on_done, on_error))

    def defer(self, action: Callable[[], None]) -> None:
        if self.is_late:
            self.work.append(action)
        else:
            action()

    def step(self) -> None:
        """Does what has waited longest."""
        self.work.popleft()()

    def try_step(self) -> bool:
        """Does what has waited longest; False when nothing waits."""
        if not self.work:
            return False
        self.step()
        return True

    def run(self) -> None:
        """Does all that waits, and what comes of it."""
        while self.try_step():
            pass

    def catch_up(self) -> None:
        """Does all that waits, and from now on everything at once."""
        self.run()
        self.is_late = False
