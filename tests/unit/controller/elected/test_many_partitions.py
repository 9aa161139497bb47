"""A controller on ZooKeeper whose changes are about many partitions: it takes some of them at a
time, and whatever else happens comes between."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster

from odradek.controller.elected import broker_channel, event_queue, state_writer, topic_deletions
from odradek.controller.elected.broker_channel import BrokerChannel
from odradek.metadata import NewPartitions, NewTopic, PartitionChange, engine
from odradek.metadata.image import MetadataImage
from odradek.metadata.zookeeper import znodes
from odradek.model import TopicPartition

COUNT = 7
NAMES = ("a", "b")
ELECTION = "/admin/preferred_replica_election"
REASSIGNMENT = "/admin/reassign_partitions"


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SLICE_PARTITIONS", 2)
    monkeypatch.setattr(state_writer, "STATES_PER_WRITE", 2)
    monkeypatch.setattr(state_writer, "SLICE_WRITES", 1)
    monkeypatch.setattr(broker_channel, "TURN_PARTITIONS", 2)
    monkeypatch.setattr(event_queue, "SLICE_ITEMS", 2)
    monkeypatch.setattr(topic_deletions, "SLICE_TOPICS", 1)


def cluster_of(count: int, seed: int = 0) -> Cluster:
    """Topics whose partitions are led by the last of the brokers; the first is the controller."""
    cluster = Cluster(count, seed=seed)
    replicas = tuple(range(count, 0, -1))
    new = [NewTopic(name, (replicas,) * COUNT, {}) for name in NAMES]
    cluster.brokers[1].begin("create_topics", new)
    rest(cluster)
    return cluster


def turn(cluster: Cluster) -> bool:
    """Somebody takes a step, or what waits for a turn of the loop has it."""
    waits = not cluster.timer.is_idle
    if not (waits and cluster.random.random() < 0.3) and cluster.tree.step():
        return True
    cluster.timer.advance_clock(0)
    return waits


def rest(cluster: Cluster) -> None:
    """Until nothing is left to do; then `Cluster.settle` checks that nobody broke."""
    for _ in range(40):
        while turn(cluster):
            pass
        cluster.clock.advance(50)
    cluster.settle()


class Counted:
    """Counts what a turn writes and says of partitions, and which images it plans on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.present: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        state_json, state = znodes.state_json, BrokerChannel._state

        def written(*arguments: Any) -> bytes:
            self.present["written"] += 1
            return state_json(*arguments)

        def told(channel: BrokerChannel, *arguments: Any, **named: Any) -> Any:
            self.present["told"] += 1
            return state(channel, *arguments, **named)

        monkeypatch.setattr(znodes, "state_json", written)
        monkeypatch.setattr(BrokerChannel, "_state", told)

    def count(self, cluster: Cluster) -> None:
        """Until nothing is left to do."""
        self.most.clear()
        for _ in range(40):
            while turn(cluster):
                self.most |= self.present
                self.present.clear()
            cluster.clock.advance(50)


def requested(replicas: list[int] | None = None) -> str:
    named = "" if replicas is None else f', "replicas": {replicas}'
    each = [f'{{"topic": "a", "partition": {index}{named}}}' for index in range(COUNT)]
    return f'{{"version": 1, "partitions": [{", ".join(each)}]}}'


def lead_by(cluster: Cluster, leader: int) -> None:
    """An administrator has one broker lead all partitions of a topic."""
    states = cluster.controller.image.topics["a"].partitions
    changes = [
        PartitionChange(TopicPartition("a", each.partition), each.partition_epoch, leader, each.isr)
        for each in states
    ]
    cluster.controller.begin("change_partitions", changes)
    rest(cluster)


def check(cluster: Cluster) -> None:
    """All brokers know what ZooKeeper holds, and who lives and is in sync leads."""
    known = cluster.controller.image
    for broker in cluster.brokers.values():
        assert roles(broker.image) == roles(known), broker.id
        assert broker.leads == {
            where for where, (leader, *_) in roles(known).items() if leader == broker.id
        }
    for where, (leader, isr, _, _) in roles(known).items():
        state = znodes.read_state(where, cluster.tree.entries[znodes.state_path(where)].data)
        assert (state.leader, state.isr) == (leader, isr)
        assert leader in isr
        assert leader in cluster.brokers


