"""Reads a topic of running brokers on and on, for a test that asks what is in it."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.core.consuming.fetched import FetchedChunk
from odradek.errors import BrokerError, ErrorCode, without_frames
from odradek.model import TopicPartition
from odradek.replication.delayed.fetch import DelayedFetch
from odradek.replication.fetch import CONSUMER_REPLICA_ID, FetchInfo, FetchParams
from odradek.server.in_process.calls.running_brokers import RunningBrokers

if TYPE_CHECKING:
    from odradek.tables.arrow import Table
    from odradek.tables.plan.ranges import OffsetRange

READ_BYTES: Final = 1 << 20
NEVER_MS: Final = 2**31 - 1
# An election is under way, or is awaited; the last of a broker whose session has just ended.
WITHOUT_LEADER: Final = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class TopicReader:
    """Keeps what it has read of a topic, or of one partition of it."""

    def __init__(
        self, brokers: RunningBrokers, topic: str, partition: int | None, read_committed: bool
    ) -> None:
        self._brokers = brokers
        self._topic = topic
        self._partition = partition
        self._params = FetchParams(CONSUMER_REPLICA_ID, NEVER_MS, 1, READ_BYTES, read_committed)
        self._topic_id: UUID | None = None
        self._positions: dict[int, int] = {}
        self._records: list[ConsumerRecord] = []
        self._unread: BrokerError | None = None

    @property
    def count(self) -> int:
        """How many records it has read."""
        return len(self._records)

    def records(self) -> list[ConsumerRecord]:
        """The records read so far, by partition and offset."""
        return sorted(self._records, key=lambda record: (record.partition, record.offset))

    async def read_on(self) -> None:
        """Reads every partition to its end.

        Raises:
            BrokerError: a partition cannot be read.
        """
        for index in self._indexes():
            await self._read_partition(index)

    async def _read_partition(self, index: int) -> None:
        while (chunk := self._next_chunk(index)) is not None:
            while taken := chunk.take(1000, None, None):
                self._records += taken
            if not self._moved_to(index, chunk.position):
                break
            await asyncio.sleep(0)  # others are served between two chunks

    async def read_what_is_led(self) -> None:
        """Reads on; a partition that has no leader at the moment is read when it has one again.

        Raises:
            BrokerError: a partition cannot be read.
        """
        self._unread = None
        for index in self._indexes():
            try:
                await self._read_partition(index)
            except BrokerError as error:
                if error.code not in WITHOUT_LEADER:
                    raise
                self._unread = without_frames(error)

    @property
    def unread_in_words(self) -> str:
        """Why a partition could not be read, for the end of a sentence; empty if all could."""
        return "" if self._unread is None else f" ({self._unread.message})"

    async def arrow_table(self, ranges: "Iterable[OffsetRange]", columns: Sequence[str]) -> "Table":
        """The records of ranges as an Arrow table."""
        from odradek.tables.arrow import arrow_schema, arrow_table, record_batch

        schema = arrow_schema(columns)
        batches = []
        for piece in ranges:
            where = piece.topic_partition
            index = where.partition
            self._positions[index] = piece.start
            while (
                self._positions[index] < piece.end
                and (chunk := self._next_chunk(index)) is not None
            ):
                while not chunk.is_used_up:
                    buffers = chunk.columns(end_offset=piece.end)
                    batches.append(record_batch(buffers, schema, where))
                if not self._moved_to(index, chunk.position):
                    break
                await asyncio.sleep(0)  # as in `read_on`
        return arrow_table(batches, schema)

    def park(self, wake: Callable[[], None]) -> list[DelayedFetch]:
        """Calls `wake` when there is more to read, at once if there is already. Where nobody leads,
        a change of the metadata wakes."""
        return [
            fetch
            for index, position in self._positions.items()
            if (fetch := self._park_at(TopicPartition(self._topic, index), position, wake))
        ]

    def _park_at(
        self, where: TopicPartition, position: int, wake: Callable[[], None]
    ) -> DelayedFetch | None:
        info = FetchInfo(where, position, READ_BYTES)
        try:
            replicas = self._brokers.leader(where).replicas
            # The metadata may name one that has just ceased to: its refusal would wake at once.
            replicas.partition(where).leader_log()
        except BrokerError:
            return None
        # Whoever wakes reads anew.
        return replicas.fetch_messages(self._params, [info], lambda _results: wake())

    def _indexes(self) -> Sequence[int]:
        topic = self._brokers.find(self._topic)
        if topic is not None and topic.topic_id != self._topic_id:
            self._topic_id = topic.topic_id
            # Those of an earlier topic of this name are not its records.
            self._positions.clear()
            self._records.clear()
        if self._partition is not None:
            return (self._partition,)
        return () if topic is None else range(len(topic.partitions))

    def _next_chunk(self, index: int) -> FetchedChunk | None:
        """The next chunk of a partition, if there is one."""
        where = TopicPartition(self._topic, index)
        replicas = self._brokers.leader(where).replicas
        start = replicas.partition(where).leader_log().log_start_offset
        position = max(self._positions.get(index, start), start)
        self._positions[index] = position
        result = replicas.partitions.read(self._params, [FetchInfo(where, position, READ_BYTES)])[0]
        if result.error_code != ErrorCode.NONE:
            text = f"{where} at offset {position}: {result.error_code.text}"
            raise BrokerError(result.error_code, text)
        data = b"".join(result.records)
        if not data:
            return None
        return FetchedChunk(where, position, memoryview(data), result.aborted)

    def _moved_to(self, index: int, position: int) -> bool:
        """Notes how far a partition was read; whether that is further than before."""
        before, self._positions[index] = self._positions[index], position
        return position > before
