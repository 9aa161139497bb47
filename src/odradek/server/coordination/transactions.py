"""Joins the transaction coordinator to this broker, with its markers and its upkeep.

It follows the metadata after the group coordinator: the markers of what was decided before go to
the replica manager and to that. The epoch of a leadership is the coordinator's epoch, by which
partitions tell a coordinator that was replaced.
"""

from collections.abc import Callable

from odradek.background import run_each
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.records.transaction_codec import TransactionRecordCodec
from odradek.coordinator.runtime.settings import LOAD_SLICE_BYTES, RuntimeSettings
from odradek.coordinator.runtime.shard import Append, Execute
from odradek.coordinator.transactions.shard import TransactionServices, TransactionShard
from odradek.coordinator.transactions.transaction_coordinator import (
    NextProducerId,
    TransactionCoordinator,
)
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import BrokerRegistration, MetadataDelta
from odradek.model import TRANSACTION_STATE_TOPIC
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.coordination.base import Coordination
from odradek.server.coordination.transaction_routing import (
    LocalMarkers,
    RoutedMarkers,
    RoutedWrites,
    SlicedMarkers,
)
from odradek.server.peers.broker_channel import BrokerChannel
from odradek.timer import Timer


class TransactionCoordination(Coordination[TransactionShard]):
    """The transaction coordinator of one broker, with its purgatories and its upkeep."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        groups: GroupCoordinator,
        next_producer_id: NextProducerId,
        open_channel: Callable[[BrokerRegistration], BrokerChannel],
        transaction_version: Callable[[], int],
    ) -> None:
        super().__init__(
            TRANSACTION_STATE_TOPIC,
            config,
            clock,
            timer,
            replicas,
            metadata,
            TransactionRecordCodec(transaction_version),
            self._make_shard,
            _runtime_settings(config),
            "TransactionWrite",
        )
        # A change that this broker acts on, slice by slice, and that is not shown yet.
        self._is_changing = False
        metadata.on_published(self._on_published)
        local = LocalMarkers(replicas, groups, metadata, self._knows_all, clock, config)
        self.markers = SlicedMarkers(local, timer.call_threadsafe)
        routed = RoutedMarkers(config.broker_id, self.markers, metadata, timer, open_channel)
        self._services = TransactionServices(
            routed,
            self._purgatory("TransactionMarkers"),
            timer.call_threadsafe,
            clock,
        )
        self.coordinator = TransactionCoordinator(
            self._runtime, clock, config, next_producer_id, transaction_version
        )
        self.writes = RoutedWrites(
            config.broker_id, self.coordinator, metadata, timer, open_channel
        )
        self._requests = (routed.requests, self.writes.requests)
        self._repeat(
            lambda: config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            self.coordinator.abort_timed_out,
        )
        self._repeat(
            lambda: config["transaction.remove.expired.transaction.cleanup.interval.ms"],
            self.coordinator.expire_ids,
        )

    def apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        """See `Coordination`."""
        self._is_changing = True
        return super().apply_delta(delta)

    def _on_published(self, delta: MetadataDelta) -> None:
        """Stops waiting for brokers that are gone."""
        self._is_changing = False
        if delta.brokers_changed:
            # After the change is applied: an append in the middle of it would be too early.
            self._timer.call_threadsafe(self._drop_gone)

    def _knows_all(self) -> bool:
        return self._metadata.is_current and not self._is_changing

    def _drop_gone(self) -> None:
        run_each([each.drop_gone for each in self._requests])

    def shutdown(self) -> None:
        """Also closes the ways to other brokers."""
        closes = [each.close for each in self._requests]
        run_each([super().shutdown, self.markers.close, *closes])

    def _make_shard(
        self, partition: int, leader_epoch: int, append: Append, _execute: Execute
    ) -> TransactionShard:
        is_changing = self._runtime.is_busy
        return TransactionShard(partition, leader_epoch, self._services, append, is_changing)


def _runtime_settings(config: BrokerConfig) -> RuntimeSettings:
    return RuntimeSettings(
        load_slice_bytes=min(config["transaction.state.log.load.buffer.size"], LOAD_SLICE_BYTES),
    )
