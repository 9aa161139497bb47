"""Brokers whose metadata is in ZooKeeper: who decides, who hears of it, what is written down."""

import json
from itertools import product
from typing import Any

import pytest
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import (
    ConfigResource,
    ListenerStage,
    MetadataDelta,
    NewPartitions,
    NewTopic,
    PartitionChange,
)
from odradek.metadata.control import LeaderAndIsr, StoppedReplica, StopReplica, UpdateMetadata
from odradek.metadata.image import TopicImage
from odradek.model import NO_LEADER, ConfigResourceType, TopicPartition

TP = TopicPartition("a", 0)
STATE = "/brokers/topics/a/partitions/0/state"


def create(cluster: Cluster, broker_id: int = 1, *assignment: tuple[int, ...]) -> TopicImage:
    new = NewTopic("a", assignment or ((2, 1),), {"retention.ms": "5"})
    (topic,) = cluster.brokers[broker_id].ask("create_topics", [new])
    assert isinstance(topic, TopicImage), topic
    return topic


def test_the_first_broker_is_the_controller_and_all_know() -> None:
    cluster = Cluster(3)
    assert {b.image.controller_id for b in cluster.brokers.values()} == {1}
    assert all(sorted(b.image.brokers) == [1, 2, 3] for b in cluster.brokers.values())
    assert json.loads(cluster.tree.text("/controller"))["brokerid"] == 1
    assert cluster.tree.text("/controller_epoch") == "1"
    assert {b.image.controller_epoch for b in cluster.brokers.values()} == {1}
    assert len({b.image.cluster_id for b in cluster.brokers.values()}) == 1


def test_a_topic_is_made_by_any_broker_and_led_by_its_first_replica() -> None:
    cluster = Cluster(3)
    topic = create(cluster, 3)
    for broker in cluster.brokers.values():
        assert broker.image.topics["a"] == topic
        assert broker.image.topic_config("a") == {"retention.ms": "5"}
        assert broker.state()[:6] == (0, 2, 0, 0, (2, 1), (2, 1))
    assert json.loads(cluster.tree.text(STATE)) == {
        "controller_epoch": 1,
        "leader": 2,
        "version": 1,
        "leader_epoch": 0,
        "isr": [2, 1],
    }
    (refused,) = cluster.brokers[2].ask("create_topics", [NewTopic("a", ((1,),), {})])
    assert refused.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_broker_that_comes_is_told_before_clients_may_ask_it() -> None:
    """They would be answered that there are no topics, and take them for deleted."""
    cluster = Cluster(1)
    create(cluster, 1, (1,))
    assert cluster.brokers[1].cache.is_told
    late = cluster.add(2)
    late.is_deaf = True
    late.register()
    assert (late.cache.is_told, set(late.image.topics)) == (False, set())
    late.is_deaf = False
    cluster.settle()
    assert (late.cache.is_told, set(late.image.topics)) == (True, {"a"})


def test_a_broker_that_comes_back_knows_that_it_does_not_know_all() -> None:
    """Fails when a broker that leads again takes topics for deleted that came while it was away: it
    would call transactions ended that have not ended there."""
    cluster = Cluster(2)
    create(cluster, 1, (2,))
    back = cluster.brokers[2]
    seen: list[tuple[bool, bool]] = []

    def look(delta: MetadataDelta) -> list[TopicPartition]:
        if back.state().leader == 2 or delta.partitions():
            seen.append(("b" in delta.image.topics, back.cache.is_current))
        return []

    back.expire()
    assert back.cache.is_told, "clients go on with what is known, as with Kafka"
    cluster.brokers[1].ask("create_topics", [NewTopic("b", ((1,),), {})])
    back.store.subscribe(ListenerStage.REPLICAS, look)
    back.register()
    cluster.settle()
    assert (False, False) in seen, "it never led before it knew all: this test tries nothing"
    assert (False, True) not in seen
    assert (back.cache.is_current, set(back.image.topics)) == (True, {"a", "b"})


def test_a_topic_that_somebody_else_wrote_is_taken_in() -> None:
    """Kafka's own tools of old write it themselves."""
    cluster = Cluster(2)
    cluster.tree.put("/brokers/topics/a", '{"version":1,"partitions":{"0":[2,1],"1":[1]}}')
    cluster.settle()
    assert [b.state("a", 1).leader for b in cluster.brokers.values()] == [1, 1]
    written = json.loads(cluster.tree.text("/brokers/topics/a"))
    assert written["topic_id"]


