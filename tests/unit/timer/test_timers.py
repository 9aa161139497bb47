"""SystemTimer and MockTimer: when tasks run, and what bad input does to them (R2)."""

import logging
import threading
from collections.abc import Callable

import pytest
from tests.clocks import OwnClock

from odradek.clock import ManualClock, SystemClock
from odradek.timer import MockTimer, SystemTimer, TimerTask

YEAR_MS = 365 * 24 * 3600 * 1000


class Recorder:
    """A timer and the moments at which its tasks ran."""

    def __init__(self, timer: MockTimer | None = None) -> None:
        self.timer = timer if timer is not None else MockTimer()
        self.ran: list[tuple[str, int]] = []

    def task(self, name: str, delay_ms: int) -> TimerTask:
        return TimerTask(delay_ms, lambda: self.ran.append((name, self.timer.now_ms)))

    def add(self, name: str, delay_ms: int) -> TimerTask:
        task = self.task(name, delay_ms)
        self.timer.add(task)
        return task


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def test_a_task_runs_at_its_time_and_not_before(recorder: Recorder) -> None:
    """The one promise of a timer."""
    recorder.add("a", 350)
    assert recorder.timer.size == 1
    recorder.timer.advance_clock(349)
    assert recorder.ran == []
    assert recorder.timer.advance_clock(1)
    assert recorder.ran == [("a", 350)]
    assert recorder.timer.size == 0
    assert recorder.timer.next_due_ms() is None


@pytest.mark.parametrize("delay_ms", [0, -1, -YEAR_MS])
def test_a_task_with_no_time_left_runs_at_once(recorder: Recorder, delay_ms: int) -> None:
    """A request whose time-out is 0 would wait for the next tick of the clock."""
    recorder.add("a", delay_ms)
    assert recorder.ran == [("a", 0)]
    assert recorder.timer.size == 0


@pytest.mark.parametrize("delay_ms", [1, 19, 20, 399, 400, 7999, 8000, 160_000, 5 * YEAR_MS])
def test_any_delay_is_kept_to_the_millisecond(recorder: Recorder, delay_ms: int) -> None:
    """Demotion from any level ends on level 1, in the right bucket."""
    recorder.timer.advance_clock(123_457)
    recorder.add("a", delay_ms)
    recorder.timer.advance_clock(delay_ms - 1)
    assert recorder.ran == []
    recorder.timer.advance_clock(1)
    assert recorder.ran == [("a", 123_457 + delay_ms)]


@pytest.mark.parametrize("delay_ms", [2**53, 2**63, 10**30])
def test_a_delay_beyond_all_counting_is_kept_and_can_be_cancelled(
    recorder: Recorder, delay_ms: int
) -> None:
    """Callers say "for ever" with a very large figure; it must neither fire nor overflow."""
    recorder.timer.advance_clock(10**6)
    task = recorder.add("a", delay_ms)
    recorder.add("b", 5)
    recorder.timer.advance_clock(1000 * YEAR_MS)
    assert recorder.ran == [("b", 10**6 + 5)]
    assert recorder.timer.size == 1
    due_ms = recorder.timer.next_due_ms()
    assert due_ms is not None
    assert recorder.timer.now_ms < due_ms <= task.expiration_ms
    task.cancel()
    assert recorder.timer.size == 0


def test_a_cancelled_task_does_not_run(recorder: Recorder) -> None:
    """Nearly all time-outs are cancelled; one that ran would answer a request twice."""
    task = recorder.add("a", 10)
    recorder.add("b", 10)
    task.cancel()
    assert recorder.timer.size == 1
    recorder.timer.advance_clock(1000)
    assert recorder.ran == [("b", 10)]


def test_cancelling_twice_or_after_the_run_is_harmless(recorder: Recorder) -> None:
    """The counter of pending tasks would go wrong."""
    task = recorder.add("a", 10)
    recorder.timer.advance_clock(10)
    task.cancel()
    task.cancel()
    assert recorder.timer.size == 0


