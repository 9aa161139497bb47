"""Nodes in ZooKeeper that hold anything at all: a line in the log, never an exception, and when the
node is mended the cluster goes on as if nothing had been."""

import json
from random import Random
from typing import Any

import pytest
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster

from odradek.errors import BrokerError
from odradek.metadata import ConfigResource, NewTopic, PartitionChange
from odradek.metadata.store import MetadataStoreError
from odradek.metadata.zookeeper.client import SetData
from odradek.model import NO_LEADER, TopicPartition

HUGE = 1 << 40
GARBAGE: tuple[bytes, ...] = (
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"{}",
    b'"text"',
    b"17",
    b"-1",
    b"9" * 5000,
    b"[" * 100_000,
    b'{"version":99}',
    b'{"version":true}',
    b'{"version":1}',
    b'{"version":2,"brokerid":"one"}',
)
VALUES: tuple[Any, ...] = (
    *(None, "", "\ud800", "²", -7, HUGE, -HUGE, 1.5, True, [], [HUGE], [[]], ["\ud800"]),
    *(
        {},
        {"²": [1]},
        {"0": HUGE},
        {"0": [HUGE]},
        {"9": [1]},
        {"0": []},
        {"x": "\ud800"},
        {"\ud800": "x"},
    ),
)


def variants(data: bytes) -> list[bytes]:
    """Values that could stand there instead: no JSON, and the same with one field that makes no
    sense."""
    found = list(GARBAGE)
    try:
        value = json.loads(data)
    except ValueError:
        return found
    if isinstance(value, dict):
        found += [json.dumps({**value, name: wrong}).encode() for name in value for wrong in VALUES]
        found += [
            json.dumps({k: v for k, v in value.items() if k != name}).encode() for name in value
        ]
    return found


def a_cluster() -> Cluster:
    cluster = Cluster(2)
    cluster.brokers[1].ask("create_topics", [NewTopic("a", ((2, 1), (1, 2)), {"flush.ms": "1"})])
    resource = ConfigResource.topic("a")
    assert cluster.brokers[2].ask("alter_configs", {resource: {"flush.ms": "7"}}) is None
    assert cluster.brokers[1].ask("update_features", {"group.version": 1}) is None
    assert cluster.brokers[1].ask("allocate_producer_ids", 10) == range(10)
    cluster.settle()
    return cluster


def paths() -> list[str]:
    cluster = a_cluster()
    return sorted(path for path, entry in cluster.tree.entries.items() if entry.data)


def churn(cluster: Cluster) -> None:
    """The things that a cluster does all the time; whether it can is not asked."""
    where = TopicPartition("a", 0)
    resource = ConfigResource.topic("a")
    for broker in cluster.brokers.values():
        broker.begin("alter_configs", {resource: {"retention.ms": "9"}})
        broker.begin("create_topics", [NewTopic("b", ((1,),), {})])
        broker.begin("allocate_producer_ids", 10)
        broker.begin("update_features", {"group.version": 0})
        state = broker.image.partition(where)
        if state is not None:
            change = PartitionChange(where, state.partition_epoch, state.leader, state.replicas)
            broker.begin("change_partitions", [change])
    cluster.settle(5)


@pytest.mark.parametrize(
    "count", [pytest.param(6, id="some"), pytest.param(999, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("path", paths())
def test_any_node_may_hold_anything(path: str, count: int) -> None:
    """A broker would end, or stop following the others, because of what one node holds."""
    data = a_cluster().tree.entries[path].data
    kinds = variants(data)
    for garbage in Random(0).sample(kinds, min(count, len(kinds))):
        cluster = a_cluster()
        is_ephemeral = cluster.tree.entries[path].owner
        cluster.tree.commit([SetData(path, garbage, -1)], 0)
        churn(cluster)
        try:
            cluster.add(3).register()
        except MetadataStoreError:
            cluster.brokers.pop(3, None)
        cluster.brokers.pop(1).store.close()
        cluster.settle(5)
        churn(cluster)
        if not is_ephemeral:
            cluster.tree.commit([SetData(path, data, -1)], 0)
        cluster.start(1)
        cluster.settle()
        assert cluster.controller.image.topic("a") is not None, garbage


def test_a_topic_that_is_not_understood_keeps_its_replicas() -> None:
    """The next controller would take the topic for deleted, and remove its logs."""
    cluster = a_cluster()
    before = cluster.brokers[2].image.topics["a"]
    cluster.tree.commit([SetData("/brokers/topics/a", b"?", -1)], 0)
    cluster.stop(1)
    assert cluster.controller.id == 2
    assert cluster.brokers[2].removed == []
    assert cluster.brokers[2].image.topics["a"].topic_id == before.topic_id
    assert [each.leader for each in cluster.brokers[2].image.topics["a"].partitions] == [2, 2]


def test_an_election_is_held_when_the_epoch_is_mended(caplog: pytest.LogCaptureFixture) -> None:
    """No broker would lead until somebody thought of touching `/controller`; a guessed epoch would
    let an earlier controller be obeyed."""
    cluster = a_cluster()
    cluster.tree.put("/controller_epoch", "many")
    cluster.stop(1)
    (left,) = cluster.brokers.values()
    assert left.image.controller_id != left.id
    assert caplog.text.count("there is no election until this is fixed: /controller_epoch") == 1
    cluster.tree.put("/controller_epoch", "more")
    cluster.settle()
    assert left.image.controller_id != left.id
    cluster.tree.put("/controller_epoch", "41")
    cluster.settle()
    assert (left.image.controller_id, left.image.controller_epoch) == (left.id, 42)
    assert left.state("a", 1).leader == left.id


def test_a_partition_without_replicas_is_passed_over() -> None:
    """Each controller in turn would end at an election that names it, before it takes the request
    for it away; and no leadership of any topic would go back to its preferred replica."""
    cluster = a_cluster()
    cluster.tree.put("/brokers/topics/b", '{"version":2,"partitions":{"0":[]}}')
    cluster.settle()
    where = TopicPartition("a", 0)
    state = cluster.controller.state()
    change = PartitionChange(where, state.partition_epoch, 1, (2, 1))
    assert not isinstance(cluster.controller.ask("change_partitions", [change])[0], BrokerError)
    named = [{"topic": topic, "partition": 0} for topic in ("b", "a")]
    elections = json.dumps({"version": 1, "partitions": named})
    cluster.tree.put("/admin/preferred_replica_election", elections)
    cluster.settle()
    assert "/admin/preferred_replica_election" not in cluster.tree.entries
    assert cluster.controller.state().leader == 2
    assert cluster.controller.state("b").leader == NO_LEADER
