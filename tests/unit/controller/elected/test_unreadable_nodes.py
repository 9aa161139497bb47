"""Nodes and lists that the ensemble refuses to read, for a while: nobody is told when that is over,
and all goes on once it is."""

import json

import pytest
from tests.unit.controller.elected.test_overwritten_topics import add_untold, take_over
from tests.unit.controller.elected.test_topic_ids import check_kept
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster

from odradek.metadata import NewTopic, PartitionChange
from odradek.metadata.image import NO_CONTROLLER, TopicImage
from odradek.model import TopicPartition

LISTS = ("/brokers/topics", "/admin/delete_topics", "/brokers/ids")
TOPIC = '{"version":1,"partitions":{"0":[2,1]}}'


def create(cluster: Cluster, name: str = "a") -> TopicImage:
    (topic,) = cluster.controller.ask("create_topics", [NewTopic(name, ((2, 1),), {})])
    assert isinstance(topic, TopicImage), topic
    return topic


def refuse_for_a_while(cluster: Cluster, *paths: str) -> None:
    cluster.tree.unreadable.update(paths)
    cluster.settle()
    cluster.tree.unreadable.clear()


@pytest.mark.parametrize("path", LISTS)
def test_a_list_that_a_controller_cannot_read_for_a_while(path: str) -> None:
    """A topic that somebody makes would never be led, and a broker that is gone lead for ever."""
    cluster = Cluster(3)
    cluster.tree.unreadable.add(path)
    cluster.tree.put("/brokers/topics/b", TOPIC)
    create_later = cluster.brokers[3].begin("create_topics", [NewTopic("c", ((1, 2),), {})])
    cluster.brokers[3].expire()
    cluster.settle()
    cluster.tree.unreadable.clear()
    cluster.settle()
    assert len(create_later) == 1
    for name in ("d", "e"):
        cluster.tree.put(f"/brokers/topics/{name}", TOPIC)
        cluster.settle()
    topics = cluster.controller.image.topics
    assert {"b", "d", "e"} <= topics.keys()
    cluster.tree.put("/admin/delete_topics/d")
    cluster.settle()
    assert "/brokers/topics/d" not in cluster.tree.entries
    cluster.brokers.pop(2).store.close()
    cluster.settle()
    assert cluster.controller.state("e").leader == 1


@pytest.mark.parametrize("path", [*LISTS, "/controller", "/controller_epoch"])
def test_a_controller_that_cannot_read_at_first(path: str) -> None:
    """It would be elected and never begin: the cluster had no controller until somebody found out
    that it had to remove a node."""
    cluster = Cluster(3)
    topic = create(cluster)
    cluster.tree.unreadable.add(path)
    cluster.brokers.pop(1).store.close()
    cluster.settle()
    cluster.tree.unreadable.clear()
    cluster.settle(60)
    assert cluster.controller.state().leader == 2
    assert cluster.controller.image.topics["a"].topic_id == topic.topic_id
    create(cluster, "b")


def test_a_topic_that_cannot_be_read_for_a_while() -> None:
    """The controller would not hear that it can be read again, and its partitions never be led."""
    cluster = Cluster(2)
    cluster.tree.unreadable.add("/brokers/topics/b")
    cluster.tree.put("/brokers/topics/b", TOPIC)
    cluster.settle()
    assert "b" not in cluster.controller.image.topics
    cluster.tree.unreadable.clear()
    cluster.settle()
    assert cluster.controller.state("b").leader == 2
    cluster.tree.put("/brokers/topics/b", '{"version":1,"partitions":{"0":[2,1],"1":[1]}}')
    cluster.settle()
    assert cluster.controller.state("b", 1).leader == 1


