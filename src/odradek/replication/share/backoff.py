"""`BackOff`: holds back returned records until they may be handed out again.

It is a timer, as a lock is. Records that come back together and are due at the same time share it.
"""

from collections.abc import Callable

from odradek.replication.share.lock import AcquisitionLock
from odradek.timer import Timer


class BackOff(AcquisitionLock):
    """Ends at `due_ms`, in milliseconds since 1970, and calls `on_due` then."""

    __slots__ = ("due_ms",)

    def __init__(
        self,
        delay_ms: int,
        due_ms: int,
        first: int,
        last: int,
        on_due: "Callable[[AcquisitionLock], None]",
    ) -> None:
        super().__init__(delay_ms, "", first, last, on_due)
        self.due_ms = due_ms

    def describe(self) -> str:
        """Describes the back-off for people."""
        return f"{self.held} records from {self.first} to {self.last} come back"


class BackOffs:
    """The back-offs of records that come back together; none is longer than `longest_ms`, whatever
    clock their due time was computed with."""

    def __init__(
        self,
        timer: Timer,
        wall_ms: Callable[[], int],
        longest_ms: int,
        on_due: Callable[[AcquisitionLock], None],
    ) -> None:
        self._timer = timer
        self._wall_ms = wall_ms
        self._longest_ms = longest_ms
        self._on_due = on_due
        self._made: dict[int, BackOff] = {}

    def until(self, due_ms: int, first: int, last: int) -> BackOff | None:
        """The back-off of records until they are due; None if they are due already."""
        if due_ms <= 0:
            return None
        made = self._made.get(due_ms)
        if made is not None:
            made.first, made.last = min(made.first, first), max(made.last, last)
            return made
        delay_ms = min(due_ms - self._wall_ms(), self._longest_ms)
        if delay_ms <= 0:
            return None
        made = self._made[due_ms] = BackOff(delay_ms, due_ms, first, last, self._on_due)
        self._timer.add(made)
        return made