def roles(image: MetadataImage) -> dict[TopicPartition, tuple[int, tuple[int, ...], int, int]]:
    return {
        TopicPartition(topic.name, each.partition): (
            each.leader,
            each.isr,
            each.leader_epoch,
            each.partition_epoch,
        )
        for topic in image.topics.values()
        for each in topic.partitions
    }


# What one turn does


def test_no_turn_is_about_the_partitions_of_two_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller of ten thousand partitions would stand still for a second when a broker dies,
    comes back, or loses a disk, and when it is elected."""
    cluster = cluster_of(4)
    counted = Counted(monkeypatch)
    every = len(NAMES) * COUNT
    cluster.brokers.pop(4).store.close()
    counted.count(cluster)
    assert counted.most == {"written": 2, "told": every}
    cluster.add(4).begin("register_broker", 4, (), None)
    counted.count(cluster)
    assert counted.most == {"told": every}
    three = cluster.brokers[3]
    three.unserved.update(TopicPartition(name, index) for name in NAMES for index in range(COUNT))
    three.store.report_offline(sorted(three.unserved), 3)
    counted.count(cluster)
    assert counted.most == {"written": 2, "told": every}
    cluster.brokers.pop(1).store.close()
    counted.count(cluster)
    assert counted.most["written"] == 2
    assert counted.most["told"] == every


def test_a_large_topic_is_written_some_partitions_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new topic, and one that is reassigned, are written with their nodes."""
    cluster = Cluster(3)
    counted = Counted(monkeypatch)
    cluster.brokers[2].begin("create_topics", [NewTopic("a", ((1, 2),) * COUNT, {})])
    counted.count(cluster)
    assert counted.most["written"] == 2
    cluster.tree.put(REASSIGNMENT, requested([2, 1]))
    counted.count(cluster)
    assert counted.most["written"] == 2
    assert {each.replicas for each in cluster.brokers[3].image.topics["a"].partitions} == {(2, 1)}
    assert REASSIGNMENT not in cluster.tree.entries


def test_a_node_of_many_partitions_is_planned_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Elections and reassignments that a tool asks for by a node come in any number."""
    cluster = cluster_of(3)
    lead_by(cluster, 1)
    largest = 0
    change_partitions = event_queue.with_partitions

    def planned(image: MetadataImage, wanted: Any, broker_id: int) -> Any:
        nonlocal largest
        largest = max(largest, len(wanted))
        return change_partitions(image, wanted, broker_id)

    monkeypatch.setattr(event_queue, "with_partitions", planned)
    cluster.tree.put(ELECTION, requested())
    rest(cluster)
    assert {each.leader for each in cluster.brokers[2].image.topics["a"].partitions} == {3}
    assert ELECTION not in cluster.tree.entries
    cluster.tree.put(REASSIGNMENT, requested([2, 3, 1]))
    rest(cluster)
    assert {each.replicas for each in cluster.controller.image.topics["a"].partitions} == {
        (2, 3, 1)
    }
    assert REASSIGNMENT not in cluster.tree.entries
    assert largest == 2
    check(cluster)


def test_topics_leave_the_image_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand topics that are deleted at once are a thousand changes."""
    monkeypatch.setattr(engine, "SLICE_PARTITIONS", 20)
    cluster = Cluster(2)
    names = [f"t{number}" for number in range(9)]
    cluster.brokers[2].ask("create_topics", [NewTopic(name, ((1, 2),), {}) for name in names])
    two, one = cluster.brokers[2], cluster.controller
    two.begin("delete_topics", [topic.topic_id for topic in two.image.topics.values()])
    counts = {9}
    while one.image.topics:
        assert turn(cluster)
        counts.add(len(one.image.topics))
    assert counts == set(range(10))
    rest(cluster)
    assert not [each for each in cluster.tree.entries if each.startswith("/brokers/topics/")]


# What comes between two turns


def dies(cluster: Cluster) -> None:
    cluster.brokers.pop(4).store.close()


