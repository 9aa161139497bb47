"""Replicas without logs, as a metadata store sees them; a contract test holds them to the real."""

from collections.abc import Callable
from uuid import UUID

from tests.outcomes import whatever

from odradek.config import BrokerConfig, LogConfig
from odradek.metadata import MetadataDelta
from odradek.metadata.image import PartitionImage
from odradek.model import TopicPartition


class FakeLog:
    """Whose it is, and the last partition epoch under which its broker was told to have it."""

    def __init__(self, topic_id: UUID) -> None:
        self.topic_id = topic_id
        self.partition_epoch = -1


class FakeReplicas:
    """The replicas of a broker, whose logs open but for the `unserved`. The `logs` outlive it;
    `on_deleted` hears of each that it deletes."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        logs: dict[TopicPartition, FakeLog] | None = None,
        on_deleted: Callable[[TopicPartition, FakeLog], None] = whatever,
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._on_deleted = on_deleted
        self.logs = {} if logs is None else logs
        self._hosted: set[TopicPartition] = set()
        self.unserved: set[TopicPartition] = set()
        self.removed: list[str] = []
        self.deleted: list[TopicPartition] = []
        self.set_aside: list[TopicPartition] = []
        self.log_configs: dict[str, LogConfig] = {}

    def apply_delta(self, delta: MetadataDelta) -> list[TopicPartition]:
        """See `ReplicaManager.apply_delta`."""
        self.removed += [topic.name for topic in delta.topics_removed]
        for topic in delta.topics_removed:
            end = self._hosted.discard if topic.name in delta.replaced else self._drop
            for partition in topic.partitions:
                end(TopicPartition(topic.name, partition.partition))
        unserved = []
        for topic, partition in delta.partitions():
            where = TopicPartition(topic.name, partition.partition)
            if self._broker_id not in partition.replicas:
                self._leave(where, partition)
                continue
            stored = delta.image.topic_config(topic.name)
            self.log_configs[topic.name], _ = LogConfig.from_stored(
                stored, self._config.topic_defaults()
            )
            self._hosted.add(where)
            if self._broker_id in partition.offline:
                continue
            if where in self.unserved:
                unserved.append(where)
            else:
                self._open(where, topic.topic_id, partition)
        return unserved

    @property
    def topic_ids(self) -> dict[str, UUID]:
        """See `LogManager.topic_ids`."""
        return {topic: log.topic_id for (topic, _), log in self.logs.items()}

    def _open(self, where: TopicPartition, topic_id: UUID, partition: PartitionImage) -> None:
        if partition.leader == self._broker_id:
            outside = set(partition.isr) - set(partition.replicas)
            assert not outside, f"ISR {partition.isr} outside of {partition.replicas}"
        log = self.logs.get(where)
        if log is not None and log.topic_id != topic_id:
            self.set_aside.append(where)
            log = None
        if log is None:
            log = self.logs[where] = FakeLog(topic_id)
        log.partition_epoch = partition.partition_epoch

    def _leave(self, where: TopicPartition, partition: PartitionImage) -> None:
        if where in self._hosted:
            self._drop(where)
        elif partition.replicas and self.logs.pop(where, None) is not None:
            self.set_aside.append(where)

    def _drop(self, where: TopicPartition) -> None:
        log = self.logs.pop(where, None) if where in self._hosted else None
        self._hosted.discard(where)
        if log is not None:
            self.deleted.append(where)
            self._on_deleted(where, log)
