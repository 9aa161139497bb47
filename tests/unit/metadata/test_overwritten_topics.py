"""Tools of old, and hands, that write over a topic's node as its controller goes: the next one
believes no more of it than leaves the records where they are."""

import json
from collections.abc import Mapping, Sequence

import pytest
from tests.unit.metadata.test_reassigned_topics import (
    MOMENTS,
    SECOND,
    TOPIC,
    TP,
    create,
    reassign,
    step,
    written,
)
from tests.unit.metadata.zookeeper_cluster import Broker, Cluster

from odradek.metadata import PartitionChange
from odradek.metadata.zookeeper import znodes

Replicas = Sequence[int]


@pytest.fixture(params=[False, True], ids=["watches in order", "late watches"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    made = Cluster(3)
    made.tree.are_late = request.param
    return made


def write_over(cluster: Cluster, *replicas: Replicas, keeps_id: bool = False) -> None:
    """What Kafka's tools wrote before 2.8, or with the id that the node had."""
    partitions = {str(index): each for index, each in enumerate(replicas)}
    node = json.loads(cluster.tree.text(TOPIC)) if keeps_id else {"version": 2}
    cluster.tree.put(TOPIC, json.dumps({**node, "partitions": partitions}))


def take_over(cluster: Cluster, broker_id: int) -> Broker:
    """Only this broker is there to be elected, as nobody has read what was written last."""
    others = [each for each in cluster.brokers.values() if each.id != broker_id]
    for each in others:
        each.zookeeper.is_connected = False
    cluster.tree.remove(znodes.CONTROLLER)
    cluster.tree.run()
    broker = cluster.brokers[broker_id]
    assert broker.elected is not None
    for each in (*others, broker):
        each.zookeeper.is_connected = True
        each.is_deaf = False
    cluster.settle()
    return broker


def deleted(cluster: Cluster) -> Mapping[int, Sequence[object]]:
    return {each.id: each.replicas.deleted for each in cluster.brokers.values()}


def assert_as_before(cluster: Cluster, topic_id: object) -> None:
    assert written(cluster) == [(1, 2, 3), (2, 3)]
    assert deleted(cluster) == {1: [], 2: [], 3: []}
    for broker in cluster.brokers.values():
        assert broker.image.topics["a"].topic_id == topic_id
        assert broker.replicas.set_aside == []
        states = [broker.state(*where) for where in (TP, SECOND)]
        assert [each.isr for each in states] == [(1, 2, 3), (2, 3)]
        assert [each.leader for each in states] == [1, 2]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("replicas", "keeps_id"),
    [(([2], [1]), True), (([2], [1]), False), (([2],), False), ((), False)],
    ids=["others under its id", "others", "fewer", "none"],
)
def test_a_tool_that_writes_as_the_controller_goes(
    cluster: Cluster, moment: int, replicas: Sequence[Replicas], keeps_id: bool
) -> None:
    """The brokers with the records would delete them: another that has none would be the only
    replica."""
    create(cluster, (1, 2, 3), (2, 3))
    topic_id = cluster.controller.image.topics["a"].topic_id
    write_over(cluster, *replicas, keeps_id=keeps_id)
    step(cluster, moment)
    cluster.tree.remove(znodes.CONTROLLER)
    cluster.settle()
    assert_as_before(cluster, topic_id)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("keeps_id", [False, True])
def test_a_tool_that_writes_as_a_controller_begins(
    cluster: Cluster, moment: int, keeps_id: bool
) -> None:
    """It may have read the node already, or half of the states."""
    create(cluster, (1, 2, 3), (2, 3))
    topic_id = cluster.controller.image.topics["a"].topic_id
    cluster.tree.remove(znodes.CONTROLLER)
    step(cluster, moment)
    write_over(cluster, [2], [1], keeps_id=keeps_id)
    cluster.settle()
    assert_as_before(cluster, topic_id)


def test_a_controller_that_is_there_leaves_leaders_and_in_sync_replicas(cluster: Cluster) -> None:
    """Partitions would have no leader until somebody is in sync again."""
    create(cluster, (1, 2, 3), (2, 3))
    topic_id = cluster.controller.image.topics["a"].topic_id
    write_over(cluster, [3], [1])
    seen = []
    one = cluster.brokers[1]
    one.cache.on_published(lambda _delta: seen.append(one.state(*SECOND).leader))
    cluster.settle()
    assert_as_before(cluster, topic_id)
    assert {*seen} <= {2}


def test_a_controller_that_was_never_told_keeps_who_is_in_sync() -> None:
    """It has nothing but the two nodes to go by, of which one was written by a controller."""
    cluster = Cluster(3)
    create(cluster, (1, 2, 3), (2, 3))
    four = cluster.add(4)
    four.is_deaf = True
    four.register()
    write_over(cluster, [2], [1], keeps_id=True)
    take_over(cluster, 4)
    # A broker in sync with the first partition is still one of its replicas.
    assert written(cluster) == [(2,), (2, 3)]
    assert not any(SECOND in each for each in deleted(cluster).values())
    for broker in cluster.brokers.values():
        assert [broker.state(*where).leader for where in (TP, SECOND)] == [2, 2]
        assert broker.state(*SECOND).isr == (2, 3)


def test_a_controller_that_was_told_long_ago_keeps_who_is_in_sync() -> None:
    """The replicas that it knows of are those of an earlier state."""
    cluster = Cluster(3)
    create(cluster, (1, 2, 3), (2, 3))
    cluster.brokers[3].is_deaf = True
    reassign(cluster.brokers[1], SECOND, (1, 3, 2))
    cluster.settle()
    state = cluster.controller.state(*SECOND)
    change = PartitionChange(SECOND, state.partition_epoch, state.leader, (1, 2))
    cluster.brokers[state.leader].ask("change_partitions", [change])
    write_over(cluster, [2], [3])
    take_over(cluster, 3)
    assert written(cluster)[1] == (1, 2)
    assert SECOND not in [*deleted(cluster)[1], *deleted(cluster)[2]]
    assert cluster.controller.state(*SECOND).isr == (1, 2)


def test_a_replica_that_is_in_sync_and_dead_is_not_enough() -> None:
    """Its disk may be gone with it, and the logs of those that live would be deleted."""
    cluster = Cluster(4)
    create(cluster, (1, 2, 3), (2, 3))
    cluster.brokers[4].is_deaf = True
    state = cluster.controller.state(*SECOND)
    change = PartitionChange(SECOND, state.partition_epoch, 2, (3, 2))
    cluster.brokers[2].ask("change_partitions", [change])
    cluster.brokers.pop(3).store.close()
    write_over(cluster, [1, 2, 3], [3])
    take_over(cluster, 4)
    assert 2 in written(cluster)[1]
    assert SECOND not in deleted(cluster)[2]
    assert cluster.controller.state(*SECOND).leader == 2
