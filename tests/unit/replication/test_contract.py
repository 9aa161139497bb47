"""The questions of waiting operations: the fake of their tests answers as real partitions do."""

from collections.abc import Callable, Iterator

import pytest
from tests.unit.replication.fakes import Cluster, FakePartition, FakeReplicas

from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.replication.delayed.replica_states import ReplicaStates
from odradek.replication.fetch import FetchInfo, FetchParams

A = TopicPartition("orders", 0)
CONSUMER = FetchParams(-1, 500, 1, 1 << 20)
FOLLOWER = FetchParams(2, 500, 1, 1 << 20)


class Fake:
    """The world of `FakeReplicas`."""

    def __init__(self) -> None:
        self.states: ReplicaStates = FakeReplicas()

    def create(self, replicas: tuple[int, ...], min_in_sync: int) -> None:
        self._partition: FakePartition = self.states.add(A)
        self._partition.min_insync_replicas = min_in_sync
        self._partition.in_sync = set(replicas)
        self._partition.log_ends = dict.fromkeys(replicas, 0)
        self._partition.log_starts = dict.fromkeys(replicas, 0)

    def append(self, count: int) -> None:
        self._partition.append(count)

    def follower_is_at(self, offset: int, log_start_offset: int = 0) -> None:
        self._partition.log_ends[2] = offset
        self._partition.log_starts[2] = log_start_offset

    def isr_is(self, *members: int) -> None:
        self._partition.in_sync = set(members)

    def delete_before(self, offset: int) -> None:
        self._partition.log_starts[1] = offset

    def roll(self) -> None:
        self._partition.roll()

    def leader_is(self, broker_id: int) -> None:
        self._partition.is_leader = broker_id == 1


class Real:
    """The same of a `ReplicaManager` over a log in files."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.states: ReplicaStates = cluster.replicas.partitions

    def create(self, replicas: tuple[int, ...], min_in_sync: int) -> None:
        self._cluster.create("orders", replicas, min_insync_replicas=str(min_in_sync))
        if 2 in replicas:
            self.follower_is_at(0)

    def append(self, count: int) -> None:
        for number in range(count):
            self._cluster.produce(A, b"%d" % number)

    def follower_is_at(self, offset: int, log_start_offset: int = 0) -> None:
        self._cluster.fetch(A, offset, replica_id=2, log_start_offset=log_start_offset)

    def isr_is(self, *members: int) -> None:
        self._cluster.change("orders", isr=members)

    def delete_before(self, offset: int) -> None:
        self._cluster.replicas.partition(A).delete_records(offset)

    def roll(self) -> None:
        self._cluster.replicas.partition(A).log.appender.roll()

    def leader_is(self, broker_id: int) -> None:
        self._cluster.change("orders", leader=broker_id, leader_epoch=1)


@pytest.fixture(params=["fake", "real"])
def world(request, tmp_path) -> Iterator[Fake | Real]:
    if request.param == "fake":
        yield Fake()
        return
    cluster = Cluster(str(tmp_path))
    yield Real(cluster)
    cluster.close()


def outcome(question: Callable[[], object]) -> object:
    try:
        return question()
    except BrokerError as error:
        return error.code


def ends(world: Fake | Real) -> tuple[int, int, int]:
    """How far a consumer and a follower see, and where the log ends."""
    info = FetchInfo(A, 0, 1 << 20, 0)
    consumer = world.states.readable_end(info, CONSUMER)
    follower = world.states.readable_end(info, FOLLOWER)
    assert consumer.log_end_offset == follower.log_end_offset
    return (
        consumer.offset.message_offset,
        follower.offset.message_offset,
        consumer.log_end_offset,
    )


def test_one_replica_commits_what_it_has(world):
    world.create((1,), 1)
    world.append(3)
    assert ends(world) == (3, 3, 3)
    assert [world.states.has_enough_replicas(A, offset) for offset in (0, 3, 4)] == [
        True,
        True,
        False,
    ]


def test_what_is_committed_follows_the_slowest_of_the_isr(world):
    world.create((1, 2), 1)
    world.append(2)
    assert ends(world) == (0, 2, 2)
    assert world.states.has_enough_replicas(A, 1) is False
    world.follower_is_at(1)
    assert ends(world) == (1, 2, 2)
    assert world.states.has_enough_replicas(A, 1) is True
    assert world.states.has_enough_replicas(A, 2) is False


def test_below_the_minimum_nothing_more_is_committed(world):
    world.create((1, 2), 2)
    world.append(2)
    world.follower_is_at(1)
    assert ends(world)[0] == 1
    world.isr_is(1)
    world.append(1)
    assert ends(world) == (1, 3, 3)
    assert outcome(lambda: world.states.has_enough_replicas(A, 1)) == (
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    )
    assert world.states.has_enough_replicas(A, 2) is False


def test_the_low_watermark_is_the_smallest_log_start(world):
    world.create((1, 2), 1)
    world.append(4)
    world.follower_is_at(4)
    world.delete_before(3)
    assert world.states.low_watermark(A) == 0
    world.follower_is_at(4, 2)
    assert world.states.low_watermark(A) == 2


def test_a_place_knows_its_segment(world):
    world.create((1,), 1)
    world.append(2)
    world.roll()
    place = world.states.readable_end(FetchInfo(A, 0, 1 << 20, 0), CONSUMER).offset
    assert (place.message_offset, place.segment_base_offset, place.position) == (2, 2, 0)
    world.append(1)
    place = world.states.readable_end(FetchInfo(A, 0, 1 << 20, 0), CONSUMER).offset
    assert (place.message_offset, place.segment_base_offset) == (3, 2)
    assert place.position > 0


def questions(world: Fake | Real, topic_partition: TopicPartition) -> set[object]:
    states, info = world.states, FetchInfo(topic_partition, 0, 1 << 20, 0)
    asked = (
        lambda: states.readable_end(info, CONSUMER),
        lambda: states.has_enough_replicas(topic_partition, 1),
        lambda: states.low_watermark(topic_partition),
    )
    return {outcome(each) for each in asked}


def test_who_does_not_lead_answers_nothing(world):
    world.create((1, 2), 1)
    assert questions(world, TopicPartition("none", 0)) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    world.leader_is(2)
    assert questions(world, A) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
