"""A new id for a topic whose node has none: it holds once it is written over the node that brokers
were asked about, and nobody has a log of another."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from tests.unit.controller.elected.test_overwritten_topics import add_untold, take_over
from tests.unit.controller.elected.test_topic_ids import TOPIC, TP, check_kept, create, write
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster
from tests.unit.metadata.zookeeper.zookeeper_tree import Tree, TreeClient

from odradek.metadata import NewTopic
from odradek.metadata.control import LeaderAndIsr
from odradek.metadata.image import TopicImage
from odradek.metadata.zookeeper.client import OnChanged, OnNode
from odradek.metadata.zookeeper.topic_ids import write_ids_back
from odradek.model import TopicPartition
from odradek.protocol.uuids import uuid_text

OTHER = TopicPartition("b", 0)


def lag(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, broker: Broker) -> Callable[[], None]:
    """Keeps a broker's server of ZooKeeper from hearing what is written to the topic's node from
    now on, until the call."""
    zookeeper = broker.zookeeper
    get, stale = zookeeper.get, cluster.tree.entries[TOPIC].node()
    watches: list[OnChanged] = []

    def get_stale(path: str, on_done: OnNode, on_changed: OnChanged | None = None) -> None:
        if path != TOPIC:
            get(path, on_done, on_changed)
            return
        if on_changed is not None:
            watches.append(on_changed)
        zookeeper.turns.append(lambda: on_done(stale))

    def catch_up() -> None:
        monkeypatch.setattr(zookeeper, "get", get)
        zookeeper.turns.extend(watches)
        cluster.settle()

    monkeypatch.setattr(zookeeper, "get", get_stale)
    return catch_up


def id_in(cluster: Cluster) -> Any:
    return json.loads(cluster.tree.text(TOPIC)).get("topic_id")


def test_a_controller_that_reads_what_is_no_longer_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers that it asks write the id back through another server of ZooKeeper than the one
    that it reads from: it would give the topic another id, and they set their logs aside."""
    cluster = Cluster(3)
    topic = create(cluster)
    broker = add_untold(cluster, 4)
    write(cluster)
    catch_up = lag(monkeypatch, cluster, broker)
    take_over(cluster, 4)
    assert id_in(cluster) is not None
    assert "a" not in broker.image.topics
    catch_up()
    check_kept(cluster, topic)


def test_a_node_that_brokers_may_not_write() -> None:
    """They answer nevertheless, and the controller could not write a new id either."""
    cluster = Cluster(3)
    topic = create(cluster)
    add_untold(cluster, 4)
    write(cluster)
    cluster.tree.unwritable.add(TOPIC)
    broker = take_over(cluster, 4)
    assert "a" not in broker.image.topics
    cluster.tree.unwritable.clear()
    cluster.clock.advance(10_000)
    cluster.settle()
    check_kept(cluster, topic)


def test_a_broker_whose_disk_is_dead_does_not_know() -> None:
    """It alone is in sync, and its log comes back with the disk."""
    cluster = Cluster(4)
    other = NewTopic("b", ((1,),), {})
    cluster.controller.ask("create_topics", [other, NewTopic("a", ((1,),), {})])
    topic = cluster.controller.image.topics["a"]
    for broker_id in (4, 3, 2, 1):
        cluster.stop(broker_id)
    cluster.tree.put(TOPIC, '{"version":2,"partitions":{"0":[1]}}')
    disk = dict(cluster.logs[1])
    cluster.logs[1].clear()
    cluster.start(4)
    broker = cluster.add(1)
    broker.unserved.add(OTHER)
    broker.register()
    assert id_in(cluster) is None
    cluster.stop(1)
    cluster.logs[1].update(disk)
    cluster.start(1)
    assert cluster.brokers[1].replicas.set_aside == []
    assert cluster.logs[1][TP].topic_id == topic.topic_id
    assert id_in(cluster) == uuid_text(topic.topic_id)


@pytest.mark.parametrize("first", [[4], []], ids=["another controller", "its own controller"])
@pytest.mark.parametrize("replicas", [[1], [4]], ids=["as they were", "others"])
def test_a_dead_disk_without_another_topic(first: list[int], replicas: list[int]) -> None:
    """No partition that its broker is told of lies there, so it would speak for a topic of which it
    may have the only log, and set that aside when the disk is back."""
    cluster = Cluster(4)
    cluster.controller.ask("create_topics", [NewTopic("a", ((1,),), {})])
    topic = cluster.controller.image.topics["a"]
    for broker in list(cluster.brokers.values()):
        broker.close()
    cluster.settle()
    cluster.tree.put(TOPIC, json.dumps({"version": 2, "partitions": {"0": replicas}}))
    disk = dict(cluster.logs[1])
    cluster.logs[1].clear()
    for broker_id in first:
        cluster.start(broker_id)
    broker = cluster.add(1)
    broker.is_missing_logs = True
    broker.register()
    cluster.start(2)
    assert id_in(cluster) is None
    assert all("a" not in each.image.topics for each in cluster.brokers.values())
    cluster.stop(1)
    cluster.logs[1].update(disk)
    cluster.start(1)
    check_kept(cluster, topic)


