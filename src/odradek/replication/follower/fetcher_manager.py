"""`ReplicaFetcherManager`: decides which replicas are followed, from which leader and by which
fetcher.

Each leader has `num.replica.fetchers` fetchers at most, and a partition always belongs to the same
one of them, so that its records arrive in order. The manager acts on changes of the metadata after
the roles have been taken up, and compares no images: a partition that has changed is followed again
from the start.
"""

from collections.abc import Callable
from typing import Final
from zlib import crc32

from odradek.config.broker import BrokerConfig
from odradek.metadata.image import BrokerRegistration, MetadataDelta, MetadataImage
from odradek.model import TopicPartition
from odradek.replication.follower.leader_channel import OpenChannel
from odradek.replication.follower.replica_fetcher import FetcherSettings, ReplicaFetcher
from odradek.replication.partition import Partition
from odradek.replication.quota import ReplicationQuota
from odradek.timer import Timer

_FetcherKey = tuple[int, int]


class ReplicaFetcherManager:
    """The fetchers of a broker. `find` gives a partition that has a replica here."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        timer: Timer,
        open_channel: OpenChannel,
        find: Callable[[TopicPartition], Partition | None],
        on_readable: Callable[[Partition], None],
        quota: ReplicationQuota,
    ) -> None:
        self._broker_id: Final = broker_id
        self._timer: Final = timer
        self._open_channel: Final = open_channel
        self._find: Final = find
        self._on_readable: Final = on_readable
        self._quota: Final = quota
        self._fetcher_count: Final[int] = config["num.replica.fetchers"]
        self._settings: Final = FetcherSettings(
            config["replica.fetch.wait.max.ms"],
            config["replica.fetch.min.bytes"],
            config["replica.fetch.response.max.bytes"],
            config["replica.fetch.max.bytes"],
            config["replica.fetch.backoff.ms"],
        )
        self._fetchers: Final[dict[_FetcherKey, ReplicaFetcher]] = {}
        self._where: Final[dict[TopicPartition, _FetcherKey]] = {}
        # Their leader, or this broker itself, is not registered at the moment.
        self._waiting: Final[set[TopicPartition]] = set()

    def apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        """Follows the new leaders after a change."""
        if delta.brokers_changed:
            self._close_outdated(delta)
            for waiting in tuple(self._waiting):
                self._assign(waiting, delta.image)
        for topic in delta.topics_removed:
            for gone in topic.partitions:
                self._stop(TopicPartition(topic.name, gone.partition))
        for topic, image in delta.partitions():
            self._assign(TopicPartition(topic.name, image.partition), delta.image)
        self._close_idle()
        return ()

    def close(self) -> None:
        """Ends all fetching."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._where.clear()
        self._waiting.clear()

    def _close_outdated(self, delta: MetadataDelta) -> None:
        """Closes the fetchers of leaders that are gone or registered again, or all after our own
        registration ended; their partitions are followed again."""
        before, after = delta.previous.brokers, delta.image.brokers
        own_is_same = before.get(self._broker_id) == after.get(self._broker_id)
        for key, fetcher in list(self._fetchers.items()):
            if own_is_same and before.get(key[0]) == after.get(key[0]):
                continue
            fetcher.close()
            del self._fetchers[key]
            orphans = [tp for tp, where in self._where.items() if where == key]
            for topic_partition in orphans:
                del self._where[topic_partition]
                self._assign(topic_partition, delta.image)

    def _assign(self, topic_partition: TopicPartition, image: MetadataImage) -> None:
        self._stop(topic_partition)
        state = image.partition(topic_partition)
        partition = self._find(topic_partition)
        me = image.brokers.get(self._broker_id)
        if state is None or partition is None or partition.log is None or partition.is_leader:
            return
        leader = image.brokers.get(state.leader)
        if me is None or leader is None:
            self._waiting.add(topic_partition)
            return
        if leader.id == self._broker_id:
            return
        fetcher = self._fetcher(topic_partition, me, leader)
        fetcher.add(partition, image.topics[topic_partition.topic].topic_id)

    def _fetcher(
        self, topic_partition: TopicPartition, me: BrokerRegistration, leader: BrokerRegistration
    ) -> ReplicaFetcher:
        name = f"{topic_partition.topic}-{topic_partition.partition}"
        key = (leader.id, crc32(name.encode()) % self._fetcher_count)
        self._where[topic_partition] = key
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            channel = self._open_channel(leader)
            fetcher = ReplicaFetcher(
                self._broker_id,
                me.epoch,
                leader.id,
                channel,
                self._timer,
                self._settings,
                self._on_readable,
                self._quota,
            )
            self._fetchers[key] = fetcher
        return fetcher

    def _stop(self, topic_partition: TopicPartition) -> None:
        self._waiting.discard(topic_partition)
        key = self._where.pop(topic_partition, None)
        if key is not None:
            self._fetchers[key].remove(topic_partition)

    def _close_idle(self) -> None:
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                fetcher.close()
                del self._fetchers[key]
