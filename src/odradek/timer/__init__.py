"""Timers on hierarchical timing wheels: for time-outs that are many and rarely fire.

Start reading at `timing_wheel`, which tells the theory; `timer_task` has the tasks and the
rings that hold them, `system_timer` (with `inbox` and `nap`) and `mock_timer` the clocks, and
`asyncio_driver` lets an event loop own a timer. Everything here makes sense without a broker:

    timer = MockTimer()
    timer.add(TimerTask(350, callback))
    timer.advance_clock(350)
"""

from odradek.timer.asyncio_driver import AsyncioDriver
from odradek.timer.mock_timer import MockTimer
from odradek.timer.periodic_task import PeriodicTask
from odradek.timer.retry_task import RetryTask
from odradek.timer.system_timer import SystemTimer
from odradek.timer.timer import Timer
from odradek.timer.timer_task import TimerTask, TimerTaskEntry, TimerTaskList
from odradek.timer.timing_wheel import TimingWheel

__all__ = [
    "AsyncioDriver",
    "MockTimer",
    "PeriodicTask",
    "RetryTask",
    "SystemTimer",
    "Timer",
    "TimerTask",
    "TimerTaskEntry",
    "TimerTaskList",
    "TimingWheel",
]
