"""How an owner without a loop sleeps: what wakes it, and for how long it lies down."""

import threading
from collections.abc import Callable

import pytest

from odradek.clock import ManualClock
from odradek.timer import SystemTimer, TimerTask
from odradek.timer.nap import Nap


class Bell(threading.Event):
    """Does what others do during a sleep, instead of sleeping; notes how long that was to be."""

    def __init__(self, *meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self.waits_s: list[float | None] = []
        self._meanwhile = list(meanwhile)

    def wait(self, timeout: float | None = None) -> bool:
        self.waits_s.append(timeout)
        if self._meanwhile:
            self._meanwhile.pop(0)()
        return self.is_set()


class Sleeper:
    """A timer whose owner sleeps by a bell of the test's."""

    def __init__(self, *meanwhile: Callable[[], object]) -> None:
        self.clock = ManualClock()
        self.timer = SystemTimer(self.clock)
        self.bell = Bell(*meanwhile)
        self.timer._nap._bell = self.bell


@pytest.mark.parametrize(("speed", "wait_s"), [(0, 0.25), (2, 0.125)])
def test_a_nap_is_as_long_as_the_clock_says(speed: float, wait_s: float) -> None:
    """On one that stands the machine's time counts: nobody may ever move it."""
    nap = Nap(ManualClock(speed=speed))
    bell = nap._bell = Bell()
    assert not nap.sleep(250)
    assert bell.waits_s == [wait_s]


def test_moves_of_the_clock_wake_who_lies_down() -> None:
    """And nobody else: a timer that is gone would be woken for ever."""
    clock = ManualClock()
    nap = Nap(clock)
    nap.lie_down()
    clock.advance(1)
    assert nap.sleep(0)
    nap.expect()
    assert not nap.sleep(0)
    nap.get_up()
    clock.advance(1)
    assert not nap.sleep(0)


def test_an_owner_sleeps_on_when_a_move_was_too_short() -> None:
    """It would take its turn for nothing, and go to sleep for the whole time again."""
    sleeper = Sleeper(lambda: sleeper.clock.advance(5), lambda: sleeper.clock.advance(5))
    ran: list[int] = []
    sleeper.timer.add(TimerTask(10, lambda: ran.append(sleeper.timer.now_ms)))
    assert sleeper.timer.advance_clock(50)
    assert ran == [10]
    assert sleeper.bell.waits_s == [0.010, 0.005]
    assert sleeper.clock._subscribers == []


def test_what_comes_while_the_owner_looks_is_not_slept_over() -> None:
    """It lies in the inbox, and who put it there has rung."""
    sleeper = Sleeper()
    timer = sleeper.timer
    timer.wake_ms = 10**6

    def hand_over_another() -> None:
        if timer.size < 3:
            timer.add_threadsafe(TimerTask(500))

    timer.on_earlier = hand_over_another  # called while the owner takes what was handed over
    hand_over_another()
    timer.advance_clock(50)
    assert timer.size == 3
    assert sleeper.timer.is_idle


def test_an_owner_whose_hook_fails_gets_up() -> None:
    """The clock would keep the timer, and wake it at each move."""
    sleeper = Sleeper(lambda: sleeper.timer.add_threadsafe(TimerTask(5)))
    sleeper.timer.wake_ms = 10**6

    def fail() -> None:
        raise RuntimeError("nobody listens")

    sleeper.timer.on_earlier = fail
    with pytest.raises(RuntimeError, match="nobody listens"):
        sleeper.timer.advance_clock(50)
    assert sleeper.clock._subscribers == []


def test_closing_ends_a_nap() -> None:
    """No task can be handed over any more that would end it."""
    sleeper = Sleeper(lambda: sleeper.timer.close())
    assert not sleeper.timer.advance_clock(50)
    assert sleeper.bell.is_set()
    assert sleeper.bell.waits_s == [0.050]