def lose_a_disk(cluster: Cluster) -> None:
    four = cluster.brokers[4]
    four.unserved.update(TopicPartition(name, index) for name in NAMES for index in range(COUNT))
    four.store.report_offline(sorted(four.unserved), 4)


def is_reassigned(cluster: Cluster) -> None:
    cluster.tree.put(REASSIGNMENT, requested([3, 2, 4, 1]))


def stops(cluster: Cluster) -> None:
    epoch = cluster.brokers[4].image.brokers[4].epoch
    cluster.controller.begin("on_controlled_shutdown", 4, epoch)


def expire(broker_id: int) -> Callable[[Cluster], None]:
    def expire_and_come_back(cluster: Cluster) -> None:
        if broker_id in cluster.brokers:
            cluster.brokers[broker_id].expire()
            cluster.brokers[broker_id].begin("register_broker", broker_id, (), None)

    return expire_and_come_back


def close(broker_id: int) -> Callable[[Cluster], None]:
    return lambda cluster: cluster.brokers.pop(broker_id).store.close()


def grow(cluster: Cluster) -> None:
    cluster.brokers[2].begin("create_partitions", [NewPartitions("b", COUNT, ((2, 3, 1),) * 3)])


def delete(cluster: Cluster) -> None:
    two: Broker = cluster.brokers[2]
    two.begin("delete_topics", [two.image.topics["b"].topic_id])


def depose(cluster: Cluster) -> None:
    """Somebody takes the controller's node away; it does not know."""
    cluster.tree.remove("/controller")


def drop(cluster: Cluster) -> None:
    cluster.brokers[1].zookeeper.drop()


@pytest.mark.parametrize("other", [
    expire(1), close(1), expire(2), close(3), grow, delete, depose, drop, is_reassigned, stops,
], ids=[
    "the controller expires", "the controller dies", "another expires", "another dies",
    "a topic grows", "a topic is deleted", "the controller is deposed", "the connection breaks",
    "a topic is reassigned", "a broker stops",
])  # fmt: skip
@pytest.mark.parametrize("event", [dies, lose_a_disk, is_reassigned, stops])
@pytest.mark.parametrize("steps", range(3, 90, 29))
def test_whatever_comes_between_two_turns(
    event: Callable[[Cluster], None], other: Callable[[Cluster], None], steps: int
) -> None:
    """Partitions would stay without a leader, or have two; brokers would take what was written for
    something else."""
    cluster = cluster_of(4, seed=steps)
    event(cluster)
    for _ in range(steps):
        turn(cluster)
    if other is not stops or 4 in cluster.brokers:
        other(cluster)
    rest(cluster)
    check(cluster)


@pytest.mark.parametrize("steps", range(60))
def test_a_controller_that_loses_its_session_between_slices_writes_no_more(steps: int) -> None:
    """In its next session nobody else may have been elected yet: what it began to write in the one
    before would be taken."""
    cluster = cluster_of(3)
    controller = cluster.brokers[1]
    cluster.brokers.pop(3).store.close()
    for _ in range(steps):
        turn(cluster)
    controller.expire()
    written: list[str] = []
    cluster.tree.on_written = lambda operations: written.extend(each.path for each in operations)
    epoch = cluster.tree.text("/controller_epoch")
    while cluster.tree.text("/controller_epoch") == epoch:
        assert turn(cluster)
    assert not [path for path in written if path.endswith("/state")]


@pytest.mark.parametrize("steps", range(0, 40, 2))
def test_an_election_that_a_node_asks_for_is_held_by_the_next_controller(steps: int) -> None:
    """The tool that wrote the node takes an election for held once the node is gone."""
    cluster = cluster_of(3)
    lead_by(cluster, 2)
    cluster.tree.put(ELECTION, requested())
    for each in cluster.controller.image.topics["b"].partitions:
        where = TopicPartition("b", each.partition)
        change = PartitionChange(where, each.partition_epoch, 2, each.isr)
        cluster.controller.begin("change_partitions", [change])
    for _ in range(steps):
        turn(cluster)
    cluster.controller.close()
    rest(cluster)
    assert {each.leader for each in cluster.controller.image.topics["a"].partitions} == {3}
    assert ELECTION not in cluster.tree.entries
    check(cluster)