def test_partitions_are_added() -> None:
    cluster = Cluster(3)
    create(cluster)
    (grown,) = cluster.brokers[3].ask("create_partitions", [NewPartitions("a", 1, ((3,), (1, 2)))])
    assert len(grown.partitions) == 3
    for broker in cluster.brokers.values():
        assert [broker.state("a", i).leader for i in range(3)] == [2, 3, 1]
    (refused,) = cluster.brokers[3].ask("create_partitions", [NewPartitions("a", 1, ((3,),))])
    assert refused.code is ErrorCode.INVALID_PARTITIONS


def test_leaders_change_when_a_broker_goes_and_comes() -> None:
    cluster = Cluster(3)
    create(cluster, 1, (3, 2), (2, 3), (3,))
    cluster.stop(3)
    for broker in cluster.brokers.values():
        assert broker.state("a", 0)[1:6] == (2, 1, 1, (3, 2), (2,))
        assert broker.state("a", 1).isr == (2,)
        assert (broker.state("a", 2).leader, broker.state("a", 2).isr) == (NO_LEADER, (3,))
    back = cluster.start(3)
    assert back.state("a", 2).leader == 3
    assert back.state("a", 0).leader == 2


def test_another_controller_takes_over() -> None:
    cluster = Cluster(3)
    create(cluster, 1, (1, 2, 3), (2, 3))
    cluster.stop(1)
    assert cluster.controller.id in (2, 3)
    assert cluster.tree.text("/controller_epoch") == "2"
    for broker in cluster.brokers.values():
        assert broker.state("a", 0)[1:6] == (2, 1, 1, (1, 2, 3), (2, 3))
        assert broker.image.controller_epoch == 2
    assert json.loads(cluster.tree.text(STATE))["controller_epoch"] == 2


def test_the_isr_is_changed_by_asking_the_controller() -> None:
    cluster = Cluster(3)
    create(cluster)
    (changed,) = cluster.brokers[2].ask("change_partitions", [PartitionChange(TP, 0, 2, (2,))])
    assert changed.isr == (2,)
    for broker in cluster.brokers.values():
        assert broker.state()[1:6] == (2, 0, 1, (2, 1), (2,))
    (stale,) = cluster.brokers[2].ask("change_partitions", [PartitionChange(TP, 0, 2, (2, 1))])
    assert stale.code is ErrorCode.INVALID_UPDATE_VERSION
    for broker_id in (2, 3):
        change = PartitionChange(TP, 1, 1, (2, 1))
        (refused,) = cluster.brokers[broker_id].ask("change_partitions", [change])
        assert refused.code is ErrorCode.NOT_CONTROLLER


def test_a_question_is_asked_until_it_is_answered() -> None:
    """The leader counts with its proposal: it must not hear that nothing came of it."""
    cluster = Cluster(3)
    create(cluster)
    cluster.brokers[1].is_deaf = True
    answers = cluster.brokers[2].begin("change_partitions", [PartitionChange(TP, 0, 2, (2,))])
    cluster.settle()
    assert answers == []
    cluster.brokers[1].is_deaf = False
    cluster.settle()
    ((changed,),) = answers
    assert changed.isr == (2,)


def test_a_session_that_is_over() -> None:
    cluster = Cluster(3)
    create(cluster, 1, (2, 3), (2,))
    lost: Any = cluster.brokers[2]
    lost.zookeeper.expire()
    assert lost.losses == 1
    assert lost.state("a", 0).leader == NO_LEADER
    cluster.settle()
    assert cluster.brokers[1].state("a", 0).leader == 3
    refused = lost.ask("create_topics", [NewTopic("b", ((1,),), {})])
    assert refused.code is ErrorCode.NOT_CONTROLLER
    epoch = lost.register().epoch
    assert epoch > 0
    assert lost.image.brokers[2].epoch == epoch
    assert lost.state("a", 0)[1:6] == cluster.brokers[1].state("a", 0)[1:6]
    assert lost.state("a", 1).leader == 2


def test_a_session_that_only_its_client_takes_for_lost() -> None:
    """A process that stood still: what it left in ZooKeeper is its own, and goes."""
    cluster = Cluster(2)
    create(cluster)
    one: Any = cluster.brokers[1]
    one.zookeeper.lose_by_itself()
    assert one.losses == 1
    before = cluster.brokers[2].image.brokers[1]
    one.register()
    assert one.image.brokers[1].epoch != before.epoch
    assert cluster.controller.id in (1, 2)
    assert cluster.tree.text("/controller_epoch") == "2"
    assert one.state().leader == 2


def test_a_second_broker_of_the_same_number() -> None:
    cluster = Cluster(1)
    first = cluster.brokers[1]
    refused = cluster.add(1).register()
    assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.brokers[1].store.close()
    cluster.brokers[1] = first
    cluster.settle()
    assert cluster.controller is first


