"""The controller carries out a request slice by slice, each item once."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from odradek.controller import slices
from odradek.controller.answers import plan_each
from odradek.controller.slices import distinct_by_slices, slice_by_slice
from odradek.errors import BrokerError, ErrorCode


class Turns:
    """Turns of a loop: a test takes each. What was begun is answered when the test says so."""

    def __init__(self) -> None:
        self.deferred: deque[Callable[[], None]] = deque()
        self.begun: list[tuple[Sequence[int], Callable[[Any], None]]] = []
        self.synced: list[Callable[[Any], None]] = []
        self.answers: list[list[int]] = []

    def run(self, items: Sequence[int]) -> None:
        slice_by_slice(items, self.begin, self.answers.append, self.deferred.append, self.sync)

    def begin(self, some: Sequence[int], on_some: Callable[[Any], None]) -> None:
        self.begun.append((some, on_some))

    def sync(self, go_on: Callable[[Any], None]) -> None:
        self.synced.append(go_on)

    def turn(self) -> None:
        while self.deferred:
            self.deferred.popleft()()

    def answer(self, index: int) -> None:
        some, on_some = self.begun[index]
        on_some(-each for each in some)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    monkeypatch.setattr(slices, "SLICE_ITEMS", 2)
    return Turns()


def test_a_slice_begins_in_a_turn_of_its_own(turns: Turns) -> None:
    """The loop would be busy with all of them."""
    turns.run([1, 2, 3, 4, 5])
    for number in range(3):
        assert len(turns.begun) == number + 1
        turns.answer(number)
        assert len(turns.begun) == number + 1
        turns.turn()
    assert [list(some) for some, _ in turns.begun] == [[1, 2], [3, 4], [5]]
    assert turns.answers == [[-1, -2, -3, -4, -5]]


def test_one_that_waits_keeps_no_other_from_its_turn(turns: Turns) -> None:
    """Topics without a leader would have all others wait until the time is over."""
    turns.run([1, 2, 3, 4, 5])
    turns.synced[0](None)
    turns.turn()
    turns.synced[1](None)
    turns.turn()
    assert len(turns.begun) == 3
    for index in (2, 0, 1):
        assert turns.answers == []
        turns.answer(index)
    assert turns.answers == [[-1, -2, -3, -4, -5]]


@pytest.mark.parametrize("is_synced_first", [False, True])
def test_each_slice_begins_once(turns: Turns, is_synced_first: bool) -> None:
    """Topics would be created twice: both the results and the sync say that more may begin."""
    turns.run([1, 2, 3])
    steps = [lambda: turns.synced[0](None), lambda: turns.answer(0)]
    for step in steps if is_synced_first else reversed(steps):
        step()
        turns.turn()
    assert [list(some) for some, _ in turns.begun] == [[1, 2], [3]]


@pytest.mark.parametrize("items", [[], [1], [1, 2]])
def test_what_is_short_is_begun_at_once(turns: Turns, items: list[int]) -> None:
    """Each request would wait for a turn of the loop."""
    turns.run(items)
    turns.answer(0)
    assert turns.answers == [[-each for each in items]]
    assert not turns.synced


@pytest.mark.parametrize("weight", [-1, 0, 1])
def test_what_weighs_nothing_counts(turns: Turns, weight: int) -> None:
    """All items would be one slice, if what they ask for is refused anyhow."""
    slice_by_slice(
        range(5), turns.begin, turns.answers.append, turns.deferred.append, weigh=lambda _: weight
    )
    assert [list(some) for some, _ in turns.begun] == [[0, 1]]


def test_heavy_items_are_fewer(turns: Turns) -> None:
    """A slice of topics with a thousand partitions each would hold up everybody."""
    weights = [1, 1, 9, 1, 9, 9]
    slice_by_slice(
        weights, turns.begin, turns.answers.append, turns.deferred.append, weigh=lambda n: n
    )
    for number in range(4):
        turns.answer(number)
        turns.turn()
    assert [list(some) for some, _ in turns.begun] == [[1, 1], [9], [1, 9], [9]]


def test_without_a_loop_all_is_one_slice(turns: Turns) -> None:
    """A call without one has begun everything when it returns."""
    slice_by_slice(range(9), turns.begin, turns.answers.append, None)
    assert [list(some) for some, _ in turns.begun] == [list(range(9))]


def test_what_is_named_twice_is_known_in_every_slice(turns: Turns) -> None:
    """One of two that name the same would be done, since the other is in another slice."""
    told: list[tuple[Any, list[int]]] = []

    def begin(repeated: Any, some: Any, on_some: Any) -> None:
        told.append((repeated, list(some)))
        on_some(some)

    items = [10, 1, 2, 3, 11]
    distinct_by_slices(items, lambda n: n % 10, begin, turns.answers.append, turns.deferred.append)
    turns.turn()
    assert told == [({1}, [10, 1]), ({1}, [2, 3]), ({1}, [11])]
    assert turns.answers == [items]


def test_what_is_refused_keeps_no_frames() -> None:
    """Of 20 000 refused entries each had a traceback that knew the list with all of them: the
    collector looked at them for more than a second, and nobody was served meanwhile."""

    def refuse(_item: int) -> None:
        raise BrokerError(ErrorCode.INVALID_REQUEST)

    (error,) = plan_each([1], refuse, lambda item: item)
    assert isinstance(error, BrokerError)
    assert error.__traceback__ is None
