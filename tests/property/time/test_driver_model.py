"""An event loop that owns a timer, over a loop whose time is made up: nothing is late or lost.

Tasks are added by the loop, by other tasks while they run, and by hand-over; some are cancelled.
The loop jumps from one of its callbacks to the next, so whatever the driver does not ask to be
woken for is never looked at.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from tests.clocks import OwnClock

from odradek.timer import AsyncioDriver, SystemTimer, TimerTask

DELAYS = st.one_of(st.integers(-1, 3), st.integers(15, 25), st.integers(300, 500), st.just(10_000))
# A task: its delay, and what it adds when it runs.
PLANS = st.recursive(
    st.tuples(DELAYS, st.just(())),
    lambda plans: st.tuples(DELAYS, st.lists(plans, max_size=3).map(tuple)),
    max_leaves=5,
)
Plan = tuple[int, tuple["Plan", ...]]
EVENTS = st.lists(
    st.tuples(st.integers(0, 600), st.sampled_from(["add", "add", "hand over", "cancel"]), PLANS),
    max_size=8,
)


class Handle:
    """A callback of the loop, which may be taken back."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class MadeUpLoop(OwnClock):
    """The part of an event loop that a driver sees, with a clock of its own, in milliseconds."""

    def __init__(self) -> None:
        self.at_ms = 0
        self.turns = 0
        self._heap: list[tuple[int, int, Handle]] = []
        self._order = itertools.count()

    def call_at_ms(self, at_ms: int, callback: Callable[[], object]) -> Handle:
        handle = Handle(callback)
        heapq.heappush(self._heap, (at_ms, next(self._order), handle))
        return handle

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Handle:
        return self.call_at_ms(self.at_ms + round(delay_s * 1000), callback)

    def call_soon(self, callback: Callable[[], object]) -> Handle:
        return self.call_at_ms(self.at_ms, callback)

    call_soon_threadsafe = call_soon

    def is_closed(self) -> bool:
        return False

    def monotonic_ms(self) -> int:
        return self.at_ms

    def wall_ms(self) -> int:
        return self.at_ms

    def run(self) -> None:
        """Goes on until nothing is asked for any more."""
        while self._heap:
            at_ms, _, handle = heapq.heappop(self._heap)
            if not handle.cancelled:
                self.at_ms = at_ms
                self.turns += 1
                handle.callback()


class Story:
    """The tasks that are added, when each has to run, and when it did."""

    def __init__(self) -> None:
        self.loop = MadeUpLoop()
        self.timer = SystemTimer(self.loop, on_error=self.fail)
        self.deadlines: dict[TimerTask, int] = {}
        self.ran: dict[TimerTask, int] = {}

    def fail(self, task: TimerTask, error: Exception) -> None:
        raise AssertionError("a task failed") from error

    def add(self, plan: Plan, hand_over: bool = False) -> None:
        delay_ms, following = plan

        def run() -> None:
            self.ran[task] = self.loop.at_ms
            for each in following:
                self.add(each)

        task = TimerTask(delay_ms, run)
        self.deadlines[task] = self.loop.at_ms + max(0, delay_ms)
        (self.timer.add_threadsafe if hand_over else self.timer.add)(task)

    def do(self, verb: str, plan: Plan) -> None:
        if verb == "cancel":
            pending = [task for task in self.deadlines if task not in self.ran]
            for task in pending[:1]:
                task.cancel()
                del self.deadlines[task]
        else:
            self.add(plan, verb == "hand over")


@given(EVENTS)
def test_a_loop_is_woken_for_everything_in_time_and_for_little_else(
    events: list[tuple[int, str, Plan]],
) -> None:
    """A time-out that no alarm was set for fires when something else happens to, or never."""
    story = Story()
    loop = story.loop
    for at_ms, verb, plan in events:
        loop.call_at_ms(at_ms, lambda verb=verb, plan=plan: story.do(verb, plan))
    asyncio._set_running_loop(loop)  # type: ignore[arg-type]
    try:
        AsyncioDriver(story.timer).start()
    finally:
        asyncio._set_running_loop(None)
    loop.run()
    assert story.ran == story.deadlines
    assert story.timer.size == 0
    # The start, each event and its wake-up, and for each task its bucket on at most four levels.
    assert loop.turns <= 1 + 2 * len(events) + 4 * (len(story.ran) + len(events))
