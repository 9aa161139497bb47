"""DelayedOperationPurgatory: where requests wait until they can be answered.

An operation that cannot complete yet is watched under keys (the partitions that it fetches, the
group that it joins), and put into a timer. Code that changes something calls `check_and_complete`
with its key, and the operations there are tried again.

Completing removes an operation from the timer at once, but not from its lists of watchers:
that would cost a search in each. A check drops the completed ones that it meets; the rest is
left to a purge over all lists. When to purge is a matter of cost. The published rule purges
whenever more than `purge_interval` completed operations may be watched, however many others
the purge has to walk over; with a hundred thousand waiting it walks over a hundred of them
for each that it drops. The amortised rule, our default, waits until the completed ones
outnumber the others as well: then a purge costs each watched entry a constant.

Completions may check, watch and shut down, and are answered at once. Calls from a *condition* are
deferred until the conditions being tried have returned, since one that checks its own key, or two
that check each other, would otherwise never end (`_do_asked`).

One owner, the timer's, calls everything here. Other threads hand over with
`check_and_complete_threadsafe`, or complete an operation directly (`delayed_operation`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial, reduce
from threading import local
from typing import Final, NamedTuple

from mypy_extensions import i64, mypyc_attr

from odradek.purgatory.delayed_operation import (
    COMPLETIONS,
    DelayedOperation,
    OperationCounts,
    graver,
    of_thread,
)
from odradek.purgatory.watchers import Watchers
from odradek.timer.timer import Timer

NOT_LOOKING: Final = -1
BETWEEN_LOOKS: Final = -2


class WaitingOperation(NamedTuple):
    """A waiting operation, described for people: why is this request not answered?"""

    kind: str
    """The class of the operation."""
    keys: tuple[Hashable, ...]
    """What may complete it."""
    since_ms: int
    """When it was put into the timer, on the timer's clock."""
    deadline_ms: int
    """When it will expire, on the timer's clock."""
    missing: str
    """What it waits for, in its own words (`DelayedOperation.missing`)."""
    is_routine: bool = False
    """Whether one always waits like this while all is well (`DelayedOperation.is_routine`)."""


class PurgatoryStats(NamedTuple):
    """Counts of the operations so far, by how they ended."""

    watched: int
    """Operations that had to wait."""
    completed_at_once: int
    """Operations whose condition held when they were handed in, or before they had to wait."""
    completed_by_check: dict[str, int]
    """Waiting operations completed by `check_and_complete`, by its `reason`."""
    completed: int
    """Waiting operations that were completed, by whatever, the expired ones among them."""
    expired: int
    """Waiting operations that were completed by their time-out."""


class HandedOverChecks:
    """The checks that an owner's thread was handed over, by generations.

    Requests from outside are the first generation; requests from within a check belong to the next.
    A later request is checked if its key was not yet, or if something new happened in the
    generation before: otherwise conditions that ask for themselves, or for each other, would ask
    for ever, and a clock that waits for them would stand still.
    """

    __slots__ = ("_latest_new", "_seen", "next_generation")

    def __init__(self) -> None:
        self.next_generation: i64 = 0
        """That of what is asked for now; 0 outside of such a check."""
        self._latest_new: i64 = 0
        self._seen: set[tuple[int, Hashable]] = set()

    def begin(self, generation: i64, key: tuple[int, Hashable]) -> bool:
        """Whether a check of this generation is to be made, under this key of a purgatory."""
        if generation == 0:
            self._seen.clear()
            self._latest_new = 0
        elif key not in self._seen:
            self._latest_new = max(self._latest_new, generation)
        elif self._latest_new < generation - 1:
            return False
        self._seen.add(key)
        self.next_generation = generation + 1
        return True

    def end(self, is_new: bool, outer: i64) -> None:
        """Ends a check, with whether an operation was completed or handed in, and the earlier
        `next_generation`."""
        if is_new:
            self._latest_new = max(self._latest_new, self.next_generation - 1)
        self.next_generation = outer


