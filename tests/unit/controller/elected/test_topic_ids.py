"""Nodes of topics without an id, or with another: Kafka's tools before 2.8, and people, write them.
A topic that was led before keeps its id, and its records."""

import json
from collections.abc import Callable, Sequence
from uuid import UUID

import pytest
from tests.unit.controller.elected.test_overwritten_topics import add_untold, take_over
from tests.unit.metadata.fake_replicas import FakeLog
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster

from odradek.metadata import NewTopic
from odradek.metadata.control import LeaderAndIsr
from odradek.metadata.image import BrokerRegistration, TopicImage
from odradek.metadata.store import OnDone
from odradek.metadata.zookeeper.client import OnCommitted, Operation
from odradek.model import TopicPartition
from odradek.protocol.uuids import uuid_text

TP = TopicPartition("a", 0)
TOPIC = "/brokers/topics/a"
MOMENTS = range(0, 40, 3)


def create(cluster: Cluster) -> TopicImage:
    new = NewTopic("a", ((1, 2, 3), (2, 3)), {})
    (topic,) = cluster.controller.ask("create_topics", [new])
    assert isinstance(topic, TopicImage), topic
    return topic


def write(cluster: Cluster, topic_id: UUID | None = None, *more: list[int]) -> None:
    """As kafka-topics.sh --alter of old does, or with another id."""
    replicas = [[1, 2, 3], [2, 3], *more]
    node: dict[str, object] = {"version": 2, "partitions": dict(enumerate(replicas))}
    if topic_id is not None:
        node |= {"version": 3, "topic_id": uuid_text(topic_id)}
    cluster.tree.put(TOPIC, json.dumps(node))


def check(cluster: Cluster, topic: TopicImage, count: int = 2) -> None:
    """All is as it was, and written."""
    assert json.loads(cluster.tree.text(TOPIC))["topic_id"] == uuid_text(topic.topic_id)
    for broker in cluster.brokers.values():
        assert broker.image.topics["a"].topic_id == topic.topic_id
        assert len(broker.image.topics["a"].partitions) == count
        assert broker.replicas.logs[TP].topic_id == topic.topic_id
        assert broker.replicas.deleted == broker.replicas.set_aside == broker.removed == []


@pytest.mark.parametrize("no_id", [None, UUID(int=0)])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_node_without_its_id_and_another_controller(moment: int, no_id: UUID | None) -> None:
    """The next controller would give the topic a new id, and everybody delete all of its records,
    with no error for anybody."""
    cluster = Cluster(3)
    topic = create(cluster)
    write(cluster, no_id)
    for _ in range(moment):
        cluster.tree.step()
    if "/controller" in cluster.tree.entries:
        cluster.tree.remove("/controller")
    cluster.settle()
    check(cluster, topic)
    cluster.tree.remove("/controller")
    cluster.settle()
    check(cluster, topic)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_node_without_its_id_while_there_is_no_controller(moment: int) -> None:
    """The id would not be written back before the next one reads."""
    cluster = Cluster(3)
    topic = create(cluster)
    cluster.brokers.pop(1).store.close()
    for _ in range(moment):
        cluster.tree.step()
    write(cluster)
    cluster.settle()
    check(cluster, topic)


def test_a_node_without_its_id_when_all_brokers_were_stopped() -> None:
    """Only the logs remember."""
    cluster = Cluster(3)
    topic = create(cluster)
    for broker_id in (3, 2, 1):
        cluster.stop(broker_id)
    write(cluster)
    for broker_id in (1, 2, 3):
        cluster.start(broker_id)
    check(cluster, topic)


@pytest.mark.parametrize("first", [[4], [4, 1], [3, 4]])
def test_a_node_without_its_id_and_a_controller_without_its_logs(first: list[int]) -> None:
    """The first broker of a cluster that starts has no replica of the topic: it would give it a new
    id before those come who know better."""
    cluster = Cluster(4)
    topic = create(cluster)
    for broker_id in (4, 3, 2, 1):
        cluster.stop(broker_id)
    write(cluster)
    for broker_id in dict.fromkeys([*first, 1, 2, 3]):
        cluster.start(broker_id)
    assert cluster.controller.id == first[0]
    cluster.brokers.pop(4, None)
    check(cluster, topic)
    assert [each.state().leader for each in cluster.brokers.values()] == [1, 1, 1]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_node_without_its_id_while_the_first_broker_starts(moment: int) -> None:
    """Between its look at the nodes of its logs and its election nobody would write the id back."""
    cluster = Cluster(3)
    topic = create(cluster)
    for broker_id in (3, 2, 1):
        cluster.stop(broker_id)
    cluster.add(1).begin("register_broker", 1, (), None)
    for _ in range(moment):
        cluster.tree.step()
    write(cluster)
    cluster.settle()
    for broker_id in (2, 3):
        cluster.start(broker_id)
    check(cluster, topic)


