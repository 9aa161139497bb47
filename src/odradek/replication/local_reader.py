"""Reading many partitions for one fetch, within the fetch's limits.

The limit of the whole request is spent partition by partition, in the order asked. The first
batch that is found goes out even when it is larger than the limits: a reader whose limits
are too small would otherwise stand still for ever. Failures are results: one partition's
trouble is none of the others' business.
"""

from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.replication.fetch import FetchInfo, FetchParams, FetchResult
from odradek.replication.partition_table import PartitionTable
from odradek.replication.quota import ReplicationQuota


class LocalReader:
    """Reads from the logs of this broker. Keeps nothing between calls."""

    def __init__(self, partitions: PartitionTable, leader_quota: ReplicationQuota) -> None:
        self._partitions = partitions
        self._quota = leader_quota

    def read(self, params: FetchParams, infos: list[FetchInfo]) -> list[FetchResult]:
        """One result for each of `infos`, in their order."""
        results: list[FetchResult] = []
        budget_bytes = params.max_bytes
        min_one_message = not params.hard_max_bytes
        for info in infos:
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
            partition = self._partitions.get(topic_partition)
            result = partition.read(params, info, max_bytes, min_one_message)
        except BrokerError as error:
            return FetchResult(topic_partition, error.code)
        if params.is_from_follower:
            self._throttle(params, result)
        return result

    def _throttle(self, params: FetchParams, result: FetchResult) -> None:
        """Takes back what a throttled follower may not have now; it asks again later."""
        if self.is_throttled(result.topic_partition, params):
            result.records = []
            result.size_bytes = 0
        elif result.size_bytes > 0:
            self._quota.record(result.topic_partition, result.size_bytes)

    def is_throttled(self, topic_partition: TopicPartition, params: FetchParams) -> bool:
        """Whether the quota holds this follower back; members of the ISR never are."""
        quota = self._quota
        if not params.is_from_follower or not quota.is_throttled(topic_partition):
            return False
        partition = self._partitions.find(topic_partition)
        if partition is None or partition.in_sync_replicas is None:
            return False
        in_sync = params.replica_id in partition.in_sync_replicas.committed
        return not in_sync and quota.is_exceeded()