_THREADS: Final = local()
"""Of each thread its `HandedOverChecks`."""


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperationPurgatory:
    """Operations that wait under keys, and their time-outs.

    `purge_interval`: how many completed entries may stay watched before a purge is considered.
    `amortised_purge=False` selects the published rule. `reaper_enabled=False` leaves purging to the
    caller (`maybe_purge`).
    """

    def __init__(
        self,
        name: str,
        timer: Timer,
        broker_id: int = 0,
        purge_interval: int = 1000,
        reaper_enabled: bool = True,
        amortised_purge: bool = True,
    ) -> None:
        self.name = name
        self.timer = timer
        self.broker_id = broker_id
        self.purge_interval: i64 = purge_interval
        self.reaper_enabled = reaper_enabled
        self.amortised_purge = amortised_purge
        self._watchers: dict[Hashable, Watchers] = {}
        self._counts = OperationCounts()
        self._counts.on_expired = self._after_completions
        self._watched: i64 = 0
        self._completed_at_once: i64 = 0
        self._completed_at_purge: i64 = 0
        self._completed_by_check: dict[str, int] = {}
        self._asked: set[tuple[Hashable, str, HandedOverChecks | None]] = set()
        # How many completions run one inside another where conditions are being tried: a call made
        # while exactly so many run comes from a condition. It belongs to the innermost look.
        self._looking_at: i64 = NOT_LOOKING
        self._asked_checks: dict[Hashable, str] = {}
        self._asked_watches: list[tuple[DelayedOperation, Sequence[Hashable]]] = []
        self._has_asked = False
        self._failures: list[BaseException] = []
        self._shutdowns: i64 = 0

    @property
    def watched(self) -> int:
        """Entries in the lists of watchers: one per operation and key, completed ones too."""
        return self._watched

    @property
    def delayed(self) -> int:
        """Operations of this purgatory that are pending in the timer."""
        return self._counts.watched - self._counts.completed

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Sequence[Hashable]
    ) -> bool:
        """Completes the operation if its condition holds, else lets it wait under `keys`.

        True only when this call completed it. The condition is tried again after watching:
        otherwise a change before the operation was visible would never wake it. An operation that a
        condition hands in is looked at when the condition has returned.

        Raises:
            ValueError: there is no key; nothing could ever wake the operation.
            Exception: whatever a condition or a key raises; then the operation does not wait.
        """
        if not keys:
            raise ValueError("an operation must be watched under at least one key")
        outer, depth = self._looking_at, self._counts.depth
        if outer == depth:
            kept = tuple(keys)
            hash(kept)  # now: the caller should get the error of an unhashable key
            self._asked_watches.append((operation, kept))
            self._has_asked = True
            return False
        self._looking_at = depth
        try:
            completed = self._try_else_watch(operation, keys)
        except BaseException as error:
            self._looking_at = outer
            self._failures.append(error)
            self._after_look((), len(self._failures) - 1)
            raise
        self._looking_at = outer
        if self._has_asked:
            # Keys under which it does not wait were not used, and may be unhashable.
            self._after_look(keys if operation.is_pending else (), len(self._failures))
        return completed

    def _try_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        operation._counts = self._counts
        shutdowns = self._shutdowns
        if operation.safe_try_complete():
            self._completed_at_once += 1
            return True
        if self._shutdowns != shutdowns:
            return False
        try:
            if self._watch(operation, keys) and operation.safe_try_complete():
                return True
        except BaseException:
            self._take_back(operation, keys)
            raise
        if operation._watches > 0 and not operation._completed:
            self.timer.add(operation)
        if operation._completed:  # perhaps meanwhile, before the timer had it
            operation.cancel()
        self._after_completions()
        return False

    def _watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        """Puts the operation into the lists of its keys; False when it completes on the way."""
        watches: i64 = len(keys)
        completed = operation._completed
        if completed:
            return False
        # No call up to the last sum: a completion takes all of this back, or nothing.
        counts = self._counts
        operation._watches = watches
        counts.watched += 1
        counts.pending_watches += watches
        lists = self._watchers
        for key in keys:
            if operation._completed:
                return False
            watchers = lists.get(key)
            if watchers is None:
                watchers = lists[key] = Watchers()
            watchers.operations.append(operation)
            self._watched += 1
        return True

    def _take_back(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> None:
        """Stops watching the operation, under the keys that it was put under."""
        if operation._watches > 0 and not operation._completed:
            self._counts.watched -= 1
            self._counts.pending_watches -= operation._watches
            operation._watches = 0
        with suppress(Exception):  # the key that raised before does so again, and is the last
            for key in keys:
                watchers = self._watchers.get(key)
                if watchers is not None:
                    self._watched -= watchers.discard(operation)
                    self._drop_completed(key, watchers)

    def check_and_complete(self, key: Hashable, reason: str = "check") -> int:
        """Tries what waits under `key`, in the order of watching; how many this call completed.

        `reason` names the event for the statistics: "append", "fetch", "join". If one raises, the
        others are still tried; its error is raised at the end.
        """
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        if self._looking_at == self._counts.depth:
            self._ask((key,), reason)
            return 0
        failed = len(self._failures)
        completed = self._look(watchers)
        self._drop_completed(key, watchers)
        if completed:
            self._count(completed, reason)
        if self._has_asked or len(self._failures) > failed:
            self._after_look((key,), failed)
        return completed

    def _look(self, watchers: Watchers) -> int:
        outer = self._looking_at
        self._looking_at = self._counts.depth
        try:
            return watchers.try_complete_watched(self._failures)
        finally:
            self._looking_at = outer

    def _count(self, completed: int, reason: str) -> None:
        self._completed_by_check[reason] = self._completed_by_check.get(reason, 0) + completed
        self._after_completions()

    def check_all_and_complete(self, keys: Sequence[Hashable], reason: str = "check") -> int:
        """Like `check_and_complete` for each key, but tries an operation under several keys once.

        A fetch of a thousand partitions looks at all of them whenever it is tried: if all of them
        changed at once, it would look a thousand times at a thousand.
        """
        if len(keys) == 1:
            return self.check_and_complete(keys[0], reason)
        if self._looking_at == self._counts.depth:
            self._ask(keys, reason)
            return 0
        failed = len(self._failures)
        found: list[tuple[Hashable, Watchers]] = []
        waiting: dict[DelayedOperation, None] = {}
        for key in keys:
            watchers = self._watchers.get(key)
            if watchers is not None:
                found.append((key, watchers))
                waiting.update(dict.fromkeys(watchers.operations))
        every = Watchers()
        every.operations = list(waiting)
        completed = self._look(every)
        for key, watchers in found:
            self._drop_completed(key, watchers)
        if completed:
            self._count(completed, reason)
        if self._has_asked or len(self._failures) > failed:
            self._after_look(keys, failed)
        return completed

    def _ask(self, keys: Sequence[Hashable], reason: str) -> None:
        for key in keys:
            if key in self._watchers:
                self._asked_checks[key] = reason
                self._has_asked = True

    def _after_look(self, keys: Sequence[Hashable], failed: int) -> None:
        """Runs the calls of conditions, when no condition is being tried any more, and raises the
        errors of callbacks after the first `failed`, which belong to another call."""
        if self._has_asked and self._looking_at == NOT_LOOKING:
            self._looking_at = BETWEEN_LOOKS
            try:
                self._do_asked(set(keys))
            finally:
                self._looking_at = NOT_LOOKING
        if len(self._failures) > failed:
            failures = self._failures[failed:]
            del self._failures[failed:]
            raise reduce(graver, failures)

    def _do_asked(self, seen: set[Hashable]) -> None:
        """Runs generation by generation: calls from one belong to the next.

        It ends with a generation in which nothing new happened, and which asks for nothing new:
        nothing completed, nothing was handed in, no key was looked at for the first time. Its
        conditions would ask for ever. A completion in another purgatory counts too: a condition may
        complete an operation there, whose completion checks here.
        """
        is_new = True
        while self._has_asked and (is_new or self._asks_anew(seen)):
            checks, watches = self._asked_checks, self._asked_watches
            self._forget_asked()
            before, shutdowns = COMPLETIONS.total, self._shutdowns
            for operation, keys in watches:
                if self._shutdowns == shutdowns:
                    self._attempt(partial(self.try_complete_else_watch, operation, keys))
            for key, reason in checks.items():
                self._attempt(partial(self.check_and_complete, key, reason))
            is_new = bool(watches) or not seen.issuperset(checks) or COMPLETIONS.total > before
            seen.update(checks)
        self._forget_asked()

    def _asks_anew(self, seen: set[Hashable]) -> bool:
        return bool(self._asked_watches) or not seen.issuperset(self._asked_checks)

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised when all have had their turn
            self._failures.append(error)

    def _forget_asked(self) -> None:
        self._asked_checks = {}
        self._asked_watches = []
        self._has_asked = False

    def check_and_complete_threadsafe(self, key: Hashable, reason: str = "check") -> None:
        """Makes the owner check `key` at its next turn, from any thread.

        A requested check that has not begun is not requested again: it will see the change, and
        threads that ask faster than the owner checks fill no queue. Requests from within such a
        check belong to the next generation, and end as `check_and_complete` from a condition does
        (`HandedOverChecks`).
        """
        checks = of_thread(_THREADS, HandedOverChecks)
        generation = checks.next_generation
        asked = (key, reason, checks if generation > 0 else None)
        if asked not in self._asked:
            self._asked.add(asked)
            self.timer.call_threadsafe(lambda: self._check_asked(asked, generation))

    def _check_asked(
        self, asked: tuple[Hashable, str, HandedOverChecks | None], generation: i64
    ) -> None:
        key, reason, asking = asked
        self._asked.discard(asked)
        if key not in self._watchers:
            return
        checks = of_thread(_THREADS, HandedOverChecks)
        outer = checks.next_generation
        # A request of another thread is always heeded.
        if not checks.begin(generation if asking is checks else 0, (id(self), key)):
            return
        before = COMPLETIONS.total + self._counts.watched
        try:
            self.check_and_complete(key, reason)
        finally:
            checks.end(COMPLETIONS.total + self._counts.watched > before, outer)

    def expire(self, key: Hashable) -> int:
        """Expires the operations under `key` now, as if their time were over; returns how many."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        expired = 0
        failed = len(self._failures)
        for one in list(watchers.operations):
            if one._completed or one._watches == 0:
                continue
            expired += 1
            self._attempt(one.run)
        self._drop_completed(key, watchers)
        self._after_look((), failed)
        return expired

    def _drop_completed(self, key: Hashable, watchers: Watchers) -> None:
        self._watched -= watchers.purge()
        if not watchers.operations and self._watchers.get(key) is watchers:
            del self._watchers[key]

    def _after_completions(self) -> None:
        """Purges if due; here as well as when operations come, since no more may come."""
        if self.reaper_enabled:
            self.maybe_purge()

    def maybe_purge(self) -> bool:
        """Purges if enough completed operations are still watched; says whether it did."""
        counts = self._counts
        if self.amortised_purge:
            completed = self._watched - counts.pending_watches
            due = completed > self.purge_interval and completed > counts.pending_watches
        else:
            due = counts.completed - self._completed_at_purge > self.purge_interval
        if due:
            self.purge()
        return due

    def purge(self) -> None:
        """Drops completed operations from all lists, and the keys whose lists become empty."""
        self._completed_at_purge = self._counts.completed
        for key, watchers in list(self._watchers.items()):
            self._drop_completed(key, watchers)

    def waiting(self) -> list[WaitingOperation]:
        """The operations that wait now, the longest waiting first."""
        found: dict[int, tuple[DelayedOperation, list[Hashable]]] = {}
        for key, watchers in self._watchers.items():
            for one in watchers.operations:
                if not one.is_completed:
                    found.setdefault(id(one), (one, []))[1].append(key)
        waiting = [
            WaitingOperation(
                kind=type(one).__name__,
                keys=tuple(keys),
                since_ms=one.expiration_ms - one.delay_ms,
                deadline_ms=one.expiration_ms,
                missing=one.missing(),
                is_routine=one.is_routine(),
            )
            for one, keys in found.values()
        ]
        return sorted(waiting, key=since)

    def waiting_since(self) -> Iterator[int]:
        """When each of the operations that wait now began to, on the timer's clock; others may
        run between two."""
        seen: set[int] = set()
        for watchers in list(self._watchers.values()):
            for one in watchers.operations:
                if not one.is_completed and id(one) not in seen:
                    seen.add(id(one))
                    yield one.expiration_ms - one.delay_ms

    @property
    def stats(self) -> PurgatoryStats:
        """The counts so far."""
        return PurgatoryStats(
            watched=self._counts.watched,
            completed_at_once=self._completed_at_once,
            completed_by_check=dict(self._completed_by_check),
            completed=self._counts.completed,
            expired=self._counts.expired,
        )

    def shutdown(self) -> None:
        """Forgets all operations without completing them; the timer, which others may use,
        continues.

        A check that is under way ends there, and so does handing in. Later completions are not
        counted.
        """
        self._shutdowns += 1
        for watchers in self._watchers.values():
            for one in watchers.operations:
                one.cancel()
                one._watches = 0
            watchers.operations = []
        self._watchers.clear()
        self._forget_asked()
        counts = self._counts
        counts.watched = counts.completed
        counts.pending_watches = 0
        self._watched = 0


def since(waiting: WaitingOperation) -> int:
    """The key that `waiting` sorts by."""
    return waiting.since_ms
