"""What timers leave behind: nothing, and without the cyclic collector's help."""

import gc
import sys
from collections.abc import Iterator

import pytest

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import MockTimer, TimerTask

# A few blocks come and go with the interpreter's own caches and integers.
SLACK_BLOCKS = 100


@pytest.fixture(autouse=True)
def no_cyclic_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def add_and_cancel(timer: MockTimer, rounds: int) -> None:
    for i in range(rounds):
        task = TimerTask(1 + i % 30_000)
        timer.add(task)
        task.cancel()


@pytest.mark.parametrize(
    "rounds", [20_000, pytest.param(10_000_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_cancelled_tasks_are_freed_at_once(rounds: int) -> None:
    """A broker that lives for months would drown in time-outs that were cancelled."""
    timer = MockTimer()
    add_and_cancel(timer, 20_000)
    before = sys.getallocatedblocks()
    add_and_cancel(timer, rounds)
    assert timer.size == 0
    assert sys.getallocatedblocks() - before < SLACK_BLOCKS


def test_tasks_that_ran_are_freed_at_once() -> None:
    """The bucket must let go of what it has handed on."""
    timer = MockTimer()

    def add_and_run() -> None:
        for i in range(5_000):
            timer.add(TimerTask(1 + i % 700))
        timer.advance_clock(800)

    add_and_run()
    before = sys.getallocatedblocks()
    add_and_run()
    assert sys.getallocatedblocks() - before < SLACK_BLOCKS


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

    open_and_close()
    before = sys.getallocatedblocks()
    open_and_close()
    assert sys.getallocatedblocks() - before < SLACK_BLOCKS


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

    watch_and_complete()
    before = sys.getallocatedblocks()
    watch_and_complete()
    assert purgatory.watched == 0
    assert sys.getallocatedblocks() - before < SLACK_BLOCKS
