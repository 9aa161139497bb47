"""The driver: a loop that owns a timer, and is woken for nothing but its work."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from tests.deadlines import deadline_s

from odradek.clock import ManualClock, SystemClock
from odradek.timer import AsyncioDriver, SystemTimer, TimerTask

# For what must happen, on a machine that has much else to do.
PATIENCE_S = deadline_s(300)


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

    asyncio.run(asyncio.wait_for(with_driver(), PATIENCE_S))


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
        await turns()
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


def test_a_clock_that_is_moved_many_times_wakes_the_loop_once() -> None:
    """A thread that moves it faster than the loop turns would fill the loop without end."""

    async def story(clock: ManualClock, timer: SystemTimer) -> None:
        await turns()
        ran: list[str] = []
        timer.add(TimerTask(1000, lambda: ran.append("a")))
        loop = asyncio.get_running_loop()
        asked: list[object] = []
        ask = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *what: (asked.append(what), ask(*what))[1]  # type: ignore[method-assign, assignment]
        for _ in range(1000):
            clock.advance(1)
        assert len(asked) == 1
        await turns()
        assert ran == ["a"]
        clock.advance(1)
        assert len(asked) == 2

    run_on_loop(story)


def test_a_hand_over_to_a_loop_that_was_closed_is_no_error() -> None:
    """A program that ends is not to be told of it by every thread that still hands over."""
    timer = SystemTimer(ManualClock())

    async def story() -> None:
        AsyncioDriver(timer).start()

    asyncio.run(story())
    timer.call_threadsafe(lambda: None)
    timer.close()


def test_other_threads_hand_over_to_the_loop() -> None:
    """Only the hand-over wakes an idle loop."""

    async def story(clock: ManualClock, timer: SystemTimer) -> None:
        done = asyncio.Event()
        await asyncio.to_thread(timer.call_threadsafe, done.set)
        await done.wait()

    run_on_loop(story)


class CountingLoopTimer(SystemTimer):
    """Counts how often its owner was woken, and for how long it offered to sleep."""

    wakes = 0
    shortest_sleep_ms = 86_400_000

    def advance(self, timeout_ms: int, max_tasks: int) -> bool:
        self.wakes += 1
        self.shortest_sleep_ms = min(self.shortest_sleep_ms, timeout_ms)
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
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        await turns()
        driver.stop()
        assert far.is_pending
        return timer.wakes

    # The start, the alarm (which uvloop and asyncio may ring a little early), a demotion.
    assert asyncio.run(story()) <= 6


def test_a_bucket_that_was_emptied_and_is_filled_again_wakes_the_loop() -> None:
    """It stays in the queue, so nothing there becomes earlier; and yet no alarm is set for it."""

    async def story() -> None:
        clock = ManualClock()
        timer = SystemTimer(clock)
        armed: list[int | None] = []
        driver = AsyncioDriver(timer)
        driver.start()
        await turns()
        given_up = TimerTask(450)
        timer.add(given_up)
        timer.add(TimerTask(5))
        given_up.cancel()
        clock.advance(5)
        await turns()
        assert timer.next_due_ms() is None
        wake = timer.on_earlier
        assert wake is not None
        timer.on_earlier = lambda: (armed.append(timer.next_due_ms()), wake())
        timer.add(TimerTask(460))
        assert armed == [400]
        driver.stop()

    asyncio.run(story())


@pytest.mark.parametrize("delay_ms", [0, 5])
def test_what_a_task_adds_that_ran_at_once_is_not_forgotten(delay_ms: int) -> None:
    """It runs inside of `add`, on an idle loop; nothing else would wake the loop for the second."""

    async def story() -> None:
        timer = SystemTimer(SystemClock())
        driver = AsyncioDriver(timer)
        driver.start()
        await turns()
        done = asyncio.Event()
        second = TimerTask(delay_ms, done.set)
        timer.add(TimerTask(0, lambda: timer.add(second)))
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        driver.stop()

    asyncio.run(story())


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
        assert timer.on_earlier is timer.on_handed_over is None

    asyncio.run(story())


def test_an_interrupt_ends_a_turn_of_the_loop_and_not_the_timer() -> None:
    """A loop that survives it would else never be woken for a time-out again."""

    class Interrupt(BaseException):
        """Like KeyboardInterrupt, which would end the test's own loop."""

    async def story() -> None:
        told: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context["exception"]))
        timer = SystemTimer(SystemClock())
        driver = AsyncioDriver(timer)
        driver.start()
        done = asyncio.Event()

        def interrupt() -> None:
            raise Interrupt

        timer.add(TimerTask(1, interrupt))
        timer.add(TimerTask(1, done.set))
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        driver.stop()
        assert [type(error) for error in told] == [Interrupt]

    asyncio.run(story())


def test_hand_overs_of_many_threads_wake_the_loop_once() -> None:
    """Each wake-up is a system call, and the loop's turn."""

    async def story(clock: ManualClock, timer: SystemTimer) -> None:
        await turns()
        wakes: list[int] = []
        wake = timer.on_handed_over
        assert wake is not None
        timer.on_handed_over = lambda: (wakes.append(1), wake())
        ran: list[int] = []
        threads = [
            threading.Thread(target=timer.call_threadsafe, args=(lambda i=i: ran.append(i),))
            for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        await turns()
        assert sorted(ran) == list(range(8))
        assert len(wakes) == 1

    run_on_loop(story)


@pytest.mark.parametrize("slice_tasks", [0, -1, -(2**62)])
def test_a_driver_runs_at_least_one_task_at_a_time(slice_tasks: int) -> None:
    """No task would ever run, and the loop turn without rest."""
    with pytest.raises(ValueError, match="at least one task"):
        AsyncioDriver(SystemTimer(ManualClock()), slice_tasks)


def test_a_driver_needs_a_running_loop() -> None:
    """The loop is the owner; without one nothing would ever run."""
    with pytest.raises(RuntimeError):
        AsyncioDriver(SystemTimer(ManualClock())).start()


def test_a_clock_at_a_speed_wakes_the_loop_when_it_says_so() -> None:
    """Ten minutes at six hundred thousand times the machine's pace are a millisecond."""

    async def story() -> None:
        clock = ManualClock(speed=600_000)
        timer = SystemTimer(clock)
        driver = AsyncioDriver(timer)
        driver.start()
        done = asyncio.Event()
        timer.add(TimerTask(600_000, done.set))
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        driver.stop()
        assert clock.monotonic_ms() >= 600_000

    asyncio.run(story())


def test_a_driver_may_go_on_with_another_loop() -> None:
    """The request for the first one, never answered, would keep the second asleep."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    driver = AsyncioDriver(timer)

    async def begin() -> None:
        driver.start()
        await turns()

    async def go_on() -> None:
        driver.start()
        await turns()
        done = asyncio.Event()
        await asyncio.to_thread(timer.call_threadsafe, done.set)
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        driver.stop()

    asyncio.run(begin())
    timer.call_threadsafe(lambda: None)
    driver.stop()
    asyncio.run(go_on())


def test_the_loop_sleeps_for_a_day_at_most() -> None:
    """Loops count seconds in numbers that have an end."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        sleeps: list[float] = []
        later = loop.call_later
        loop.call_later = lambda delay, *what: (sleeps.append(delay), later(0, *what))[1]  # type: ignore[method-assign, assignment]
        timer = SystemTimer(ManualClock(speed=1e-300))
        driver = AsyncioDriver(timer)
        driver.start()
        timer.add(TimerTask(2**53))
        await turns()
        driver.stop()
        assert set(sleeps) == {86_400.0}

    asyncio.run(story())