def test_a_node_without_its_id_and_a_controller_that_only_knows_the_topic() -> None:
    """It has no logs to ask, and lived all the time: it would give the topic a new id."""
    cluster = Cluster(4)
    topic = create(cluster)
    write(cluster)
    for broker_id in (1, 2, 3):
        cluster.brokers[broker_id].zookeeper.is_connected = False
    cluster.tree.remove("/controller")
    cluster.tree.run()
    assert cluster.brokers[4].elected is not None
    for broker_id in (1, 2, 3):
        cluster.brokers[broker_id].zookeeper.is_connected = True
    cluster.settle()
    del cluster.brokers[4]
    check(cluster, topic)


OVERWRITES = (
    {"0": [1, 2, 3], "1": [2, 3]},
    {"0": [2], "1": [1]},
    {"0": [4], "1": [4]},
    {"0": [1, 2, 3]},
    {},
)


@pytest.mark.parametrize("partitions", OVERWRITES)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_node_without_its_id_and_a_controller_that_was_never_told(
    moment: int, partitions: dict[str, list[int]]
) -> None:
    """The brokers that know the id live, and write it back only if somebody asks."""
    cluster = Cluster(3)
    topic = create(cluster)
    add_untold(cluster, 4)
    cluster.tree.put(TOPIC, json.dumps({"version": 2, "partitions": partitions}))
    for _ in range(moment):
        cluster.tree.step()
    take_over(cluster, 4)
    check_kept(cluster, topic)


def check_kept(cluster: Cluster, topic: TopicImage) -> None:
    """The topic is the same for all, and nobody has a log of another."""
    assert json.loads(cluster.tree.text(TOPIC))["topic_id"] == uuid_text(topic.topic_id)
    for broker in cluster.brokers.values():
        assert broker.image.topics["a"].topic_id == topic.topic_id
        assert broker.replicas.set_aside == []
        assert {log.topic_id for log in broker.replicas.logs.values()} <= {topic.topic_id}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_node_with_other_replicas_while_the_first_broker_starts(moment: int) -> None:
    """Its own log would be that of another topic, and it alone is in sync."""
    cluster = Cluster(3)
    topic = create(cluster)
    for broker_id in (3, 2, 1):
        cluster.stop(broker_id)
    cluster.add(1).begin("register_broker", 1, (), None)
    for _ in range(moment):
        cluster.tree.step()
    cluster.tree.put(TOPIC, '{"version":2,"partitions":{"0":[2],"1":[3]}}')
    cluster.settle()
    for broker_id in (2, 3):
        cluster.start(broker_id)
    assert json.loads(cluster.tree.text(TOPIC))["topic_id"] == uuid_text(topic.topic_id)
    assert cluster.brokers[1].replicas.set_aside == []


@pytest.mark.parametrize("partitions", OVERWRITES)
def test_a_node_without_its_id_and_a_controller_that_lives_alone(
    partitions: dict[str, list[int]],
) -> None:
    """The brokers that know the id are away, of whichever partition, and no records may be taken
    for those of another topic when they come."""
    cluster = Cluster(3)
    topic = create(cluster)
    add_untold(cluster, 4)
    for broker_id in (3, 2, 1):
        cluster.brokers[broker_id].close()
    cluster.tree.put(TOPIC, json.dumps({"version": 2, "partitions": partitions}))
    cluster.brokers[4].is_deaf = False
    cluster.settle()
    assert "a" not in cluster.brokers[4].image.topics
    for broker_id in (1, 2, 3):
        cluster.start(broker_id)
    write(cluster)
    cluster.settle()
    check_kept(cluster, topic)


@pytest.mark.parametrize("left", [1, 2, 3])
def test_one_that_is_in_sync_knows_the_id(left: int) -> None:
    """The tool may have written other replicas, and those be away."""
    cluster = Cluster(3)
    topic = create(cluster)
    add_untold(cluster, 4)
    cluster.tree.put(TOPIC, '{"version":2,"partitions":{"0":[4],"1":[4]}}')
    for broker_id in {1, 2, 3} - {left}:
        cluster.brokers[broker_id].zookeeper.is_connected = False
        cluster.brokers.pop(broker_id).store.close()
    if left != 1:
        cluster.tree.put("/controller", "{}")
    take_over(cluster, 4)
    check_kept(cluster, topic)


