"""A chunk of a partition as a fetch brought it, on its way to becoming records.

Batches are decoded when their records are wanted, and not before. Records before the position, end
markers and, for readers of committed records, those of aborted transactions are passed over: of
a producer that the answer lists as aborted, everything from the first offset named to its marker.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from odradek.client.errors import RecordError
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.records.batch import BatchHeader, split_batches
from odradek.records.columnar import ColumnBuffers, ColumnDecoder
from odradek.records.reader import read_batch
from odradek.records.record import Record

Deserializer = Callable[[bytes], Any]
_ABORT: Final = b"\0\0\0\0"


class ConsumerRecord(NamedTuple):
    """A record as a consumer gives it; `timestamp_type` is 0 CreateTime, 1 LogAppendTime."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    leader_epoch: int


class BadRecord(RecordError):
    """A record that cannot be read: `partition` and `offset` say which, to `seek` behind it."""

    def __init__(
        self, partition: TopicPartition, offset: int, reason: str, code: ErrorCode
    ) -> None:
        super().__init__(f"{partition} at offset {offset}: {reason}", code)
        self.partition: Final = partition
        self.offset: Final = offset


class FetchedChunk:
    """Whole batches of one partition from a position on. `position` moves as records are taken."""

    def __init__(
        self,
        partition: TopicPartition,
        fetch_offset: int,
        data: memoryview,
        aborted: list[tuple[int, int]] | None,
        *,
        check_crcs: bool = True,
    ) -> None:
        """Splits the chunk into batches.

        Raises:
            BadRecord: what came is no sequence of batches.
        """
        self.partition = partition
        self.position = fetch_offset
        self.size_bytes = len(data)
        self._data = data
        self._check_crcs = check_crcs
        self._aborted = deque(sorted(aborted or (), key=lambda each: each[1]))
        self._aborted_producers: set[int] = set()
        self._records: Iterator[Record] = iter(())
        try:
            self._batches = deque(split_batches(data, drop_partial_tail=True))
        except BrokerError as error:
            raise self._bad(fetch_offset, error) from error
        self.is_cut_off = not self._batches and len(data) > 0

    @property
    def high_offset(self) -> int:
        """The offset behind the last batch: where the next fetch begins."""
        return self._batches[-1].next_offset if self._batches else self.position

    def take(
        self, max_records: int, key: Deserializer | None, value: Deserializer | None
    ) -> list[ConsumerRecord]:
        """Up to that many records; none when the chunk is used up.

        Raises:
            BadRecord: the next record is damaged or cannot be deserialized; `position` is its own.
        """
        taken: list[ConsumerRecord] = []
        topic, partition = self.partition
        while len(taken) < max_records:
            record = next(self._records, None)
            if record is None:
                try:
                    if not self._open_batch():
                        break
                except BadRecord:
                    if taken:
                        break  # those before it first
                    raise
                continue
            if record.offset < self.position:
                continue
            try:
                shown_key = record.key if key is None or record.key is None else key(record.key)
                shown_value = (
                    record.value if value is None or record.value is None else value(record.value)
                )
            except Exception as error:
                self._records = _put_back(record, self._records)
                if taken:
                    break
                raise BadRecord(
                    self.partition,
                    record.offset,
                    f"cannot be deserialized: {error}",
                    ErrorCode.INVALID_RECORD,
                ) from error
            batch = record.batch
            taken.append(
                ConsumerRecord(
                    topic,
                    partition,
                    record.offset,
                    record.timestamp,
                    batch.timestamp_type,
                    shown_key,
                    shown_value,
                    record.headers,
                    batch.partition_leader_epoch,
                )
            )
            self.position = record.offset + 1
        return taken

    def columns(self, *, headers: bool = True) -> ColumnBuffers:
        """All that is left, in columns.

        Raises:
            BadRecord: a batch is damaged.
        """
        decoder = ColumnDecoder(
            headers=headers, start_offset=self.position, check_crc=self._check_crcs
        )
        while self._batches:
            header = self._batches[0]
            if not self._is_left_out(header):
                piece = bytes(self._data[header.position : header.end_position])
                try:
                    decoder.append(piece)
                except BrokerError as error:
                    raise self._bad(header.base_offset, error) from error
            self._batches.popleft()
            self.position = max(self.position, header.next_offset)
            if decoder.is_full:
                break
        return decoder.finish()

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left in it."""
        if self._batches:
            return False
        record = next(self._records, None)
        if record is None:
            return True
        self._records = _put_back(record, self._records)
        return False

    def _open_batch(self) -> bool:
        """Makes the next batch's records the current ones; whether there is one."""
        if not self._batches:
            return False
        header = self._batches[0]
        if self._is_left_out(header):
            self.position = max(self.position, header.next_offset)
        else:
            try:
                records = read_batch(self._data, header, check_crc=self._check_crcs)
            except BrokerError as error:
                raise self._bad(max(self.position, header.base_offset), error) from error
            self._records = _ending_at(self, records, header.next_offset)
        self._batches.popleft()
        return True

    def _is_left_out(self, header: BatchHeader) -> bool:
        while self._aborted and self._aborted[0][1] <= header.last_offset:
            self._aborted_producers.add(self._aborted.popleft()[0])
        if header.is_control:
            if header.producer_id in self._aborted_producers and self._is_abort(header):
                self._aborted_producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted_producers

    def _is_abort(self, header: BatchHeader) -> bool:
        try:
            [marker] = read_batch(self._data, header)
        except (BrokerError, ValueError):
            return False
        return marker.key == _ABORT

    def _bad(self, offset: int, error: BrokerError) -> BadRecord:
        return BadRecord(self.partition, offset, error.message, error.code)


def _put_back(record: Record, rest: Iterator[Record]) -> Iterator[Record]:
    yield record
    yield from rest


def _ending_at(chunk: FetchedChunk, records: list[Record], next_offset: int) -> Iterator[Record]:
    """The records; behind the last one the position skips what compaction took at the end."""
    yield from records
    chunk.position = max(chunk.position, next_offset)