def test_a_topic_is_deleted_everywhere() -> None:
    cluster = Cluster(3)
    topic = create(cluster, 1, (2, 3), (3, 1))
    (deleted,) = cluster.brokers[3].ask("delete_topics", [topic.topic_id])
    assert deleted.name == "a"
    for broker in cluster.brokers.values():
        assert "a" not in broker.image.topics
        assert "a" in broker.removed
        assert broker.image.topic_config("a") == {}
    left = [path for path in cluster.tree.entries if path.endswith("/a") or "/a/" in path]
    assert left == []
    (gone,) = cluster.brokers[3].ask("delete_topics", [topic.topic_id])
    assert gone.code is ErrorCode.UNKNOWN_TOPIC_ID
    again = create(cluster, 2, (1,))
    assert again.topic_id != topic.topic_id
    assert cluster.brokers[3].image.topics["a"] == again


def test_a_topic_that_is_made_anew_at_any_moment_of_its_deletion() -> None:
    """The settings went as they were overwritten: the topic was refused with a storage error."""
    outcomes = []
    for steps, seed in product(range(60), range(10)):
        cluster = Cluster(2, seed=seed)
        topic = create(cluster, 1, (1,))
        deleted = cluster.brokers[1].begin("delete_topics", [topic.topic_id])
        for _ in range(steps):
            cluster.tree.step()
        [outcome] = cluster.brokers[2].ask("create_topics", [NewTopic("a", ((2,),), {})])
        is_refused = isinstance(outcome, BrokerError)
        assert not is_refused or outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS, (steps, seed)
        assert deleted == [[topic]]
        assert is_refused == ("a" not in cluster.brokers[1].image.topics)
        outcomes.append(is_refused)
    assert set(outcomes) == {True, False}


def test_a_deletion_waits_for_a_broker_that_is_away() -> None:
    cluster = Cluster(3)
    topic = create(cluster, 1, (2, 3))
    cluster.stop(3)
    cluster.brokers[2].ask("delete_topics", [topic.topic_id])
    assert "/brokers/topics/a" in cluster.tree.entries
    (taken,) = cluster.brokers[2].ask("create_topics", [NewTopic("a", ((1,),), {})])
    assert taken.code is ErrorCode.TOPIC_ALREADY_EXISTS
    back = cluster.start(3)
    assert "/brokers/topics/a" not in cluster.tree.entries
    assert "/admin/delete_topics/a" not in cluster.tree.entries
    assert back.removed == ["a"]


def test_a_deletion_is_finished_by_the_next_controller() -> None:
    cluster = Cluster(3)
    topic = create(cluster, 1, (1, 3))
    cluster.stop(3)
    cluster.brokers[2].ask("delete_topics", [topic.topic_id])
    cluster.stop(1)
    assert cluster.controller.id == 2
    assert "a" not in cluster.brokers[2].image.topics
    cluster.start(3)
    assert "/brokers/topics/a" in cluster.tree.entries
    cluster.start(1)
    assert "/brokers/topics/a" not in cluster.tree.entries


def test_settings_reach_every_broker() -> None:
    cluster = Cluster(3)
    create(cluster)
    topic = ConfigResource.topic("a")
    everybody = ConfigResource(ConfigResourceType.BROKER, "")
    altered = {topic: {"flush.ms": "7", "retention.ms": None}, everybody: {"x": "y"}}
    assert cluster.brokers[3].ask("alter_configs", altered) is None
    for broker in cluster.brokers.values():
        assert broker.image.config(topic) == {"flush.ms": "7"}
        assert broker.image.config(everybody) == {"x": "y"}
    assert json.loads(cluster.tree.text("/config/brokers/<default>"))["config"] == {"x": "y"}
    late = cluster.start(4)
    assert late.image.config(everybody) == {"x": "y"}


def test_features_and_producer_ids() -> None:
    cluster = Cluster(2)
    assert cluster.brokers[2].ask("update_features", {"transaction.version": 1}) is None
    assert [b.image.feature_level("transaction.version") for b in cluster.brokers.values()] == [
        *(1, 1)
    ]
    assert len({b.image.features_epoch for b in cluster.brokers.values()}) == 1
    blocks = [cluster.brokers[i].ask("allocate_producer_ids", 1000) for i in (1, 2, 1)]
    assert blocks == [range(1000), range(1000, 2000), range(2000, 3000)]


