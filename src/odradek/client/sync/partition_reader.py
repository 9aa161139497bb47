"""Reads a range of one partition, one fetch ahead of its reader.

While a chunk is being decoded the broker already prepares the next, whose offset follows from the
headers of the chunk, before its records are read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.client.apis import FETCH
from odradek.client.core.consuming.list_offsets import CONSUMER, READ_COMMITTED, READ_UNCOMMITTED
from odradek.client.errors import KafkaError, RequestTimedOut, error_for, raise_for
from odradek.client.sync.cluster import Cluster
from odradek.client.sync.connection import BlockingConnection
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.direct.fetch import (
    TOPIC_ID_VERSION,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from odradek.records.batch import split_batches

# The name of a partition's end in ListOffsets.
LATEST: Final = -1


@dataclass(frozen=True)
class Fetched:
    """A chunk: whole batches from `fetch_offset` on, the last one perhaps cut off.

    The first batch may begin before `fetch_offset`. `aborted` are the transactions (producer
    id, first offset) to leave out, for readers of committed records.
    """

    fetch_offset: int
    records: memoryview
    aborted: list[tuple[int, int]]
    next_offset: int


class PartitionReader:
    """Fetches from the leader of a partition, wherever it moves.

    Its cluster must not be asked anything else during a read: the response to the fetch ahead is
    still to come on one of its connections.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic_partition: TopicPartition,
        *,
        topic_id: UUID | None = None,
        rack_id: str = "",
        read_committed: bool = False,
        max_wait_ms: int = 500,
        max_bytes: int = 52_428_800,
        partition_max_bytes: int = 1_048_576,
    ) -> None:
        self._cluster = cluster
        self._topic_partition = topic_partition
        self._topic_id = topic_id
        self._rack_id = rack_id
        # The replica that the leader has named to readers of this rack.
        self._nearby: int | None = None
        self._read_committed = read_committed
        self._max_wait_ms = max_wait_ms
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._waiting: BlockingConnection | None = None

    def read(self, start: int, end: int) -> Iterator[Fetched]:
        """Chunks that together hold the records from `start` up to, and without, `end`.

        Offsets may be missing where records were compacted away.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE when records before the beginning or behind the end of
                the log are wanted, or the topic has another id than it should have; or another
                error of the brokers.
        """
        offset = start
        waited_ms = 0
        while offset < end:
            chunk = self._take(offset)
            if chunk.next_offset == offset:
                waited_ms += self._max_wait_ms
                self._check_end(offset, end)
                self._check_patience(waited_ms, offset, end)
                continue
            offset, waited_ms = chunk.next_offset, 0
            if offset < end:
                self._ask_ahead(offset)
            yield chunk

    def _check_end(self, offset: int, end: int) -> None:
        """Checks that the log still has the range: it may have been truncated since the plan."""
        part = self._topic_partition
        found = self._cluster.list_offsets({part: LATEST}, read_committed=self._read_committed)
        log_end = found[part]
        if log_end is not None and log_end <= offset:
            text = f"{part} ends at offset {log_end}, but should reach {end}"
            raise error_for(ErrorCode.OFFSET_OUT_OF_RANGE, text)

    def _check_patience(self, waited_ms: int, offset: int, end: int) -> None:
        if waited_ms >= self._cluster.api_timeout_ms:
            raise RequestTimedOut(
                f"{self._topic_partition} has nothing at offset {offset}, but should reach {end}",
            )

    def _ask_ahead(self, offset: int) -> None:
        try:
            self._ask(offset)
        except KafkaError:
            # `_take` asks again when the chunk is wanted, and raises what then goes wrong.
            self._cluster.forget(disconnect=True)

    def _take(self, offset: int) -> Fetched:
        """The chunk at `offset`, from a fetch under way or from a new one."""

        def attempt() -> Fetched:
            if self._waiting is None:
                self._ask(offset)
            try:
                return self._receive(offset) or ask_nearby()
            except KafkaError:
                self._nearby = None  # a follower may lag behind; the leader knows
                raise

        def ask_nearby() -> Fetched:
            self._ask(offset)
            return self._receive(offset) or Fetched(offset, memoryview(b""), [], offset)

        return self._cluster.retrying(attempt)

    def _ask(self, offset: int) -> None:
        leader_id = self._cluster.leader_id(self._topic_partition)
        nearby = self._nearby if self._nearby in self._cluster.metadata.nodes else None
        connection = self._cluster.connection(leader_id if nearby is None else nearby)
        version = connection.agree(FETCH)
        topic = self._cluster.topic(self._topic_partition.topic)
        if self._topic_id is not None and topic.topic_id not in (None, self._topic_id):
            text = f"{self._topic_partition} was deleted and recreated"
            raise error_for(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        leader = topic.partition_metadata[self._topic_partition.partition]
        partition = FetchPartition(
            self._topic_partition.partition, offset, self._partition_max_bytes, leader.leader_epoch
        )
        by_id = version >= TOPIC_ID_VERSION
        request = FetchRequest(
            CONSUMER,
            self._max_wait_ms,
            1,
            [
                FetchTopic(
                    None if by_id else topic.name, topic.topic_id if by_id else None, [partition]
                )
            ],
            max_bytes=self._max_bytes,
            isolation_level=READ_COMMITTED if self._read_committed else READ_UNCOMMITTED,
            rack_id=self._rack_id,
        )
        connection.send(FETCH, version, encode_fetch_request(request, version))
        self._waiting = connection

    def _receive(self, offset: int) -> Fetched | None:
        """The answer; None when the leader names another replica instead."""
        connection, self._waiting = self._waiting, None
        assert connection is not None, "a fetch is under way"
        answer = connection.receive()
        version = connection.agree(FETCH)
        response = self._cluster.decoded(connection, FETCH, version, answer, decode_fetch_response)
        raise_for(response.error_code, str(self._topic_partition))
        partition = response.topics[0].partitions[0] if response.topics else None
        if partition is None:
            return Fetched(offset, memoryview(b""), [], offset)
        raise_for(partition.error_code, str(self._topic_partition))
        if partition.preferred_read_replica >= 0:
            self._nearby = partition.preferred_read_replica
            return None
        return _chunk(offset, partition)


def _chunk(offset: int, partition: FetchPartitionResponse) -> Fetched:
    buffers = partition.records
    records = memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers))
    headers = split_batches(records, drop_partial_tail=True)
    next_offset = max(offset, headers[-1].next_offset) if headers else offset
    return Fetched(offset, records, partition.aborted or [], next_offset)
