"""The timer against a plain dictionary of deadlines.

Whatever is added, cancelled, added again and however the clock is moved: the same tasks run,
each once, none before its time, bucket after bucket, and the sizes agree at every step.
"""

from hypothesis import example, given
from hypothesis import strategies as st
from tests.clocks import OwnClock

from odradek.clock import ManualClock
from odradek.timer import MockTimer, SystemTimer, TimerTask

DELAYS = st.one_of(
    st.integers(-3, 45),
    st.integers(380, 420),
    st.integers(0, 9000),
    st.integers(0, 10**9),
    # Beyond every level that the tasks before have made, and back under it.
    st.integers(10**9, 2**45),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 9), DELAYS),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("move"), st.just(0), DELAYS.map(abs)),
    ),
    max_size=60,
)


class Model:
    """The behaviour that a timer must have: tick 1, or deadlines cut down to a coarser tick."""

    def __init__(self, timer: SystemTimer, clock: ManualClock, tick_ms: int) -> None:
        self.timer = timer
        self.clock = clock
        self.tick_ms = tick_ms
        self.deadlines: dict[int, int] = {}
        self.ran: list[tuple[int, int]] = []
        self.tasks = [TimerTask(0, lambda i=i: self._ran(i)) for i in range(10)]

    def _ran(self, i: int) -> None:
        self.ran.append((i, self.clock.monotonic_ms()))

    def add(self, i: int, delay_ms: int) -> None:
        self.tasks[i].delay_ms = delay_ms
        self.deadlines[i] = self.clock.monotonic_ms() + delay_ms
        self.timer.add(self.tasks[i])
        self.check()

    def cancel(self, i: int) -> None:
        self.tasks[i].cancel()
        self.deadlines.pop(i, None)
        self.check()

    def check(self) -> None:
        """Compares what ran since the last check with what had to."""
        now_ms = self.clock.monotonic_ms()
        hand_ms = now_ms - now_ms % self.tick_ms
        must_run = {i: d for i, d in self.deadlines.items() if d < hand_ms + self.tick_ms}
        assert sorted(i for i, _ in self.ran) == sorted(must_run)
        buckets = [must_run[i] // self.tick_ms for i, _ in self.ran]
        assert buckets == sorted(buckets)
        for i, at_ms in self.ran:
            assert at_ms >= must_run[i] - self.tick_ms + 1
            del self.deadlines[i]
        self.ran.clear()
        assert self.timer.size == len(self.deadlines)
        queued = [id(bucket) for bucket in self.timer.wheel.queue.buckets()]
        assert len(set(queued)) == len(queued), "a bucket is queued once, whatever it holds"
        due_ms = self.timer.next_due_ms()
        if self.deadlines:
            assert due_ms is not None
            assert now_ms < due_ms <= min(self.deadlines.values())
        else:
            assert due_ms is None


@given(STEPS, st.sampled_from([(1, 20), (1, 2), (1, 3), (7, 5)]))
def test_a_system_timer_runs_what_a_dictionary_says(
    steps: list[tuple[str, int, int]], shape: tuple[int, int]
) -> None:
    """A task lost in a demotion, run early, twice, or after its cancellation."""
    clock = ManualClock(monotonic_ms=123)
    model = Model(SystemTimer(clock, *shape), clock, shape[0])
    for verb, i, amount in steps:
        if verb == "add":
            model.add(i, amount)
        elif verb == "cancel":
            model.cancel(i)
        else:
            clock.advance(amount)
            model.timer.advance_clock(0)
            model.check()


# The last task of a slice, and behind it a bucket that is empty and due.
@example([("add", 0, 400), ("add", 0, 380), ("move", 0, 400), ("add", 0, 1)], 1)
@given(STEPS, st.integers(1, 5))
def test_slices_run_the_same_tasks(steps: list[tuple[str, int, int]], slice_tasks: int) -> None:
    """A slice that ends within a bucket or a demotion must lose and repeat nothing."""
    clock = ManualClock()
    model = Model(SystemTimer(clock), clock, 1)
    for verb, i, amount in steps:
        if verb == "add":
            model.add(i, amount)
        elif verb == "cancel":
            model.cancel(i)
        else:
            clock.advance(amount)
            while (due := model.timer.next_due_ms()) is not None and due <= clock.monotonic_ms():
                model.timer.advance(0, slice_tasks)
            # Even with nothing pending: a due bucket that cancellations emptied moves the hand.
            model.timer.advance(0, slice_tasks)
            model.check()


@given(st.lists(st.tuples(DELAYS, DELAYS.map(abs)), max_size=40))
def test_a_mock_timer_shows_each_task_its_own_deadline(steps: list[tuple[int, int]]) -> None:
    """With a tick of 1 ms a task of a test sees exactly the moment that it was set for."""
    timer = MockTimer()
    seen: list[tuple[int, int]] = []
    for delay_ms, step_ms in steps:
        deadline_ms = timer.now_ms + max(0, delay_ms)
        timer.add(TimerTask(delay_ms, lambda d=deadline_ms: seen.append((d, timer.now_ms))))
        timer.advance_clock(step_ms)
    assert all(deadline_ms == at_ms for deadline_ms, at_ms in seen)
    assert len(seen) + timer.size == len(steps)


class WildClock(OwnClock):
    """A clock that jumps to wherever the test says."""

    def __init__(self) -> None:
        self.at_ms = 10**6

    def monotonic_ms(self) -> int:
        return self.at_ms

    def wall_ms(self) -> int:
        return self.at_ms


@given(st.lists(st.tuples(DELAYS, st.integers(-1000, 1000)), max_size=40))
def test_a_clock_that_jumps_to_and_fro_loses_and_hurries_nothing(
    steps: list[tuple[int, int]],
) -> None:
    """Time is the latest moment that the timer has seen; a clock that goes back stands still."""
    clock = WildClock()
    timer = SystemTimer(clock)
    latest_ms = clock.at_ms
    pending: list[int] = []
    ran: list[int] = []
    for delay_ms, jump_ms in steps:
        deadline_ms = latest_ms + delay_ms
        timer.add(TimerTask(delay_ms, lambda d=deadline_ms: ran.append(d)))
        pending.append(deadline_ms)
        clock.at_ms += jump_ms
        latest_ms = max(latest_ms, clock.at_ms)
        timer.advance_clock(0)
        assert timer.now_ms == latest_ms
        assert sorted(ran) == sorted(d for d in pending if d <= latest_ms)
        assert timer.size == len(pending) - len(ran)