def test_a_dead_disk_of_a_broker_that_is_no_replica() -> None:
    """The topic would wait for a log that cannot be there."""
    cluster = Cluster(3)
    create(cluster)
    for broker in list(cluster.brokers.values()):
        broker.close()
    write(cluster)
    cluster.logs.clear()
    broker = cluster.add(4)
    broker.is_missing_logs = True
    broker.register()
    for broker_id in (1, 2, 3):
        cluster.start(broker_id)
    assert id_in(cluster) is not None
    assert [each.state().leader for each in cluster.brokers.values()] == [1, 1, 1, 1]


@pytest.mark.parametrize("is_away", [False, True])
def test_a_controller_that_knows_an_earlier_topic_of_the_name(is_away: bool) -> None:
    """It had no replica of it, so nobody waited for it with the deletion: it would give the new
    topic the earlier one's id, and all set their logs aside."""
    cluster = Cluster(4)
    earlier = create(cluster)
    broker = cluster.brokers[4]
    broker.is_deaf = True
    cluster.controller.ask("delete_topics", [earlier.topic_id])
    topic = create(cluster)
    assert broker.image.topics["a"].topic_id == earlier.topic_id != topic.topic_id
    write(cluster)
    if is_away:
        for broker_id in (2, 3):
            cluster.stop(broker_id)
    take_over(cluster, 4)
    check_kept(cluster, topic)


def test_a_controller_that_knows_a_topic_of_which_nobody_has_a_log() -> None:
    """The topic keeps its id and its replicas."""
    cluster = Cluster(4)
    topic = create(cluster)
    for broker_id in (1, 2, 3):
        cluster.brokers[broker_id].replicas.logs.clear()
    cluster.tree.put(TOPIC, '{"version":2,"partitions":{"0":[2],"1":[1]}}')
    deleted: list[TopicImage] = []
    cluster.brokers[4].cache.on_published(
        lambda delta: deleted.extend(delta.topics_removed if delta.are_deleted else ())
    )
    take_over(cluster, 4)
    check_kept(cluster, topic)
    assert deleted == []
    node = json.loads(cluster.tree.text(TOPIC))
    assert node["partitions"] == {"0": [1, 2, 3], "1": [2, 3]}


def test_a_channel_that_tells_everything_again_does_so_at_once() -> None:
    """For long no other event may come, and the topic would have no leader until then."""
    cluster = Cluster(2)
    elected = cluster.controller.elected
    assert elected is not None
    sent = cluster.controller.plane.sent
    sent.clear()
    elected._channels[2].tell_all()
    cluster.settle()
    full = [to for to, each in sent if isinstance(each, LeaderAndIsr) and each.is_full]
    assert full == [2]


def test_a_broker_that_is_told_of_its_topics_reads_no_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All brokers would read the nodes of all their topics, as a new controller reads them."""
    cluster = Cluster(3)
    create(cluster)
    zookeeper = cluster.brokers[2].zookeeper
    get, read = zookeeper.get, list[str]()

    def note_and_get(path: str, on_done: OnNode, on_changed: OnChanged | None = None) -> None:
        read.append(path)
        get(path, on_done, on_changed)

    monkeypatch.setattr(zookeeper, "get", note_and_get)
    sent = take_over(cluster, 3).plane.sent
    assert any(to == 2 and isinstance(each, LeaderAndIsr) and each.is_full for to, each in sent)
    assert read
    assert TOPIC not in read


@pytest.mark.parametrize("moment", range(12))
def test_a_session_that_ends_as_ids_are_written_back(moment: int) -> None:
    """The broker would register in a session that is over, and nobody know the id."""
    tree = Tree()
    folders = ("/brokers", "/brokers/topics", TOPIC, f"{TOPIC}/partitions", f"{TOPIC}/partitions/0")
    for path in folders:
        tree.put(path)
    tree.put(TOPIC, '{"version":2,"partitions":{"0":[2]}}')
    state = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    tree.put(f"{TOPIC}/partitions/0/state", state)
    client = TreeClient(tree)
    client.start()
    ends: list[str] = []
    ids = {"a": UUID(int=5)}
    write_ids_back(client, 1, ids, partial(ends.append, "done"), partial(ends.append, "lost"))
    for _ in range(moment):
        tree.step()
    expected = ends or ["lost"]
    client.expire()
    tree.run()
    assert ends == expected
    assert "topic_id" in tree.text(TOPIC) or ends == ["lost"]


@pytest.mark.parametrize("operation", ["get", "commit"])
def test_a_session_that_ends_while_a_controller_asks(
    monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """The request would never end, and no other one of any controller begin: the broker would know
    of nothing from then on."""
    cluster = Cluster(3)
    topic = create(cluster)
    add_untold(cluster, 4)
    write(cluster)
    broker = cluster.brokers[2]
    call = getattr(broker.zookeeper, operation)
    ended: list[str] = []

    def call_and_end(what: Any, *arguments: Any) -> None:
        call(what, *arguments)
        if not ended and TOPIC in (what, getattr(what[-1], "path", "")):
            ended.append(operation)
            broker.zookeeper.turns.append(broker.expire)

    monkeypatch.setattr(broker.zookeeper, operation, call_and_end)
    take_over(cluster, 4)
    broker.register()
    assert ended
    check_kept(cluster, topic)
    cluster.controller.ask("create_topics", [NewTopic("b", ((2,),), {})])
    assert broker.state("b").leader == 2
