"""Replicas without logs, as a metadata store sees them; a contract test holds them to the real."""

from odradek.config import BrokerConfig, LogConfig
from odradek.metadata import MetadataDelta
from odradek.model import TopicPartition


class FakeReplicas:
    """The replicas of a broker, whose logs open but for the `unserved`."""

    def __init__(self, broker_id: int, config: BrokerConfig) -> None:
        self._broker_id = broker_id
        self._config = config
        self.unserved: set[TopicPartition] = set()
        self.removed: list[str] = []
        self.log_configs: dict[str, LogConfig] = {}

    def apply_delta(self, delta: MetadataDelta) -> list[TopicPartition]:
        """See `ReplicaManager.apply_delta`."""
        self.removed += [topic.name for topic in delta.topics_removed]
        unserved = []
        for topic, partition in delta.partitions():
            if self._broker_id not in partition.replicas:
                continue
            stored = delta.image.topic_config(topic.name)
            self.log_configs[topic.name], _ = LogConfig.from_stored(
                stored, self._config.topic_defaults()
            )
            where = TopicPartition(topic.name, partition.partition)
            if self._broker_id not in partition.offline and where in self.unserved:
                unserved.append(where)
        return unserved
