"""The partitions that this broker hosts, by name, and the right error for all others.

Delayed operations look at partitions through it (`ReplicaStates`), and a fetch reads its partitions
with it. The limit of the whole fetch is spent partition by partition, in the order asked. The first
batch that is found is returned even when it is larger than the limits: a reader whose limits are
too small would otherwise never progress. Failures are results: a failed partition does not affect
the others.
"""

from collections.abc import Iterator

from odradek.clock import Clock
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage
from odradek.model import TopicPartition
from odradek.replication.delayed.replica_states import EpochEndOffset, ReadableEnd, ReplicaStates
from odradek.replication.fetch import FetchInfo, FetchParams, FetchResult
from odradek.replication.partition import Partition
from odradek.replication.quota import ReplicationQuota
from odradek.replication.replica_selector import ReplicaSelector, ReplicaView


class PartitionTable(ReplicaStates):
    """The partitions with a replica here.

    `image` is the newest that this broker was handed, which clients may not see yet: a partition
    that is being deleted is unknown here before it disappears there. It tells a partition of the
    cluster without a replica here (the client has old metadata) from one that does not exist.
    """

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        leader_quota: ReplicationQuota,
        select_replica: ReplicaSelector | None,
    ) -> None:
        self.image = MetadataImage("")
        self._broker_id = broker_id
        self._clock = clock
        self._select_replica = select_replica
        self._partitions: dict[TopicPartition, Partition] = {}
        self._quota = leader_quota

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def find(self, topic_partition: TopicPartition) -> Partition | None:
        """The partition, if it is hosted here."""
        return self._partitions.get(topic_partition)

    def get(self, topic_partition: TopicPartition) -> Partition:
        """The partition.

        Raises:
            BrokerError: NOT_LEADER_OR_FOLLOWER when only other brokers host it,
                UNKNOWN_TOPIC_OR_PARTITION when nobody does.
        """
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            return partition
        if self.image.partition(topic_partition) is not None:
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic_partition} has no replica here"
            )
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}"
        )

    def add(self, partition: Partition) -> None:
        """Takes a partition in; it must not be hosted yet."""
        key = partition.topic_partition
        assert key not in self._partitions, f"{key} is hosted already"
        self._partitions[key] = partition

    def remove(self, topic_partition: TopicPartition) -> Partition | None:
        """Removes a partition; returns it, if it was hosted."""
        return self._partitions.pop(topic_partition, None)

    def in_directory(self, directory: str) -> list[Partition]:
        """The partitions whose logs lie in one log directory."""
        return [
            partition
            for partition in self._partitions.values()
            if partition.log is not None and partition.log.log_directory.path == directory
        ]

    # For waiting operations

    def readable_end(self, info: FetchInfo, params: FetchParams) -> ReadableEnd:
        """See `ReplicaStates`."""
        return self.get(info.topic_partition).readable_end(info, params)

    def diverging_end(self, info: FetchInfo, params: FetchParams) -> EpochEndOffset | None:
        """See `ReplicaStates`."""
        return self.get(info.topic_partition).diverging_end(info, params)

    def has_enough_replicas(self, topic_partition: TopicPartition, required_offset: int) -> bool:
        """See `ReplicaStates`."""
        return self.get(topic_partition).has_enough_replicas(required_offset)

    def low_watermark(self, topic_partition: TopicPartition) -> int:
        """See `ReplicaStates`."""
        return self.get(topic_partition).low_watermark(frozenset(self.image.brokers))

    # Reading

    def read(self, params: FetchParams, infos: list[FetchInfo]) -> list[FetchResult]:
        """See `ReplicaStates`: one result for each of `infos`, in their order."""
        results: list[FetchResult] = []
        budget_bytes = params.max_bytes
        min_one_message = not params.hard_max_bytes
        for info in infos:
            kept = info.kept
            if kept is not None:
                if kept.holds(params):
                    results.append(kept.result)
                    continue
                info.kept = None
            result = self._read_one(
                params, info, min(info.max_bytes, budget_bytes), min_one_message
            )
            if result.size_bytes > 0:
                min_one_message = False
                budget_bytes = max(0, budget_bytes - result.size_bytes)
            results.append(result)
        return results

    def _read_one(
        self, params: FetchParams, info: FetchInfo, max_bytes: int, min_one_message: bool
    ) -> FetchResult:
        topic_partition = info.topic_partition
        try:
            partition = self.get(topic_partition)
            if params.rack_id and self._select_replica is not None:
                nearest = self._nearest(partition, params.rack_id, info.fetch_offset)
                if nearest != self._broker_id:
                    return partition.refer(params, info, nearest)
            result = partition.read(params, info, max_bytes, min_one_message)
        except BrokerError as error:
            return FetchResult(topic_partition, error.code)
        if params.is_from_follower:
            self._throttle(params, result)
        return result

    def _nearest(self, partition: Partition, rack: str, offset: int) -> int:
        """The broker that a consumer of that rack should read from; this one unless it leads."""
        brokers = self.image.brokers
        me = brokers.get(self._broker_id)
        choose = self._select_replica
        if not partition.is_leader or partition.log is None or me is None or choose is None:
            return self._broker_id
        now_ms = self._clock.monotonic_ms()
        followers = [
            ReplicaView(
                follower.broker_id,
                brokers[follower.broker_id].rack,
                follower.log_end_offset,
                now_ms - follower.last_caught_up_ms,
            )
            for follower in partition.followers_with(offset)
            if follower.broker_id in brokers
        ]
        leader = ReplicaView(self._broker_id, me.rack, partition.log.log_end_offset, 0)
        return choose(rack, leader, followers)

    def _throttle(self, params: FetchParams, result: FetchResult) -> None:
        """Drops the records that a throttled follower may not have now; it asks again later."""
        if self.is_throttled(result.topic_partition, params):
            result.records = []
            result.size_bytes = 0
        elif result.size_bytes > 0:
            self._quota.record(result.topic_partition, result.size_bytes)

    def is_throttled(self, topic_partition: TopicPartition, params: FetchParams) -> bool:
        """See `ReplicaStates`; members of the ISR are never held back."""
        quota = self._quota
        if not params.is_from_follower or not quota.is_throttled(topic_partition):
            return False
        partition = self.find(topic_partition)
        if partition is None or partition.in_sync_replicas is None:
            return False
        in_sync = params.replica_id in partition.in_sync_replicas.committed
        return not in_sync and quota.is_exceeded()
