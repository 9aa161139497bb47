"""A step that is taken again, and that something waits for."""

import asyncio

import pytest

from odradek.timer import MockTimer, RetryTask, TimerTask


@pytest.mark.parametrize("failure", [OSError, asyncio.CancelledError])
def test_a_retry_that_fails_is_a_broken_invariant(failure: type[BaseException]) -> None:
    """Its waiters would wait for ever, in a broker that seems alive. A future that was cancelled is
    a failure like any other."""

    def take_step() -> None:
        raise failure("gone")

    told: list[tuple[TimerTask, BaseException]] = []
    timer = MockTimer(on_error=lambda task, error: told.append((task, error)))
    retry = RetryTask(5, take_step)
    timer.add(retry)
    timer.advance_clock(5)
    [(task, error)] = told
    assert task is retry
    assert isinstance(error, AssertionError)
    assert isinstance(error.__cause__, failure)
    assert "take_step has raised" in str(error)


def test_a_broken_invariant_of_a_retry_is_told_as_it_is() -> None:
    """Wrapped once more, its own facts would come last."""
    broken = AssertionError("two leaders")

    def take_step() -> None:
        raise broken

    told: list[BaseException] = []
    timer = MockTimer(on_error=lambda task, error: told.append(error))
    timer.add(RetryTask(5, take_step))
    timer.advance_clock(5)
    assert told == [broken]