def test_a_topic_that_a_new_controller_cannot_read_for_a_while() -> None:
    """It would be taken for deleted, and its logs with it."""
    cluster = Cluster(3)
    topic = create(cluster)
    cluster.tree.unreadable.add("/brokers/topics/a")
    cluster.brokers.pop(1).store.close()
    cluster.settle()
    assert cluster.controller.state().leader == 2
    check_kept(cluster, topic)
    cluster.tree.unreadable.clear()
    cluster.settle()
    cluster.tree.put("/brokers/topics/a", '{"version":1,"partitions":{"0":[2,1],"1":[3]}}')
    cluster.settle()
    assert cluster.controller.state("a", 1).leader == 3
    check_kept(cluster, topic)


STATE = "/brokers/topics/a/partitions/0/state"


@pytest.mark.parametrize("path", ["/brokers/topics/a/partitions", STATE])
@pytest.mark.parametrize("is_changed", [False, True], ids=["as it was made", "changed"])
@pytest.mark.parametrize("replicas", [[2, 3], [1]], ids=["as they were", "others"])
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "untold"])
def test_states_that_a_new_controller_cannot_read_for_a_while(
    path: str, is_changed: bool, replicas: list[int], is_told: bool
) -> None:
    """It would be taken for one of nobody in sync, and the topic have no leader for ever, or
    its logs be deleted as a tool's node says."""
    cluster = Cluster(4)
    cluster.controller.ask("create_topics", [NewTopic("a", ((2, 3),), {})])
    topic = cluster.controller.image.topics["a"]
    if is_changed:
        change = PartitionChange(TopicPartition("a", 0), 0, 3, (2, 3))
        cluster.controller.ask("change_partitions", [change])
    if not is_told:
        add_untold(cluster, 5)
    cluster.tree.unreadable.add(path)
    cluster.tree.put("/brokers/topics/a", json.dumps({"version": 2, "partitions": {"0": replicas}}))
    take_over(cluster, 4 if is_told else 5)
    cluster.tree.unreadable.clear()
    cluster.settle(100)
    check_kept(cluster, topic)
    assert cluster.controller.state().leader in (2, 3)
    assert cluster.controller.state().replicas == (2, 3)
    assert all(each.replicas.deleted == [] for each in cluster.brokers.values())


def test_a_list_that_was_watched_before_it_could_not_be_read() -> None:
    """Its watch is there, so nobody would look again: who waits for the topics that are read would
    wait until another one comes."""
    cluster = Cluster(2)
    elected = cluster.controller.elected
    assert elected is not None
    cluster.tree.unreadable.add("/brokers/topics")
    read: list[None] = []
    elected._topics.read_all(lambda: read.append(None))
    cluster.settle()
    assert not read
    cluster.tree.unreadable.clear()
    cluster.settle(100)
    assert len(read) == 1


def test_a_left_controller_that_may_not_be_removed_for_a_while() -> None:
    """The node would stay, of a broker that is not the controller, and nobody be elected for as
    long as it lives."""
    cluster = Cluster(2)
    left = cluster.brokers[1].zookeeper.session_id
    cluster.brokers[1].store._election.resign()
    cluster.tree.unwritable.add("/controller")
    cluster.brokers[1].store._election.look()
    cluster.settle()
    assert cluster.tree.entries["/controller"].owner == left
    cluster.tree.unwritable.clear()
    cluster.settle(60)
    assert cluster.controller.elected is not None
    create(cluster)


def test_an_election_that_may_not_be_written_is_not_tried_as_fast_as_it_can_be() -> None:
    """Each broker without the permission would ask the ensemble thousands of times a second."""
    cluster = Cluster(2)
    cluster.tree.unwritable.add("/controller")
    cluster.tree.remove("/controller")
    before = cluster.tree.attempts
    cluster.settle(100)
    # Who asks for the controller is sent to the last one, which refuses: see `MetadataCache`.
    assert {each.image.controller_id for each in cluster.brokers.values()} == {1, NO_CONTROLLER}
    assert {each.cache.controller_id for each in cluster.brokers.values()} == {1}
    # Once a second by each of the two.
    assert cluster.tree.attempts - before <= 2 * 6
    cluster.tree.unwritable.clear()
    cluster.settle(60)
    create(cluster)
