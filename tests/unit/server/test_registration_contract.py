"""The store that tests of `Registration` are given answers as the real one does."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster
from tests.unit.server.test_registration import AWAY, HERE, TAKEN, Store

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import BrokerRegistration


class Fake:
    """Broker 1 with the store of the tests."""

    def __init__(self) -> None:
        self._store = Store()

    def register(self) -> list[Any]:
        """Where the answer is, or will be."""
        return begin(self._store.register_broker)

    def sync(self) -> list[Any]:
        return ask(self._store.sync)

    def hear_of_losses(self, listener: Callable[[], None]) -> None:
        self._store.on_session_lost(listener)

    def lose(self) -> None:
        for listener in self._store.lost:
            listener()

    def is_taken(self) -> None:
        """Another process lives under the number, until it has been asked once."""
        self._store.outcomes.append(TAKEN)

    def other_ends(self) -> None:
        """It has been asked."""

    def is_away(self) -> None:
        self._store.outcomes.append(AWAY)


class Real:
    """Broker 1 over a ZooKeeper."""

    def __init__(self) -> None:
        self._cluster = Cluster()
        self._broker = self._cluster.add(1)
        self._is_away = False

    def register(self) -> list[Any]:
        answers = begin(self._broker.store.register_broker)
        if self._is_away:
            self._broker.expire()
            self._is_away = False
        self._cluster.settle()
        return answers

    def sync(self) -> list[Any]:
        answers = ask(self._broker.store.sync)
        self._cluster.settle()
        return answers

    def hear_of_losses(self, listener: Callable[[], None]) -> None:
        self._broker.store.on_session_lost(listener)

    def lose(self) -> None:
        self._broker.expire()
        self._cluster.settle()

    def is_taken(self) -> None:
        self._other = self._cluster.start(1)
        self._cluster.brokers[1] = self._broker

    def other_ends(self) -> None:
        self._other.store.close()
        self._cluster.settle()

    def is_away(self) -> None:
        self._is_away = True


World = Fake | Real


def begin(register: Callable[..., None]) -> list[Any]:
    answers: list[Any] = []
    register(1, (HERE,), None, answers.append)
    return answers


def ask(question: Callable[..., None]) -> list[Any]:
    answers: list[Any] = []
    question(answers.append)
    return answers


@pytest.fixture(params=[Fake, Real])
def world(request: pytest.FixtureRequest) -> World:
    made: World = request.param()
    return made


def test_every_session_has_a_higher_epoch(world: World) -> None:
    """A broker's logs are marked as clean by the epoch of its latest session."""
    (first,) = world.register()
    assert isinstance(first, BrokerRegistration)
    assert (first.id, first.endpoints) == (1, (HERE,))
    world.lose()
    (second,) = world.register()
    assert second == first._replace(epoch=second.epoch)
    assert second.epoch > first.epoch


def test_who_has_registered_hears_once_that_the_session_is_lost(world: World) -> None:
    """A broker that does not hear of it leads on; one that hears twice begins two sessions."""
    heard: list[None] = []
    world.hear_of_losses(lambda: heard.append(None))
    world.register()
    world.lose()
    assert len(heard) == 1


def test_a_number_is_taken_as_long_as_another_session_has_it(world: World) -> None:
    """`Registration` waits for that one error alone."""
    world.is_taken()
    (refused,) = world.register()
    assert isinstance(refused, BrokerError)
    assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.other_ends()
    (registered,) = world.register()
    assert isinstance(registered, BrokerRegistration)


def test_a_store_that_goes_away_answers_and_takes_the_next(world: World) -> None:
    """A broker would wait for ever, or take another process for the cause."""
    world.is_away()
    (refused,) = world.register()
    assert isinstance(refused, BrokerError)
    assert refused.code is AWAY.code
    (registered,) = world.register()
    assert isinstance(registered, BrokerRegistration)


def test_whether_leaders_are_elected_is_answered_once(world: World) -> None:
    """A broker that starts waits for it."""
    world.register()
    assert world.sync() == [None]
