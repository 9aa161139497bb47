"""Numbers at the edges: below zero, beyond all counting, and none at all.

What comes in is cut or refused there. Inside there is one bound, so no sum of times overflows.
"""

import math
import threading
from decimal import Decimal
from typing import Any

import pytest
from tests.clocks import OwnClock

from odradek.clock import FARTHEST_MS, ManualClock, SystemClock
from odradek.timer import MockTimer, SystemTimer, TimerTask, TimingWheel
from odradek.timer.nap import Nap
from odradek.timer.timer_task import MAX_DELAY_MS


def test_there_is_one_bound() -> None:
    """A delay from the last moment on must fit as well as one from the first."""
    assert MAX_DELAY_MS == FARTHEST_MS


@pytest.mark.parametrize("begin_ms", [-501, -1000, -(10**12)])
@pytest.mark.parametrize("tick_ms", [1, 20])
def test_every_deadline_about_zero_is_kept(begin_ms: int, tick_ms: int) -> None:
    """A deadline of -1 was taken for none: a client on such a clock waited for ever."""
    timer = MockTimer(tick_ms, clock=ManualClock(monotonic_ms=begin_ms))
    timer.advance_clock(-520 - begin_ms if begin_ms < -520 else 0)
    ran: list[tuple[int, int]] = []
    now_ms = timer.now_ms
    deadlines = range(now_ms + 20, 45)
    for deadline_ms in deadlines:
        note = lambda d=deadline_ms: ran.append((d, timer.now_ms))  # noqa: E731
        timer.add(TimerTask(deadline_ms - now_ms, note))
    timer.advance_clock(45 - now_ms)
    assert ran == [(each, each - each % tick_ms) for each in deadlines]
    assert timer.size == 0


def test_a_bucket_that_is_due_at_minus_one_is_queued_once_a_turn() -> None:
    """Once per task it would fill the queue."""
    wheel = TimingWheel(start_ms=-10)
    for _ in range(3):
        task = TimerTask(0)
        task.expiration_ms = -1
        assert wheel.add(task)
    assert len(wheel.queue) == 1
    assert wheel.queue.first_due_ms == -1


@pytest.mark.parametrize("delay_ms", [2**53 + 1, 2**60, 2**62])
@pytest.mark.parametrize("way", ["add", "add_threadsafe"])
def test_a_delay_set_later_is_cut_like_one_given_at_once(delay_ms: int, way: str) -> None:
    """The wheel would make levels for ever, to reach it."""
    timer = MockTimer()
    task = TimerTask(5)
    task.delay_ms = delay_ms
    getattr(timer, way)(task)
    timer.advance_clock(10**9)
    assert (timer.size, task.delay_ms) == (1, MAX_DELAY_MS)
    assert task.expiration_ms == MAX_DELAY_MS
    task.cancel()


def test_a_delay_set_far_below_zero_is_due_at_once() -> None:
    """As one given to the constructor is."""
    timer = MockTimer()
    ran: list[str] = []
    task = TimerTask(5, lambda: ran.append("ran"))
    task.delay_ms = -(2**62)
    timer.add(task)
    assert (ran, task.expiration_ms) == (["ran"], -1)


@pytest.mark.parametrize("duration_ms", [2**62, 2**53 + 1, 10**30])
def test_a_move_beyond_all_counting_is_refused_before_it_begins(duration_ms: int) -> None:
    """It ended in an IndexError, with the clock moved and what was due half done."""
    timer = MockTimer()
    ran: list[str] = []
    timer.add(TimerTask(5, lambda: ran.append("a")))
    with pytest.raises(ValueError, match="cannot go on by"):
        timer.advance_clock(duration_ms)
    with pytest.raises(ValueError, match="cannot go on by"):
        timer.manual_clock.advance(duration_ms)
    assert (ran, timer.now_ms, timer.size) == ([], 0, 1)
    timer.advance_clock(10**12)
    assert ran == ["a"]


def test_many_long_moves_come_to_an_end_together() -> None:
    """Each is short enough, and their sum is not."""
    clock = ManualClock(wall_ms=0)
    clock.advance(FARTHEST_MS - 1)
    timer = MockTimer(clock=clock)
    timer.add(TimerTask(MAX_DELAY_MS))
    timer.advance_clock(1)
    with pytest.raises(ValueError, match="cannot go on by"):
        timer.advance_clock(1)
    assert timer.size == 1


