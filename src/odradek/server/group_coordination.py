"""Joins the group coordinator to this broker: its log, its metadata, its timer.

The coordinator's port to the log is implemented over the replica manager; leaderships of
`__consumer_offsets` come from the metadata, after the replica manager has acted on them; the
expiry of offsets is a periodic task of the broker's timer.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.group_shard import GroupShard
from odradek.coordinator.modern.topic_metadata import TopicMetadata
from odradek.coordinator.records.record_codec import GroupRecordCodec
from odradek.coordinator.runtime.partition_writer import LogBounds, OnCommitted, PartitionWriter
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import LOAD_SLICE_BYTES, RuntimeSettings
from odradek.coordinator.services import GroupServices, ShardServices
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import MetadataDelta
from odradek.model import GROUP_METADATA_TOPIC, AppendOrigin, TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.replication.replica_manager import ReplicaManager
from odradek.timer import PeriodicTask, Timer

NEVER_MS: Final = 2**31 - 1


class ReplicatedLog(PartitionWriter):
    """The partitions of one internal topic, through the replica manager."""

    def __init__(self, topic: str, replicas: ReplicaManager) -> None:
        self._topic = topic
        self._replicas = replicas

    def append(
        self,
        partition: int,
        batch: bytearray,
        on_committed: OnCommitted,
        transaction_version: int = 0,
    ) -> None:
        """See `PartitionWriter`."""

        def on_done(results: list[AppendResult]) -> None:
            result = results[0]
            # Passed the high watermark with too few replicas left: it is committed all the
            # same, and what is committed must be replayed.
            committed = result.error_code in (
                ErrorCode.NONE,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            )
            on_committed(
                None if committed else BrokerError(result.error_code, result.error_message or "")
            )

        entries = [(TopicPartition(self._topic, partition), memoryview(batch))]
        origin = AppendOrigin.COORDINATOR
        request = AppendRequest(ACKS_ALL, NEVER_MS, origin, entries, on_done, transaction_version)
        self._replicas.append_records([request])

    def bounds(self, partition: int) -> LogBounds:
        """See `PartitionWriter`."""
        log = self._replicas.partition(TopicPartition(self._topic, partition)).leader_log()
        return LogBounds(log.log_start_offset, log.log_end_offset)

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """See `PartitionWriter`."""
        log = self._replicas.partition(TopicPartition(self._topic, partition)).leader_log()
        return b"".join(log.read(offset, max_bytes, log.log_end_offset, True).records)


class GroupCoordination:
    """The group coordinator of one broker, with its purgatories and its upkeep."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        new_uuid: Callable[[], UUID],
    ) -> None:
        self._broker_id = config.broker_id
        self._timer = timer
        self._metadata = metadata
        self.rebalances = DelayedOperationPurgatory("Rebalance", timer, self._broker_id)
        self.heartbeats = DelayedOperationPurgatory("Heartbeat", timer, self._broker_id)
        self.writes = DelayedOperationPurgatory("GroupWrite", timer, self._broker_id)
        self.purgatories = (self.rebalances, self.heartbeats, self.writes)
        services = GroupServices(
            config, clock, self.rebalances, self.heartbeats, new_uuid, TopicMetadata(metadata)
        )
        self._runtime = CoordinatorRuntime[GroupShard](
            ReplicatedLog(GROUP_METADATA_TOPIC, replicas),
            GroupRecordCodec(),
            clock,
            timer.call_threadsafe,
            self._partition_count,
            lambda partition, append, execute: GroupShard(
                partition, ShardServices(services, append, execute)
            ),
            _runtime_settings(config),
            self.writes,
        )
        self.coordinator = GroupCoordinator(self._runtime, clock)
        self._expiry = PeriodicTask(
            timer,
            lambda: config["offsets.retention.check.interval.ms"],
            self.coordinator.expire_offsets,
        )

    def apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        """Follows a change of the metadata, after the replica manager and before clients."""
        for topic, image in delta.partitions():
            if topic.name != GROUP_METADATA_TOPIC:
                continue
            if image.leader == self._broker_id:
                self._runtime.on_elected(image.partition, image.leader_epoch)
            else:
                self._runtime.on_resigned(image.partition)
        removed = frozenset(topic.name for topic in delta.topics_removed)
        if GROUP_METADATA_TOPIC in removed:
            self._runtime.shutdown()
        elif removed:
            # Once the change is through; to append in the middle of one would be too early.
            self._timer.call_threadsafe(lambda: self.coordinator.on_topics_deleted(removed))
        return ()

    def shutdown(self) -> None:
        """Ends the upkeep and everything that waits in groups."""
        self._expiry.cancel()
        self._runtime.shutdown()
        for purgatory in self.purgatories:
            purgatory.shutdown()

    def _partition_count(self) -> int | None:
        topic = self._metadata.image.topic(GROUP_METADATA_TOPIC)
        return None if topic is None else len(topic.partitions)


def _runtime_settings(config: BrokerConfig) -> RuntimeSettings:
    return RuntimeSettings(
        lambda: int(config["message.max.bytes"]),
        config["offsets.topic.compression.codec"],
        min(config["offsets.load.buffer.size"], LOAD_SLICE_BYTES),
        config["offsets.commit.timeout.ms"],
    )
