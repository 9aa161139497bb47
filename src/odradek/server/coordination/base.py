"""`Coordination`: connects any coordinator to this broker's log, metadata and timer.

A coordinator's port to the log is implemented over the replica manager. The leaderships of its
internal topic come from the metadata, after the replica manager has acted on them.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from odradek.background import do_each, run_each
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.coordinator.records.record import RecordCodec
from odradek.coordinator.runtime.partition_writer import LogBounds, OnCommitted, PartitionWriter
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.runtime.shard import Append, CoordinatorShard, Execute
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import MetadataDelta, PartitionImage
from odradek.model import AppendOrigin, TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.replication.replica_manager import ReplicaManager
from odradek.storage.log.log import Log
from odradek.timer import PeriodicTask, Timer

S = TypeVar("S", bound=CoordinatorShard)

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
            # Passed the high watermark with too few replicas left: it is committed, and committed
            # records must be replayed.
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

    def max_batch_bytes(self, partition: int) -> int:
        """See `PartitionWriter`."""
        return self._leader_log(partition).config.max_message_bytes

    def bounds(self, partition: int) -> LogBounds:
        """See `PartitionWriter`."""
        log = self._leader_log(partition)
        return LogBounds(log.log_start_offset, log.log_end_offset)

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """See `PartitionWriter`."""
        log = self._leader_log(partition)
        return b"".join(log.read(offset, max_bytes, log.log_end_offset, True).records)

    def _leader_log(self, partition: int) -> Log:
        return self._replicas.partition(TopicPartition(self._topic, partition)).leader_log()


class Coordination(Generic[S]):
    """The coordinator of one internal topic: its runtime, its waiting places and its upkeep.

    `waits` names the purgatory of the requests that wait for the topic's replicas.
    """

    def __init__(
        self,
        topic: str,
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        codec: RecordCodec,
        make_shard: Callable[[int, int, Append, Execute], S],
        settings: RuntimeSettings,
        waits: str,
    ) -> None:
        self._topic = topic
        self._broker_id = config.broker_id
        self._timer = timer
        self._metadata = metadata
        self._upkeep: list[PeriodicTask] = []
        self.purgatories: list[DelayedOperationPurgatory] = []
        self._runtime = CoordinatorRuntime[S](
            ReplicatedLog(topic, replicas),
            codec,
            clock,
            timer.call_threadsafe,
            self._partition_count,
            make_shard,
            settings,
            self._purgatory(waits),
        )

    def _purgatory(self, name: str) -> DelayedOperationPurgatory:
        """A purgatory of the coordinator's own, which ends with it."""
        purgatory = DelayedOperationPurgatory(name, self._timer, self._broker_id)
        self.purgatories.append(purgatory)
        return purgatory

    def _repeat(self, interval_ms: Callable[[], int], upkeep: Callable[[], None]) -> None:
        """Runs upkeep from time to time, as long as the coordinator lives."""
        self._upkeep.append(PeriodicTask(self._timer, interval_ms, upkeep))

    def apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        """Follows a change of the metadata, after the replica manager and before clients."""
        # First: another topic of the name may come with the same change.
        if any(topic.name == self._topic for topic in delta.topics_removed):
            self._runtime.shutdown()
        changed = [image for topic, image in delta.partitions() if topic.name == self._topic]
        do_each(changed, self._take_role)
        return ()

    def _take_role(self, image: PartitionImage) -> None:
        if image.leader == self._broker_id:
            self._runtime.on_elected(image.partition, image.leader_epoch)
        else:
            self._runtime.on_resigned(image.partition)

    def shutdown(self) -> None:
        """Ends the upkeep and everything that waits."""
        for task in self._upkeep:
            task.cancel()
        run_each([self._runtime.shutdown, *(each.shutdown for each in self.purgatories)])

    def _partition_count(self) -> int | None:
        topic = self._metadata.image.topic(self._topic)
        return None if topic is None else len(topic.partitions)