def test_adding_again_moves_the_deadline(recorder: Recorder) -> None:
    """A heartbeat that is renewed must not expire by its old deadline."""
    task = recorder.add("a", 10)
    recorder.timer.advance_clock(9)
    recorder.timer.add(task)
    assert recorder.timer.size == 1
    recorder.timer.advance_clock(9)
    assert recorder.ran == []
    recorder.timer.advance_clock(1)
    assert recorder.ran == [("a", 19)]


def test_a_cancelled_task_may_be_added_again(recorder: Recorder) -> None:
    """Cancelling is not for ever."""
    task = recorder.add("a", 10)
    task.cancel()
    task.delay_ms = 30
    recorder.timer.add(task)
    recorder.timer.advance_clock(100)
    assert recorder.ran == [("a", 30)]


def test_a_task_may_add_itself_again_while_it_runs() -> None:
    """Periodic work is a task that adds itself; it runs at each of its moments."""
    timer = MockTimer()
    ran: list[int] = []

    class Periodic(TimerTask):
        def run(self) -> None:
            ran.append(timer.now_ms)
            timer.add(self)

    timer.add(Periodic(100))
    timer.advance_clock(350)
    assert ran == [100, 200, 300]
    assert timer.size == 1


def test_a_running_task_may_cancel_another_of_the_same_moment(recorder: Recorder) -> None:
    """Both are due; the second one was cancelled in time all the same."""
    timer = recorder.timer
    timer.add(TimerTask(10, lambda: victim.cancel()))
    victim = recorder.add("victim", 10)
    recorder.add("other", 10)
    timer.advance_clock(10)
    assert recorder.ran == [("other", 10)]
    assert timer.size == 0


def test_a_task_added_with_no_time_left_waits_until_the_running_one_returns() -> None:
    """Tasks run one after another, never one inside another."""
    timer = MockTimer()
    order: list[str] = []

    def outer() -> None:
        order.append("outer begins")
        timer.add(TimerTask(0, lambda: order.append("inner")))
        order.append("outer ends")

    timer.add(TimerTask(5, outer))
    timer.advance_clock(5)
    assert order == ["outer begins", "outer ends", "inner"]


