"""A purgatory whose callbacks do at random what callers do, inside one another to any depth.

They complete, check, try, add, cancel, expire, purge, raise and shut down. What they do is drawn
from a budget, so a story ends although each of its steps may cause others.
"""

import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType

import pytest

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import MockTimer, TimerTask

SEEDS = range(60)
STEPS = 40
BUDGETS = (20, 200, 4000)
KEYS = "abcd"
MOST_FRAMES = 250
"""How deep the stack may get, over that of the test; it must not grow with the budget."""


class Failed(Exception):
    """What callbacks raise here."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Failures are logged by the thousand."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Operation(DelayedOperation):
    """Complete when told to be ready; each callback does something that the story draws."""

    def __init__(self, story: "Story", keys: list[str], delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.story = story
        self.keys = keys
        self.ready = story.random.random() < 0.2
        self.is_tried = False
        self.is_completing = False
        self.completions = 0
        self.expirations = 0
        self.is_cancelled_by_hand = False

    def try_complete(self) -> bool:
        assert not self.is_tried, "a condition runs once at a time"
        self.is_tried = True
        try:
            self.story.act()
        finally:
            self.is_tried = False
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1
        self.is_completing = True
        try:
            self.story.act()
        finally:
            self.is_completing = False

    def on_expiration(self) -> None:
        assert self.completions == 1
        assert not self.is_completing
        self.expirations += 1
        self.story.act()


class Story:
    """The purgatory, all operations that were ever handed in, and what may still be done."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.left = self.random.choice(BUDGETS)
        self.timer = MockTimer(on_error=self.hear)
        self.purgatory = DelayedOperationPurgatory(
            "model", self.timer, 0, self.random.randrange(5), True, self.random.random() < 0.5
        )
        self.operations: list[Operation] = []
        self.deepest = 0
        self.verbs: list[Callable[[], object]] = [
            self.add, self.add, self.add, self.check, self.check, self.check_several, self.ripen,
            self.ripen, self.force, self.force, self.try_one, self.cancel, self.expire, self.purge,
            self.give_time, self.later, self.fail, self.shut_down,
        ]  # fmt: skip

    def hear(self, task: TimerTask, error: BaseException) -> None:
        assert isinstance(error, Failed), (task, error)

    def act(self) -> None:
        """A few things that callers do, while there is budget."""
        self.deepest = max(self.deepest, depth())
        for _ in range(self.random.choice((1, 1, 2, 3, 5))):
            if self.left > 0:
                self.left -= 1
                self.random.choice(self.verbs)()

    def some(self) -> Operation:
        return self.random.choice(self.operations[-30:])

    def add(self) -> None:
        keys = [self.random.choice(KEYS) for _ in range(self.random.choice((1, 1, 2, 3)))]
        operation = Operation(self, keys, self.random.choice((-1, 0, 1, 30, 500)))
        self.operations.append(operation)
        self.purgatory.try_complete_else_watch(operation, keys)

    def check(self) -> None:
        self.purgatory.check_and_complete(self.random.choice(KEYS))

    def check_several(self) -> None:
        self.purgatory.check_all_and_complete(self.random.sample(KEYS, 2))

    def ripen(self) -> None:
        if self.operations:
            self.some().ready = True

    def force(self) -> None:
        if self.operations:
            one = self.some()
            was_completed = one.is_completed
            assert one.force_complete() != was_completed

    def try_one(self) -> None:
        if self.operations:
            self.some().safe_try_complete()

    def cancel(self) -> None:
        """Its time-out will not come; it waits on for its condition."""
        if self.operations:
            one = self.some()
            one.is_cancelled_by_hand = True
            one.cancel()

    def expire(self) -> None:
        self.purgatory.expire(self.random.choice(KEYS))

    def purge(self) -> None:
        self.purgatory.purge()

    def give_time(self) -> None:
        self.timer.advance_clock(self.random.randrange(40))

    def later(self) -> None:
        self.timer.add(TimerTask(self.random.choice((0, 5)), self.act))

    def fail(self) -> None:
        if self.random.random() < 0.5:
            raise Failed("at random")

    def shut_down(self) -> None:
        if self.random.random() < 0.02:
            self.purgatory.shutdown()

    def compare(self) -> None:
        """What must hold whenever no callback runs."""
        for one in self.operations:
            assert one.completions == one.is_completed
            assert one.expirations <= one.completions
        purgatory = self.purgatory
        lists = purgatory._watchers
        entries = [one for key in lists for one in lists[key].operations]
        assert all(lists[key].operations for key in lists)
        assert purgatory.watched == len(entries)
        waiting = {one for one in entries if not one.is_completed}
        assert purgatory.delayed == len(waiting) == len(purgatory.waiting())
        for one in waiting:
            assert isinstance(one, Operation)
            assert sum(one is entry for entry in entries) == len(one.keys)
            assert one.is_pending or one.is_cancelled_by_hand, "nothing would ever expire it"
        for one in self.operations:
            assert not one.is_completed or not one.is_pending
        stats = purgatory.stats
        assert stats.watched == stats.completed + len(waiting)

    def told(self, verb: Callable[[], object]) -> None:
        with suppress(Failed):
            verb()


def depth() -> int:
    """How many frames lie below."""
    frame: FrameType | None = sys._getframe()
    count = 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_callbacks_do_each_operation_completes_once(seed: int) -> None:
    """A request answered twice or never, a count that drifts, a stack that overflows."""
    story = Story(seed)
    below = depth()
    for _ in range(STEPS):
        story.left += story.random.randrange(30)
        story.told(story.random.choice(story.verbs))
        story.compare()
    assert story.deepest - below < MOST_FRAMES
    story.left = 0
    for one in story.operations:
        one.ready = True
    for key in KEYS:
        story.purgatory.check_and_complete(key)
    story.purgatory.purge()
    story.compare()
    assert (story.purgatory.watched, story.purgatory._watchers) == (0, {})
