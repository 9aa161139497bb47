"""Remains of a controller's term or a broker's session: commands that wait, questions that were
refused, settings and replicas of a topic before."""

import pytest
from tests.outcomes import whatever
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import ListenerStage, MetadataDelta, NewTopic, PartitionChange
from odradek.metadata.changes import Change
from odradek.metadata.control import (
    ControlHeader,
    LeaderAndIsr,
    PartitionState,
    StoppedReplica,
    StopReplica,
    UpdateMetadata,
)
from odradek.metadata.image import PartitionImage, TopicImage
from odradek.metadata.zookeeper import znodes
from odradek.model import TopicPartition

TP = TopicPartition("a", 0)
STATE = "/brokers/topics/a/partitions/0/state"


def create(cluster: Cluster, *assignment: tuple[int, ...], **configs: str) -> TopicImage:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    (topic,) = cluster.controller.ask("create_topics", [NewTopic("a", assignment, settings)])
    assert isinstance(topic, TopicImage), topic
    return topic


def step_until_elected(broker: Broker) -> None:
    """Up to the moment when its election is written, and the answer on its way."""
    while "/controller" not in broker.cluster.tree.entries:
        assert broker.cluster.tree.step()


@pytest.mark.parametrize("kind", [LeaderAndIsr, UpdateMetadata, StopReplica])
def test_a_command_of_a_past_controller_is_not_carried_out_half(kind: type) -> None:
    """The word of the one before would be the law under the next: brokers that are gone live, and
    topics that are there go."""
    cluster = Cluster(2)
    topic = create(cluster, (2, 1))
    two = cluster.brokers[2]
    header = ControlHeader(1, 1, two.image.brokers[2].epoch)
    brokers = tuple(two.image.brokers.values())
    new = PartitionImage(0, 1, 0, 0, (1, 2), (1, 2))
    told = PartitionState("b", topic.topic_id, 1, new)
    request = {
        LeaderAndIsr: LeaderAndIsr(header, False, (told,), brokers),
        UpdateMetadata: UpdateMetadata(header, (told,), brokers),
        StopReplica: StopReplica(header, (StoppedReplica(TP, -2, delete=True),)),
    }[kind]
    operation = {
        LeaderAndIsr: "on_leader_and_isr",
        UpdateMetadata: "on_update_metadata",
        StopReplica: "on_stop_replica",
    }[kind]
    cluster.brokers.pop(1).store.close()
    step_until_elected(two)
    # The engine is busy: what is begun now is carried out when the next controller is here.
    held: list[object] = []
    two.store._view.submit(
        lambda _: Change(None), whatever, lambda _change, on_done: held.append(on_done)
    )
    answers = two.begin(operation, request)
    cluster.tree.run()
    assert two.elected is not None
    two.store._view.engine.refuse_commits(BrokerError(ErrorCode.NOT_CONTROLLER))
    cluster.settle()
    (refused,) = answers
    assert isinstance(refused, BrokerError), refused
    assert refused.code is ErrorCode.STALE_CONTROLLER_EPOCH
    assert sorted(two.image.brokers) == [2]
    assert sorted(two.image.topics) == ["a"]
    assert two.state().leader == 2


def test_isr_changes_that_zookeeper_refuses_are_asked_again() -> None:
    """The leader counts with what it has proposed, and hears nothing any more: the in-sync replicas
    stay as they are for ever."""
    cluster = Cluster(3)
    create(cluster, (2, 1))
    cluster.tree.unwritable.add(STATE)
    answers = cluster.brokers[2].begin("change_partitions", [PartitionChange(TP, 0, 2, (2,))])
    cluster.settle()
    assert answers == []
    cluster.tree.unwritable.clear()
    cluster.settle()
    ((changed,),) = answers
    assert changed.isr == (2,)
    assert {broker.state().isr for broker in cluster.brokers.values()} == {(2,)}


