"""Nodes of brokers that a controller cannot read, or not understand: who lives is no less alive for
it, and is in the cluster again as soon as its node can be read."""

from collections.abc import Sequence

import pytest
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster

from odradek.metadata import NewTopic
from odradek.metadata.zookeeper.client import Create, Operation

PATH = "/brokers/ids/3"


def a_cluster() -> Cluster:
    """Three brokers, of which the last leads a partition and alone has another one."""
    cluster = Cluster(3)
    topic = NewTopic("a", ((3, 2), (3,)), {})
    cluster.controller.ask("create_topics", [topic])
    cluster.settle()
    return cluster


def break_node(cluster: Cluster, how: str) -> None:
    if how == "refused":
        cluster.tree.unreadable.add(PATH)
    else:
        cluster.tree.put(PATH, "?")


def mend_node(cluster: Cluster, data: str) -> None:
    if cluster.tree.unreadable:
        cluster.tree.unreadable.clear()
    else:
        cluster.tree.put(PATH, data)


def assert_lives(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        assert 3 in broker.image.brokers, broker.id
        assert broker.state("a", 1).leader == 3


@pytest.mark.parametrize("how", ["garbage", "refused"])
def test_a_broker_whose_node_a_new_controller_cannot_read(how: str) -> None:
    """Its partitions would have other leaders, or none, though it lives."""
    cluster = a_cluster()
    data = cluster.tree.text(PATH)
    break_node(cluster, how)
    cluster.stop(1)
    assert cluster.controller.id == 2
    assert_lives(cluster)
    assert cluster.controller.state("a", 0).leader == 3
    mend_node(cluster, data)
    cluster.settle()
    assert_lives(cluster)
    assert cluster.controller.image.brokers[3].epoch == cluster.tree.entries[PATH].created


@pytest.mark.parametrize("how", ["garbage", "refused"])
def test_a_broker_whose_node_cannot_be_read_when_another_one_goes(how: str) -> None:
    """Its leaders would move, and partitions that only it has go offline, though it lives."""
    cluster = a_cluster()
    before = cluster.controller.state("a", 1)
    break_node(cluster, how)
    cluster.stop(2)
    assert cluster.controller.state("a", 1) == before
    assert_lives(cluster)


@pytest.mark.parametrize("how", ["garbage", "refused"])
def test_a_broker_that_goes_while_its_node_cannot_be_read(how: str) -> None:
    """It would be led by somebody who is not there."""
    cluster = a_cluster()
    break_node(cluster, how)
    cluster.settle()
    cluster.stop(3)
    assert 3 not in cluster.controller.image.brokers
    assert cluster.controller.state("a", 0).leader == 2
    cluster.tree.unreadable.clear()
    cluster.start(3)
    cluster.settle()
    assert_lives(cluster)


@pytest.mark.parametrize("is_elected_later", [True, False])
def test_a_broker_whose_node_nobody_could_read(is_elected_later: bool) -> None:
    """It would be out of the cluster until the list of brokers changes: perhaps for ever."""
    cluster = a_cluster()
    cluster.stop(3)
    nodes: list[str] = []

    def break_new_node(operations: Sequence[Operation]) -> None:
        if PATH in {each.path for each in operations if isinstance(each, Create)}:
            nodes.append(cluster.tree.text(PATH))
            cluster.tree.entries[PATH].data = b"?"

    cluster.tree.on_written = break_new_node
    cluster.add(3).register()
    if is_elected_later:
        cluster.stop(1)
    assert 3 not in cluster.controller.image.brokers
    mend_node(cluster, nodes.pop())
    cluster.settle()
    assert_lives(cluster)
