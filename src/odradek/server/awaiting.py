"""Awaiting what the floors below report by callback, and the broker's timer."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.store import OnDone
from odradek.timer import Timer, TimerTask

T = TypeVar("T")


async def outcome(start: Callable[[OnDone[T]], None]) -> T:
    """Awaits what a floor reports by callback.

    Raises:
        BrokerError: that was the outcome.
    """
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def on_done(result: T | BrokerError) -> None:
        if future.done():
            return  # the waiter was cancelled
        if isinstance(result, BrokerError):
            future.set_exception(result)
        else:
            future.set_result(result)

    start(on_done)
    return await future


async def outcome_within(timer: Timer, timeout_ms: int, start: Callable[[OnDone[T]], None]) -> T:
    """`outcome`, with a time-out.

    Raises:
        BrokerError: that was the outcome, or REQUEST_TIMED_OUT.
    """
    late: list[TimerTask] = []

    def begin(on_done: OnDone[T]) -> None:
        error = BrokerError(ErrorCode.REQUEST_TIMED_OUT)
        late.append(TimerTask(timeout_ms, lambda: on_done(error)))
        timer.add(late[0])
        start(on_done)

    try:
        return await outcome(begin)
    finally:
        late[0].cancel()


async def pause(timer: Timer, delay_ms: int) -> None:
    """Lets time pass, on the timer's clock."""
    passed = asyncio.Event()
    task = TimerTask(delay_ms, passed.set)
    timer.add(task)
    try:
        await passed.wait()
    finally:
        task.cancel()
