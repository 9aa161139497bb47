"""Two threads that meet over one operation or task: every order in which they can.

Each work is interrupted wherever a call begins or ends, and the other goes on from there, so a
window of one call is met for certain. Larger programs are tried in `tests/property`.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.interleaving import WATCHED, Work, every_interleaving

from odradek.clock import ManualClock
from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import SystemTimer, TimerTask

PLACES = (*WATCHED, __file__)


class Awaited(DelayedOperation):
    """Complete when told to be ready; notes who completed it."""

    def __init__(self) -> None:
        super().__init__(450)
        self.ready = False
        self.looks: list[bool] = []
        self.completions: list[str] = []
        self.expirations = 0

    def try_complete(self) -> bool:
        seen = self.ready
        self.looks.append(seen)  # a place where others may make it ready, unseen
        return self.force_complete() if seen else False

    def on_complete(self) -> None:
        self.completions.append(threading.current_thread().name)

    def on_expiration(self) -> None:
        self.expirations += 1


class Meeting:
    """An operation, its purgatory, and what a thread may do with them; answers are wins."""

    def __init__(self, watched: bool) -> None:
        self.clock = ManualClock()
        self.timer = SystemTimer(self.clock)
        self.purgatory = DelayedOperationPurgatory("test", self.timer)
        self.operation = Awaited()
        self.wins: list[int] = []
        if watched:
            self.watch()

    def watch(self) -> None:
        self.wins.append(self.purgatory.try_complete_else_watch(self.operation, ["a"]))

    def check(self) -> None:
        self.wins.append(self.purgatory.check_and_complete("a"))

    def force(self) -> None:
        self.wins.append(self.operation.force_complete())

    def make_ready_and_try(self) -> None:
        self.operation.ready = True
        self.wins.append(self.operation.safe_try_complete())

    def make_ready_and_hand_over(self) -> None:
        self.operation.ready = True
        self.timer.call_threadsafe(self.check)

    def demote(self) -> None:
        self.clock.advance(440)
        self.timer.advance_clock(0)

    def expire(self) -> None:
        self.clock.advance(450)
        self.timer.advance_clock(0)

    def look(self) -> None:
        """Both have done what they had to: one completion, and nothing is left."""
        self.timer.advance_clock(0)
        assert len(self.operation.completions) == 1
        assert sum(self.wins) + self.operation.expirations == 1
        assert self.timer.size == self.purgatory.delayed == 0
        stats = self.purgatory.stats
        assert (stats.watched, stats.expired) == (stats.completed, self.operation.expirations)
        self.purgatory.purge()
        assert self.purgatory.watched == 0


@pytest.mark.parametrize("other", [Meeting.force, Meeting.make_ready_and_try,
                                   Meeting.make_ready_and_hand_over])  # fmt: skip
@pytest.mark.parametrize("owner", [Meeting.watch, Meeting.check, Meeting.demote, Meeting.expire])
def test_an_operation_completes_once_wherever_two_threads_meet(
    owner: Callable[[Meeting], None], other: Callable[[Meeting], None]
) -> None:
    """A lost completion waits for its time-out; a second one answers a request twice."""

    def prepare() -> tuple[Work, Work, Work]:
        meeting = Meeting(watched=owner is not Meeting.watch)
        return lambda: owner(meeting), lambda: other(meeting), meeting.look

    every_interleaving(prepare, PLACES)


def test_two_foreign_threads_share_the_checks() -> None:
    """A thread that comes while the other looks leaves word; the other looks again."""

    def prepare() -> tuple[Work, Work, Work]:
        meeting = Meeting(watched=True)
        return (
            meeting.operation.safe_try_complete,
            meeting.make_ready_and_try,
            lambda: look(meeting),
        )

    def look(meeting: Meeting) -> None:
        assert len(meeting.operation.completions) == 1
        assert meeting.timer.size == 0

    every_interleaving(prepare, PLACES)


def test_a_check_that_raises_is_shared_as_well() -> None:
    """A thread that leaves word with a look that fails has told all that it knows."""

    class Failing(Awaited):
        """Cannot be looked at before it is ready."""

        def try_complete(self) -> bool:
            if not super().try_complete():
                raise LookupError("no such log")
            return True

    def prepare() -> tuple[Work, Work, Work]:
        operation = Failing()

        def look() -> None:
            with suppress(LookupError):
                operation.safe_try_complete()

        def make_ready_and_look() -> None:
            operation.ready = True
            look()

        def compare() -> None:
            assert len(operation.completions) == 1

        return look, make_ready_and_look, compare

    every_interleaving(prepare, PLACES)


class Once(TimerTask):
    """Must not run once it was cancelled."""

    cancelled_in_time = False
    ran = False

    def run(self) -> None:
        assert not self.cancelled_in_time
        self.ran = True

    def give_up(self) -> None:
        self.cancel()
        self.cancelled_in_time = not self.ran


@pytest.mark.parametrize("move_ms", [340, 350])
def test_a_cancellation_is_kept_wherever_it_meets_a_move_of_the_clock(move_ms: int) -> None:
    """A task caught on its way between two levels would stay for its whole time-out."""

    def prepare() -> tuple[Work, Work, Work]:
        clock = ManualClock()
        failures: list[Exception] = []
        timer = SystemTimer(clock, on_error=lambda task, error: failures.append(error))
        task, neighbour = Once(350), Once(350)
        timer.add(task)
        timer.add(neighbour)

        def move() -> None:
            clock.advance(move_ms)
            timer.advance_clock(0)

        def look() -> None:
            assert failures == []
            assert not task.is_pending
            assert timer.size == neighbour.is_pending == (move_ms == 340)

        return move, task.give_up, look

    # Not in `run` itself: what has begun by then goes on.
    every_interleaving(prepare, WATCHED)


def test_the_search_finds_what_it_is_for() -> None:
    """A counter that is read and written with a call between them loses counts."""

    class Counter:
        count = 0

        def increase(self) -> None:
            seen = self.count
            following = sum((seen, 1))
            self.count = following

    def prepare() -> tuple[Work, Work, Work]:
        counter = Counter()

        def look() -> None:
            assert counter.count == 2

        return counter.increase, counter.increase, look

    with pytest.raises(AssertionError):
        every_interleaving(prepare, PLACES)