def test_isr_changes_of_the_controllers_own_leaders_are_asked_again() -> None:
    """The same where the leader is the controller itself."""
    cluster = Cluster(2)
    create(cluster, (1, 2))
    cluster.tree.unwritable.add(STATE)
    answers = cluster.brokers[1].begin("change_partitions", [PartitionChange(TP, 0, 1, (1,))])
    cluster.settle()
    assert answers == []
    cluster.tree.unwritable.clear()
    cluster.settle()
    ((changed,),) = answers
    assert changed.isr == (1,)


def test_isr_changes_of_a_topic_that_is_made_anew_are_answered() -> None:
    """They would be asked for ever, twenty times a second, and be made of the later topic in the
    end, of which replicas that lack records would count as in sync."""
    cluster = Cluster(3)
    topic = create(cluster, (2, 1))
    cluster.brokers[2].ask("change_partitions", [PartitionChange(TP, 0, 2, (2,))])
    cluster.tree.unwritable.add(STATE)
    answers = cluster.brokers[2].begin("change_partitions", [PartitionChange(TP, 1, 2, (2, 1))])
    cluster.settle()
    assert answers == []
    cluster.tree.unwritable.clear()
    cluster.brokers[1].begin("delete_topics", [topic.topic_id])
    cluster.tree.run()
    cluster.brokers[1].begin("create_topics", [NewTopic("a", ((2, 1),), {})])
    cluster.tree.run()
    assert cluster.brokers[2].state().partition_epoch == 0
    cluster.settle()
    (((refused,)),) = answers
    assert refused.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_failed_directory_is_told_again_when_zookeeper_refuses() -> None:
    """The controller would have its replicas lead on, and nobody could write to them."""
    cluster = Cluster(3)
    create(cluster, (2, 3))
    two = cluster.brokers[2]
    two.unserved.add(TP)
    cluster.tree.unwritable.add(znodes.LOG_DIR_EVENT_PREFIX)
    two.store.report_offline([TP], 2)
    cluster.settle()
    assert cluster.controller.state().leader == 2
    cluster.tree.unwritable.clear()
    cluster.settle()
    assert cluster.controller.state().leader == 3


# Settings


def made_anew(cluster: Cluster) -> tuple[TopicImage, TopicImage]:
    """A topic, and another one of its name with other settings, that broker 2 is not told of."""
    before = create(cluster, (1, 3), retention_ms="5", flush_ms="1")
    cluster.brokers[2].is_deaf = True
    cluster.brokers[1].ask("delete_topics", [before.topic_id])
    assert "/brokers/topics/a" not in cluster.tree.entries
    return before, create(cluster, (1, 3), retention_ms="7")


def watched(broker: Broker, topic: TopicImage) -> list[dict[str, str]]:
    """The settings of a topic whenever something is told of it."""
    seen: list[dict[str, str]] = []

    def look(delta: MetadataDelta) -> list[TopicPartition]:
        if delta.image.topic_by_id(topic.topic_id) is not None:
            seen.append(dict(delta.image.topic_config("a")))
        return []

    broker.store.subscribe(ListenerStage.REPLICAS, look)
    return seen


def test_a_new_controller_reads_a_topics_settings_with_the_topic() -> None:
    """It would have it go on with those of a topic before, or with none."""
    cluster = Cluster(3)
    _, after = made_anew(cluster)
    two = cluster.brokers[2]
    seen = watched(two, after)
    cluster.stop(1)
    if cluster.controller is not two:
        two.is_deaf = False
        cluster.stop(3)
    assert cluster.controller is two
    assert two.image.topics["a"].topic_id == after.topic_id
    assert seen
    assert all(each == {"retention.ms": "7"} for each in seen)


def test_a_broker_that_is_told_of_another_topic_reads_its_settings() -> None:
    """As long as nobody alters them it would go on with those of the topic before."""
    cluster = Cluster(3)
    _, after = made_anew(cluster)
    two = cluster.brokers[2]
    seen = watched(two, after)
    two.is_deaf = False
    cluster.settle()
    assert two.image.topics["a"].topic_id == after.topic_id
    assert seen
    assert all(each == {"retention.ms": "7"} for each in seen)


