"""The quotas of replication (KIP-73): bytes a second, for leaders and for followers.

A leader holds back what it sends, a follower what it fetches. Covered are the replicas that the
settings of a topic name (`leader.replication.throttled.replicas` and its twin), the rate is the
broker's (`leader.replication.throttled.rate`). Only followers outside the ISR are ever throttled,
so a throttle cannot shrink the ISR; the fetches of those inside count too.

The rate is measured over `replication.quota.window.*`.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from mypy_extensions import mypyc_attr

from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.config.definition import Value
from odradek.config.topic import usable_topic_settings
from odradek.metadata.image import MetadataDelta
from odradek.model import ConfigResourceType, TopicPartition
from odradek.windowed_rate import WindowedRate

_ALL: Final = "*"
_LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
_SETTINGS: Final = frozenset({_LEADER_REPLICAS, _FOLLOWER_REPLICAS})


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplicationQuota:
    """The quota of one direction: the covered partitions, and the bytes moved for them."""

    def __init__(self, clock: Clock, limit: Callable[[], int], rate: WindowedRate) -> None:
        self._clock: Final = clock
        self._limit: Final = limit
        self._rate: Final = rate
        # The covered partitions by topic; None means all of them.
        self._covered: Final[dict[str, frozenset[int] | None]] = {}

    def cover(self, topic: str, replicas: Collection[str], broker_id: int) -> None:
        """Takes over a topic's setting: `partition:broker` pairs, or `*`."""
        if _ALL in replicas:
            self._covered[topic] = None
            return
        partitions = frozenset(_partitions_of(replicas, broker_id))
        if partitions:
            self._covered[topic] = partitions
        else:
            self._covered.pop(topic, None)

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is among those that the quota covers."""
        if topic_partition.topic not in self._covered:
            return False
        partitions = self._covered[topic_partition.topic]
        return partitions is None or topic_partition.partition in partitions

    def is_exceeded(self) -> bool:
        """Whether covered partitions must wait."""
        return self._rate.per_second(self._clock.monotonic_ms()) > self._limit()

    def record(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Counts bytes that have moved of the partition, if it is covered."""
        if self.is_throttled(topic_partition):
            self._rate.record(self._clock.monotonic_ms(), size_bytes)


class ReplicationQuotas:
    """Both quotas of a broker, as the settings of topics and of the broker have them."""

    def __init__(self, broker_id: int, config: BrokerConfig, clock: Clock) -> None:
        self._broker_id: Final = broker_id
        windows: int = config["replication.quota.window.num"]
        window_ms: int = config["replication.quota.window.size.seconds"] * 1000

        def quota(name: str) -> ReplicationQuota:
            return ReplicationQuota(clock, lambda: config[name], WindowedRate(windows, window_ms))

        self.leader: Final = quota("leader.replication.throttled.rate")
        self.follower: Final = quota("follower.replication.throttled.rate")

    def apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        """Covers the replicas that the topics' settings name after a change. A new topic's settings
        are read with it: at a start no change of settings announces them."""
        topics = (*delta.topics_removed, *delta.topics_added, *delta.topics_changed)
        names = {topic.name for topic in topics}
        names.update(
            each.name for each in delta.configs_changed if each.type is ConfigResourceType.TOPIC
        )
        for name in names:
            own = delta.image.topic_config(name)
            # Unusable settings are logged where logs get their settings.
            throttled, _ = usable_topic_settings(
                {each: own[each] for each in _SETTINGS if each in own}
            )
            self._cover(name, self.leader, throttled.get(_LEADER_REPLICAS))
            self._cover(name, self.follower, throttled.get(_FOLLOWER_REPLICAS))
        return ()

    def _cover(self, topic: str, quota: ReplicationQuota, replicas: Value) -> None:
        quota.cover(topic, replicas if isinstance(replicas, tuple) else (), self._broker_id)


def _partitions_of(replicas: Iterable[str], broker_id: int) -> list[int]:
    pairs = (each.split(":") for each in replicas if each)
    return [int(partition) for partition, broker in pairs if int(broker) == broker_id]
