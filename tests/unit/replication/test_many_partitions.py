"""A broker of thousands of partitions looks at some of them in a turn of its loop."""

from tests.unit.replication.fakes import Cluster

from odradek.replication.replica_manager import SLICE_PARTITIONS

LAG_MS = 30_001


def test_isrs_shrink_some_partitions_in_a_turn(cluster: Cluster) -> None:
    """A follower that is gone is gone for all partitions: its leader would stand still."""
    cluster.create("a", (1, 2), partitions=SLICE_PARTITIONS + 1)
    cluster.clock.advance(LAG_MS)
    cluster.replicas.maybe_shrink_isrs()
    assert len(cluster.store.proposals) == SLICE_PARTITIONS
    cluster.timer.advance_clock(0)
    assert len(cluster.store.proposals) == SLICE_PARTITIONS + 1


def test_no_isr_shrinks_once_the_broker_ends(cluster: Cluster) -> None:
    """Its store would be asked for what nobody waits for any more."""
    cluster.create("a", (1, 2), partitions=SLICE_PARTITIONS + 1)
    cluster.clock.advance(LAG_MS)
    cluster.replicas.maybe_shrink_isrs()
    cluster.replicas.shutdown()
    cluster.timer.advance_clock(0)
    assert len(cluster.store.proposals) == SLICE_PARTITIONS
