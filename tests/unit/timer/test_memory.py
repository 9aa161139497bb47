"""Timers leave nothing behind, without the cyclic collector's help."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import MockTimer, TimerTask

# A few blocks come and go with the interpreter's own caches and integers.
SLACK_BLOCKS = 100
ROOT = Path(__file__).parents[3]
TRIES = 3


@pytest.fixture(autouse=True)
def no_cyclic_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def blocks_left_by(work: Callable[[], object]) -> int:
    """The objects that a second run of `work` leaves behind; the first makes what is made only
    once.

    The least of several tries: a leak is in all of them, while what another thread of this process
    (the one that brings the next tests) happens to receive meanwhile is not.
    """
    work()
    return min(growth(work) for _ in range(TRIES))


def growth(work: Callable[[], object]) -> int:
    """By how many blocks the memory grows during `work`."""
    before = sys.getallocatedblocks()
    work()
    return sys.getallocatedblocks() - before


def add_and_cancel(timer: MockTimer, rounds: int) -> None:
    for i in range(rounds):
        task = TimerTask(1 + i % 30_000)
        timer.add(task)
        task.cancel()


def test_cancelled_tasks_are_freed_at_once() -> None:
    """A broker that lives for months would drown in time-outs that were cancelled."""
    timer = MockTimer()
    assert blocks_left_by(lambda: add_and_cancel(timer, 20_000)) < SLACK_BLOCKS
    assert timer.size == 0


# In a process of its own: here the thread that brings the next tests allocates meanwhile.
TEN_MILLION = """
import gc
from odradek.timer import MockTimer
from tests.unit.timer.test_memory import add_and_cancel, growth

gc.disable()
timer = MockTimer()
add_and_cancel(timer, 20_000)
print(growth(lambda: add_and_cancel(timer, 10_000_000)), timer.size)
"""


@pytest.mark.slow
def test_ten_million_cancelled_tasks_leave_nothing() -> None:
    """A leak of one in a thousand does not show among twenty thousand."""
    done = subprocess.run(
        [sys.executable, "-c", TEN_MILLION], cwd=ROOT, capture_output=True, text=True, check=True
    )
    blocks, size = map(int, done.stdout.split())
    assert blocks < 10 * SLACK_BLOCKS
    assert size == 0


def test_tasks_that_ran_are_freed_at_once() -> None:
    """The bucket must let go of what it has handed on."""
    timer = MockTimer()

    def add_and_run() -> None:
        for i in range(5_000):
            timer.add(TimerTask(1 + i % 700))
        timer.advance_clock(800)

    assert blocks_left_by(add_and_run) < SLACK_BLOCKS


@pytest.mark.parametrize("fired_ms", [0, 400])
def test_a_closed_timer_lets_go_of_every_level(fired_ms: int) -> None:
    """A broker that stops in a test, a thousand times, must leave nothing of a thousand timers."""

    def open_and_close() -> None:
        timer = MockTimer()
        for i in range(2_000):
            timer.add(TimerTask(1 + i * i))
        timer.advance_clock(fired_ms)
        timer.close()
        assert timer.size == 0

    assert blocks_left_by(open_and_close) < SLACK_BLOCKS


class Brief(DelayedOperation):
    """An operation that never holds by itself."""

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None: ...

    def on_expiration(self) -> None: ...


def test_completed_operations_are_freed_by_the_purge() -> None:
    """An operation holds a request; a purgatory that kept them would be the leak of R4."""
    purgatory = DelayedOperationPurgatory("memory", MockTimer(), purge_interval=100)

    def watch_and_complete() -> None:
        for i in range(5_000):
            operation = Brief(1000)
            purgatory.try_complete_else_watch(operation, [i, i % 7])
            operation.force_complete()
        purgatory.purge()

    assert blocks_left_by(watch_and_complete) < SLACK_BLOCKS
    assert purgatory.watched == 0


class Owner:
    """Something that has a timer, a task that calls it, and operations that know it."""

    def __init__(self) -> None:
        self.timer = MockTimer()
        self.purgatory = DelayedOperationPurgatory("memory", self.timer)
        self.task = TimerTask(5, self.work)

    def work(self) -> None: ...

    def add_and_forget(self) -> None:
        self.timer.add(self.task)

    def run(self) -> None:
        self.timer.add(self.task)
        self.timer.advance_clock(5)

    def close(self) -> None:
        self.timer.add(self.task)
        self.timer.close()

    def watch(self) -> None:
        operation = Brief(1000)
        operation.owner = self  # type: ignore[attr-defined]
        self.purgatory.try_complete_else_watch(operation, ["a", self])

    def complete(self) -> None:
        self.watch()
        self.purgatory.waiting()
        self.timer.advance_clock(1000)

    def shut_down(self) -> None:
        self.watch()
        self.purgatory.shutdown()


@pytest.mark.parametrize(
    "do",
    [Owner.work, Owner.add_and_forget, Owner.run, Owner.close, Owner.watch, Owner.complete,
     Owner.shut_down],
)  # fmt: skip
def test_an_owner_and_the_task_that_calls_it_are_freed_together(
    do: Callable[[Owner], None],
) -> None:
    """Each broker that was stopped would stay, as long as the process does."""
    owner = Owner()
    alive = weakref.ref(owner)
    do(owner)
    del owner
    gc.collect()
    assert alive() is None
