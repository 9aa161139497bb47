"""ListOffsets: the offset of a timestamp, or of a name written as a negative one.

A consumer never gets an offset that it may not read yet: a found offset at or above that bound
counts as not found. A leader that has just taken over may not know yet how far its predecessor's
committed records reach; until its high watermark passes the start of its own epoch it says
OFFSET_NOT_AVAILABLE rather than let a consumer go backwards.
"""

from typing import Final

from odradek.errors import BrokerError, ErrorCode
from odradek.model import NO_LEADER_EPOCH, NO_TIMESTAMP, UNKNOWN_OFFSET
from odradek.replication.fetch import (
    ISOLATION_HIGH_WATERMARK,
    ISOLATION_LOG_END,
    ISOLATION_TXN_COMMITTED,
)
from odradek.replication.partition import Partition
from odradek.storage.log.log import Log
from odradek.storage.log.offset_metadata import TimestampOffset
from odradek.storage.log.segment import LogSegment

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6

NOT_FOUND: Final = TimestampOffset(NO_TIMESTAMP, UNKNOWN_OFFSET)


def find_offset(
    partition: Partition,
    timestamp: int,
    isolation: int,
    current_leader_epoch: int,
    only_leader: bool,
) -> TimestampOffset:
    """The offset of `timestamp`, or `NOT_FOUND`.

    Without tiered storage the local start is the log's start, and nothing is tiered or
    waiting to be.

    Raises:
        BrokerError: OFFSET_NOT_AVAILABLE, UNSUPPORTED_VERSION for an unknown negative
            timestamp, or as `Partition.local_log`.
    """
    log = partition.local_log(current_leader_epoch, only_leader)
    if timestamp == LATEST_TIMESTAMP:
        _refuse_if_lagging(partition, log, isolation)
        return TimestampOffset(NO_TIMESTAMP, _end(log, isolation), partition.leader_epoch)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return _earliest(log)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return NOT_FOUND
    end = _end(log, isolation)
    if timestamp == MAX_TIMESTAMP:
        found = log.reader.find_max_timestamp()
    elif timestamp >= 0:
        found = log.fetch_offset_by_timestamp(timestamp, end)
    else:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning for ListOffsets"
        )
    if found is not None and found.offset < end:
        return found
    _refuse_if_lagging(partition, log, isolation)
    return NOT_FOUND


def _end(log: Log, isolation: int) -> int:
    if isolation == ISOLATION_HIGH_WATERMARK:
        return log.high_watermark
    if isolation == ISOLATION_TXN_COMMITTED:
        return log.last_stable_offset
    return log.log_end_offset


def _earliest(log: Log) -> TimestampOffset:
    start = log.log_start_offset
    return TimestampOffset(NO_TIMESTAMP, start, log.leader_epochs.epoch_for_offset(start))


def _refuse_if_lagging(partition: Partition, log: Log, isolation: int) -> None:
    if isolation != ISOLATION_LOG_END and partition.leader_epoch_start_offset > log.high_watermark:
        raise BrokerError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition.topic_partition}: the high watermark {log.high_watermark} has not "
            f"reached the start {partition.leader_epoch_start_offset} of this leadership",
        )


def find_segment_starts(
    partition: Partition, timestamp: int, max_count: int, isolation: int, only_leader: bool
) -> list[int]:
    """Answers version 0 of ListOffsets: at most `max_count` starts of segments whose last record is
    not after `timestamp`, newest first; the latest offset is the log end.

    Raises:
        BrokerError: as `Partition.local_log`.
    """
    log = partition.local_log(NO_LEADER_EPOCH, only_leader)
    end = _end(log, isolation)
    start = log.log_start_offset
    starts = sorted(
        {
            max(segment.base_offset, start)
            for segment in log.segments.all()
            if segment.base_offset < end and _is_before(segment, timestamp)
        }
    )
    if timestamp == EARLIEST_TIMESTAMP:
        return [start][: max(max_count, 0)]
    if timestamp == LATEST_TIMESTAMP and end not in starts:
        starts.append(end)
    return starts[::-1][: max(max_count, 0)]


def _is_before(segment: LogSegment, timestamp: int) -> bool:
    return timestamp == LATEST_TIMESTAMP or segment.max_timestamp <= timestamp
