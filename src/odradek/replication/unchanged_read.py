"""A response kept for a follower that had everything, good until something moves.

Each follower asks for all partitions of a leader twice a second, and nearly always nothing has
happened to nearly all of them. So the response is kept with its request. Before it is sent again
everything that it depends on is compared, a dozen numbers: no event has to be announced, so none
can be missed. It is kept only for a member of the ISR that has all records, if all of them are
committed: then neither quotas nor time matter.
"""

from typing import Final

from odradek.errors import ErrorCode
from odradek.replication.fetch import FetchInfo, FetchParams, FetchResult, KeptRead
from odradek.replication.in_sync_replicas import Follower, InSyncReplicas
from odradek.replication.partition import Partition
from odradek.storage.log.log import Log


class UnchangedRead(KeptRead):
    """The read of one partition by one follower, for a request that it keeps repeating."""

    def __init__(
        self,
        partition: Partition,
        log: Log,
        in_sync: InSyncReplicas,
        follower: Follower,
        result: FetchResult,
    ) -> None:
        super().__init__(result)
        self._partition: Final = partition
        self._log: Final = log
        self._in_sync: Final = in_sync
        self._follower: Final = follower
        self._committed: Final = in_sync.committed
        self._leader_epoch: Final = partition.leader_epoch
        self._end: Final = result.log_end_offset
        self._log_start_offset: Final = result.log_start_offset
        self._follower_log_start_offset: Final = follower.log_start_offset

    def holds(self, params: FetchParams) -> bool:
        """See `KeptRead`. A new role, log, ISR or offset is another object or another number."""
        partition = self._partition
        log = self._log
        in_sync = self._in_sync
        follower = self._follower
        end = self._end
        return (
            partition.log is log
            and partition.in_sync_replicas is in_sync
            and partition.leader_epoch == self._leader_epoch
            and log.local.log_end_offset == end
            and log.high_watermark == end
            and log.local.log_start_offset == self._log_start_offset
            and in_sync.committed is self._committed
            and in_sync.proposed is None
            and follower.log_end_offset == end
            and follower.log_start_offset == self._follower_log_start_offset
            and follower.broker_id == params.replica_id
            and follower.broker_epoch == params.replica_epoch
            and self.result.error_code is ErrorCode.NONE
        )

    def record(self, now_ms: int) -> None:
        """See `KeptRead`."""
        self._follower.record_fetch(self._end, self._follower_log_start_offset, self._end, now_ms)


def kept_read(
    partition: Partition, params: FetchParams, info: FetchInfo, result: FetchResult
) -> UnchangedRead | None:
    """The response to a recorded, successful read that may be sent again; else None."""
    log = partition.log
    in_sync = partition.in_sync_replicas
    if log is None or in_sync is None or in_sync.proposed is not None:
        return None
    follower = in_sync.followers.get(params.replica_id)
    if follower is None or follower.broker_id not in in_sync.committed:
        return None
    end = info.fetch_offset
    if not end == log.log_end_offset == log.high_watermark == result.high_watermark:
        return None
    # Told before the log's start moved, or the other way round: the next read tells.
    if result.log_end_offset != end or result.log_start_offset != log.log_start_offset:
        return None
    return UnchangedRead(partition, log, in_sync, follower, result)