def test_settings_that_are_left_of_a_topic_are_not_taken_for_those_of_a_later_one() -> None:
    """A broker that was started meanwhile would go on without its settings, and delete records that
    are to be kept for ever."""
    cluster = Cluster(2)
    cluster.tree.put("/config/topics/a", '{"version":1,"config":{}}')
    cluster.start(3)
    create(cluster, (3, 2), retention_ms="-1")
    settings = [dict(broker.image.topic_config("a")) for broker in cluster.brokers.values()]
    assert settings == [{"retention.ms": "-1"}] * 3


# Replicas to be given up


def test_replicas_that_a_sessions_end_has_kept_are_not_given_up() -> None:
    """Their logs would stay, and be taken for those of a later topic of the name."""
    cluster = Cluster(2)
    create(cluster, *((2, 1),) * 90)
    two = cluster.brokers[2]
    header = ControlHeader(1, 1, two.image.brokers[2].epoch)
    stopped = [StoppedReplica(TopicPartition("a", index), 0, delete=True) for index in range(90)]
    answers = two.begin("on_stop_replica", StopReplica(header, stopped))
    assert two.store._view.engine._acting is not None, "it is not done in one step"
    two.expire()
    cluster.settle()
    (refused,) = answers
    assert isinstance(refused, BrokerError), "the controller would take the topic for gone"
    assert refused.code is ErrorCode.STALE_BROKER_EPOCH
    two.register()
    assert len(two.hosts) == 90


def test_a_deletion_goes_on_with_a_broker_that_comes_back() -> None:
    """A broker whose session ends at any step of it would keep its replicas for ever."""
    for steps in range(0, 60, 3):
        cluster = Cluster(2)
        topic = create(cluster, (2, 1), (1, 2))
        two = cluster.brokers[2]
        answers = cluster.brokers[1].begin("delete_topics", [topic.topic_id])
        for _ in range(steps):
            cluster.tree.step()
        two.expire()
        cluster.settle()
        two.register()
        cluster.settle()
        assert len(answers) == 1
        assert "/brokers/topics/a" not in cluster.tree.entries
        assert "a" not in two.image.topics
        assert "a" in two.removed


def test_a_topic_that_was_missed_goes_with_the_deletion_of_another_of_its_name() -> None:
    """Clients of this broker would be told for ever of a topic that nobody has."""
    cluster = Cluster(3)
    before = create(cluster, (3,))
    two = cluster.brokers[2]
    two.is_deaf = True
    cluster.brokers[1].ask("delete_topics", [before.topic_id])
    after = create(cluster, (2, 3))
    two.expire()
    two.register()
    cluster.brokers[1].begin("delete_topics", [after.topic_id])
    cluster.settle()
    assert two.image.topics["a"].topic_id == before.topic_id, "it has heard of nothing"
    two.is_deaf = False
    cluster.settle()
    assert "/brokers/topics/a" not in cluster.tree.entries
    assert sorted(two.image.topics) == []


def test_a_deletion_by_id_does_not_hit_a_later_topic_of_the_name() -> None:
    """All that has been written to the later one would be lost, by a request that was made twice,
    to a broker that has not heard of the first deletion yet."""
    cluster = Cluster(3)
    before, after = made_anew(cluster)
    (refused,) = cluster.brokers[2].ask("delete_topics", [before.topic_id])
    assert isinstance(refused, BrokerError)
    assert refused.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert cluster.brokers[1].image.topics["a"].topic_id == after.topic_id
    assert "/brokers/topics/a" in cluster.tree.entries


def test_a_broker_that_does_not_answer_is_told_of_two_deletions_of_a_name() -> None:
    """Told of the last one only it would keep the topic before, for ever."""
    cluster = Cluster(3)
    _, after = made_anew(cluster)
    cluster.brokers[1].ask("delete_topics", [after.topic_id])
    two = cluster.brokers[2]
    assert sorted(two.image.topics) == ["a"]
    two.is_deaf = False
    cluster.settle()
    assert sorted(two.image.topics) == []
