"""Other threads hand a task over, and its owner sets or cancels it: the last word counts."""

import asyncio
from collections.abc import Callable

import pytest
from tests.clocks import OwnClock

from odradek.clock import ManualClock
from odradek.timer import MockTimer, SystemTimer, TimerTask


class Hall:
    """A timer on a clock that the test moves, one task, and when that ran."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timer = SystemTimer(self.clock)
        self.ran: list[int] = []
        self.task = TimerTask(10, lambda: self.ran.append(self.clock.monotonic_ms()))

    def hand_over(self, delay_ms: int) -> None:
        self.task.delay_ms = delay_ms
        self.timer.add_threadsafe(self.task)

    def add(self, delay_ms: int) -> None:
        self.task.delay_ms = delay_ms
        self.timer.add(self.task)

    def go_on(self) -> None:
        """Two seconds, looked at every ten milliseconds."""
        for _ in range(200):
            self.timer.advance(0, 1)
            self.clock.advance(10)
        self.timer.advance_clock(0)


LAST_WORDS: dict[str, tuple[list[Callable[[Hall], object]], list[int]]] = {
    "the owner adds it": ([lambda hall: hall.hand_over(10), lambda hall: hall.add(1000)], [1000]),
    "the owner cancels it": (
        [lambda hall: hall.hand_over(10), lambda hall: hall.task.cancel()],
        [],
    ),
    "the owner cancels it and adds it": (
        [
            lambda hall: hall.hand_over(10),
            lambda hall: hall.task.cancel(),
            lambda hall: hall.add(1000),
        ],
        [1000],
    ),
    "it is cancelled and handed over again": (
        [
            lambda hall: hall.hand_over(10),
            lambda hall: hall.task.cancel(),
            lambda hall: hall.hand_over(1000),
        ],
        [1000],
    ),
    "it is handed over again": (
        [lambda hall: hall.hand_over(10), lambda hall: hall.hand_over(1000)],
        [1000],
    ),
    "it is added, and handed over after that": (
        [
            lambda hall: hall.hand_over(10),
            lambda hall: hall.add(500),
            lambda hall: hall.hand_over(1000),
        ],
        [1000],
    ),
    "another timer takes it": (
        [lambda hall: hall.hand_over(10), lambda hall: MockTimer().add(hall.task)],
        [],
    ),
}


@pytest.mark.parametrize("last", LAST_WORDS)
def test_the_last_word_about_a_task_counts(last: str) -> None:
    """A time-out that was put off would fire early, and one that was cancelled would fire."""
    hall = Hall()
    steps, moments = LAST_WORDS[last]
    # Something else stands in front of it, so that with slices of one it is not taken at once.
    hall.timer.add_threadsafe(TimerTask(1))
    for step in steps:
        step(hall)
    hall.go_on()
    assert hall.ran == moments


def test_a_hand_over_after_the_owners_word_counts() -> None:
    """It is the later one."""
    hall = Hall()
    hall.add(1000)
    hall.hand_over(10)
    hall.go_on()
    assert hall.ran == [10]


def test_a_task_may_be_handed_over_again_and_again() -> None:
    """Each time it has run."""
    hall = Hall()
    for _ in range(3):
        hall.hand_over(10)
        hall.go_on()
    assert hall.ran == [10, 2010, 4010]


@pytest.fixture
def timer() -> MockTimer:
    return MockTimer()


def test_what_a_task_hands_over_runs_at_the_moment_of_the_task(timer: MockTimer) -> None:
    """Code that hands over sees another time in a test than it ever would in a broker."""
    seen: list[int] = []

    def hand_over() -> None:
        timer.call_threadsafe(lambda: seen.append(timer.now_ms))
        timer.add_threadsafe(TimerTask(50, lambda: seen.append(timer.now_ms)))

    timer.add(TimerTask(100, hand_over))
    timer.advance_clock(1000)
    assert seen == [100, 150]
    assert timer.now_ms == 1000


def test_hand_overs_of_hand_overs_have_run_when_the_clock_has_been_moved(timer: MockTimer) -> None:
    """A test would go on before everything that it made due is done."""
    seen: list[int] = []

    def hand_over(left: int) -> None:
        seen.append(timer.now_ms)
        if left:
            timer.call_threadsafe(lambda: hand_over(left - 1))

    timer.add(TimerTask(100, lambda: hand_over(5)))
    timer.advance_clock(100)
    assert seen == [100] * 6
    timer.call_threadsafe(lambda: hand_over(3))
    timer.advance_clock(0)
    assert seen == [100] * 10


def test_what_is_handed_over_before_the_move_counts_from_there(timer: MockTimer) -> None:
    """It is taken when the owner looks, and due when it was said to be."""
    seen: list[int] = []
    timer.add_threadsafe(TimerTask(10, lambda: seen.append(timer.now_ms)))
    assert timer.next_due_ms() == 0
    timer.advance_clock(1000)
    assert seen == [10]
    assert timer.next_due_ms() is None


def test_a_hand_over_does_not_fire_early_when_the_clock_has_gone_back() -> None:
    """Virtual machines have such clocks; every time-out of other threads would fire at once."""

    class BackwardClock(OwnClock):
        now_ms = 100_000

        def monotonic_ms(self) -> int:
            return self.now_ms

        def wall_ms(self) -> int:
            return self.now_ms

    clock = BackwardClock()
    timer = SystemTimer(clock)
    ran: list[str] = []
    clock.now_ms = 40_000
    timer.add_threadsafe(TimerTask(500, lambda: ran.append("handed over")))
    timer.add(TimerTask(500, lambda: ran.append("added")))
    timer.advance_clock(0)
    clock.now_ms = 100_499
    timer.advance_clock(0)
    assert ran == []
    clock.now_ms = 100_500
    timer.advance_clock(0)
    assert sorted(ran) == ["added", "handed over"]


def test_a_closed_timer_is_idle() -> None:
    """A wait until a broker has come to rest would be for ever with one that has ended."""
    timer = SystemTimer(ManualClock())
    timer.add(TimerTask(5))
    timer.add_threadsafe(TimerTask(0))
    timer.close()
    assert timer.is_idle
    assert timer.next_due_ms() is None


def test_a_closed_timer_is_idle_though_a_hand_over_came_while_it_closed() -> None:
    """The other thread looked before, and put it in after."""

    class ClosingClock(OwnClock):
        """It is read between the look whether the timer is closed and the hand-over."""

        def monotonic_ms(self) -> int:
            if closing:
                timer.close()
            return 0

        def wall_ms(self) -> int:
            return 0

    closing: list[bool] = []
    timer = SystemTimer(ClosingClock())
    closing.append(True)
    timer.add_threadsafe(TimerTask(5))
    assert timer.is_idle
    assert timer.next_due_ms() is None


def test_a_cancelled_future_in_a_callback_is_that_tasks_failure() -> None:
    """CancelledError is no Exception; it would end the loop's turn, and a reaper for good."""
    told: list[BaseException] = []
    timer = MockTimer(on_error=lambda task, error: told.append(error))
    ran: list[str] = []

    def ask_for_the_result() -> None:
        loop = asyncio.new_event_loop()
        future = loop.create_future()
        loop.close()
        future.cancel()
        future.result()

    timer.add(TimerTask(5, ask_for_the_result))
    timer.add(TimerTask(5, lambda: ran.append("next")))
    timer.advance_clock(5)
    assert [type(error) for error in told] == [asyncio.CancelledError]
    assert ran == ["next"]


