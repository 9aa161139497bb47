"""The calls that other threads may make: completing is safe, and exactly once.

The interpreter is told to switch threads as often as it can, so that every place where it
may switch is met; the operations have to come out even all the same. Every thread has so much
to do and no more: one that went on until another is done could keep that one from being done.
"""

import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.deadlines import deadline_s

from odradek.clock import SystemClock
from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import SystemTimer

OPERATIONS = 300
ROUNDS = 30
PATIENCE_S = deadline_s(300)


@pytest.fixture(autouse=True)
def restless_interpreter() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Counted(DelayedOperation):
    """Notes its completions; ready when the test says so."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.completions: list[str] = []
        self.expirations: list[str] = []

    def try_complete(self) -> bool:
        return self.force_complete() if self.ready else False

    def on_complete(self) -> None:
        self.completions.append(threading.current_thread().name)

    def on_expiration(self) -> None:
        self.expirations.append(threading.current_thread().name)


def run_together(*works: Callable[[], object]) -> None:
    """Runs all at once and waits for all."""
    gate = threading.Barrier(len(works))
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            gate.wait(PATIENCE_S)
            work()
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert failures == []


def test_many_threads_complete_each_operation_once() -> None:
    """Two threads that both win would answer a request twice."""
    operations = [Counted(1000) for _ in range(OPERATIONS)]
    wins: list[int] = []

    def complete_all() -> None:
        for i, operation in enumerate(operations):
            if operation.force_complete():
                wins.append(i)

    run_together(complete_all, complete_all, complete_all, complete_all)
    assert sorted(wins) == list(range(OPERATIONS))
    assert all(len(one.completions) == 1 for one in operations)


def test_a_completion_during_another_threads_check_is_not_lost() -> None:
    """Each thread makes the condition true and checks; one of the checks must see it."""
    for _ in range(OPERATIONS):
        operation = Counted(1000)

        def make_true_and_check(operation: Counted = operation) -> None:
            operation.ready = True
            operation.safe_try_complete()

        run_together(operation.safe_try_complete, make_true_and_check)
        assert len(operation.completions) == 1


def test_an_owner_and_other_threads_leave_nothing_behind() -> None:
    """Watch, check, complete and expire at the same time: all complete once, sizes agree."""
    timer = SystemTimer(SystemClock())
    purgatory = DelayedOperationPurgatory("test", timer, purge_interval=10)
    operations = [Counted(i % 7) for i in range(OPERATIONS)]
    rounds = [operations[i::ROUNDS] for i in range(ROUNDS)]
    gate = threading.Barrier(3)

    def own() -> None:
        for watched in rounds:
            gate.wait(PATIENCE_S)
            for i, operation in enumerate(watched):
                purgatory.try_complete_else_watch(operation, [i % 5, "all"])
                timer.advance_clock(0)

    def force() -> None:
        for watched in rounds:
            gate.wait(PATIENCE_S)
            for operation in watched[::3] * 5:
                operation.force_complete()

    def hand_over() -> None:
        for watched in rounds:
            gate.wait(PATIENCE_S)
            for i, operation in enumerate(watched[::2] * 5):
                operation.ready = True
                operation.safe_try_complete()
                purgatory.check_and_complete_threadsafe(i % 5)

    run_together(own, force, hand_over)
    timer.advance_clock(0)
    while timer.size:
        timer.advance_clock(50)
    assert all(len(one.completions) == 1 for one in operations)
    assert sum(len(one.expirations) for one in operations) == purgatory.stats.expired
    purgatory.purge()
    assert (purgatory.watched, purgatory.delayed, timer.size) == (0, 0, 0)
    assert purgatory.stats.watched == purgatory.stats.completed