@pytest.mark.parametrize("speed", [math.inf, math.nan, -math.inf, 1e300])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    """Its readings would be no numbers, and each timer on it would fail in a way of its own."""
    with pytest.raises(ValueError, match="speed"):
        ManualClock(speed=speed)


@pytest.mark.parametrize("reading_ms", [2**53 + 1, -(2**53) - 1, 2**80])
def test_a_clock_begins_within_what_it_can_count(reading_ms: int) -> None:
    """Its timer would overflow with the first delay."""
    with pytest.raises(ValueError, match="cannot read"):
        ManualClock(monotonic_ms=reading_ms)
    with pytest.raises(ValueError, match="cannot read"):
        ManualClock(wall_ms=reading_ms)
    with pytest.raises(ValueError, match="no clock reads"):
        TimingWheel(start_ms=reading_ms)


@pytest.mark.parametrize("number", [0.5, 1e12, math.nan, Decimal(5), "5"])
def test_a_clock_counts_whole_milliseconds(number: Any) -> None:
    """`time.time() * 1000` is no such number: the broker would fail with its first record."""
    for name in ("wall_ms", "monotonic_ms"):
        with pytest.raises(TypeError, match="interpreted as an integer"):
            ManualClock(**{name: number})
    clock, timer = ManualClock(), MockTimer()
    with pytest.raises(TypeError, match="interpreted as an integer"):
        clock.advance(number)
    with pytest.raises(TypeError):  # by its compiler, or as a clock
        timer.advance_clock(number)
    assert (clock.monotonic_ms(), timer.now_ms) == (0, 0)


def test_a_clock_has_no_date_before_1970() -> None:
    """A broker would stamp records so, and keep them for ever: a timestamp below zero is none."""
    with pytest.raises(ValueError, match="before 1970"):
        ManualClock(wall_ms=-1)
    assert ManualClock(wall_ms=0, monotonic_ms=-1).wall_ms() == 0


def test_a_clock_counts_in_python_s_own_numbers() -> None:
    """Numbers of an array, or a bool, are whole; kept as they are they overflow, or print as
    True."""

    class Narrow:
        def __index__(self) -> int:
            return 5

    clock = ManualClock(Narrow(), Narrow())
    clock.advance(Narrow())
    clock.advance(True)
    readings = [clock.wall_ms(), clock.monotonic_ms()]
    assert readings == [11, 11]
    assert {type(each) for each in readings} == {int}


def test_a_fast_clock_stands_at_the_end_of_time() -> None:
    """It would leave what 64 bits can count within seconds."""
    while True:
        clock = ManualClock(speed=FARTHEST_MS / 50)
        timer = SystemTimer(clock)
        timer.add(TimerTask(5))
        if clock.monotonic_ms() < FARTHEST_MS - 5:
            break  # else it was added at the end, where nothing falls due any more
    while clock.monotonic_ms() < FARTHEST_MS:
        pass
    timer.advance_clock(0)
    assert (timer.now_ms, timer.size) == (FARTHEST_MS, 0)
    assert clock.wall_ms() == FARTHEST_MS


def test_a_clock_of_ones_own_is_read_within_bounds() -> None:
    """A mistake in it must not end in an IndexError of the wheel."""

    class WildClock(OwnClock):
        now_ms = 0

        def monotonic_ms(self) -> int:
            return self.now_ms

        def wall_ms(self) -> int:
            return self.now_ms

    clock = WildClock()
    timer = SystemTimer(clock)
    timer.add(TimerTask(5))
    clock.now_ms = 2**70
    timer.advance_clock(0)
    assert (timer.now_ms, timer.size) == (FARTHEST_MS, 0)


def test_a_wheel_refuses_a_deadline_that_nothing_can_have() -> None:
    """It would make levels for ever."""
    task = TimerTask(0)
    task.expiration_ms = 2**62
    with pytest.raises(ValueError, match="nothing is due"):
        TimingWheel().add(task)


def test_a_wait_beyond_all_counting_ends_when_something_is_handed_over() -> None:
    """A large figure that means "for ever" would make the machine count it."""
    timer = SystemTimer(SystemClock())
    helper = threading.Thread(target=timer.call_threadsafe, args=(timer.close,))
    helper.start()
    while not timer.closed:
        timer.advance_clock(2**62)
    helper.join()


def test_a_nap_on_a_very_slow_clock_is_a_long_one() -> None:
    """The seconds of the machine overflow, and the thread would end."""

    class Bell(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == 86_400.0
            return True

    nap = Nap(ManualClock(speed=1e-300))
    nap._bell = Bell()
    assert nap.sleep(2**53)
