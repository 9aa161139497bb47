"""The request of a share fetch, the answer of each partition, and how a log is read for it."""

from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.primitives import Buffer
from odradek.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, split_batches
from odradek.replication.fetch import CONSUMER_REPLICA_ID, FetchInfo, FetchParams, FetchResult
from odradek.replication.share.acquisition import AcquiredRecords, OffsetRange
from odradek.replication.share.persister import SharePartitionKey

_NOBODY: Final[list[tuple[int, int]]] = []


class ShareFetchPartition(NamedTuple):
    """A partition as a group reads it."""

    key: SharePartitionKey
    topic_partition: TopicPartition


class ShareFetchParams(NamedTuple):
    """The parameters of a whole fetch request."""

    group_id: str
    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    limits_records: bool = False


class ShareFetchResult:
    """The part of a fetch response about one partition."""

    def __init__(self, error_code: ErrorCode = ErrorCode.NONE, message: str = "") -> None:
        self.error_code = error_code
        self.message = message
        self.records: list[Buffer] = []
        self.acquired: list[AcquiredRecords] = []


OnShareFetched = Callable[[list[ShareFetchResult]], None]


def read_params(max_bytes: int, isolation_level: int) -> FetchParams:
    """How a log is read for a group: as for a consumer of its isolation level."""
    return FetchParams(CONSUMER_REPLICA_ID, 0, 0, max_bytes, isolation_level)


def read_info(partition: ShareFetchPartition, offset: int, max_bytes: int) -> FetchInfo:
    """The fetch offset and the limit for a partition."""
    topic_id = partition.key.topic_id
    return FetchInfo(partition.topic_partition, offset, max_bytes, topic_id=topic_id)


class ReadBatches:
    """The record batches of a read, of which some are handed out."""

    def __init__(self, result: FetchResult) -> None:
        self._data = result.records[0] if len(result.records) == 1 else b"".join(result.records)
        self._headers = list(split_batches(self._data, drop_partial_tail=True))
        self._aborted = result.aborted or _NOBODY

    def ranges(self) -> list[OffsetRange]:
        """The offsets of each batch."""
        return [OffsetRange(each.base_offset, each.last_offset) for each in self._headers]

    def aborted_ranges(self) -> list[OffsetRange]:
        """The offsets of batches whose transactions were aborted."""
        if not self._aborted:
            return []
        found: list[OffsetRange] = []
        ahead = sorted(self._aborted, key=lambda each: each[1])
        under_way: set[int] = set()
        for header in self._headers:
            while ahead and ahead[0][1] <= header.last_offset:
                under_way.add(ahead.pop(0)[0])
            if header.attributes & CONTROL_BIT:
                under_way.discard(header.producer_id)
            elif _is_aborted(header, under_way):
                found.append(OffsetRange(header.base_offset, header.last_offset))
        return found

    def records_of(self, acquired: list[AcquiredRecords]) -> list[Buffer]:
        """The batches from the first to the last record that was handed out."""
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        wanted = [
            each for each in self._headers if each.last_offset >= first and each.base_offset <= last
        ]
        if not wanted:
            return []
        return [memoryview(self._data)[wanted[0].position : wanted[-1].end_position]]


def _is_aborted(header: BatchHeader, under_way: set[int]) -> bool:
    return bool(header.attributes & TRANSACTIONAL_BIT) and header.producer_id in under_way
