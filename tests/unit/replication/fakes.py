"""A world that delayed operations wait for, made by hand.

`FakeReplicas` holds partitions with several replicas whose log ends, leadership, ISR and
segments a test sets as it likes, and answers the questions of `ReplicaStates` from them.
Records are ten bytes each, so that bytes and offsets are easy to tell apart.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from uuid import NAMESPACE_DNS, UUID, uuid4, uuid5

from odradek.background import Background, InlineBackground
from odradek.clock import ManualClock
from odradek.config.broker import BrokerConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import (
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
    with_replicas,
)
from odradek.metadata.store import PartitionChange
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.records.compression import Compression
from odradek.replication.append import AppendRequest, AppendResult
from odradek.replication.delayed.replica_states import EpochEndOffset, ReadableEnd, ReplicaStates
from odradek.replication.fetch import (
    ISOLATION_LOG_END,
    ISOLATION_TXN_COMMITTED,
    FetchInfo,
    FetchParams,
    FetchResult,
)
from odradek.replication.quota import ReplicationQuota, ReplicationQuotas
from odradek.replication.replica_manager import ReplicaManager
from odradek.storage.files import FileSystem
from odradek.storage.log.offset_metadata import LogOffsetMetadata
from odradek.storage.manager.log_manager import LogManager
from odradek.timer import MockTimer

RECORD_BYTES = 10


class FakePartition:
    """A leader's view: where each replica's log ends and starts, and who is in sync."""

    def __init__(self, log_end_offset: int = 0) -> None:
        self.is_leader = True
        self.log_ends = {1: log_end_offset}
        self.log_starts = {1: 0}
        self.in_sync = {1}
        self.min_insync_replicas = 1
        self._high_watermark = 0
        self.last_stable_offset: int | None = None
        self.segment_base_offsets = [0]
        self.diverging: EpochEndOffset | None = None
        self.throttled = False

    @property
    def log_end_offset(self) -> int:
        return self.log_ends[1]

    @property
    def high_watermark(self) -> int:
        if len(self.in_sync) >= self.min_insync_replicas:
            self._high_watermark = min(self.log_ends[broker] for broker in self.in_sync)
        return self._high_watermark

    def append(self, count: int) -> None:
        self.log_ends[1] += count

    def roll(self) -> None:
        self.segment_base_offsets.append(self.log_end_offset)

    def place(self, offset: int) -> LogOffsetMetadata:
        base = max(each for each in self.segment_base_offsets if each <= offset)
        return LogOffsetMetadata(offset, base, (offset - base) * RECORD_BYTES)


class FakeReplicas(ReplicaStates):
    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, FakePartition] = {}
        self.reads: list[list[FetchInfo]] = []

    def add(self, topic_partition: TopicPartition, log_end_offset: int = 0) -> FakePartition:
        self.partitions[topic_partition] = partition = FakePartition(log_end_offset)
        return partition

    def _leader(self, topic_partition: TopicPartition) -> FakePartition:
        partition = self.partitions.get(topic_partition)
        if partition is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not partition.is_leader:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def readable_end(self, info: FetchInfo, params: FetchParams) -> ReadableEnd:
        partition = self._leader(info.topic_partition)
        offset = partition.high_watermark
        if params.isolation == ISOLATION_LOG_END:
            offset = partition.log_end_offset
        elif params.isolation == ISOLATION_TXN_COMMITTED:
            stable = partition.last_stable_offset
            offset = offset if stable is None else min(offset, stable)
        return ReadableEnd(partition.place(offset), partition.log_end_offset)

    def diverging_end(self, info: FetchInfo, params: FetchParams) -> EpochEndOffset | None:
        return self._leader(info.topic_partition).diverging

    def is_throttled(self, topic_partition: TopicPartition, params: FetchParams) -> bool:
        return self._leader(topic_partition).throttled

    def read(self, params: FetchParams, infos: list[FetchInfo]) -> list[FetchResult]:
        self.reads.append(infos)
        return [FetchResult(info.topic_partition) for info in infos]

    def has_enough_replicas(self, topic_partition: TopicPartition, required_offset: int) -> bool:
        partition = self._leader(topic_partition)
        if partition.high_watermark < required_offset:
            return False
        if len(partition.in_sync) < partition.min_insync_replicas:
            raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def low_watermark(self, topic_partition: TopicPartition) -> int:
        return min(self._leader(topic_partition).log_starts.values())


class FakeStore:
    """The questions that the replica manager has for the metadata store; `take_up` has it act on
    replicas that are back."""

    def __init__(self, take_up: Callable[[Sequence[TopicPartition]], None]) -> None:
        self._take_up = take_up
        self.proposals: list[tuple[PartitionChange, Callable[..., None]]] = []
        self.offline: list[TopicPartition] = []
        self.online: list[TopicPartition] = []
        self.online_reports = 0
        self.raises: dict[TopicPartition, Exception] = {}

    def change_partitions(self, changes, on_done) -> None:
        if changes[0].topic_partition in self.raises:
            raise self.raises[changes[0].topic_partition]
        self.proposals.append((changes[0], on_done))

    def report_offline(self, partitions, broker_id: int) -> None:
        self.offline.extend(partitions)

    def report_online(self, partitions, broker_id: int) -> None:
        self.online_reports += 1
        self.online.extend(partitions)
        self._take_up(partitions)


class Cluster:
    """A replica manager over real logs, with a made-up cluster around it. It is broker 1."""

    def __init__(
        self,
        directory: str,
        quota: ReplicationQuota | None = None,
        file_system: FileSystem | None = None,
        *,
        more_directories: Sequence[str] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
        background: Background | None = None,
    ) -> None:
        self.clock = ManualClock(wall_ms=1_700_000_000_000)
        self.timer = MockTimer()
        self.config = BrokerConfig(settings)
        self.store = FakeStore(self._take_up)
        self.log_manager = LogManager(
            [directory, *more_directories],
            self.config,
            self.clock,
            self.timer,
            background or InlineBackground(),
            new_uuid=uuid4,
            on_log_dir_failure=lambda path: self.replicas.on_log_dir_failure(path),
            file_system=file_system,
        )
        self.quotas = ReplicationQuotas(1, self.config, self.clock)
        self.replicas = ReplicaManager(
            *(1, self.config, self.clock, self.timer, self.log_manager, self.store),
            quota or self.quotas.leader,
        )
        self.log_manager.start()
        self.image = MetadataImage("cluster").with_brokers({1: None, 2: None, 3: None}, 1)

    def wait(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.timer.advance_clock(duration_ms)

    def create(
        self,
        name: str,
        replicas: tuple[int, ...] = (1,),
        *,
        isr: tuple[int, ...] | None = None,
        leader: int = 1,
        partitions: int = 1,
        topic_id: UUID | None = None,
        **settings: str,
    ) -> TopicImage:
        states = tuple(
            PartitionImage(index, leader, 0, 0, replicas, isr or replicas)
            for index in range(partitions)
        )
        topic = TopicImage(name, topic_id or uuid5(NAMESPACE_DNS, name), states)
        resource = ConfigResource.topic(name)
        configs = {resource: {key.replace("_", "."): value for key, value in settings.items()}}
        self._apply(self.image.with_topics([topic]).with_configs(configs), added=[topic])
        return topic

    def change(self, name: str, index: int = 0, **fields: object) -> None:
        """A new state of one partition, of the next partition epoch."""
        self.change_each(name, [index], **fields)

    def change_each(self, name: str, indexes: Sequence[int], **fields: object) -> None:
        """The same change of several partitions, at once."""
        topic = self.image.topics[name]
        befores = [topic.partitions[index] for index in indexes]
        topic = topic.with_partitions(
            each._replace(**{"partition_epoch": each.partition_epoch + 1, **fields})
            for each in befores
        )
        self._apply(self.image.with_topics([topic]), changed=[topic])

    def configure(self, name: str, **settings: str) -> None:
        resource = ConfigResource.topic(name)
        configs = {resource: {key.replace("_", "."): value for key, value in settings.items()}}
        self._apply(self.image.with_configs(configs), configs=[resource])

    def delete(self, name: str) -> None:
        topic = self.image.topics[name]
        self._apply(self.image.with_topics(removed=[topic]), removed=[topic])

    def _take_up(self, partitions: Sequence[TopicPartition]) -> None:
        names = {each.topic for each in partitions}
        image = with_replicas(self.image, partitions, 1)
        self._apply(image, changed=[image.topics[name] for name in names])

    def _apply(self, image: MetadataImage, **what: object) -> None:
        delta = MetadataDelta(self.image, image, **what)
        unserved = self.replicas.apply_delta(delta)
        self.image = delta.without_replicas(unserved, 1).image

    def answer_proposal(self, outcome: BrokerError | None = None) -> PartitionChange:
        """Accepts or refuses the oldest proposal for an ISR; acceptance is told as a delta too."""
        change, on_done = self.store.proposals.pop(0)
        if outcome is not None:
            on_done(outcome)
            return change
        topic, index = change.topic_partition
        self.change(topic, index, isr=change.isr)
        on_done([self.image.topics[topic].partitions[index]])
        return change

    def produce(
        self,
        topic_partition: TopicPartition,
        *values: bytes,
        acks: int = 1,
        timeout_ms: int = 500,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> list[AppendResult]:
        """Appends one batch; the list is empty until the answer is there."""
        answers: list[AppendResult] = []
        entries = [(topic_partition, batch(*values))]
        request = AppendRequest(acks, timeout_ms, origin, entries, answers.extend)
        self.replicas.append_records([request])
        return answers

    def fetch(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        replica_id: int = -1,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        log_start_offset: int = 0,
        isolation_level: int = 0,
        **info: int,
    ) -> list[FetchResult]:
        """Fetches; the list is empty until the answer is there."""
        answers: list[FetchResult] = []
        params = FetchParams(replica_id, max_wait_ms, min_bytes, 1 << 20, isolation_level)
        asked = FetchInfo(topic_partition, offset, 1 << 20, log_start_offset, **info)
        self.replicas.fetch_messages(params, [asked], answers.extend)
        return answers

    def close(self) -> None:
        self.replicas.shutdown()
        self.log_manager.shutdown()


def batch(*values: bytes) -> memoryview:
    """One batch of magic 2, as a client sends it."""
    builder = RecordBatchBuilder(Compression.NONE)
    for value in values:
        builder.append(1_700_000_000_000, None, value)
    return memoryview(bytearray(builder.build()))


class FakeQuota(ReplicationQuota):
    def __init__(self) -> None:
        self.exceeded = False
        self.recorded_bytes = 0

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        return True

    def is_exceeded(self) -> bool:
        return self.exceeded

    def record(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        self.recorded_bytes += size_bytes