@pytest.mark.parametrize("broker_id", [1, 2])
def test_a_failed_directory_moves_the_leader(broker_id: int) -> None:
    """Of the controller's broker, or of another."""
    cluster = Cluster(3)
    create(cluster, 1, (broker_id, 3))
    failing = cluster.brokers[broker_id]
    failing.unserved.add(TP)
    failing.store.report_offline([TP], broker_id)
    cluster.settle()
    for broker in cluster.brokers.values():
        assert (broker.state().leader, broker.state().offline) == (3, (broker_id,))
        assert broker.state().isr == (3,)
    assert cluster.tree.children("/log_dir_event_notification") == []
    writes = cluster.tree.writes
    cluster.settle()
    assert cluster.tree.writes == writes
    failing.unserved.clear()
    failing.store.report_online([TP], broker_id)
    cluster.settle()
    assert all(broker.state().offline == () for broker in cluster.brokers.values())


def test_a_broker_that_is_about_to_stop_leads_nothing() -> None:
    """But for what nobody else is in sync with; what has no other replica is not told of, since
    the broker would wait for an heir in vain."""
    cluster = Cluster(3)
    create(cluster, 1, (2, 3), (2, 3), (2,))
    alone = TopicPartition("a", 1)
    partition_epoch = cluster.brokers[2].state("a", 1).partition_epoch
    change = PartitionChange(alone, partition_epoch, 2, (2,))
    cluster.brokers[1].ask("change_partitions", [change])
    epoch = cluster.brokers[2].image.brokers[2].epoch
    answers: list[Any] = []
    controller = cluster.brokers[3].image.brokers[1]
    cluster.brokers[2].plane.controlled_shutdown(controller, 2, epoch, answers.append)
    cluster.settle()
    assert answers == [[alone]]
    assert cluster.brokers[3].state("a", 0).leader == 3
    stale = cluster.brokers[1].ask("on_controlled_shutdown", 2, epoch - 1)
    assert stale.code is ErrorCode.STALE_BROKER_EPOCH
    other = cluster.brokers[3].ask("on_controlled_shutdown", 2, epoch)
    assert other.code is ErrorCode.NOT_CONTROLLER


def test_a_reassignment_asked_for_by_a_node() -> None:
    cluster = Cluster(3)
    create(cluster, 1, (1, 2))
    requested = '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[3,1]}]}'
    cluster.tree.put("/admin/reassign_partitions", requested)
    cluster.settle()
    state = cluster.brokers[2].state()
    assert state.replicas == (3, 1, 2)
    assert "/admin/reassign_partitions" in cluster.tree.entries
    change = PartitionChange(TP, state.partition_epoch, 1, (1, 2, 3))
    cluster.brokers[1].ask("change_partitions", [change])
    assert all(b.state().replicas == (3, 1) for b in cluster.brokers.values())
    assert json.loads(cluster.tree.text("/brokers/topics/a"))["partitions"] == {"0": [3, 1]}
    assert "/admin/reassign_partitions" not in cluster.tree.entries


def test_an_election_asked_for_by_a_node() -> None:
    cluster = Cluster(2)
    create(cluster, 1, (2, 1))
    cluster.brokers[1].ask("change_partitions", [PartitionChange(TP, 0, 1, (2, 1))])
    assert cluster.brokers[2].state().leader == 1
    requested = '{"version":1,"partitions":[{"topic":"a","partition":0}]}'
    cluster.tree.put("/admin/preferred_replica_election", requested)
    cluster.settle()
    assert cluster.brokers[2].state().leader == 2
    assert "/admin/preferred_replica_election" not in cluster.tree.entries


def test_garbage_is_passed_over() -> None:
    """A node that cannot be understood concerns no other, and nothing is guessed."""
    cluster = Cluster(2)
    create(cluster, 1, (2, 1), (1, 2))
    cluster.tree.put("/brokers/topics/bad", "garbage")
    cluster.tree.put("/brokers/ids/9", "[]")
    cluster.tree.put("/config/changes/config_change_9999999999", "{}")
    cluster.tree.put("/admin/reassign_partitions", "no")
    cluster.tree.put(STATE, "???")
    cluster.settle()
    assert "bad" not in cluster.brokers[2].image.topics
    cluster.stop(1)
    assert cluster.controller.id == 2
    assert cluster.brokers[2].state("a", 1).leader == 2
    assert cluster.tree.text(STATE) == "???"
    assert cluster.brokers[2].state("a", 0).leader == NO_LEADER


