"""Tools of old, and hands, that write over a topic's node as its controller goes: the next one
believes no more of it than leaves the records where they are."""

import json
from collections.abc import Mapping, Sequence

import pytest
from tests.unit.controller.elected.test_reassigned_topics import (
    MOMENTS,
    SECOND,
    TOPIC,
    TP,
    create,
    reassign,
    step,
    written,
)
from tests.unit.metadata.fake_replicas import FakeLog
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import NewTopic, PartitionChange
from odradek.metadata.zookeeper import znodes
from odradek.model import TopicPartition

Replicas = Sequence[int]
OTHERWISE_GARBLED = (
    *("", "?", "[]", "7", "null", '{"version":3}'),
    '{"version":3,"topic_id":7,"partitions":{"0":[1]}}',
    '{"version":3,"topic_id":"x","partitions":{"0":[1]}}',
    *('{"version":2,"partitions":[]}', '{"version":2,"partitions":{"0":1}}'),
    *('{"version":2,"partitions":{"x":[1]}}', '{"version":2,"partitions":{"1":[1]}}'),
    '{"version":2,"partitions":{"-1":[1]}}',
)


@pytest.fixture(params=[False, True], ids=["watches in order", "late watches"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    made = Cluster(3)
    made.tree.are_late = request.param
    return made


def write_over(
    cluster: Cluster, *replicas: Replicas, keeps_id: bool = False, topic: str = "a"
) -> None:
    """A node as Kafka's tools wrote it before 2.8, or with the id that the node had."""
    partitions = {str(index): each for index, each in enumerate(replicas)}
    path = znodes.topic_path(topic)
    node = json.loads(cluster.tree.text(path)) if keeps_id else {"version": 2}
    cluster.tree.put(path, json.dumps({**node, "partitions": partitions}))


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


def add_untold(cluster: Cluster, broker_id: int) -> Broker:
    """A broker that no controller has told anything."""
    broker = cluster.add(broker_id)
    broker.is_deaf = True
    broker.register()
    return broker


def keep_who_is_in_sync(cluster: Cluster) -> None:
    """From here on nobody may delete a log that a state says has all records."""

    def on_log_deleted(broker_id: int, where: TopicPartition, _log: FakeLog) -> None:
        state = znodes.read_state(where, cluster.tree.entries[znodes.state_path(where)].data)
        assert broker_id not in state.isr, f"{broker_id} deletes {where}: {state}"

    cluster.on_log_deleted = on_log_deleted


def assert_all_agree(cluster: Cluster) -> None:
    """ZooKeeper, the controller, all images and all logs."""
    topics = dict(cluster.controller.image.topics)
    for name, topic in topics.items():
        data = cluster.tree.entries[znodes.topic_path(name)].data
        assignments = tuple(each.assignment for each in topic.partitions)
        assert znodes.read_topic(name, data) == (topic.topic_id, assignments)
        for each in topic.partitions:
            where = TopicPartition(name, each.partition)
            entry = cluster.tree.entries[znodes.state_path(where)]
            state = znodes.read_state(where, entry.data)
            assert (state.leader, state.leader_epoch, state.isr, entry.version) == (
                *(each.leader, each.leader_epoch, each.isr, each.partition_epoch),
            )
            assert each.leader in each.isr
    for broker in cluster.brokers.values():
        assert dict(broker.image.topics) == topics
        assert {where: log.topic_id for where, log in broker.replicas.logs.items()} == {
            TopicPartition(name, each.partition): topic.topic_id
            for name, topic in topics.items()
            for each in topic.partitions
            if broker.id in each.replicas
        }


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
    add_untold(cluster, 4)
    keep_who_is_in_sync(cluster)
    write_over(cluster, [2], [1], keeps_id=True)
    take_over(cluster, 4)
    # A broker in sync with the first partition is still one of its replicas.
    assert written(cluster) == [(2,), (2, 3)]
    assert not any(SECOND in each for each in deleted(cluster).values())
    for broker in cluster.brokers.values():
        assert [broker.state(*where).leader for where in (TP, SECOND)] == [2, 2]
        assert broker.state(*SECOND).isr == (2, 3)
    assert_all_agree(cluster)


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


def test_a_move_to_a_broker_that_has_to_catch_up() -> None:
    """The others would go before it has the records."""
    cluster = Cluster(3)
    create(cluster, (1, 2))
    add_untold(cluster, 4)
    keep_who_is_in_sync(cluster)
    write_over(cluster, [3, 2], keeps_id=True)
    take_over(cluster, 4)
    state = cluster.controller.state()
    assert (state.replicas, state.adding, state.removing) == ((3, 2, 1), (3,), (1,))
    assert deleted(cluster) == {1: [], 2: [], 3: [], 4: []}
    assert_all_agree(cluster)
    change = PartitionChange(TP, state.partition_epoch, state.leader, (1, 2, 3))
    cluster.brokers[state.leader].ask("change_partitions", [change])
    assert written(cluster) == [(3, 2)]
    assert_all_agree(cluster)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_tool_that_writes_for_two_controllers_that_were_never_told(
    cluster: Cluster, moment: int
) -> None:
    """The state would still name brokers that deleted their logs for the first: the second would
    believe that one of them has all records."""
    create(cluster, (1, 2, 3))
    for broker_id in (4, 5):
        add_untold(cluster, broker_id)
    keep_who_is_in_sync(cluster)
    write_over(cluster, [2], keeps_id=True)
    others = [each for each in cluster.brokers.values() if each.id != 4]
    for each in others:
        each.zookeeper.is_connected = False
    cluster.tree.remove(znodes.CONTROLLER)
    while cluster.brokers[4].elected is None:
        step(cluster, 1)
    step(cluster, moment)
    for each in others:
        each.zookeeper.is_connected = True
    step(cluster, moment)
    write_over(cluster, [1], keeps_id=True)
    take_over(cluster, 5)
    # A broker whose log a controller had deleted is in sync only if it came back.
    (replicas,) = written(cluster)
    assert {*cluster.controller.state().isr} <= {*replicas}
    assert_all_agree(cluster)


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"version":2,"partitions":{"0":["1"]}}',
        *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERWISE_GARBLED),
    ],
)
def test_a_node_that_says_nothing(
    cluster: Cluster, moment: int, text: str, *, is_told: bool
) -> None:
    """No log is deleted for it, and once the node is mended all is as before."""
    create(cluster, (1, 2, 3), (2, 3))
    topic_id = cluster.controller.image.topics["a"].topic_id
    before = cluster.tree.text(TOPIC)
    add_untold(cluster, 4)
    cluster.tree.put(TOPIC, text)
    step(cluster, moment)
    take_over(cluster, 1 if is_told else 4)
    assert not any(deleted(cluster).values())
    assert not any(each.replicas.set_aside for each in cluster.brokers.values())
    cluster.tree.put(TOPIC, before)
    cluster.settle()
    assert cluster.controller.image.topics["a"].topic_id == topic_id
    assert written(cluster) == [(1, 2, 3), (2, 3)]
    assert not any(deleted(cluster).values())
    assert_all_agree(cluster)


