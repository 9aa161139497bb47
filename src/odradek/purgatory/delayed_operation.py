"""DelayedOperation: something that completes when a condition holds, or when its time is over.

An operation is a timer task. Exactly one caller completes it, the first: one that found the
condition true, or the timer. Only this winner takes it out of the timer and runs `on_complete`.
When the timer wins, `on_expiration` runs after it.

`on_complete` may complete other operations, and those others again: a completion deeper than one
inside another is queued and runs when the inner one has returned, so the stack does not grow with
the chain, through however many purgatories it goes. If one of them raises, the rest of the queue
still runs.

`force_complete` and `safe_try_complete` may be called by any thread, the rest belongs to the
owner of the timer. Neither takes a lock. The winner is decided by a test and an assignment
with no call and no jump back between them, and CPython hands its interpreter lock on only
at those, so no other thread can step between (see `odradek.timer.timer_task`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from threading import get_ident, local
from typing import Final, TypeVar

from mypy_extensions import i64, mypyc_attr

from odradek.timer.system_timer import is_interrupt
from odradek.timer.timer_task import MAX_DELAY_MS, TimerTask, clamp

T = TypeVar("T")

NOBODY: Final = 0
SEVERAL: Final = -1
"""In place of the number of the thread that left word: two of them did."""

_log = logging.getLogger(__name__)


class Completing:
    """The completions that run on one thread, and the queue behind them.

    A completion inside another runs at once, like any call. That one begins the queue: completions
    inside it are queued, and run when it has returned. All purgatories share the queue, since a
    chain through several of them grows the same stack.
    """

    __slots__ = ("is_running", "line")

    def __init__(self) -> None:
        self.is_running = False
        self.line: deque[tuple[DelayedOperation, bool]] | None = None
        """Operations, and whether the time of each was over."""


_THREADS: Final = local()
"""Of each thread its `Completing`; a forked child has only that of its own thread."""


def of_thread(threads: local, make: Callable[[], T]) -> T:
    """Returns the completions of the calling thread, made at its first call."""
    found: T | None = getattr(threads, "own", None)
    if found is None:
        found = threads.own = make()
    return found


class Completions:
    """The number of completions in this process, in all purgatories and outside of them."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total: i64 = 0


COMPLETIONS: Final = Completions()


class OperationCounts:
    """The counters of one purgatory, kept by its operations."""

    __slots__ = (
        "completed",
        "depth",
        "expired",
        "on_expired",
        "pending_watches",
        "watched",
    )

    def __init__(self) -> None:
        self.watched: i64 = 0
        """Operations that had to wait; those that still do are this less `completed`."""
        self.completed: i64 = 0
        """Operations that waited and were completed, by their time-out or before it."""
        self.expired: i64 = 0
        """How many of those by their time-out."""
        self.pending_watches: i64 = 0
        """Under how many keys those that still wait are watched, together."""
        self.depth: i64 = 0
        """How many of its completions run one inside another. One that another thread runs
        meanwhile counts as well."""
        self.on_expired: Callable[[], object] | None = None
        """Called on the owner after each time-out: the purgatory may want to purge."""


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperation(TimerTask):
    """Derive from it, override `try_complete`, `on_complete` and `on_expiration`.

    An operation is used once. `missing` and `is_routine` may be overridden as well: they tell
    people what the operation still waits for, and whether that is routine.
    """

    __slots__ = ("_asked_by", "_checking", "_completed", "_counts", "_watches")

    def __init__(self, delay_ms: int) -> None:
        # The fields of the cell and the task, set here: operations are made by the million too.
        self.next = None
        self.prev = None
        self.bucket = None
        self.expiration_ms = -1
        self.cancelled = False
        self.hand_overs = 0
        self.delay_ms = delay_ms if -1 <= delay_ms <= MAX_DELAY_MS else clamp(delay_ms)
        self.callback = None
        self._completed: bool = False
        self._checking: bool = False
        self._counts: OperationCounts | None = None
        self._watches: i64 = 0  # the number of keys; 0 when the purgatory has forgotten it
        self._asked_by: i64 = NOBODY

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
        """Whether such an operation always waits while all is well, for example for a member's next
        heartbeat."""
        return False

    def describe(self) -> str:
        """Returns `missing`, as the description of the task."""
        return self.missing()

    @property
    def is_completed(self) -> bool:
        """Whether the operation is completed."""
        return self._completed

    def force_complete(self) -> bool:
        """Completes the operation; True to the one caller that does, on any thread.

        Inside of the completion of another one's completion, `on_complete` runs a little later.
        """
        if self._completed:
            return False
        self._completed = True
        _complete(self, expired=False)
        return True

    def safe_try_complete(self) -> bool:
        """`try_complete`, on any thread; True when this call completed the operation.

        `try_complete` never runs twice at a time. A caller that comes while it runs leaves a note,
        and the running call then checks once more, so the completion is not lost. A note that the
        condition leaves itself is heeded once, or a check would never end.
        """
        if self._checking:
            asking = get_ident()
            if self._checking:  # still; no call from here to the note
                unasked = self._asked_by == NOBODY
                self._asked_by = asking if unasked or self._asked_by == asking else SEVERAL
                return False
        if self._completed:
            return False
        self._checking = True
        looked_again = completed = False
        failure: BaseException | None = None
        try:
            completed = self.try_complete()
            while self._asked_by != NOBODY and not self._completed:
                asked_by = self._asked_by
                self._asked_by = NOBODY
                if not looked_again or asked_by != get_ident():
                    looked_again = True
                    completed = self.try_complete()
        except BaseException as error:  # noqa: BLE001 - raised after the checks for others
            failure = self._look_for_others(error)
        finally:
            self._checking = False
        if failure is not None:
            raise failure
        return completed

    def _look_for_others(self, failure: BaseException) -> BaseException:
        """Checks again for the notes of other threads after the condition has raised.

        It may raise again, and more notes may come meanwhile. Returns the exception to raise at the
        end.
        """
        own = get_ident()
        while self._asked_by not in (NOBODY, own) and not self._completed:
            self._asked_by = NOBODY
            try:
                self.try_complete()
            except BaseException as error:  # noqa: BLE001 - raised after the checks for others
                failure = graver(failure, error)
        self._asked_by = NOBODY  # no call from the last look to here
        return failure

    def run(self) -> None:
        """Completes the operation at its time-out, unless it is completed already."""
        if not self._completed:
            self._completed = True
            _complete(self, expired=True)


