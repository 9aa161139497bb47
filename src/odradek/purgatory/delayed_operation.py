"""DelayedOperation: something that completes when a condition holds, or when its time is over.

An operation is a timer task. Exactly one caller completes it, whoever comes first: somebody
who found the condition true, or the timer. The winner takes it out of the timer and runs
`on_complete`; nobody else does. When the timer wins, `on_expiration` runs after it.

`force_complete` and `safe_try_complete` may be called by any thread, the rest belongs to the
owner of the timer. Neither takes a lock. The winner is decided by a test and an assignment
with no call and no jump back between them, and CPython hands its interpreter lock on only
at those, so no other thread can step between (see `odradek.timer.timer_task`).
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64, mypyc_attr

from odradek.timer.timer_task import MAX_DELAY_MS, TimerTask, clamp


class OperationCounts:
    """The counters of one purgatory, kept by its operations."""

    __slots__ = ("completed", "expired", "on_expired", "pending_watches", "watched")

    def __init__(self) -> None:
        self.watched: i64 = 0
        """Operations that had to wait; those that still do are this less `completed`."""
        self.completed: i64 = 0
        """Operations that waited and were completed, by their time-out or before it."""
        self.expired: i64 = 0
        """How many of those by their time-out."""
        self.pending_watches: i64 = 0
        """Under how many keys those that still wait are watched, together."""
        self.on_expired: Callable[[], object] | None = None
        """Called on the owner after each time-out: the purgatory may want to purge."""


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class DelayedOperation(TimerTask):
    """Derive from it, override `try_complete`, `on_complete` and `on_expiration`.

    An operation is used once. `missing` and `is_routine` may be overridden as well: they tell
    people what the operation still waits for, and whether that is worth a word.
    """

    __slots__ = ("_check_again", "_checking", "_completed", "_counts", "_watches")

    def __init__(self, delay_ms: int) -> None:
        # The fields of the cell and the task, set here: operations are made by the million too.
        self.next = None
        self.prev = None
        self.bucket = None
        self.expiration_ms = -1
        self.cancelled = False
        self.delay_ms = delay_ms if -1 <= delay_ms <= MAX_DELAY_MS else clamp(delay_ms)
        self.callback = None
        self._completed: bool = False
        self._checking: bool = False
        self._check_again: bool = False
        self._counts: OperationCounts | None = None
        self._watches: i64 = 0

    def try_complete(self) -> bool:
        """Checks the condition: `return self.force_complete()` when it holds, else False."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Completes the operation; runs exactly once."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Runs after `on_complete` when the operation completes because its time is over."""
        raise NotImplementedError

    def missing(self) -> str:
        """Names what it still waits for, in a few words: "2 of 3 acks"."""
        return ""

    def is_routine(self) -> bool:
        """Whether one always waits like this while all is well: for a member's next heartbeat."""
        return False

    def describe(self) -> str:
        """The same, as any task says what it is about."""
        return self.missing()

    @property
    def is_completed(self) -> bool:
        """Whether somebody has completed it."""
        return self._completed

    def force_complete(self) -> bool:
        """Completes the operation; True to the one caller that does, on any thread."""
        if self._completed:
            return False
        self._completed = True
        counts = self._counts
        if counts is not None:
            counts.completed += 1
            counts.pending_watches -= self._watches
        self.cancel()
        self.on_complete()
        return True

    def safe_try_complete(self) -> bool:
        """`try_complete`, on any thread; True when this call completed the operation.

        `try_complete` never runs twice at a time. Who comes while it runs leaves word, and
        whoever runs it then checks once more: the completion is not lost.
        """
        if self._completed:
            return False
        if self._checking:
            self._check_again = True
            return False
        self._checking = True
        try:
            completed = self.try_complete()
            while self._check_again and not self._completed:
                self._check_again = False
                completed = self.try_complete()
        finally:
            self._checking = False
        return completed

    def run(self) -> None:
        """The time is over: completes the operation, unless somebody was earlier."""
        if self.force_complete():
            counts = self._counts
            if counts is not None:
                counts.expired += 1
            self.on_expiration()
            if counts is not None and counts.on_expired is not None:
                counts.on_expired()
