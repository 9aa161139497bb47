"""Tasks and the rings that hold them: TimerTaskEntry, TimerTask, TimerTaskList.

A bucket of the wheel is a doubly linked ring with a sentinel, and the links are fields of
the task itself, as timers are kept in operating system kernels: taking a task out needs the
task and nothing else, so cancelling is O(1) and leaves nothing behind.

Kafka gives a task a second object, its cell, because threads that hold a read lock race to
replace it. Here one owner adds and advances, so a task *is* its cell: `TimerTask` derives
from `TimerTaskEntry`, and a pending timer costs one allocation of 96 bytes when compiled.
Binding a task again takes it out of its old bucket first, whichever that was.

`TimerTaskEntry.remove`, `TimerTaskList.add` and `TimerTask.cancel` are runs of plain loads
and stores: no call and no loop stands between the first and the last, and CPython hands its
lock on only at those. That is why a foreign thread may cancel (it needs an interpreter with
a global lock); everything else belongs to the owner (see `timing_wheel`).

When a task leaves its ring its links are cut, so a task that was cancelled or has run is freed
at once. The cyclic collector sees all of them nevertheless: a task calls a method of an object
that holds the task, and a ring that is dropped while full holds itself. Only what has neither a
callback nor an owner may be kept from it (`acyclic`), as the counter is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i32, i64, mypyc_attr

MAX_DELAY_MS: Final = 2**53
"""Longer delays are cut to this, some 285 000 years, so that deadlines fit a 64-bit integer. It is
`clock.FARTHEST_MS`, written out: only a number that stands here is compiled into the code."""


@mypyc_attr(acyclic=True)
class TaskCounter:
    """How many tasks are pending; one counter is shared by all buckets of all wheels."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending: i64 = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class TimerTaskEntry:
    """A cell of a ring: its neighbours, the bucket that it is in, and when it is due.

    Invariant: `bucket`, `next` and `prev` are all set (the cell is in a ring) or all None.
    """

    __slots__ = ("bucket", "cancelled", "expiration_ms", "next", "prev")

    def __init__(self) -> None:
        self.next: TimerTaskEntry | None = None
        self.prev: TimerTaskEntry | None = None
        self.bucket: TimerTaskList | None = None
        self.expiration_ms: i64 = -1
        self.cancelled: bool = False

    def remove(self) -> None:
        """Takes the cell out of its bucket; nothing happens when it is in none. O(1)."""
        bucket = self.bucket
        if bucket is None:
            return
        before = self.prev
        after = self.next
        assert before is not None
        assert after is not None
        before.next = after
        after.prev = before
        self.next = None
        self.prev = None
        self.bucket = None
        bucket.counter.pending -= 1


@mypyc_attr(allow_interpreted_subclasses=True)
class TimerTask(TimerTaskEntry):
    """Something to do `delay_ms` after it is added to a timer.

    Give it a callback, or derive from it and override `run`. It may be added again, from
    `run` or later, with the same or (after setting `delay_ms`) another delay. A negative
    delay is due at once; one beyond `MAX_DELAY_MS` is cut to it, now or when it is added.

    `hand_overs` is the number of the last hand-over by another thread, raised once more by
    whatever its owner says after that: an older one that waits to be taken is void.
    """

    __slots__ = ("callback", "delay_ms", "hand_overs")

    def __init__(self, delay_ms: int, callback: Callable[[], object] | None = None) -> None:
        # The cell's fields, set here: tasks are made by the million.
        self.next = None
        self.prev = None
        self.bucket = None
        self.expiration_ms = -1
        self.cancelled = False
        self.hand_overs: i32 = 0
        self.delay_ms: i64 = delay_ms if -1 <= delay_ms <= MAX_DELAY_MS else clamp(delay_ms)
        self.callback = callback

    def run(self) -> None:
        """Calls the callback: the task is due."""
        if self.callback is not None:
            self.callback()

    def describe(self) -> str:
        """Describes the task in a few words, for people: by default what it calls."""
        return name_of(self.callback)

    def cancel(self) -> None:
        """Makes sure that the task does not run, unless it is added again. O(1), any thread.

        A run that has begun on the owner's thread continues.
        """
        self.cancelled = True
        self.remove()

    @property
    def is_pending(self) -> bool:
        """Whether the task waits in a timer."""
        return self.bucket is not None


def name_of(action: Callable[[], object] | None) -> str:
    """The name of an action where it was written, as far as it has one."""
    name = str(getattr(action, "__qualname__", type(action).__name__))
    return name.replace(".<locals>", "").replace(".<lambda>", "")


def clamp(delay_ms: int) -> int:
    """The nearest delay that a wheel can count."""
    return max(-1, min(delay_ms, MAX_DELAY_MS))


class TimerTaskList(TimerTaskEntry):
    """A bucket: a ring of cells, itself the sentinel, and the moment when it is due.

    As a cell it is in no bucket; its neighbours are the last and the first task, or itself
    when it is empty. `expiration_ms` is -1 while it is not in the queue of buckets; so it may be
    while it is (`queued`), on a clock that begins below zero. A bucket comes round again with
    every turn of its wheel, and always with a later expiration.
    """

    __slots__ = ("counter", "queued")

    def __init__(self, counter: TaskCounter) -> None:
        super().__init__()
        self.queued: bool = False
        self.counter = counter
        self.next = self
        self.prev = self

    @property
    def empty(self) -> bool:
        """Whether no task is in the bucket."""
        return self.next is self

    def set_expiration(self, expiration_ms: i64) -> bool:
        """Sets the moment when the bucket is due; True when that changed it."""
        if self.queued and self.expiration_ms == expiration_ms:
            return False
        self.queued = True
        self.expiration_ms = expiration_ms
        return True

    def add(self, entry: TimerTaskEntry) -> None:
        """Puts a cell at the end of the ring, out of any ring that it was in before."""
        if entry.bucket is not None:
            entry.remove()
        last = self.prev
        assert last is not None
        entry.bucket = self
        entry.next = self
        entry.prev = last
        last.next = entry
        self.prev = entry
        self.counter.pending += 1

    def poll(self) -> TimerTaskEntry | None:
        """Takes out the first cell; None when the ring is empty."""
        first = self.next
        if first is None or first is self:
            return None
        # As `remove`, with the neighbours known.
        second = first.next
        assert second is not None
        self.next = second
        second.prev = self
        first.next = None
        first.prev = None
        first.bucket = None
        self.counter.pending -= 1
        return first

    def flush(self, visit: Callable[[TimerTaskEntry], object]) -> None:
        """Empties the ring and hands every cell to `visit`, in the order of adding."""
        while (entry := self.poll()) is not None:
            visit(entry)
        self.unqueue()

    def unqueue(self) -> None:
        """It was taken out of the queue of buckets, and may be filled for its next turn."""
        self.queued = False
        self.expiration_ms = -1

    def tasks(self) -> list[TimerTaskEntry]:
        """The cells in the order of adding, to inspect the bucket."""
        found: list[TimerTaskEntry] = []
        entry = self.next
        while entry is not None and entry is not self:
            found.append(entry)
            entry = entry.next
        return found

    def close(self) -> None:
        """Unlinks what is left, and the sentinel from itself; the bucket is of no more use."""
        while self.poll() is not None:
            pass
        self.next = None
        self.prev = None