def test_a_replica_that_is_not_in_sync_knows_the_id() -> None:
    """The replicas in sync may have lost their disks: its records would be nobody's."""
    cluster = Cluster(4)
    topic = create(cluster)
    for broker_id in (3, 2, 1, 4):
        cluster.stop(broker_id)
    cluster.logs[1].clear()
    cluster.logs[2].clear()
    write(cluster)
    for broker_id in (4, 3, 1, 2):
        cluster.start(broker_id)
    assert cluster.controller.id == 4
    check_kept(cluster, topic)


def test_a_broker_that_stands_still_may_know_the_id() -> None:
    """It is in sync for as long as its session lasts, and its log may be the only one."""
    cluster = Cluster(3)
    topic = create(cluster)
    add_untold(cluster, 4)
    write(cluster)
    for broker_id in (1, 2, 3):
        cluster.brokers[broker_id].is_deaf = True
    cluster.tree.remove("/controller")
    for broker_id in (1, 2, 3):
        cluster.brokers[broker_id].zookeeper.is_connected = False
    cluster.settle()
    assert cluster.brokers[4].elected is not None
    assert "a" not in cluster.brokers[4].image.topics
    cluster.brokers[4].is_deaf = False
    for broker_id in (1, 2, 3):
        cluster.brokers[broker_id].is_deaf = False
        cluster.brokers[broker_id].zookeeper.is_connected = True
        cluster.settle()
    check_kept(cluster, topic)


def test_a_node_without_its_id_that_was_not_understood_before() -> None:
    """All have been told everything by then."""
    cluster = Cluster(3)
    topic = create(cluster)
    add_untold(cluster, 4)
    cluster.tree.put(TOPIC, "?")
    take_over(cluster, 4)
    write(cluster)
    cluster.settle()
    check_kept(cluster, topic)


def test_a_node_without_its_id_after_a_broker_has_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer to what it was told before says nothing of what it knows."""
    cluster = Cluster(3)
    topic = create(cluster)
    for broker_id in (2, 3):
        cluster.stop(broker_id)
    add_untold(cluster, 4)
    cluster.tree.put(TOPIC, "?")
    plane = cluster.brokers[4].plane
    tell = plane.leader_and_isr
    held: list[Callable[[], None]] = []

    def hold(broker: BrokerRegistration, request: LeaderAndIsr, on_done: OnDone[object]) -> None:
        tell(
            broker,
            request,
            on_done if held else lambda outcome: held.append(lambda: on_done(outcome)),
        )

    monkeypatch.setattr(plane, "leader_and_isr", hold)
    take_over(cluster, 4)
    write(cluster)
    cluster.settle()
    (answer,) = held
    answer()
    cluster.settle()
    check_kept(cluster, topic)


def test_a_node_without_its_id_that_somebody_writes_as_it_is_read() -> None:
    """A node read before the brokers wrote the id back says nothing of what they know."""
    for moment in range(60):
        cluster = Cluster(3, seed=moment)
        topic = create(cluster)
        add_untold(cluster, 4)
        write(cluster)
        for _ in range(moment):
            cluster.tree.step()
        take_over(cluster, 4)
        check_kept(cluster, topic)


@pytest.mark.parametrize("live", [[1], [1, 2, 3]])
def test_a_node_without_its_id_that_somebody_writes_again_as_brokers_write(
    monkeypatch: pytest.MonkeyPatch, live: list[int]
) -> None:
    """Their writes are refused, and they answer: they know the id nevertheless."""
    cluster = Cluster(3)
    topic = create(cluster)
    for broker_id in {1, 2, 3} - {*live}:
        cluster.stop(broker_id)
    add_untold(cluster, 4)
    write(cluster)
    overtaken = [overtake(monkeypatch, cluster, broker_id) for broker_id in live]
    take_over(cluster, 4)
    assert overtaken == [[TOPIC] for _ in live]
    check_kept(cluster, topic)


def overtake(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, broker_id: int) -> list[str]:
    """The tool writes before the broker does, once; the path comes to the list then."""
    zookeeper = cluster.brokers[broker_id].zookeeper
    commit = zookeeper.commit
    overtaken: list[str] = []

    def commit_later(operations: Sequence[Operation], on_done: OnCommitted) -> None:
        if not overtaken and operations[-1].path == TOPIC:
            overtaken.append(TOPIC)
            write(cluster)
        commit(operations, on_done)

    monkeypatch.setattr(zookeeper, "commit", commit_later)
    return overtaken


@pytest.mark.parametrize("moment", MOMENTS)
def test_who_has_no_replica_knows_no_id(moment: int) -> None:
    """A log of an earlier topic that a broker has kept while it was away would give the topic its
    id: the records of all replicas would be set aside."""
    cluster = Cluster(4)
    topic = create(cluster)
    for broker_id in (4, 3, 2, 1):
        cluster.stop(broker_id)
    cluster.logs[4][TP] = FakeLog(UUID(int=9))
    cluster.add(4).begin("register_broker", 4, (), None)
    for _ in range(moment):
        cluster.tree.step()
    write(cluster)
    cluster.settle()
    for broker_id in (1, 2, 3):
        cluster.start(broker_id)
    del cluster.brokers[4]
    check(cluster, topic)


def test_a_topic_of_which_nobody_knows_an_id_gets_one() -> None:
    """Logs that Kafka before 2.8 has left have none: their topic would never be led again."""
    cluster = Cluster(3)
    create(cluster)
    for broker_id in (3, 2, 1):
        cluster.stop(broker_id)
    write(cluster)
    cluster.logs.clear()
    for broker_id in (1, 2, 3):
        cluster.start(broker_id)
    assert json.loads(cluster.tree.text(TOPIC))["topic_id"]
    assert [each.state().leader for each in cluster.brokers.values()] == [1, 1, 1]


def test_a_partition_that_such_a_tool_adds_is_taken() -> None:
    """A partition added with a tool of old would have no leader for ever."""
    cluster = Cluster(3)
    topic = create(cluster)
    write(cluster, None, [3, 1])
    cluster.settle()
    check(cluster, topic, 3)
    assert [each.state("a", 2).leader for each in cluster.brokers.values()] == [3, 3, 3]
    cluster.stop(1)
    check(cluster, topic, 3)


def test_a_new_topic_has_nothing_of_one_before() -> None:
    """A log that lies in a directory from long ago would be taken for the new topic's."""
    cluster = Cluster(3)
    topic = create(cluster)
    (_,) = cluster.brokers[1].ask("delete_topics", [topic.topic_id])
    old = cluster.logs[1][TP] = FakeLog(topic.topic_id)
    write(cluster)
    cluster.settle()
    assert cluster.brokers[1].image.topics["a"].topic_id != topic.topic_id
    assert cluster.brokers[1].replicas.set_aside == [TP]
    assert cluster.logs[1][TP] is not old