def test_a_task_that_adds_itself_with_no_delay_gives_way() -> None:
    """It would starve every other task, or overflow the stack."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    ran: list[str] = []

    class Greedy(TimerTask):
        def run(self) -> None:
            ran.append("greedy")
            timer.add(self)

    timer.add(TimerTask(5, lambda: ran.append("modest")))
    timer.add(Greedy(0))
    assert ran == ["greedy"]
    assert timer.next_due_ms() == 0
    clock.advance(5)
    timer.advance(0, 3)
    assert ran == ["greedy", "modest", "greedy", "greedy"]
    assert timer.size == 1


def test_a_task_cannot_advance_the_timer_that_runs_it() -> None:
    """It would run other tasks inside itself."""
    timer = SystemTimer(ManualClock())
    answers: list[bool] = []
    timer.add(TimerTask(0, lambda: answers.append(timer.advance_clock(0))))
    assert answers == [False]


def test_a_task_that_moves_a_mock_timer_on_is_not_interrupted_and_nothing_hangs() -> None:
    """A task that becomes due by that waits until the first has returned; a test would else never
    end."""
    timer = MockTimer()
    ran: list[str] = []

    def move_on() -> None:
        assert not timer.advance_clock(10)
        ran.append(f"mover at {timer.now_ms}")

    timer.add(TimerTask(5, move_on))
    for delay_ms in (8, 15, 16):
        timer.add(TimerTask(delay_ms, lambda d=delay_ms: ran.append(f"{d} at {timer.now_ms}")))
    assert timer.advance_clock(6)
    assert ran == ["mover at 15", "8 at 15", "15 at 15"]
    assert (timer.now_ms, timer.size) == (15, 1)


def test_a_task_may_move_the_clock_of_a_mock_timer() -> None:
    """Code under test that holds the clock moves it; the timer follows, and does not go back."""
    timer = MockTimer()
    timer.add(TimerTask(5, lambda: timer.manual_clock.advance(10)))
    assert timer.advance_clock(6)
    assert timer.now_ms == 15


def test_an_exception_is_told_once_and_the_wheel_goes_on() -> None:
    """One bad task would stop all time-outs of a broker."""
    told: list[tuple[TimerTask, Exception]] = []
    timer = MockTimer(on_error=lambda task, error: told.append((task, error)))
    recorder = Recorder(timer)
    bad = TimerTask(5, lambda: 1 // 0)
    timer.add(bad)
    recorder.add("good", 5)
    timer.advance_clock(100)
    assert [(task, type(error)) for task, error in told] == [(bad, ZeroDivisionError)]
    assert recorder.ran == [("good", 5)]


def test_an_exception_that_nobody_asked_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A failure that nobody hears of is found by the users."""
    timer = MockTimer()
    timer.add(TimerTask(5, lambda: 1 // 0))
    with caplog.at_level(logging.ERROR):
        timer.advance_clock(5)
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None


def test_an_interrupt_passes_through_and_loses_nothing() -> None:
    """Ctrl-C in a task must end the program, not be swallowed; what was due stays due."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    recorder = Recorder()
    recorder.timer.add(TimerTask(5, interrupt))
    recorder.add("next", 5)
    with pytest.raises(KeyboardInterrupt):
        recorder.timer.advance_clock(5)
    recorder.timer.advance_clock(0)
    assert recorder.ran == [("next", 5)]


def test_a_slice_stops_in_the_middle_of_a_bucket() -> None:
    """Very many tasks of one moment would keep an event loop from everything else."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    ran: list[int] = []
    tasks = [TimerTask(7, lambda i=i: ran.append(i)) for i in range(10)]
    for task in tasks:
        timer.add(task)
    clock.advance(7)
    assert timer.advance(0, 4)
    assert ran == [0, 1, 2, 3]
    assert timer.size == 6
    assert timer.next_due_ms() == 7
    tasks[5].cancel()
    timer.add(TimerTask(1, lambda: ran.append(99)))
    assert timer.advance(0, 4)
    assert ran == [0, 1, 2, 3, 4, 6, 7, 8]
    clock.advance(1)
    timer.advance_clock(0)
    assert ran == [0, 1, 2, 3, 4, 6, 7, 8, 9, 99]


def test_demotion_counts_as_something_due() -> None:
    """The answer of `advance_clock` is about buckets, even when nothing ran."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    timer.add(TimerTask(450))
    assert not timer.advance_clock(0)
    clock.advance(400)
    assert timer.advance_clock(0)
    assert timer.size == 1
    assert timer.next_due_ms() == 440


def test_a_late_look_at_the_clock_runs_everything_in_the_order_of_buckets() -> None:
    """A process that was stopped for a while must not forget what was due meanwhile."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    ran: list[int] = []
    for delay_ms in (9000, 450, 3, 350, 20, 19, 8000):
        timer.add(TimerTask(delay_ms, lambda d=delay_ms: ran.append(d)))
    clock.advance(10_000)
    timer.advance_clock(0)
    assert ran == [3, 19, 20, 350, 450, 8000, 9000]


def test_an_idle_wheel_catches_up_before_it_takes_a_task() -> None:
    """From far behind, a near deadline would land on a high level and wake the owner twice."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    clock.advance(10_000)
    timer.add(TimerTask(2))
    assert timer.next_due_ms() == 10_002
    assert len(timer.wheel.levels()) == 1


def test_a_task_added_before_a_backlog_is_run_does_not_share_its_bucket() -> None:
    """The clock has gone round the wheel unseen: the same slot, another turn."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    ran: list[str] = []
    timer.add(TimerTask(5, lambda: ran.append("old")))
    clock.advance(20)
    timer.add(TimerTask(5, lambda: ran.append("new")))
    timer.advance(0, 10)
    assert ran == ["old"]
    assert timer.next_due_ms() == 25
    clock.advance(5)
    timer.advance(0, 10)
    assert ran == ["old", "new"]


def test_a_bucket_that_was_emptied_has_no_expiration() -> None:
    """-1 is what says that a bucket is not queued."""
    timer = MockTimer()
    timer.add(TimerTask(5))
    bucket = timer.wheel.buckets[5]
    assert bucket.expiration_ms == 5
    timer.advance_clock(5)
    assert bucket.expiration_ms == -1


class StubbornClock(OwnClock):
    """A clock that a test sets to anything."""

    def __init__(self) -> None:
        self.now_ms = 1000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def test_a_clock_that_goes_back_or_stands_still_loses_nothing() -> None:
    """Virtual machines do have such clocks; no task may run early or get lost."""
    clock = StubbornClock()
    timer = SystemTimer(clock)
    ran: list[str] = []
    timer.add(TimerTask(10, lambda: ran.append("before")))
    clock.now_ms = 900
    timer.add(TimerTask(10, lambda: ran.append("during")))
    assert not timer.advance_clock(0)
    assert timer.now_ms == 1000
    clock.now_ms = 1009
    assert not timer.advance_clock(0)
    clock.now_ms = 1010
    timer.advance_clock(0)
    assert ran == ["before", "during"]


def test_a_clock_that_jumps_ahead_by_years_runs_everything_once() -> None:
    """A machine that slept over a weekend: all that was due is late, and none is lost."""
    clock = StubbornClock()
    timer = SystemTimer(clock)
    ran: list[int] = []
    for delay_ms in (YEAR_MS, 5, 450, 9000):
        timer.add(TimerTask(delay_ms, lambda d=delay_ms: ran.append(d)))
    clock.now_ms += 30 * YEAR_MS
    timer.advance_clock(0)
    assert ran == [5, 450, 9000, YEAR_MS]
    timer.add(TimerTask(5, lambda: ran.append(0)))
    assert timer.next_due_ms() == clock.now_ms + 5


def test_a_task_that_is_added_while_another_fires_keeps_its_own_time() -> None:
    """Into the bucket in hand it must never go: it would run with this turn."""
    for delay_ms in (1, 19, 20, 21, 400):
        timer = MockTimer()
        ran: list[int] = []
        inner = TimerTask(delay_ms, lambda ran=ran, timer=timer: ran.append(timer.now_ms))
        timer.add(TimerTask(40, lambda timer=timer, inner=inner: timer.add(inner)))
        timer.advance_clock(40)
        assert ran == []
        timer.advance_clock(delay_ms)
        assert ran == [40 + delay_ms]


def test_closing_discards_and_refuses() -> None:
    """A timer that is shut down must run nothing more, whoever still adds to it."""
    recorder = Recorder()
    pending = recorder.add("a", 10)
    recorder.timer.close()
    recorder.timer.close()
    recorder.add("b", 0)
    later = recorder.add("c", 5)
    recorder.timer.advance_clock(1000)
    assert recorder.ran == []
    assert recorder.timer.size == 0
    assert not pending.is_pending
    assert later.cancelled


def test_closing_from_a_task_ends_the_run() -> None:
    """The tasks after it are discarded like all others."""
    recorder = Recorder()
    recorder.timer.add(TimerTask(5, recorder.timer.shutdown))
    recorder.add("a", 5)
    recorder.timer.advance_clock(10)
    assert recorder.ran == []


def test_mock_timer_refuses_to_go_back(recorder: Recorder) -> None:
    """A negative step is a mistake in the test that takes it."""
    with pytest.raises(ValueError, match="cannot go back by 5 ms"):
        recorder.timer.advance_clock(-5)


def test_a_task_taken_by_another_timer_leaves_the_first() -> None:
    """One task is in one ring."""
    first, second = Recorder(), Recorder()
    task = first.add("a", 10)
    second.timer.add(task)
    assert (first.timer.size, second.timer.size) == (0, 1)


def test_hand_overs_wake_the_owner_once_per_batch() -> None:
    """A wake-up of an event loop is a system call; one for each task would cost too much."""
    timer = SystemTimer(ManualClock())
    wakes: list[int] = []
    ran: list[str] = []
    timer.on_handed_over = lambda: wakes.append(len(wakes))
    threads = [
        threading.Thread(target=timer.add_threadsafe, args=(TimerTask(0, lambda: ran.append("x")),))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert timer.size == 0
    assert len(wakes) == 1
    timer.call_threadsafe(lambda: ran.append("called"))
    timer.advance_clock(0)
    assert ran == ["x"] * 5 + ["called"]
    timer.call_threadsafe(lambda: None)
    assert len(wakes) == 2


def test_the_owner_takes_only_what_was_handed_over_before_it_looked() -> None:
    """Another thread that hands over faster than the owner takes would else hold it forever."""
    timer = SystemTimer(ManualClock())
    timer.wake_ms = 10**6
    ran: list[int] = []

    def hand_over_another() -> None:
        assert len(ran) + timer.size < 100, "the owner never comes to its tasks"
        timer.add_threadsafe(TimerTask(5, lambda: ran.append(1)))

    timer.on_earlier = hand_over_another  # called while the owner takes what was handed over
    hand_over_another()
    for taken in range(1, 4):
        timer.advance_clock(0)
        assert timer.size == taken


def test_hand_overs_are_taken_in_slices() -> None:
    """A million of them would hold up an event loop as a million time-outs of one moment do."""
    timer = SystemTimer(ManualClock())
    wakes: list[int] = []
    timer.on_handed_over = lambda: wakes.append(timer.size)
    for _ in range(25):
        timer.add_threadsafe(TimerTask(50))
    assert wakes == [0]
    timer.advance(0, 10)
    timer.advance(0, 10)
    assert (timer.size, wakes) == (20, [0, 10, 20])
    timer.advance(0, 10)
    assert (timer.size, wakes) == (25, [0, 10, 20])


def test_the_delay_of_a_handed_over_task_counts_from_the_hand_over() -> None:
    """A busy owner would else stretch every time-out."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    timer.add_threadsafe(TimerTask(10))
    clock.advance(4)
    timer.advance_clock(0)
    assert timer.next_due_ms() == 10


def test_a_task_cancelled_between_hand_over_and_taking_does_not_run() -> None:
    """The foreign thread that added it may change its mind before the owner looks."""
    timer = SystemTimer(ManualClock())
    ran: list[str] = []
    for delay_ms in (0, 5):
        task = TimerTask(delay_ms, lambda: ran.append("cancelled"))
        timer.add_threadsafe(task)
        task.cancel()
    timer.advance_clock(0)
    assert ran == []
    assert timer.size == 0


class MeddlingClock(OwnClock):
    """A clock during whose reading another thread does something."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = int

    def monotonic_ms(self) -> int:
        self.meanwhile()
        return 0

    def wall_ms(self) -> int:
        return 0


@pytest.mark.parametrize("delay_ms", [0, 50])
def test_a_task_cancelled_by_another_thread_while_it_is_added_does_not_run(delay_ms: int) -> None:
    """It is neither due nor wanted; running it would answer a request that was given up."""
    clock = MeddlingClock()
    timer = SystemTimer(clock)
    ran: list[str] = []
    task = TimerTask(delay_ms, lambda: ran.append("cancelled"))
    clock.meanwhile = task.cancel
    timer.add(task)
    assert ran == []
    assert timer.size == 0


def test_a_hook_that_fails_itself_leaves_the_timer_whole() -> None:
    """Its exception is its caller's; what was due beside the failed task is still due."""

    def hook(task: TimerTask, error: Exception) -> None:
        raise RuntimeError("nobody listens") from error

    timer = MockTimer(on_error=hook)
    ran: list[str] = []
    timer.add(TimerTask(5, lambda: 1 // 0))
    timer.add(TimerTask(5, lambda: ran.append("next")))
    with pytest.raises(RuntimeError, match="nobody listens"):
        timer.advance_clock(5)
    timer.advance_clock(0)
    assert ran == ["next"]


def test_a_closed_timer_takes_no_hand_over() -> None:
    """Hand-overs of other threads would pile up for ever."""
    timer = SystemTimer(ManualClock())
    timer.close()
    task = TimerTask(5)
    timer.add_threadsafe(task)
    assert task.cancelled


def test_a_task_that_is_due_when_added_runs_before_a_backlog() -> None:
    """It runs at once, whatever a slice has left over."""
    timer = SystemTimer(ManualClock())
    ran: list[str] = []
    timer.call_threadsafe(lambda: ran.append("first"))
    timer.call_threadsafe(lambda: ran.append("backlog"))
    timer.advance(0, 1)
    timer.add(TimerTask(0, lambda: ran.append("at once")))
    assert ran == ["first", "at once"]
    timer.advance_clock(0)
    assert ran == ["first", "at once", "backlog"]


def test_a_handed_over_failure_is_told_like_a_tasks() -> None:
    """A request of a foreign thread must not end the owner's turn either."""
    told: list[Exception] = []
    timer = MockTimer(on_error=lambda task, error: told.append(error))
    ran: list[str] = []
    timer.call_threadsafe(lambda: 1 // 0)
    timer.call_threadsafe(lambda: ran.append("next"))
    timer.advance_clock(0)
    assert [type(error) for error in told] == [ZeroDivisionError]
    assert ran == ["next"]


def test_waiting_ends_when_a_manual_clock_is_moved() -> None:
    """`advance_clock(timeout)` sleeps on the clock it was given, not beside it."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    ran: list[str] = []
    timer.add(TimerTask(50, lambda: ran.append("a")))
    mover = threading.Thread(target=clock.advance, args=(50,))
    mover.start()
    while not ran:
        timer.advance_clock(10)
    mover.join()
    assert clock.monotonic_ms() == 50


def test_waiting_ends_when_something_is_handed_over() -> None:
    """A sleeping owner must hear of a task that is due before all it knew of."""
    timer = SystemTimer(SystemClock())
    ran: list[str] = []
    helper = threading.Thread(
        target=timer.add_threadsafe, args=(TimerTask(0, lambda: ran.append("a")),)
    )
    helper.start()
    while not ran:
        timer.advance_clock(60_000)
    helper.join()
    assert ran == ["a"]


def test_waiting_is_bounded_by_its_time_out() -> None:
    """With nothing pending the caller gets its thread back."""
    assert not SystemTimer(SystemClock()).advance_clock(1)


def test_what_is_added_between_slices_of_a_demotion_leaves_the_order_alone() -> None:
    """Tasks of a bucket in hand would run in the order of adding, and not of their deadlines."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    ran: list[int] = []
    for delay_ms in (700, 404, 403):
        timer.add(TimerTask(delay_ms, lambda d=delay_ms: ran.append(d)))
    clock.advance(405)
    timer.advance(0, 1)
    timer.add(TimerTask(1000))
    timer.advance_clock(0)
    assert ran == [403, 404]


def test_what_a_running_task_adds_is_told_to_nobody() -> None:
    """The driver of the timer looks when the turn is over; a look for each task would cost more."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    timer.wake_ms = 10**6
    told: list[str] = []
    timer.add(TimerTask(5, lambda: timer.add(TimerTask(1))))
    timer.on_earlier = lambda: told.append("earlier")
    clock.advance(5)
    timer.advance_clock(0)
    assert (told, timer.size) == ([], 1)
