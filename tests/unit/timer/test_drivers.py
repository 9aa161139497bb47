"""The drivers: a loop or a thread that owns a timer, and is woken for nothing but its work."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from odradek.clock import ManualClock, SystemClock
from odradek.timer import AsyncioDriver, SystemTimer, ThreadDriver, TimerTask


def run_on_loop(story: Callable[[ManualClock, SystemTimer], Awaitable[None]]) -> None:
    """Runs `story` on a loop that owns a timer over a clock which the story moves."""

    async def with_driver() -> None:
        clock = ManualClock()
        timer = SystemTimer(clock)
        driver = AsyncioDriver(timer, slice_tasks=10)
        driver.start()
        try:
            await story(clock, timer)
        finally:
            driver.stop()

    asyncio.run(asyncio.wait_for(with_driver(), 60))


async def turns(count: int = 3) -> None:
    """Gives the loop a few turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_moving_a_manual_clock_runs_what_is_due() -> None:
    """A broker under test would not notice that its clock was moved."""

    async def story(clock: ManualClock, timer: SystemTimer) -> None:
        ran: list[str] = []
        timer.add(TimerTask(100, lambda: ran.append("a")))
        clock.advance(99)
        await turns()
        assert ran == []
        clock.advance(1)
        await turns()
        assert ran == ["a"]

    run_on_loop(story)


def test_a_manual_clock_may_be_moved_by_another_thread() -> None:
    """The test's thread moves the clock, the broker's loop does the work."""

    async def story(clock: ManualClock, timer: SystemTimer) -> None:
        done = asyncio.Event()
        timer.add(TimerTask(100, done.set))
        await asyncio.to_thread(clock.advance, 100)
        await done.wait()

    run_on_loop(story)


def test_the_loop_gets_its_turn_between_slices() -> None:
    """Ten thousand time-outs of one moment would hold up every connection."""

    async def story(clock: ManualClock, timer: SystemTimer) -> None:
        ran: list[int] = []
        for i in range(100):
            timer.add(TimerTask(5, lambda i=i: ran.append(i)))
        clock.advance(5)
        seen: list[int] = []
        while len(ran) < 100:
            await asyncio.sleep(0)
            seen.append(len(ran))
        assert ran == list(range(100))
        assert len(set(seen)) >= 10

    run_on_loop(story)


def test_other_threads_hand_over_to_the_loop() -> None:
    """Nothing but the hand-over wakes an idle loop."""

    async def story(clock: ManualClock, timer: SystemTimer) -> None:
        done = asyncio.Event()
        await asyncio.to_thread(timer.call_threadsafe, done.set)
        await done.wait()

    run_on_loop(story)


class CountingLoopTimer(SystemTimer):
    """Counts how often its owner was woken."""

    wakes = 0

    def advance(self, timeout_ms: int, max_tasks: int) -> bool:
        self.wakes += 1
        return super().advance(timeout_ms, max_tasks)


def test_a_real_clock_wakes_the_loop_for_due_buckets_only() -> None:
    """An idle broker would use the processor for nothing."""

    async def story() -> int:
        timer = CountingLoopTimer(SystemClock())
        driver = AsyncioDriver(timer)
        done = asyncio.Event()
        far = TimerTask(3_600_000)
        timer.add(far)
        driver.start()
        await turns()
        timer.add(TimerTask(30, done.set))
        await asyncio.wait_for(done.wait(), 60)
        await turns()
        driver.stop()
        assert far.is_pending
        return timer.wakes

    # The start, the alarm (which uvloop and asyncio may ring a little early), a demotion.
    assert asyncio.run(story()) <= 6


def test_a_stopped_driver_leaves_the_timer_alone() -> None:
    """A callback that was on its way when the driver stopped must do nothing."""

    async def story() -> None:
        clock = ManualClock()
        timer = SystemTimer(clock)
        driver = AsyncioDriver(timer)
        driver.start()
        ran: list[str] = []
        timer.add(TimerTask(5, lambda: ran.append("a")))
        clock.advance(5)
        driver.stop()
        driver.stop()
        clock.advance(5)
        await turns()
        assert ran == []
        assert timer.size == 1
        assert timer.on_earlier is None

    asyncio.run(story())


def test_a_driver_needs_a_running_loop() -> None:
    """The loop is the owner; without one nothing would ever run."""
    with pytest.raises(RuntimeError):
        AsyncioDriver(SystemTimer(ManualClock())).start()


def test_a_thread_runs_what_others_hand_over() -> None:
    """A program without an event loop has its time-outs run all the same."""
    timer = SystemTimer(SystemClock())
    done = threading.Event()
    runner: list[str] = []

    def note() -> None:
        runner.append(threading.current_thread().name)
        done.set()

    with ThreadDriver(timer, "reaper"):
        timer.add_threadsafe(TimerTask(2, note))
        assert done.wait(60)
    assert runner == ["reaper"]


def test_stopping_a_thread_leaves_what_is_pending() -> None:
    """The timer belongs to the caller again, who may go on with it or close it."""
    timer = SystemTimer(SystemClock())
    with ThreadDriver(timer):
        timer.add_threadsafe(TimerTask(3_600_000))
    assert timer.size == 1
    timer.close()
