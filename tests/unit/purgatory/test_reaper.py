"""The reaper's thread: it owns a purgatory where no event loop does."""

import asyncio
import sys
import threading

import pytest
from tests.deadlines import deadline_s

from odradek.clock import ManualClock, SystemClock
from odradek.purgatory import (
    DelayedOperation,
    DelayedOperationPurgatory,
    ExpiredOperationReaper,
)
from odradek.timer import SystemTimer, TimerTask

# For what must happen, on a machine that has much else to do.
PATIENCE_S = deadline_s(300)


class Waiting(DelayedOperation):
    """Completes when told; says so and by whom."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.events: list[str] = []
        self.over = threading.Event()

    def try_complete(self) -> bool:
        return self.force_complete() if self.ready else False

    def on_complete(self) -> None:
        self.events.append(threading.current_thread().name)
        self.over.set()

    def on_expiration(self) -> None:
        self.events.append("expired")


def watch(purgatory: DelayedOperationPurgatory, operation: Waiting) -> None:
    """Hands an operation to the owner."""
    purgatory.timer.call_threadsafe(lambda: purgatory.try_complete_else_watch(operation, ["key"]))


def test_what_nobody_completes_expires_on_the_reapers_thread() -> None:
    """A program without an event loop would wait for ever for its time-outs."""
    timer = SystemTimer(SystemClock())
    purgatory = DelayedOperationPurgatory("fetch", timer, purge_interval=0)
    operation = Waiting(2)
    with ExpiredOperationReaper(purgatory):
        watch(purgatory, operation)
        assert operation.over.wait(PATIENCE_S)
    assert operation.events == ["reaper-fetch", "expired"]
    assert (timer.size, purgatory.watched) == (0, 0)
    timer.close()


def test_other_threads_have_the_reaper_check() -> None:
    """The thread that makes a condition true is not the owner, and must not have to be."""
    timer = SystemTimer(SystemClock())
    purgatory = DelayedOperationPurgatory("fetch", timer)
    operation = Waiting(3_600_000)
    with ExpiredOperationReaper(purgatory):
        watch(purgatory, operation)
        operation.ready = True
        purgatory.check_and_complete_threadsafe("key")
        assert operation.over.wait(PATIENCE_S)
    assert operation.events == ["reaper-fetch"]
    timer.close()


def test_stopping_leaves_what_waits_to_the_caller() -> None:
    """The next owner may go on with it, or close the timer."""
    timer = SystemTimer(SystemClock())
    purgatory = DelayedOperationPurgatory("fetch", timer)
    operation = Waiting(3_600_000)
    with ExpiredOperationReaper(purgatory):
        watch(purgatory, operation)
        taken = threading.Event()
        timer.call_threadsafe(taken.set)
        assert taken.wait(PATIENCE_S)
    assert (timer.size, purgatory.delayed, operation.events) == (1, 1, [])
    timer.close()


def test_the_reaper_follows_a_clock_that_a_test_moves() -> None:
    """On a manual clock it sleeps until the clock is moved, not until time goes by."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    purgatory = DelayedOperationPurgatory("fetch", timer)
    operation = Waiting(5_000)
    with ExpiredOperationReaper(purgatory):
        watch(purgatory, operation)
        taken = threading.Event()
        timer.call_threadsafe(taken.set)
        assert taken.wait(PATIENCE_S)
        clock.advance(5_000)
        assert operation.over.wait(PATIENCE_S)
    timer.close()


@pytest.mark.parametrize("failure", [asyncio.CancelledError, OSError])
def test_a_failure_does_not_end_the_reaper(failure: type[BaseException]) -> None:
    """No operation would expire any more, and nobody would know why."""

    def fail() -> None:
        raise failure("gone")

    def hook(task: TimerTask, error: BaseException) -> None:
        told.append(error)
        raise RuntimeError("nobody listens") from error

    told: list[BaseException] = []
    timer = SystemTimer(SystemClock(), on_error=hook)
    operation = Waiting(5)
    purgatory = DelayedOperationPurgatory("fetch", timer)
    with ExpiredOperationReaper(purgatory):
        timer.call_threadsafe(fail)
        watch(purgatory, operation)
        assert operation.over.wait(PATIENCE_S)
    assert [type(error) for error in told] == [failure]
    timer.close()


def test_a_hook_that_is_cancelled_itself_does_not_end_the_reaper() -> None:
    """CancelledError is no Exception, whoever raises it."""

    def hook(task: TimerTask, error: BaseException) -> None:
        raise asyncio.CancelledError from error

    timer = SystemTimer(SystemClock(), on_error=hook)
    operation = Waiting(5)
    purgatory = DelayedOperationPurgatory("fetch", timer)
    with ExpiredOperationReaper(purgatory):
        timer.call_threadsafe(lambda: 1 // 0)
        watch(purgatory, operation)
        assert operation.over.wait(PATIENCE_S)
    timer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reaper_that_an_interrupt_ends_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Of SystemExit a thread prints nothing: no operation would expire any more, and nobody would
    know why."""
    timer = SystemTimer(SystemClock())
    reaper = ExpiredOperationReaper(DelayedOperationPurgatory("fetch", timer))
    with reaper:
        timer.call_threadsafe(sys.exit)
        reaper._thread.join(PATIENCE_S)
        assert not reaper._thread.is_alive()
    assert "the reaper fetch ends, nothing expires any more" in caplog.text
    timer.close()


def test_the_reaper_ends_by_itself_when_its_timer_is_closed() -> None:
    """A thread of which nobody knows any more would turn for nothing."""
    timer = SystemTimer(SystemClock())
    before = set(threading.enumerate())
    ExpiredOperationReaper(DelayedOperationPurgatory("fetch", timer)).start()
    [thread] = set(threading.enumerate()) - before
    timer.call_threadsafe(timer.close)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_timer_that_its_own_task_closes_ends_the_reaper() -> None:
    """`stop` would wait for ever for a thread that nothing can be handed over to."""
    timer = SystemTimer(SystemClock())
    reaper = ExpiredOperationReaper(DelayedOperationPurgatory("fetch", timer))
    reaper.start()
    timer.add_threadsafe(TimerTask(0, timer.close))
    reaper.stop()
    assert timer.closed
