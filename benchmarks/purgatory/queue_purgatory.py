"""The purgatory before timing wheels, as the measured baseline. For benchmarks only.

Every operation goes into one delay queue, a binary heap ordered by deadline, and into the
lists of its keys. Completing it removes it from the one list in which a check met it, and
from nowhere else: the heap and the other lists keep it until a sweep. The sweep runs at a
turn of the reaper when more than `threshold` operations, pending and completed together, are
in the heap; it walks everything.

Two ways to sweep the heap are measured. The published design removed one by one through the
iterator of Java's DelayQueue, and that searches the whole array for each element and then
mends the heap. Rebuilding filters the array once and makes a heap of what is left.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from mypy_extensions import i64, mypyc_attr

from odradek.clock import SystemClock


@mypyc_attr(allow_interpreted_subclasses=True)
class QueuedOperation:
    """An operation of the old design; its place in the order is its deadline."""

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms: i64 = delay_ms
        self.deadline_ms: i64 = 0
        self.completed = False

    def force_complete(self) -> bool:
        """Completes the operation; True to the one caller that does."""
        if self.completed:
            return False
        self.completed = True
        self.on_complete()
        return True

    def try_complete(self) -> bool:
        raise NotImplementedError

    def on_complete(self) -> None:
        raise NotImplementedError

    def on_expiration(self) -> None:
        raise NotImplementedError


class OperationHeap:
    """A binary heap of operations by deadline, with removal from the middle.

    Written out because the sweep by iterator needs to remove at an index, as Java's
    PriorityQueue does; the comparisons are of plain integers.
    """

    def __init__(self) -> None:
        self.operations: list[QueuedOperation] = []

    def push(self, operation: QueuedOperation) -> None:
        self.operations.append(operation)
        self._sift_up(len(self.operations) - 1)

    def pop_due(self, now_ms: i64) -> QueuedOperation | None:
        if not self.operations or self.operations[0].deadline_ms > now_ms:
            return None
        first = self.operations[0]
        self._remove_at(0)
        return first

    def remove(self, operation: QueuedOperation) -> None:
        """Searches from the start, then mends the heap: what the iterator's `remove` costs."""
        position: i64 = 0
        while self.operations[position] is not operation:
            position += 1
        self._remove_at(position)

    def rebuild_without_completed(self) -> None:
        kept = [one for one in self.operations if not one.completed]
        self.operations = kept
        position: i64 = len(kept) // 2 - 1
        while position >= 0:
            self._sift_down(position)
            position -= 1

    def _remove_at(self, position: i64) -> None:
        last = self.operations.pop()
        if position < len(self.operations):
            self.operations[position] = last
            self._sift_down(position)
            self._sift_up(position)

    def _sift_up(self, position: i64) -> None:
        operations = self.operations
        moving = operations[position]
        while position > 0:
            parent = (position - 1) >> 1
            above = operations[parent]
            if above.deadline_ms <= moving.deadline_ms:
                break
            operations[position] = above
            position = parent
        operations[position] = moving

    def _sift_down(self, position: i64) -> None:
        operations = self.operations
        count: i64 = len(operations)
        moving = operations[position]
        child = 2 * position + 1
        while child < count:
            below = operations[child]
            if child + 1 < count and operations[child + 1].deadline_ms < below.deadline_ms:
                child += 1
                below = operations[child]
            if moving.deadline_ms <= below.deadline_ms:
                break
            operations[position] = below
            position = child
            child = 2 * position + 1
        operations[position] = moving


class QueuePurgatory:
    """The old purgatory; `turn` is the reaper's work."""

    def __init__(self, clock: SystemClock, threshold: int, sweep_by_iterator: bool) -> None:
        self.clock = clock
        self.threshold: i64 = threshold
        self.sweep_by_iterator = sweep_by_iterator
        self.heap = OperationHeap()
        self.watchers: dict[Hashable, list[QueuedOperation]] = {}

    def try_complete_else_watch(self, operation: QueuedOperation, keys: Sequence[Hashable]) -> bool:
        if operation.try_complete():
            return True
        for key in keys:
            watchers = self.watchers.get(key)
            if watchers is None:
                watchers = []
                self.watchers[key] = watchers
            watchers.append(operation)
        if operation.try_complete():
            return True
        operation.deadline_ms = self.clock.monotonic_ms() + operation.delay_ms
        self.heap.push(operation)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        watchers = self.watchers.get(key)
        if watchers is None:
            return 0
        count = 0
        for one in watchers:
            if not one.completed and one.try_complete():
                count += 1
        self.watchers[key] = [one for one in watchers if not one.completed]
        return count

    def turn(self) -> None:
        """Expires what is due, then sweeps if so many operations have gathered."""
        now_ms = self.clock.monotonic_ms()
        expired = self.heap.pop_due(now_ms)
        while expired is not None:
            if expired.force_complete():
                expired.on_expiration()
            expired = self.heap.pop_due(now_ms)
        if len(self.heap.operations) > self.threshold:
            self.sweep()

    def sweep(self) -> None:
        if self.sweep_by_iterator:
            for one in self.heap.operations.copy():
                if one.completed:
                    self.heap.remove(one)
        else:
            self.heap.rebuild_without_completed()
        for key in list(self.watchers):
            kept = [one for one in self.watchers[key] if not one.completed]
            if kept:
                self.watchers[key] = kept
            else:
                del self.watchers[key]