def test_what_is_handed_over_fires_in_the_order_of_deadlines() -> None:
    """A time-out would fire after one that was set to come later."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    ran: list[int] = []
    timer.add(TimerTask(5, lambda: ran.append(5)))
    timer.add_threadsafe(TimerTask(3, lambda: ran.append(3)))
    clock.advance(5)
    timer.advance_clock(0)
    assert ran == [3, 5]


def test_a_hand_over_counts_from_its_own_moment_though_the_owner_has_not_looked_since() -> None:
    """The owner of an idle timer may have looked an hour ago: all would be an hour early."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    clock.advance(1000)
    task = TimerTask(10)
    timer.add_threadsafe(task)
    timer.advance_clock(0)
    assert task.expiration_ms == 1010


def test_a_move_tells_of_a_bucket_though_hand_overs_came_after_it(timer: MockTimer) -> None:
    """The answer whether anything was due would be that of the last step alone."""
    timer.add(TimerTask(5, lambda: timer.call_threadsafe(lambda: None)))
    assert timer.advance_clock(10)


def test_a_bucket_that_was_emptied_is_taken_out_by_a_move(timer: MockTimer) -> None:
    """The wheel would lag behind the clock, and near deadlines look far."""
    given_up = TimerTask(5)
    timer.add(given_up)
    given_up.cancel()
    assert timer.advance_clock(10)
    timer.add(TimerTask(19))
    assert timer.next_due_ms() == 29


def test_what_subscribers_of_the_clock_hand_over_has_run_when_it_has_been_moved() -> None:
    """The last part of a move, at whose end nothing is due, would leave hand-overs of theirs, and
    what those move the clock to, for the next one."""
    clock = ManualClock()
    timer = MockTimer(clock=clock)
    ran: list[str] = []
    timer.add(TimerTask(30, lambda: ran.append("due")))

    def hand_over() -> None:
        timer.call_threadsafe(lambda: (ran.append("second"), clock.advance(20)))

    def on_moved() -> None:
        if not ran:
            ran.append("first")
            timer.call_threadsafe(hand_over)

    clock.subscribe(on_moved)
    timer.advance_clock(10)
    assert ran == ["first", "second", "due"]