def test_a_new_topic_has_nothing_of_one_before_though_no_broker_lives() -> None:
    """The first broker that starts has an old log, and nobody has led the new topic."""
    cluster = Cluster(3)
    topic = create(cluster)
    (_,) = cluster.brokers[1].ask("delete_topics", [topic.topic_id])
    for broker_id in (3, 2, 1):
        cluster.stop(broker_id)
    cluster.logs[1][TP] = FakeLog(topic.topic_id)
    write(cluster)
    for broker_id in (1, 2, 3):
        cluster.start(broker_id)
    assert cluster.brokers[1].image.topics["a"].topic_id != topic.topic_id
    assert cluster.brokers[1].replicas.set_aside == [TP]


def test_another_id_is_put_right() -> None:
    """While a controller knows better."""
    cluster = Cluster(3)
    topic = create(cluster)
    write(cluster, UUID(int=7), [3, 1])
    cluster.settle()
    check(cluster, topic, 3)
    assert [each.state("a", 2).leader for each in cluster.brokers.values()] == [3, 3, 3]


def test_another_id_deletes_nothing() -> None:
    """No one has ordered it: the logs are set aside, for a person to look at."""
    cluster = Cluster(3)
    create(cluster)
    write(cluster, UUID(int=7))
    cluster.tree.remove("/controller")
    cluster.settle()
    for broker in cluster.brokers.values():
        assert broker.image.topics["a"].topic_id == UUID(int=7)
        assert broker.replicas.deleted == []
        assert TP in broker.replicas.set_aside


@pytest.mark.parametrize("first", [1, 2])
def test_a_topic_that_is_marked_while_no_broker_lives(first: int) -> None:
    """The elected leader would keep its own records of the topic for ever, and nobody know."""
    cluster = Cluster(3)
    topic = create(cluster)
    for broker_id in (3, 2, 1):
        cluster.stop(broker_id)
    cluster.tree.put("/admin/delete_topics/a")
    for broker_id in (first, 3 - first, 3):
        cluster.start(broker_id)
    assert TOPIC not in cluster.tree.entries
    assert [sorted(cluster.logs[each]) for each in (1, 2, 3)] == [[], [], []]
    assert create(cluster).topic_id != topic.topic_id
    assert [each.replicas.set_aside for each in cluster.brokers.values()] == [[], [], []]