@pytest.mark.parametrize("text", ["?", '{"version":2,"partitions":{"0":["1"]}}'])
def test_a_controller_that_is_there_writes_again_what_says_nothing(
    cluster: Cluster, text: str
) -> None:
    """Each of its writes would be refused as fast as ZooKeeper can, for as long as somebody asks
    for other replicas."""
    create(cluster, (1, 2, 3), (2, 3))
    before = json.loads(cluster.tree.text(TOPIC))
    cluster.tree.put(TOPIC, text)
    answers = reassign(cluster.controller, SECOND, (3, 2))
    cluster.settle()
    assert answers == [{SECOND: None}]
    before["partitions"]["1"] = [3, 2]
    assert json.loads(cluster.tree.text(TOPIC)) == before
    assert_all_agree(cluster)


@pytest.mark.parametrize("text", ["?", '{"version":2,"partitions":{"0":["1"]}}'])
def test_replicas_are_not_planned_for_ever(cluster: Cluster, text: str) -> None:
    """A node that cannot be read cannot be written over, nor put right."""
    create(cluster, (1, 2, 3), (2, 3))
    before = cluster.tree.text(TOPIC)
    cluster.tree.unreadable.add(TOPIC)
    cluster.tree.put(TOPIC, text)
    answers = reassign(cluster.controller, SECOND, (3, 1))
    cluster.settle()
    (((_, error),),) = [answer.items() for answer in answers]
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.INVALID_UPDATE_VERSION
    cluster.tree.unreadable.clear()
    cluster.settle()
    assert json.loads(cluster.tree.text(TOPIC)) == json.loads(before)
    assert_all_agree(cluster)


