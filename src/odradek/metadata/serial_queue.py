"""`SerialQueue`: tasks of several steps, one after another.

A task that makes several changes of the metadata, or plans on the published image, begins when the
task before it has ended: two concurrent appends to one list setting would undo each other.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

Release: TypeAlias = Callable[[], None]


class SerialQueue:
    """Begins tasks in their order; each calls `release` when it has ended.

    `may_begin` holds tasks back while it answers False; `go_on` asks it again.
    """

    def __init__(self, may_begin: Callable[[], bool] = lambda: True) -> None:
        self._may_begin: Final = may_begin
        self._waiting: Final[deque[tuple[Callable[[Release], None], Callable[[], None]]]] = deque()
        self._is_busy = False
        self._draining = False

    def submit(
        self, begin: Callable[[Release], None], refuse: Callable[[], None] = lambda: None
    ) -> None:
        """Calls `begin` now, or when its turn comes. `begin` calls its argument when the task has
        ended, and the next one may begin; a task that raises has ended too."""
        self._waiting.append((begin, refuse))
        self.go_on()

    def refuse_all(self) -> None:
        """Drops the tasks that have not begun, and calls their `refuse`."""
        waiting = list(self._waiting)
        self._waiting.clear()
        for _, refuse in waiting:
            refuse()

    def go_on(self) -> None:
        """Begins the next task, if none is under way. A task that ends at once does not begin the
        next one recursively."""
        if self._draining:
            return
        self._draining = True
        try:
            while self._waiting and not self._is_busy and self._may_begin():
                self._begin(self._waiting.popleft()[0])
        finally:
            self._draining = False

    def _begin(self, begin: Callable[[Release], None]) -> None:
        self._is_busy = True
        try:
            begin(self._release)
        except BaseException:
            self._is_busy = False
            raise

    def _release(self) -> None:
        self._is_busy = False
        self.go_on()
