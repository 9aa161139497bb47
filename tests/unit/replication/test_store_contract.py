"""The store that replica tests are given behaves to a leader as the real one does."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.replication.fakes import Cluster

from odradek.background import InlineBackground
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import ListenerStage, MetadataCache
from odradek.metadata.sqlite import EmbeddedMetadataStore, SharedMetadata
from odradek.metadata.store import NewTopic, PartitionChange
from odradek.model import TopicPartition
from odradek.replication.partition import Partition

TP = TopicPartition("a", 0)


class FakeWorld:
    """Broker 1 leads; what it proposes is answered by `FakeStore`."""

    def __init__(self, directory: str) -> None:
        self.cluster = Cluster(directory)
        self.cluster.create("a", (1, 2, 3))

    @property
    def partition(self) -> Partition:
        return self.cluster.replicas.partition(TP)

    def propose(self) -> None:
        """Proposes that the lagging followers leave."""
        self.cluster.replicas.maybe_shrink_isrs()

    def accept(self) -> None:
        self.cluster.answer_proposal()

    def refuse(self) -> None:
        self.cluster.answer_proposal(BrokerError(ErrorCode.INVALID_UPDATE_VERSION))


class RealWorld(FakeWorld):
    """The same broker over an `EmbeddedMetadataStore`, whose answers come when they are let."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        numbers = itertools.count(1)
        shared = SharedMetadata(
            InlineBackground(), lambda count: next(numbers).to_bytes(count, "big")
        )
        for broker_id in (2, 3):
            other = EmbeddedMetadataStore(MetadataCache(), shared)
            other.load()
            other.register_broker(broker_id, (), None, _ignore)
        self.store = EmbeddedMetadataStore(MetadataCache(), shared)
        self.store.load()
        self.store.subscribe(ListenerStage.REPLICAS, self.cluster.replicas.apply_delta)
        self.store.register_broker(1, (), None, _ignore)
        self.cluster.delete("a")
        self.store.create_topics([NewTopic("a", ((1, 2, 3),), {})], _ignore)

    def accept(self) -> None:
        change, on_done = self.cluster.store.proposals.pop(0)
        self.store.change_partitions([change], on_done)

    def refuse(self) -> None:
        """Something else has changed the partition first."""
        change, on_done = self.cluster.store.proposals.pop(0)
        stale = PartitionChange(TP, change.partition_epoch - 1, change.leader, change.isr)
        self.store.change_partitions([stale], on_done)


@pytest.fixture(params=[FakeWorld, RealWorld])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeWorld]:
    made = request.param(str(tmp_path / "data"))
    made.cluster.wait(30_001)
    made.cluster.store.proposals.clear()
    partition = made.partition
    in_sync = partition.in_sync_replicas
    assert in_sync is not None
    in_sync.complete_proposal(in_sync.committed)
    yield made
    made.cluster.close()


def members(world: FakeWorld) -> tuple[set[int], set[int] | None, int]:
    partition = world.partition
    in_sync = partition.in_sync_replicas
    assert in_sync is not None
    proposed = None if in_sync.proposed is None else set(in_sync.proposed)
    return set(in_sync.committed), proposed, partition.partition_epoch


def test_an_accepted_proposal_is_in_force_and_closed(world: FakeWorld) -> None:
    """Were the fake's answers of another kind, tests over it would hold nothing."""
    before = world.partition.partition_epoch
    world.propose()
    assert members(world) == ({1, 2, 3}, {1}, before)
    world.accept()
    assert members(world) == ({1}, None, before + 1)


def test_a_refused_proposal_changes_nothing_and_is_closed(world: FakeWorld) -> None:
    """The next one must be possible."""
    before = world.partition.partition_epoch
    world.propose()
    world.refuse()
    assert members(world) == ({1, 2, 3}, None, before)
    world.propose()
    world.accept()
    assert members(world) == ({1}, None, before + 1)


def _ignore(outcome: object) -> None:
    assert not isinstance(outcome, BrokerError), outcome
