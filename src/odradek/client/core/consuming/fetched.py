"""A fetched chunk of a partition, before it becomes records. Compiled.

A batch is decoded when its records are wanted, and not before. Records before the position, end
markers and, for readers of committed records, those of aborted transactions are skipped: of a
producer that the answer lists as aborted, everything from the first offset named to its marker.
"""

from collections import deque
from typing import Any, Final

from odradek.client.core.consuming.consumer_record import (
    ConsumerRecord,
    DeserializeByTopic,
    Deserializing,
)
from odradek.client.core.consuming.record_reading import read_consumer_records
from odradek.client.errors import BadRecord
from odradek.errors import BrokerError, ErrorCode
from odradek.model import NO_LEADER_EPOCH, TopicPartition
from odradek.records.batch import BatchHeader, split_batches
from odradek.records.columnar import LARGEST_OFFSET, ColumnBuffers, ColumnDecoder
from odradek.records.reader import read_batch

_ABORT: Final = b"\0\0\0\0"


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
            BadRecord: the data is no sequence of batches.
        """
        self.partition = partition
        self.position = fetch_offset
        self.size_bytes = len(data)
        self._data = data
        self._check_crcs = check_crcs
        self._aborted = deque(sorted(aborted or (), key=_first_offset))
        self._aborted_producers: set[int] = set()
        # The batch that is being taken from: its records, the next of them, where it ends.
        self._records: list[ConsumerRecord] = []
        self._index = 0
        self._open: BatchHeader | None = None
        try:
            self._batches = deque(split_batches(data, drop_partial_tail=True))
        except BrokerError as error:
            raise self._bad(fetch_offset, error) from error
        self.is_cut_off = not self._batches and len(data) > 0
        # The offset behind the last batch: where the next fetch begins.
        self.end_offset = self._batches[-1].next_offset if self._batches else fetch_offset
        # The leaders' epochs of the record before `position`, as far as taken, and of the last one.
        self.leader_epoch = NO_LEADER_EPOCH
        self.end_leader_epoch = NO_LEADER_EPOCH
        if self._batches:
            self.end_leader_epoch = self._batches[-1].partition_leader_epoch

    def take(
        self, max_records: int, key: Deserializing | None, value: Deserializing | None
    ) -> list[ConsumerRecord]:
        """Up to that many records; none when the chunk is used up.

        Raises:
            BadRecord: the next record is damaged or cannot be deserialized; `position` is its own.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < max_records:
            if self._index < len(self._records):
                error = self._take_open(taken, max_records, key, value)
                if error is None:
                    continue
            else:
                try:
                    if self._open_batch():
                        continue
                    break
                except BadRecord as damage:
                    error = damage
            if not taken:
                raise error
            break  # those before it first
        return taken

    def _take_open(
        self,
        taken: list[ConsumerRecord],
        max_records: int,
        key: Deserializing | None,
        value: Deserializing | None,
    ) -> BadRecord | None:
        """Takes of the open batch as much as is wanted; the error that came before that."""
        some = self._records[self._index : self._index + max_records - len(taken)]
        error: BadRecord | None = None
        if key is not None or value is not None:
            good, error = self._deserialize(some, key, value)
            del some[good:]
        taken += some
        self._index += len(some)
        if some:
            self.position = some[-1].offset + 1
            self.leader_epoch = some[-1].leader_epoch
        if self._index == len(self._records):
            self._passed(self._open)
        return error

    def _deserialize(
        self, records: list[ConsumerRecord], key: Deserializing | None, value: Deserializing | None
    ) -> tuple[int, BadRecord | None]:
        """How many of the records are deserialized, and the error of the next."""
        for index, record in enumerate(records):
            bad = deserialize(self.partition, record, key, value)
            if bad is not None:
                return index, bad
        return len(records), None

    def columns(
        self, *, headers: bool = True, views: bool = False, end_offset: int = LARGEST_OFFSET
    ) -> ColumnBuffers:
        """All remaining records, up to a damaged batch, in columns; without the records from
        `end_offset` on. With `views` the values stay where they are.

        Raises:
            BadRecord: the next batch is damaged.
        """
        start_offset = self.position
        decoder = self._decoder(start_offset, end_offset, headers=headers, views=views)
        taken: list[BatchHeader] = []
        # Records that are not compressed are walked, and pointed at, in bytes; once for all.
        data = bytes(self._data)
        if self._open is not None and self._index < len(self._records):
            # The rest of a partly taken batch.
            self._batches.appendleft(self._open)
            self._records, self._index = [], 0
        while self._batches:
            header = self._batches[0]
            if not self._is_left_out(header):
                try:
                    decoder.append_batch(data, header)
                except BrokerError as error:
                    if not taken:
                        raise self._bad(max(self.position, header.base_offset), error) from error
                    # Those before it first, without what the decoder has of it.
                    decoder = self._decoder(start_offset, end_offset, headers=headers, views=views)
                    for good in taken:
                        decoder.append_batch(data, good)
                    break
                taken.append(header)
            self._batches.popleft()
            self._passed(header)
            if decoder.is_full:
                break
        return decoder.finish()

    def _decoder(
        self, start_offset: int, end_offset: int, *, headers: bool, views: bool
    ) -> ColumnDecoder:
        return ColumnDecoder(
            headers=headers,
            views=views,
            start_offset=start_offset,
            end_offset=end_offset,
            check_crc=self._check_crcs,
        )

    @property
    def is_used_up(self) -> bool:
        """Whether the chunk has no record left."""
        return not self._batches and self._index == len(self._records)

    def _open_batch(self) -> bool:
        """Makes the next batch's records the current ones; whether there is one."""
        if not self._batches:
            return False
        header = self._batches[0]
        records: list[ConsumerRecord] = []
        if not self._is_left_out(header):
            try:
                records = read_consumer_records(
                    self.partition,
                    self._data,
                    header,
                    self.position,
                    check_crc=self._check_crcs,
                )
            except BrokerError as error:
                raise self._bad(max(self.position, header.base_offset), error) from error
        self._records, self._index, self._open = records, 0, header
        if not records:
            self._passed(header)
        self._batches.popleft()
        return True

    def _passed(self, header: BatchHeader | None) -> None:
        """A batch is used up, with the offsets at its end that have no records any more."""
        if header is not None:
            self.position = max(self.position, header.next_offset)
            self.leader_epoch = header.partition_leader_epoch

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


def deserialize(
    partition: TopicPartition,
    record: ConsumerRecord,
    key: Deserializing | None,
    value: Deserializing | None,
) -> BadRecord | None:
    """Deserializes a record; returns the error, if any."""
    # Any: compiled code would hold what a deserializer gives to be bytes.
    shown_key: Any = record.key
    shown_value: Any = record.value
    try:
        if key is not None and shown_key is not None:
            shown_key = _made(key, record, shown_key)
        if value is not None and shown_value is not None:
            shown_value = _made(value, record, shown_value)
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        reason = f"cannot be deserialized: {error}"
        bad = BadRecord(partition, record.offset, reason, ErrorCode.INVALID_RECORD)
        bad.__cause__ = error
        return bad
    record.key, record.value = shown_key, shown_value
    return None


def _made(deserializing: Deserializing, record: ConsumerRecord, data: Any) -> Any:
    if isinstance(deserializing, DeserializeByTopic):
        return deserializing.make(record.topic, record.headers, data)
    return deserializing(data)


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]
