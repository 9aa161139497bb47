"""The leaders of the coordinator's tests answer markers as real ones do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.coordinator.fakes import World as Groups
from tests.unit.coordinator.transactional.transactions import COMMIT, Leaders
from tests.unit.replication.fakes import Cluster

from odradek.coordinator.runtime.batches import EndMarker
from odradek.coordinator.transactions.markers import MarkerWriter
from odradek.errors import ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.model import GROUP_METADATA_TOPIC, TopicPartition
from odradek.records.batch import split_batches
from odradek.server.coordination.transaction_routing import LocalMarkers

E = ErrorCode
A, B = TopicPartition("a", 0), TopicPartition("a", 1)
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, 0)
MARKER = EndMarker(5, 3, 7, COMMIT, 0)
TIMEOUT_MS = 30_000


class Fake:
    """The leaders of the tests."""

    def __init__(self, _directory: str) -> None:
        self.writer: MarkerWriter = Leaders()

    def refuse_next(self, partition: TopicPartition, code: ErrorCode) -> None:
        self.writer.refusals[partition] = [code]

    def heal(self) -> None:
        """It has refused."""

    def hold(self) -> None:
        self.writer.holds = True

    def release(self) -> None:
        self.writer.holds = False
        self.writer.release()

    def count(self, partition: TopicPartition) -> int:
        """How many markers the partition has."""
        return sum(each == partition for each, _ in self.writer.written)

    def close(self) -> None:
        """It holds nothing."""


class Real:
    """Broker 1 with partitions that broker 2 may follow, and one of a group coordinator."""

    def __init__(self, directory: str, groups: Groups | None = None) -> None:
        self._cluster = Cluster(directory)
        self._cluster.create("a", (1, 2), isr=(1,), partitions=2)
        self._groups = groups or Groups()
        self._cluster.create(OFFSETS.topic)
        self.writer: MarkerWriter = LocalMarkers(
            self._cluster.replicas,
            self._groups.groups,
            MetadataCache(self._cluster.image),
            lambda: True,
            self._cluster.clock,
            self._cluster.config,
        )

    def refuse_next(self, partition: TopicPartition, code: ErrorCode) -> None:
        if partition == OFFSETS:
            self._groups.log.refusal = code
        elif code is E.NOT_ENOUGH_REPLICAS:
            self._cluster.configure("a", min_insync_replicas="2")
        else:
            assert code is E.NOT_LEADER_OR_FOLLOWER
            self._lead(partition, 2)

    def heal(self) -> None:
        self._groups.log.refusal = None
        self._cluster.configure("a")
        self._lead(A, 1)

    def _lead(self, partition: TopicPartition, broker_id: int) -> None:
        before = self._cluster.image.topics["a"].partitions[partition.partition]
        fields: dict[str, Any] = {"leader": broker_id, "leader_epoch": before.leader_epoch + 1}
        self._cluster.change("a", partition.partition, **fields)

    def hold(self) -> None:
        self._groups.log.holds = True
        for partition in (A, B):
            self._cluster.change("a", partition.partition, isr=(1, 2))

    def release(self) -> None:
        self._groups.log.commit()
        for each in (A, B):
            end = self._cluster.replicas.partition(each).log.log_end_offset
            self._cluster.fetch(each, end, replica_id=2)

    def count(self, partition: TopicPartition) -> int:
        if partition == OFFSETS:
            batches = [batch for _, batch in self._groups.log.batches.get(0, [])]
        else:
            log = self._cluster.replicas.partition(partition).leader_log()
            batches = [
                bytes(each) for each in log.read(0, 1 << 20, log.log_end_offset, True).records
            ]
        return sum(header.is_control for batch in batches for header in split_batches(batch))

    def wait(self, duration_ms: int) -> None:
        self._groups.advance(duration_ms)
        self._cluster.wait(duration_ms)

    def close(self) -> None:
        self._cluster.close()


World = Fake | Real


@pytest.fixture(params=[Fake, Real])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made: World = request.param(str(tmp_path / "data"))
    yield made
    made.close()


def write(
    world: World, *partitions: TopicPartition, marker: EndMarker = MARKER
) -> dict[TopicPartition, ErrorCode]:
    """The answer of each partition, or None as long as it has none."""
    codes: dict[TopicPartition, ErrorCode] = {}

    def take(partition: TopicPartition, code: ErrorCode) -> None:
        assert partition not in codes, f"{partition} is answered twice"
        codes[partition] = code

    world.writer.write(marker, partitions, take)
    return codes


@pytest.mark.parametrize("partition", [A, OFFSETS])
def test_every_partition_gets_its_marker_and_answers_once(
    world: World, partition: TopicPartition
) -> None:
    """An id would stay in PREPARE_COMMIT for ever, or be done too early."""
    assert write(world, partition, B) == {partition: E.NONE, B: E.NONE}
    assert (world.count(partition), world.count(B)) == (1, 1)


@pytest.mark.parametrize("code", [E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER])
@pytest.mark.parametrize("partition", [A, OFFSETS])
def test_a_marker_that_is_refused_is_not_there_and_can_be_written_again(
    world: World, partition: TopicPartition, code: ErrorCode
) -> None:
    """The coordinator tries again after every error."""
    world.refuse_next(partition, code)
    assert write(world, partition) == {partition: code}
    world.heal()
    assert world.count(partition) == 0
    assert write(world, partition) == {partition: E.NONE}
    assert world.count(partition) == 1


def test_a_marker_that_replicas_have_not_got_is_answered_when_they_have(world: World) -> None:
    """The transaction would be told to be over before that is sure."""
    world.hold()
    codes = write(world, A, OFFSETS)
    assert codes == {}
    world.release()
    assert codes == {A: E.NONE, OFFSETS: E.NONE}


def test_a_marker_of_an_epoch_that_is_over_is_refused(world: World) -> None:
    """A late marker would end the next transaction of its producer."""
    write(world, A)
    late = MARKER._replace(producer_epoch=2)
    assert write(world, A, marker=late) == {A: E.INVALID_PRODUCER_EPOCH}
    assert world.count(A) == 1


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused(world: World) -> None:
    """Two brokers would end one transaction in two ways."""
    write(world, A)
    late = MARKER._replace(coordinator_epoch=6)
    assert write(world, A, marker=late) == {A: E.TRANSACTION_COORDINATOR_FENCED}
    assert world.count(A) == 1


def test_a_marker_that_is_repeated_is_written_again(world: World) -> None:
    """A coordinator that has not heard an answer repeats it until it has."""
    marker = MARKER._replace(transaction_version=2)
    for _ in range(2):
        assert write(world, A, marker=marker) == {A: E.NONE}
    assert world.count(A) == 2


def test_a_marker_that_replicas_do_not_take_in_time_is_answered_and_can_be_written_again(
    tmp_path: Path,
) -> None:
    """Its coordinator would wait for a broker that has nothing to say, and tell nobody what the
    transaction waits for."""
    world = Real(str(tmp_path))
    world.hold()
    codes = write(world, A, OFFSETS, B)
    world.wait(TIMEOUT_MS - 1)
    assert codes == {}
    world.wait(1)
    assert codes == dict.fromkeys([A, OFFSETS, B], E.REQUEST_TIMED_OUT)
    again = write(world, A, OFFSETS, B)
    world.release()
    assert again == dict.fromkeys([A, OFFSETS, B], E.NONE)
    world.wait(TIMEOUT_MS)
    world.close()


def test_groups_that_are_not_coordinated_here_are_told_as_a_partition_without_a_leader(
    tmp_path: Path,
) -> None:
    """Apache Kafka's transaction coordinator gives up at any other error, and its transaction does
    not end before it is started again."""
    groups = Groups()
    for number in range(30):
        groups.commit("g", {("t", number): number})
    groups.load_slice_bytes = 200
    groups._build()
    world = Real(str(tmp_path), groups)
    assert groups.runtime.is_loading
    assert write(world, OFFSETS) == {OFFSETS: E.NOT_LEADER_OR_FOLLOWER}
    groups.run_deferred()
    assert write(world, OFFSETS) == {OFFSETS: E.NONE}
    groups.log.refusal = E.UNKNOWN_TOPIC_OR_PARTITION
    assert write(world, OFFSETS) == {OFFSETS: E.NOT_LEADER_OR_FOLLOWER}, "it is known"
    groups.runtime.on_resigned(0)
    assert write(world, OFFSETS) == {OFFSETS: E.NOT_LEADER_OR_FOLLOWER}
    world.close()
