"""Timers and purgatories used by several threads at once, in interleavings that are searched.

One thread owns the timer: it watches, checks, purges and moves the clock. The others do what other
threads may: complete, try, cancel, hand over. Whatever the order, each operation completes once, no
completion is lost, and every count comes out.
"""

import threading
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from tests.interleaving import WATCHED, take_turns

from odradek.clock import ManualClock
from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import SystemTimer, TimerTask

COUNTS = st.lists(st.integers(1, 25), max_size=120)
OPERATIONS = 6
NUMBERS = st.integers(0, OPERATIONS - 1)
KEYS = st.sampled_from("abc")
STEP = tuple[str, int, str]

OWNERS_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["watch", "watch", "try"]), NUMBERS, KEYS),
        st.tuples(st.sampled_from(["check", "check", "purge"]), st.just(0), KEYS),
        st.tuples(st.just("move"), st.integers(0, 500), st.just("")),
    ),
    min_size=4,
    max_size=14,
)
OTHERS_STEPS = st.lists(
    st.tuples(st.sampled_from(["force", "try", "try", "hand over", "look"]), NUMBERS, KEYS),
    min_size=1,
    max_size=10,
)


class Operation(DelayedOperation):
    """Complete when told to be ready. Each note is one `append`, which no thread can divide."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.looks: list[bool] = []
        self.completions: list[str] = []
        self.expirations: list[str] = []

    def try_complete(self) -> bool:
        seen = self.ready
        self.looks.append(seen)  # a place where others may make it ready, unseen
        return self.force_complete() if seen else False

    def on_complete(self) -> None:
        self.completions.append(threading.current_thread().name)

    def on_expiration(self) -> None:
        self.expirations.append(threading.current_thread().name)


class Story:
    """Operations in a purgatory, and who says that it completed how many."""

    def __init__(self, delays_ms: list[int]) -> None:
        self.clock = ManualClock()
        self.timer = SystemTimer(self.clock)
        self.purgatory = DelayedOperationPurgatory("model", self.timer, 0, 1)
        self.operations = [Operation(delay_ms) for delay_ms in delays_ms]
        self.watched: set[int] = set()
        self.tried_when_ready: list[int] = []
        self.wins: list[int] = []

    def work(self, steps: list[STEP]) -> Callable[[], None]:
        def follow() -> None:
            for verb, number, key in steps:
                self.step(verb, number, key)

        return follow

    def step(self, verb: str, number: int, key: str) -> None:
        operation = self.operations[number % OPERATIONS]
        purgatory = self.purgatory
        if verb == "watch" and number not in self.watched:
            self.watched.add(number)
            self.wins.append(purgatory.try_complete_else_watch(operation, [key, "all"]))
        elif verb == "try":
            operation.ready = True
            self.wins.append(operation.safe_try_complete())
            self.tried_when_ready.append(number)
        elif verb == "force":
            self.wins.append(operation.force_complete())
        elif verb == "look":
            self.wins.append(operation.safe_try_complete())
        elif verb == "check":
            self.wins.append(purgatory.check_and_complete(key))
        elif verb == "hand over":
            self.timer.call_threadsafe(lambda: self.wins.append(purgatory.check_and_complete(key)))
        elif verb == "purge":
            purgatory.purge()
        elif verb == "move":
            self.clock.advance(number)
            self.timer.advance_clock(0)

    def compare(self) -> None:
        """Checks the purgatory when all threads are done, and the owner has looked once more."""
        completed = [one for one in self.operations if one.is_completed]
        assert all(len(one.completions) == one.is_completed for one in self.operations)
        assert all(self.operations[number].is_completed for number in self.tried_when_ready)
        expirations = sum(len(one.expirations) for one in self.operations)
        assert sum(self.wins) + expirations == len(completed)
        pending = [number for number in self.watched if not self.operations[number].is_completed]
        assert self.purgatory.delayed == self.timer.size == len(pending)
        stats = self.purgatory.stats
        assert stats.expired == expirations
        assert stats.watched == stats.completed + len(pending)
        self.purgatory.purge()
        assert self.purgatory.watched == 2 * len(pending)
        assert len(self.purgatory.waiting()) == len(pending)


@given(st.lists(st.integers(0, 900), min_size=OPERATIONS, max_size=OPERATIONS),
       OWNERS_STEPS, OTHERS_STEPS, OTHERS_STEPS, COUNTS)  # fmt: skip
def test_a_purgatory_among_threads_does_what_the_model_says(
    delays_ms: list[int],
    owner: list[STEP],
    first: list[STEP],
    second: list[STEP],
    counts: list[int],
) -> None:
    """A request answered twice, or never, because two threads met over it."""
    story = Story(delays_ms)
    works = [story.work(steps) for steps in (owner, first, second)]
    take_turns(counts, (*WATCHED, __file__), *works)
    story.timer.advance_clock(0)
    story.compare()
    story.clock.advance(1000)
    story.timer.advance_clock(0)
    assert all(story.operations[number].is_completed for number in story.watched)
    story.compare()


class Once(TimerTask):
    """A task that must not run after its cancellation."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.given_up = False
        self.runs = 0

    def run(self) -> None:
        assert not self.given_up
        self.runs += 1

    def give_up(self) -> None:
        self.cancel()
        self.given_up = True


@given(
    st.lists(st.sampled_from([1, 19, 30, 399, 450, 460]), min_size=1, max_size=12),
    st.lists(st.integers(0, 11), max_size=12),
    st.lists(st.sampled_from([1, 20, 380, 400, 40]), max_size=6),
    COUNTS,
)
def test_cancelling_from_another_thread_takes_effect_at_once(
    delays_ms: list[int], cancelled: list[int], moves_ms: list[int], counts: list[int]
) -> None:
    """A task caught between two levels would come back, or stay for its whole time-out."""
    clock = ManualClock()
    failures: list[Exception] = []
    timer = SystemTimer(clock, on_error=lambda task, error: failures.append(error))
    tasks = [Once(delay_ms) for delay_ms in delays_ms]
    for task in tasks:
        timer.add(task)

    def own() -> None:
        for move_ms in moves_ms:
            clock.advance(move_ms)
            timer.advance_clock(0)

    def cancel() -> None:
        for number in cancelled:
            tasks[number % len(tasks)].give_up()

    # Not in `run` itself: what has begun by then goes on.
    take_turns(counts, WATCHED, own, cancel)
    assert failures == []
    assert not any(task.given_up and task.is_pending for task in tasks)
    assert timer.size == sum(task.is_pending for task in tasks)
    clock.advance(1000)
    timer.advance_clock(0)
    assert timer.size == 0
    assert all(task.runs == 1 or (task.given_up and task.runs == 0) for task in tasks)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), COUNTS)
def test_nothing_handed_over_is_lost_or_woken_twice(
    delays_ms: list[int], counts: list[int]
) -> None:
    """A wake-up that is missed is a task that waits for the next one, for ever maybe."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    wakes: list[int] = []
    ran: list[int] = []
    turned: list[int] = []
    timer.on_handed_over = lambda: wakes.append(1)

    def hand_over() -> None:
        for delay_ms in delays_ms:
            timer.add_threadsafe(TimerTask(delay_ms, lambda: ran.append(1)))

    def own() -> None:
        for _ in range(5):
            if len(wakes) > len(turned):
                turned.append(1)
                timer.advance_clock(0)

    take_turns(counts, (*WATCHED, __file__), hand_over, hand_over, own)
    if len(wakes) > len(turned):
        timer.advance_clock(0)
    assert len(wakes) <= len(turned) + 1
    assert len(ran) + timer.size == 2 * len(delays_ms)
