"""Long requests to a controller on ZooKeeper: slices of topics, while others change the cluster."""

from collections.abc import Iterable
from typing import Any

import pytest
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster

from odradek.controller import CreatableTopic, PartitionsRequest, TopicReference, slices
from odradek.errors import ErrorCode

NAMES = ["a", "b", "c", "d", "e"]
NONE, EXISTS = ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_ITEMS", 2)


def creatable(names: Iterable[str], replicas: tuple[int, ...]) -> list[CreatableTopic]:
    return [CreatableTopic(name, assignments=[(0, replicas)]) for name in names]


def begin(broker: Broker, operation: str, topics: Any, timeout_ms: int = 500) -> list[Any]:
    """Where the results will be; each slice has a turn of its broker."""
    results: list[Any] = []
    defer = broker.cluster.turns_of(broker.id).append
    getattr(broker.controller, operation)(topics, timeout_ms, results.extend, defer=defer)
    return results


def codes(results: list[Any]) -> list[ErrorCode]:
    return [each.error_code for each in results]


def test_topics_are_created_grown_and_deleted_in_slices() -> None:
    """The later slices would never come, or in another order than was asked."""
    cluster = Cluster(2)
    broker = cluster.controller
    created = begin(broker, "create_topics", creatable(NAMES, (1, 2)))
    cluster.settle()
    grown = begin(broker, "create_partitions", [PartitionsRequest(name, 2) for name in NAMES])
    cluster.settle()
    sizes = {name: len(broker.image.topics[name].partitions) for name in NAMES}
    deleted = begin(broker, "delete_topics", [TopicReference(name) for name in NAMES])
    cluster.settle()
    for results in (created, grown, deleted):
        assert [each.name for each in results] == NAMES
        assert codes(results) == 5 * [NONE]
    assert sizes == dict.fromkeys(NAMES, 2)
    assert not broker.image.topics


def test_two_brokers_create_the_same_topics() -> None:
    """A topic would be told as created by both."""
    for seed in range(20):
        cluster = Cluster(2, seed=seed)
        both = [
            begin(cluster.brokers[1], "create_topics", creatable(NAMES, (1, 2))),
            begin(cluster.brokers[2], "create_topics", creatable(NAMES[::-1], (1, 2))),
        ]
        cluster.settle()
        pairs = set(zip(codes(both[0]), codes(both[1])[::-1], strict=True))
        assert pairs <= {(NONE, EXISTS), (EXISTS, NONE)}, seed
        assert len(both[0]) == len(both[1]) == len(NAMES)
        assert sorted(cluster.brokers[1].image.topics) == NAMES


def test_a_controller_that_loses_its_session_between_slices_answers() -> None:
    """Its client would wait for ever."""
    for steps in range(40):
        cluster = Cluster(2, seed=steps)
        broker = cluster.controller
        created = begin(broker, "create_topics", creatable(NAMES, (1, 2)))
        for _ in range(steps):
            cluster.tree.step()
        broker.expire()
        cluster.settle()
        assert [each.name for each in created] == NAMES
        told = {each.name for each in created if each.error_code is NONE}
        assert told <= set(cluster.controller.image.topics)
