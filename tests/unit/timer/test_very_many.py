"""Very many timers of one moment: they fire in slices, and leave nothing behind."""

import asyncio
import gc
import sys
from collections.abc import Iterator

import pytest

from odradek.clock import ManualClock
from odradek.timer import AsyncioDriver, SystemTimer, TimerTask

SLICE = 1000
# Other threads of this process may receive something meanwhile (the next tests, say).
SLACK_BLOCKS = 1000


@pytest.fixture(autouse=True)
def no_cyclic_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "count", [20_000, pytest.param(10_000_000, marks=pytest.mark.slow)], ids=["many", "ten million"]
)
def test_timers_of_one_moment_fire_in_slices(count: int) -> None:
    """Ten million time-outs of one moment would keep a loop from its sockets for seconds."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    ran = 0

    def note() -> None:
        nonlocal ran
        ran += 1

    before = sys.getallocatedblocks()
    for _ in range(count):
        timer.add(TimerTask(450, note))
    # Two demotions, then the run: each handles every task once, a slice at a time.
    for move_ms in (400, 40, 10):
        clock.advance(move_ms)
        slices = 0
        while (due_ms := timer.next_due_ms()) is not None and due_ms <= clock.monotonic_ms():
            ran_before = ran
            timer.advance(0, SLICE)
            slices += 1
            assert ran - ran_before <= SLICE
        assert slices >= count // SLICE
    assert ran == count
    assert timer.size == 0
    assert sys.getallocatedblocks() - before < SLACK_BLOCKS


def test_a_loop_does_its_other_work_meanwhile() -> None:
    """The driver gives the loop its turn after each slice."""

    async def story() -> tuple[int, int]:
        clock = ManualClock()
        timer = SystemTimer(clock)
        driver = AsyncioDriver(timer, SLICE)
        driver.start()
        await asyncio.sleep(0)
        for _ in range(20 * SLICE):
            timer.add(TimerTask(5))
        clock.advance(5)
        turns = 0
        while timer.size:
            await asyncio.sleep(0)
            turns += 1
        driver.stop()
        return turns, timer.size

    turns, left = asyncio.run(story())
    assert turns >= 20
    assert left == 0