def test_a_partition_that_is_gone_from_the_node_and_never_was_known(cluster: Cluster) -> None:
    """Its brokers keep their logs, and lead it on: nobody has ordered anything. When somebody
    writes it again it goes on as it was."""
    create(cluster, (1, 2, 3), (2, 3))
    before = cluster.tree.text(TOPIC)
    add_untold(cluster, 4)
    write_over(cluster, [1, 2, 3], keeps_id=True)
    take_over(cluster, 4)
    assert [cluster.brokers[each].state(*SECOND).leader for each in (2, 3)] == [2, 2]
    for broker_id in (2, 3):
        cluster.stop(broker_id)
        cluster.start(broker_id)
    assert not any(deleted(cluster).values())
    assert [SECOND in cluster.brokers[each].replicas.logs for each in (2, 3)] == [True, True]
    cluster.tree.put(TOPIC, before)
    cluster.settle()
    assert written(cluster) == [(1, 2, 3), (2, 3)]
    assert not any(deleted(cluster).values())
    assert cluster.controller.state(*SECOND).isr == (2, 3)
    assert_all_agree(cluster)


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("keeps_id", [False, True])
@pytest.mark.parametrize("moment", MOMENTS)
def test_two_topics_that_are_written_over_at_once(
    cluster: Cluster, moment: int, *, is_told: bool, keeps_id: bool
) -> None:
    create(cluster, (1, 2, 3), (2, 3))
    cluster.controller.ask("create_topics", [NewTopic("b", ((3, 1), (1, 2, 3)), {})])
    ids = {topic.name: topic.topic_id for topic in cluster.controller.image.topics.values()}
    add_untold(cluster, 4)
    keep_who_is_in_sync(cluster)
    write_over(cluster, [2], [1], keeps_id=keeps_id)
    write_over(cluster, [2], [3, 2], keeps_id=keeps_id, topic="b")
    step(cluster, moment)
    take_over(cluster, 1 if is_told else 4)
    topics = cluster.controller.image.topics
    assert {name: topic.topic_id for name, topic in topics.items()} == ids
    assert topics["a"].partitions[1].replicas == (2, 3)
    assert topics["b"].partitions[0].replicas == (3, 1)
    assert_all_agree(cluster)


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("keeps_id", [False, True])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_partition_that_is_added_with_what_is_written_over(
    cluster: Cluster, moment: int, *, is_told: bool, keeps_id: bool
) -> None:
    create(cluster, (1, 2, 3), (2, 3))
    add_untold(cluster, 4)
    keep_who_is_in_sync(cluster)
    write_over(cluster, [2], [1], [3, 1], keeps_id=keeps_id)
    step(cluster, moment)
    take_over(cluster, 1 if is_told else 4)
    partitions = cluster.controller.image.topics["a"].partitions
    assert [each.replicas for each in partitions][1:] == [(2, 3), (3, 1)]
    assert_all_agree(cluster)


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("keeps_id", [False, True])
@pytest.mark.parametrize("moment", MOMENTS)
def test_replicas_that_are_away_keep_their_logs(
    cluster: Cluster, moment: int, *, is_told: bool, keeps_id: bool
) -> None:
    """The node names a live broker without the records, and one with them that is away."""
    create(cluster, (1, 2, 3), (2, 3))
    add_untold(cluster, 4)
    cluster.brokers.pop(3).store.close()
    keep_who_is_in_sync(cluster)
    write_over(cluster, [3], [1, 3], keeps_id=keeps_id)
    step(cluster, moment)
    take_over(cluster, 1 if is_told else 4)
    cluster.start(3)
    cluster.settle()
    partitions = cluster.controller.image.topics["a"].partitions
    assert all({*each.isr} & {2, 3} for each in partitions)
    assert_all_agree(cluster)