def _complete(operation: DelayedOperation, expired: bool) -> None:
    """Takes the operation out of the timer and the counts, and completes it; only the winner calls
    it."""
    counts = operation._counts
    if counts is not None and operation._watches > 0:
        counts.completed += 1
        counts.pending_watches -= operation._watches
        if expired:
            counts.expired += 1
    COMPLETIONS.total += 1
    operation.cancel()
    completing = of_thread(_THREADS, Completing)
    if completing.line is not None:
        completing.line.append((operation, expired))
    elif completing.is_running:
        _begin_line(completing, operation, expired)
    else:
        completing.is_running = True
        try:
            _tell(operation, expired)
        finally:
            completing.is_running = False


def _tell(operation: DelayedOperation, expired: bool) -> None:
    """Completes the operation, as a completion of its purgatory."""
    counts = operation._counts
    if counts is not None:
        counts.depth += 1
    try:
        if expired:
            _expire(operation)
        else:
            operation.on_complete()
    finally:
        if counts is not None:
            counts.depth -= 1


def _begin_line(completing: Completing, operation: DelayedOperation, expired: bool) -> None:
    """Runs a completion and all that it queues, inside of its purgatory's completions."""
    line = completing.line = deque([(operation, expired)])
    counts = operation._counts
    if counts is not None:
        counts.depth += 1
    try:
        _run_all(line)
    finally:
        completing.line = None
        if counts is not None:
            counts.depth -= 1


def _run_all(line: deque[tuple[DelayedOperation, bool]]) -> None:
    failure: BaseException | None = None
    while line:
        operation, expired = line.popleft()
        try:
            _tell(operation, expired)
        except BaseException as error:  # noqa: BLE001 - the others were completed, and have to run
            failure = error if failure is None else graver(failure, error)
    if failure is not None:
        raise failure


def _expire(operation: DelayedOperation) -> None:
    """Completes it and tells it why. If one of the three raises, the others still run."""
    counts = operation._counts
    try:
        try:
            operation.on_complete()
        finally:
            operation.on_expiration()
    finally:
        if counts is not None and counts.on_expired is not None:
            counts.on_expired()


def graver(before: BaseException, error: BaseException) -> BaseException:
    """Which of two failures to raise when all have had their turn: an interrupt, then a broken
    invariant, then whichever was first. The other is logged."""
    first, second = (error, before) if _gravity(error) > _gravity(before) else (before, error)
    _log.error("another operation failed as well", exc_info=second)
    return first


def _gravity(error: BaseException) -> int:
    if is_interrupt(error):
        return 2
    return 1 if isinstance(error, AssertionError) else 0