def test_a_controller_that_was_deposed_writes_nothing() -> None:
    cluster = Cluster(2)
    create(cluster, 1, (2, 1))
    # Another was elected, and this one has not heard of it yet.
    cluster.tree.put("/controller_epoch", "7")
    one = cluster.brokers[1]
    answers = one.begin("change_partitions", [PartitionChange(TP, 0, 1, (2, 1))])
    cluster.settle()
    (refused,) = answers
    assert isinstance(refused, BrokerError)
    assert json.loads(cluster.tree.text(STATE))["leader"] == 2


def test_a_controller_of_the_past_is_not_obeyed(caplog: pytest.LogCaptureFixture) -> None:
    """A controller that wakes from a long pause would make two brokers lead, or have logs
    deleted."""
    cluster = Cluster(3)
    create(cluster, 1, (2, 3), (3, 2))
    before = cluster.brokers[1].plane.sent
    cluster.stop(1)
    for broker in cluster.brokers.values():
        topics = broker.image.topics
        for operation, command in commands(before, broker.id):
            refused = broker.ask(operation, command)
            assert refused.code is ErrorCode.STALE_CONTROLLER_EPOCH
        assert broker.image.topics == topics
    assert broker.removed == []
    assert "A request of controller 1 is refused: its controller epoch 1 is outdated" in caplog.text


def test_a_command_for_an_earlier_life_is_not_obeyed(caplog: pytest.LogCaptureFixture) -> None:
    """It was decided before the controller knew what this broker has lost."""
    cluster = Cluster(3)
    create(cluster, 1, (2, 3), (3, 2))
    before = list(cluster.brokers[1].plane.sent)
    late: Any = cluster.brokers[2]
    late.zookeeper.expire()
    late.register()
    cluster.settle()
    topics = late.image.topics
    for operation, command in commands(before, 2):
        assert late.ask(operation, command).code is ErrorCode.STALE_BROKER_EPOCH
    assert (late.image.topics, late.removed) == (topics, [])
    assert "is refused: its broker epoch" in caplog.text


def test_a_broker_that_comes_hears_who_lives_before_whom_to_follow() -> None:
    """A Kafka's broker would follow nobody: to it, those who lead are not there yet."""
    cluster = Cluster(2)
    create(cluster, 1, (1, 2))
    cluster.stop(2)
    sent = cluster.brokers[1].plane.sent
    sent.clear()
    cluster.start(2)
    told = [command for broker_id, command in sent if broker_id == 2][:3]
    assert [type(each) for each in told] == [UpdateMetadata, LeaderAndIsr, UpdateMetadata]
    first, _, all_of_it = told
    assert [broker.id for broker in first.brokers] == [1]
    assert [broker.id for broker in all_of_it.brokers] == [1, 2]
    assert cluster.brokers[2].cache.is_told


def test_who_is_no_replica_any_more_is_not_in_sync() -> None:
    """At the end of a reassignment Kafka's controller has the next leader lead before the replica
    that goes has left the ISR; a leader that cannot take that leads nobody."""
    cluster = Cluster(3)
    create(cluster, 1, (2, 3))
    told: LeaderAndIsr = [each for _, each in cluster.brokers[1].plane.sent if _is_of(each)][-1]
    before = told.partitions[0].partition
    state = before._replace(leader=3, leader_epoch=1, partition_epoch=1, isr=(1, 2, 3))
    header = told.header._replace(broker_epoch=cluster.brokers[3].image.brokers[3].epoch)
    command = told._replace(
        header=header, partitions=[told.partitions[0]._replace(partition=state)]
    )
    assert cluster.brokers[3].ask("on_leader_and_isr", command) == {TP: ErrorCode.NONE}
    assert cluster.brokers[3].state()[:6] == (0, 3, 1, 1, (2, 3), (2, 3))


def _is_of(command: Any) -> bool:
    return isinstance(command, LeaderAndIsr) and len(command.partitions) == 1


def commands(sent: list[tuple[int, Any]], broker_id: int) -> list[tuple[str, Any]]:
    """The commands that a broker was told, and by which operation; and that its replicas are to
    go."""
    operations = {LeaderAndIsr: "on_leader_and_isr", UpdateMetadata: "on_update_metadata"}
    told = [(operations[type(each)], each) for target, each in sent if target == broker_id]
    assert {name for name, _ in told} == set(operations.values())
    stop = StopReplica(told[0][1].header, [StoppedReplica(TP, -2, delete=True)])
    return [*told, ("on_stop_replica", stop)]


def test_closing_answers_who_waits() -> None:
    cluster = Cluster(2)
    answers = cluster.brokers[2].begin("create_topics", [NewTopic("b", ((1,),), {})])
    cluster.brokers[2].store.close()
    cluster.settle()
    ((refused,),) = answers
    assert isinstance(refused, BrokerError)
