"""The loops of `benchmarks.timer`, apart so that they can be compiled."""

from __future__ import annotations

from mypy_extensions import i64

from odradek.timer.system_timer import SystemTimer
from odradek.timer.timer_task import TimerTask

NEAREST_MS = 10_000
SPREAD_MS = 30_000
SCATTER = 7919


def delay_of(position: i64) -> i64:
    """Delays of 10 to 40 s, scattered over the buckets."""
    return NEAREST_MS + position * SCATTER % SPREAD_MS


def make_tasks(count: i64) -> list[TimerTask]:
    tasks: list[TimerTask] = []
    position: i64 = 0
    while position < count:
        tasks.append(TimerTask(delay_of(position)))
        position += 1
    return tasks


def add_all(timer: SystemTimer, tasks: list[TimerTask]) -> None:
    for task in tasks:
        timer.add(task)


def add_new(timer: SystemTimer, count: i64) -> None:
    """Adds tasks that nobody but the timer holds."""
    position: i64 = 0
    while position < count:
        timer.add(TimerTask(delay_of(position)))
        position += 1


def cancel_and_add(tasks: list[TimerTask], timer: SystemTimer, rounds: i64) -> None:
    """Cancels a pending task and adds it again, over and over; so many stay pending."""
    position: i64 = 0
    count: i64 = len(tasks)
    while rounds > 0:
        task = tasks[position]
        task.cancel()
        timer.add(task)
        position += 1
        if position == count:
            position = 0
        rounds -= 1


def add_and_cancel(timer: SystemTimer, rounds: i64) -> None:
    """Starts a new task and cancels it, beside those that are pending."""
    while rounds > 0:
        task = TimerTask(delay_of(rounds))
        timer.add(task)
        task.cancel()
        rounds -= 1
