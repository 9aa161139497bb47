"""Joins the transaction coordinator to this broker: its log, its metadata, its timer, its markers.

Leaderships of `__transaction_state` come from the metadata, after the replica manager and the
group coordinator have acted on them: the markers of what was decided before go to both. The
epoch of a leadership is the coordinator's epoch, by which partitions tell a coordinator that was
replaced.
"""

from collections.abc import Callable

from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.records.transaction_codec import TransactionRecordCodec
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import LOAD_SLICE_BYTES, RuntimeSettings
from odradek.coordinator.runtime.shard import Append, Execute
from odradek.coordinator.transactions.shard import TransactionServices, TransactionShard
from odradek.coordinator.transactions.transaction_coordinator import (
    NextProducerId,
    TransactionCoordinator,
)
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import BrokerRegistration, MetadataDelta
from odradek.model import (
    TRANSACTION_STATE_TOPIC,
)
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.broker_channel import BrokerChannel, BrokerChannels
from odradek.server.group_coordination import ReplicatedLog
from odradek.server.transaction_routing import LocalMarkers, RoutedMarkers, RoutedWrites
from odradek.timer import PeriodicTask, Timer


class TransactionCoordination:
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
        self._broker_id = config.broker_id
        self._metadata = metadata
        self._epochs: dict[int, int] = {}
        self._markers = DelayedOperationPurgatory("TransactionMarkers", timer, self._broker_id)
        self._writes = DelayedOperationPurgatory("TransactionWrite", timer, self._broker_id)
        self.purgatories = (self._markers, self._writes)
        self._channels = BrokerChannels(metadata, open_channel)
        self.markers = LocalMarkers(replicas, groups, metadata, clock)
        writer = RoutedMarkers(self._broker_id, self.markers, metadata, self._channels)
        self._services = TransactionServices(
            writer, self._markers, timer.call_threadsafe, self._on_markers_written
        )
        self._runtime = CoordinatorRuntime[TransactionShard](
            ReplicatedLog(TRANSACTION_STATE_TOPIC, replicas),
            TransactionRecordCodec(transaction_version),
            clock,
            timer.call_threadsafe,
            self._partition_count,
            self._make_shard,
            _runtime_settings(config),
            self._writes,
        )
        self.coordinator = TransactionCoordinator(
            self._runtime, clock, config, next_producer_id, transaction_version
        )
        self.writes = RoutedWrites(self._broker_id, self.coordinator, metadata, self._channels)
        self._upkeep = self._start_upkeep(config, timer)

    def _start_upkeep(self, config: BrokerConfig, timer: Timer) -> tuple[PeriodicTask, ...]:
        return (
            PeriodicTask(
                timer,
                lambda: config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
                self.coordinator.abort_timed_out,
            ),
            PeriodicTask(
                timer,
                lambda: config["transaction.remove.expired.transaction.cleanup.interval.ms"],
                self.coordinator.expire_ids,
            ),
        )

    def apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        """Follows a change of the metadata, after replicas and groups and before clients."""
        for topic, image in delta.partitions():
            if topic.name != TRANSACTION_STATE_TOPIC:
                continue
            if image.leader == self._broker_id:
                self._epochs[image.partition] = image.leader_epoch
                self._runtime.on_elected(image.partition, image.leader_epoch)
            else:
                self._runtime.on_resigned(image.partition)
        if any(topic.name == TRANSACTION_STATE_TOPIC for topic in delta.topics_removed):
            self._runtime.shutdown()
        return ()

    def shutdown(self) -> None:
        """Ends the upkeep and everything that waits for transactions."""
        for task in self._upkeep:
            task.cancel()
        self._runtime.shutdown()
        self._channels.close()
        for purgatory in self.purgatories:
            purgatory.shutdown()

    def _make_shard(self, partition: int, _append: Append, _execute: Execute) -> TransactionShard:
        return TransactionShard(partition, self._epochs[partition], self._services)

    def _on_markers_written(self, transactional_id: str) -> None:
        self.coordinator.on_markers_written(transactional_id)

    def _partition_count(self) -> int | None:
        topic = self._metadata.image.topic(TRANSACTION_STATE_TOPIC)
        return None if topic is None else len(topic.partitions)


def _runtime_settings(config: BrokerConfig) -> RuntimeSettings:
    return RuntimeSettings(
        lambda: int(config["message.max.bytes"]),
        load_slice_bytes=min(config["transaction.state.log.load.buffer.size"], LOAD_SLICE_BYTES),
    )
