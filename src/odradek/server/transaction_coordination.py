"""Joins the transaction coordinator to this broker: its log, its metadata, its timer, its markers.

Leaderships of `__transaction_state` come from the metadata, after the replica manager and the
group coordinator have acted on them: the markers of what was decided before go to both. The
epoch of a leadership is the coordinator's epoch, by which partitions tell a coordinator that was
replaced.
"""

from collections.abc import Callable, Sequence
from typing import Final

from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.records.transaction_codec import TransactionRecordCodec
from odradek.coordinator.runtime.batches import Producer
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import LOAD_SLICE_BYTES, RuntimeSettings
from odradek.coordinator.runtime.shard import Append
from odradek.coordinator.transactions.markers import EndMarker, MarkerWriter, OnMarked
from odradek.coordinator.transactions.shard import TransactionServices, TransactionShard
from odradek.coordinator.transactions.transaction_coordinator import (
    NextProducerId,
    TransactionCoordinator,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import MetadataDelta
from odradek.model import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    AppendOrigin,
    TopicPartition,
    TransactionResult,
)
from odradek.purgatory import DelayedOperationPurgatory
from odradek.records.builder import build_end_marker
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.group_coordination import NEVER_MS, ReplicatedLog
from odradek.timer import PeriodicTask, Timer


class LocalMarkers(MarkerWriter):
    """Writes end markers into the partitions that this broker leads.

    Those of `__consumer_offsets` go by way of the group coordinator, which has the offsets that
    they decide.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        metadata: MetadataCache,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._metadata = metadata
        self._clock = clock

    def write(
        self, marker: EndMarker, partitions: Sequence[TopicPartition], on_done: OnMarked
    ) -> None:
        """See `MarkerWriter`."""
        logs: list[TopicPartition] = []
        for each in partitions:
            if self._metadata.image.partition(each) is None:
                on_done(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif each.topic == GROUP_METADATA_TOPIC:
                self._write_to_group(marker, each, on_done)
            else:
                logs.append(each)
        if logs:
            self._write_to_logs(marker, logs, on_done)

    def _write_to_group(
        self, marker: EndMarker, topic_partition: TopicPartition, on_done: OnMarked
    ) -> None:
        def on_written(error: BrokerError | None) -> None:
            on_done(topic_partition, ErrorCode.NONE if error is None else error.code)

        self._groups.complete_transaction(
            topic_partition.partition,
            Producer(marker.producer_id, marker.producer_epoch),
            marker.coordinator_epoch,
            marker.result,
            on_written,
        )

    def _write_to_logs(
        self, marker: EndMarker, partitions: list[TopicPartition], on_done: OnMarked
    ) -> None:
        def on_appended(results: list[AppendResult]) -> None:
            for result in results:
                on_done(result.topic_partition, _marked(result.error_code))

        batch = self._batch(marker)
        entries = [(each, memoryview(bytearray(batch))) for each in partitions]
        request = AppendRequest(
            ACKS_ALL,
            NEVER_MS,
            AppendOrigin.COORDINATOR,
            entries,
            on_appended,
            marker.transaction_version,
        )
        self._replicas.append_records([request])

    def _batch(self, marker: EndMarker) -> bytes:
        return build_end_marker(
            commit=marker.result is TransactionResult.COMMIT,
            base_offset=0,
            timestamp_ms=self._clock.wall_ms(),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
        )


def _marked(code: ErrorCode) -> ErrorCode:
    """Unknown to the log but not to the metadata: it is about to come, or to go."""
    return _RETRIED.get(code, code)


_RETRIED: Final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_LEADER_OR_FOLLOWER}


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
        transaction_version: Callable[[], int],
    ) -> None:
        self._broker_id = config.broker_id
        self._metadata = metadata
        self._epochs: dict[int, int] = {}
        self._markers = DelayedOperationPurgatory("TransactionMarkers", timer, self._broker_id)
        self._writes = DelayedOperationPurgatory("TransactionWrite", timer, self._broker_id)
        self.purgatories = (self._markers, self._writes)
        self.markers = LocalMarkers(replicas, groups, metadata, clock)
        self._services = TransactionServices(
            self.markers, self._markers, timer.call_threadsafe, self._on_markers_written
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
        for purgatory in self.purgatories:
            purgatory.shutdown()

    def _make_shard(self, partition: int, _append: Append) -> TransactionShard:
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
