"""Purgatories whose callbacks do at random what callers do, inside one another to any depth.

They complete, check, try, add, cancel, expire, purge, hand over, raise and shut down, in their own
purgatory and in another on the same timer. What they do is drawn from a budget, so a story ends
although each of its steps may cause others.
"""

import logging
import random
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import FrameType

import pytest
from tests.rounds import seeds

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import MockTimer, TimerTask

SEEDS = seeds("ODRADEK_PURGATORY_SEEDS", 60)
STEPS = 40
BUDGETS = (20, 200, 4000)
KEYS = "abcd"
MOST_FRAMES = 250
"""How deep the stack may get, over that of the test; it must not grow with the budget."""


class Failed(Exception):
    """The error that callbacks raise here."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Failures are logged by the thousand."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Operation(DelayedOperation):
    """Complete when told to be ready; each callback does something that the story draws."""

    def __init__(self, room: "Room", keys: list[str], delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.room = room
        self.story = room.story
        self.keys = keys
        self.ready = self.story.random.random() < 0.2
        self.is_tried = False
        self.is_completing = False
        self.completions = 0
        self.expirations = 0
        self.is_cancelled_by_hand = False
        self.is_forgotten = False
        self.failed_looks = 0

    def try_complete(self) -> bool:
        assert not self.is_tried, "a condition runs once at a time"
        assert not self.is_completed, "nobody looks at what is complete"
        self.is_tried = True
        try:
            self.story.act(self.room, is_condition=True)
        except BaseException:
            self.failed_looks += 1
            raise
        finally:
            self.is_tried = False
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1
        assert not self.is_pending
        self.is_completing = True
        # Before it is let in its completion is a part of the condition that completes it.
        is_condition = self.room.is_condition and self._counts is None
        try:
            self.story.act(self.room, is_condition=is_condition)
        finally:
            self.is_completing = False

    def on_expiration(self) -> None:
        assert self.completions == 1
        assert not self.is_completing
        assert not self.is_forgotten, "it was cancelled"
        self.expirations += 1
        self.story.act(self.room, is_condition=False)

    @property
    def is_answered(self) -> bool:
        """Whether nothing is owed to it: what it waited for came, or will not come."""
        return self.is_completed or self.is_forgotten


class Ripe:
    """Operations that wait under a key and are ready: who checks the key has them completed, but
    for those whose condition raises, or is being looked at already."""

    def __init__(self, waiting: list[Operation]) -> None:
        self._failed_looks = {
            one: one.failed_looks for one in waiting if one.ready and not one.is_tried
        }

    def check(self) -> None:
        for one, failed_looks in self._failed_looks.items():
            assert one.is_answered or one.failed_looks > failed_looks, "the check was lost"


class Refused:
    """A key that is none."""

    def __init__(self, story: "Story") -> None:
        self.story = story

    def __hash__(self) -> int:
        self.story.raised += 1
        raise Failed("no key")


class Room:
    """A purgatory, and what is known of who looks at its operations."""

    def __init__(self, story: "Story") -> None:
        draw = story.random
        self.story = story
        self.purgatory = DelayedOperationPurgatory(
            "model", story.timer, 0, draw.randrange(5), draw.random() < 0.9, draw.random() < 0.5
        )
        self.operations: list[Operation] = []
        # Whether a condition acts; which keys were looked at in this step, or asked for; and what
        # conditions have asked for first, which is done when the step is over.
        self.is_condition = False
        self.looked_at: set[str] = set()
        self.asked: list[Ripe] = []

    def waiting(self, key: str) -> list[Operation]:
        watchers = self.purgatory._watchers.get(key)
        entries = [] if watchers is None else watchers.operations
        return [one for one in entries if isinstance(one, Operation) and not one.is_completed]

    def looking(self, keys: list[str], look: Callable[[], object]) -> None:
        """Looks at keys, and holds that nothing that was ripe is left there: now, or if a condition
        asks for it, when this step is over."""
        ripe = [(key, Ripe(self.waiting(key))) for key in keys]
        is_first = {key for key in keys if key not in self.looked_at}
        self.looked_at.update(keys)
        if self.is_condition:
            self.asked.extend(one for key, one in ripe if key in is_first)
        try:
            look()
        finally:
            if not self.is_condition:
                for _, one in ripe:
                    one.check()

    def compare(self) -> None:
        """Checks what must hold whenever no callback runs."""
        purgatory = self.purgatory
        lists = purgatory._watchers
        entries = [one for key in lists for one in lists[key].operations]
        waiting = {one for one in entries if not one.is_completed}
        for one in self.operations:
            assert one.completions == one.is_completed
            assert one.expirations <= one.completions
            # One whose condition has raised was perhaps not let in.
            assert one in waiting or one.is_answered or one.failed_looks, "nobody would answer it"
            assert not one.is_completed or not one.is_pending
        assert all(lists[key].operations for key in lists)
        assert purgatory.watched == len(entries)
        assert purgatory.delayed == len(waiting)
        for one in waiting:
            assert isinstance(one, Operation)
            assert sum(one is entry for entry in entries) == len(one.keys)
            assert one.is_pending or one.is_cancelled_by_hand, "nothing would ever expire it"
        self.compare_for_people(waiting)
        stats = purgatory.stats
        assert stats.watched == stats.completed + len(waiting)
        assert stats.expired == sum(one.expirations for one in self.operations)
        assert purgatory._counts.pending_watches == sum(len(one.keys) for one in waiting)
        assert not purgatory._failures, "kept for ever, or told to who has nothing to do with it"
        assert not purgatory._has_asked, "who checks next would do what others have asked for"

    def compare_for_people(self, waiting: set[DelayedOperation]) -> None:
        told = self.purgatory.waiting()
        since = [one.since_ms for one in told]
        assert since == sorted(since)
        assert sorted(self.purgatory.waiting_since()) == since
        assert len(told) == len(waiting)


class Story:
    """Two purgatories, all operations that were ever handed in, and what may still be done."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.left = self.random.choice(BUDGETS)
        self.timer = MockTimer(on_error=self.hear)
        self.rooms = [Room(self), Room(self)]
        self.deepest = 0
        self.raised = 0
        self.heard = 0
        self.verbs: list[Callable[[Room], object]] = [
            self.add, self.add, self.add, self.check, self.check, self.check_several, self.ripen,
            self.ripen, self.force, self.force, self.try_one, self.cancel, self.expire, self.purge,
            self.give_time, self.later, self.fail, self.shut_down, self.hand_over, self.refuse,
        ]  # fmt: skip

    def hear(self, task: TimerTask, error: BaseException) -> None:
        assert isinstance(error, Failed), (task, error)
        self.heard += 1

    def act(self, room: Room, *, is_condition: bool) -> None:
        """A few things that callers do, while there is budget."""
        outer, room.is_condition = room.is_condition, is_condition
        try:
            self.act_as_caller(room)
        finally:
            room.is_condition = outer

    def act_as_caller(self, room: Room) -> None:
        """Also as a task of the timer: a condition that moves the clock has it run."""
        self.deepest = max(self.deepest, depth())
        for _ in range(self.random.choice((1, 1, 2, 3, 5))):
            if self.left > 0:
                self.left -= 1
                is_elsewhere = self.random.random() < 0.1
                self.random.choice(self.verbs)(self.any_room() if is_elsewhere else room)

    def any_room(self) -> Room:
        return self.random.choice(self.rooms)

    def some(self, room: Room) -> Sequence[Operation]:
        """A random one of the last operations handed in, or none if there is none."""
        return room.operations and [self.random.choice(room.operations[-30:])]

    def add(self, room: Room) -> None:
        keys = [self.random.choice(KEYS) for _ in range(self.random.choice((1, 1, 2, 3)))]
        self.hand_in(room, keys, keys)

    def refuse(self, room: Room) -> None:
        """An operation that is not let in, unless it is ready before anybody looks at its keys."""
        if self.random.random() < 0.5:
            key = self.random.choice(KEYS)
            self.hand_in(room, [key], [key, Refused(self)])

    def hand_in(self, room: Room, names: list[str], keys: Sequence[Hashable]) -> None:
        operation = Operation(room, names, self.random.choice((-1, 0, 1, 30, 500)))
        operation.failed_looks = len(keys) - len(names)
        room.operations.append(operation)
        room.looked_at.update(names)
        room.purgatory.try_complete_else_watch(operation, keys)

    def check(self, room: Room) -> None:
        key = self.random.choice(KEYS)
        room.looking([key], lambda: room.purgatory.check_and_complete(key))

    def check_several(self, room: Room) -> None:
        keys = self.random.sample(KEYS, 2)
        room.looking(keys, lambda: room.purgatory.check_all_and_complete(keys))

    def hand_over(self, room: Room) -> None:
        """A check that the owner makes at its next turn: here at the end of this step."""
        room.purgatory.check_and_complete_threadsafe(self.random.choice(KEYS))

    def ripen(self, room: Room) -> None:
        for one in self.some(room):
            one.ready = True

    def force(self, room: Room) -> None:
        for one in self.some(room):
            was_completed = one.is_completed
            assert one.force_complete() != was_completed

    def try_one(self, room: Room) -> None:
        for one in self.some(room):
            one.safe_try_complete()

    def cancel(self, room: Room) -> None:
        """Its time-out will not come; it waits on for its condition."""
        for one in self.some(room):
            one.is_cancelled_by_hand = True
            one.cancel()

    def expire(self, room: Room) -> None:
        key = self.random.choice(KEYS)
        waiting = room.waiting(key)
        try:
            assert room.purgatory.expire(key) <= len(waiting)
        finally:
            assert all(one.is_answered for one in waiting)

    def purge(self, room: Room) -> None:
        room.purgatory.purge()

    def give_time(self, room: Room) -> None:
        del room
        self.timer.advance_clock(self.random.randrange(40))

    def later(self, room: Room) -> None:
        delay_ms = self.random.choice((0, 5))
        self.timer.add(TimerTask(delay_ms, lambda: self.act_as_caller(room)))

    def fail(self, room: Room) -> None:
        del room
        if self.random.random() < 0.5:
            self.raised += 1
            raise Failed("at random")

    def shut_down(self, room: Room) -> None:
        if self.random.random() < 0.02:
            for one in room.operations:
                one.is_forgotten = not one.is_completed
            room.purgatory.shutdown()

    def step(self, verb: Callable[[Room], object]) -> None:
        """Does one thing at the top, and holds that what it asked for is done and told."""
        self.raised = self.heard = 0
        for room in self.rooms:
            room.looked_at.clear()
            room.asked.clear()
        try:
            verb(self.any_room())
        except Failed:
            self.heard += 1
        for room in self.rooms:
            for one in room.asked:
                one.check()
        self.take_over()
        assert bool(self.raised) == bool(self.heard)

    def take_over(self) -> None:
        """Checks that all keys handed over are looked at: nothing under them stays ripe."""
        asked = [(room, key) for room in self.rooms for key, *_ in room.purgatory._asked]
        ripe = [Ripe(room.waiting(key)) for room, key in asked if isinstance(key, str)]
        self.timer.advance_clock(0)
        for one in ripe:
            one.check()


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
        story.step(story.random.choice(story.verbs))
        for room in story.rooms:
            room.compare()
    assert story.deepest - below < MOST_FRAMES
    story.left = 0
    for room in story.rooms:
        for one in room.operations:
            one.ready = True
        for key in KEYS:
            room.purgatory.check_and_complete(key)
        room.purgatory.purge()
        room.compare()
        assert (room.purgatory.watched, room.purgatory._watchers) == (0, {})
