"""Calls that kazoo's threads hand over to the loop of a broker."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from odradek.clock import ManualClock
from odradek.metadata.fail_stop import fail
from odradek.metadata.zookeeper.client import ZooKeeperSettings
from odradek.timer import SystemTimer

session_module = pytest.importorskip("odradek.metadata.zookeeper.connection.session")


def session_of(
    turns: list[Callable[[], None]], on_broken: Callable[[Exception], None] = fail
) -> Any:
    """A session whose loop's turns the test takes; it is never begun."""
    clock = ManualClock()
    settings = ZooKeeperSettings("127.0.0.1:1", 1000, 1000)
    return session_module.KazooSession(settings, SystemTimer(clock), clock, turns.append, on_broken)


def test_what_zookeeper_has_said_is_heard_behind_a_raise() -> None:
    """The loop is woken for the first of many only: the rest would never be heard."""
    turns: list[Callable[[], None]] = []
    broken: list[Exception] = []
    session = session_of(turns, broken.append)
    heard: list[str] = []

    def fail() -> None:
        raise LookupError

    for action in (fail, lambda: heard.append("the second")):
        session._hand_over(action)
    (turn,) = turns
    turn()
    assert heard == ["the second"]
    assert [type(each) for each in broken] == [LookupError]


def test_a_turn_hears_what_zookeeper_has_said_before_it() -> None:
    """Each answer has the next question asked: a loop that hears on as fast as ZooKeeper answers
    does nothing else until a controller has read thousands of nodes."""
    turns: list[Callable[[], None]] = []
    session = session_of(turns)
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        if number < 5:
            session._hand_over(lambda: hear(number + 1))

    session._hand_over(lambda: hear(0))
    for number in range(3):
        assert heard == list(range(number))
        turns.pop()()
        assert len(turns) == 1


def test_what_zookeeper_says_as_a_turn_ends_is_heard() -> None:
    """kazoo's thread may be held up between any two of its steps: a loop that is not woken for the
    last answer waits for it for ever."""
    turns: list[Callable[[], None]] = []
    session = session_of(turns)
    heard: list[str] = []

    class Interrupted(deque[Any]):
        """The loop takes a turn just before kazoo's thread puts something in, and just after."""

        def append(self, item: Any, /) -> None:
            take(turns)
            super().append(item)

    def take(some: list[Callable[[], None]]) -> None:
        while some:
            some.pop()()

    session._hand_over(lambda: heard.append("first"))
    session._inbox = Interrupted(session._inbox)
    session._hand_over(lambda: heard.append("last"))
    take(turns)
    assert heard == ["first", "last"]
