"""The request of a fetch, and the response for each partition.

The same request serves consumers and followers; `replica_id` tells them apart, and with it
what they may see: a follower reads up to the log end, a consumer up to the high watermark or
the last stable offset, a debugging consumer may read any replica but only up to the high
watermark.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from mypy_extensions import mypyc_attr

from odradek.errors import ErrorCode
from odradek.model import NO_LEADER, NO_LEADER_EPOCH, UNKNOWN_OFFSET, TopicPartition
from odradek.protocol.primitives import Buffer
from odradek.storage.log.offset_metadata import LogOffsetMetadata

CONSUMER_REPLICA_ID: Final = -1
DEBUGGING_REPLICA_ID: Final = -2

# How far a reader may look, the most permissive first.
ISOLATION_LOG_END: Final = 0
ISOLATION_HIGH_WATERMARK: Final = 1
ISOLATION_TXN_COMMITTED: Final = 2

READ_COMMITTED: Final = 1


class FetchParams:
    """The parameters of a whole fetch request.

    `max_bytes` bounds the sum over the partitions, but the first batch is sent even when it
    is larger, unless `hard_max_bytes` (the oldest versions, which bound partitions only).
    `rack_id` is the consumer's rack; empty if it names none.
    """

    def __init__(
        self,
        replica_id: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int = 0,
        *,
        replica_epoch: int = -1,
        fetch_only_leader: bool = True,
        hard_max_bytes: bool = False,
        rack_id: str = "",
    ) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.is_from_follower = replica_id >= 0
        self.fetch_only_leader = fetch_only_leader
        self.hard_max_bytes = hard_max_bytes
        self.rack_id = rack_id
        if replica_id >= 0:
            self.isolation = ISOLATION_LOG_END
        elif isolation_level == READ_COMMITTED:
            self.isolation = ISOLATION_TXN_COMMITTED
        else:
            self.isolation = ISOLATION_HIGH_WATERMARK


class FetchResult:
    """The records of one partition; none when `error_code` is not NONE.

    `records` are buffers that follow one another. `aborted` is (producer id, first offset)
    pairs for a reader of committed records, otherwise None. `diverging_epoch` is set when
    the reader's history parted from this replica's before `fetch_offset`.
    `preferred_read_replica` is the broker to read from instead, or -1.
    `fetch_offset_metadata` is where the read began, which is what a parked fetch measures from.
    """

    def __init__(
        self, topic_partition: TopicPartition, error_code: ErrorCode = ErrorCode.NONE
    ) -> None:
        self.topic_partition = topic_partition
        self.error_code = error_code
        self.high_watermark = UNKNOWN_OFFSET
        self.last_stable_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.records: list[Buffer] = []
        self.size_bytes = 0
        self.aborted: list[tuple[int, int]] | None = None
        self.diverging_epoch = NO_LEADER_EPOCH
        self.diverging_end_offset = UNKNOWN_OFFSET
        self.preferred_read_replica = NO_LEADER
        self.fetch_offset_metadata: LogOffsetMetadata | None = None

    def refuse(self, error_code: ErrorCode) -> None:
        """Drops the records, and keeps the error."""
        self.error_code = error_code
        self.records = []
        self.size_bytes = 0
        self.aborted = None


@mypyc_attr(allow_interpreted_subclasses=True)
class KeptRead:
    """A result without records that may be sent again; `was_told`: its reader has got it."""

    def __init__(self, result: FetchResult) -> None:
        self.result = result
        self.was_told = False

    def holds(self, params: FetchParams) -> bool:
        """Whether another read would give the same result."""
        raise NotImplementedError

    def record(self, now_ms: int) -> None:
        """Records that the follower has asked again and has everything."""
        raise NotImplementedError


class FetchInfo:
    """The fetch offset and the limit for one partition. A session hands it out again and again:
    `kept` is what was read for it, where that may be answered once more."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        fetch_offset: int,
        max_bytes: int,
        log_start_offset: int = UNKNOWN_OFFSET,
        current_leader_epoch: int = NO_LEADER_EPOCH,
        last_fetched_epoch: int = NO_LEADER_EPOCH,
        topic_id: UUID | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id  # None when the request named the topic
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.log_start_offset = log_start_offset
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.kept: KeptRead | None = None

    def tells_again(self, result: FetchResult) -> bool:
        """Whether the reader got this result last, in the same session; from here on it counts as
        sent."""
        kept = self.kept
        if kept is None or kept.result is not result or result.error_code is not ErrorCode.NONE:
            return False
        was_told, kept.was_told = kept.was_told, True
        return was_told


OnFetched = Callable[[list[FetchResult]], None]
