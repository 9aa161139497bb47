"""Compacts one batch: it stays as it is, or becomes smaller, empty, or nothing.

Offsets stay as they are: the first and the last offset of a batch survive all its records,
so that neither offsets nor sequences shift. An empty batch stays if it has the last sequence of a
producer that is still known, or ends the round. A batch with tombstones gets a delete horizon: the
attribute bit 6, and in the place of the base timestamp the moment from which on its tombstones may
go (KIP-534). A transaction's marker waits for a horizon as well.

Bytes in, bytes out; `segment_cleaner` handles files.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.model import NO_TIMESTAMP
from odradek.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME,
    BatchHeader,
    Buffer,
)
from odradek.records.builder import assemble_batch
from odradek.records.compression import compress
from odradek.records.legacy import build_message_set
from odradek.records.reader import read_batch, records_bytes
from odradek.records.record import Record
from odradek.storage.cleaner.cleaned_transactions import CleanedTransactions
from odradek.storage.cleaner.offset_map import OffsetMap
from odradek.storage.cleaner.record_filter import RecordFilter, collect_keys, shift_timestamps
from odradek.storage.log.recovery import check_batch

# The largest batch that the cleaner will unpack.
_LIMIT_BYTES: Final = 1 << 30


class LastRecord(NamedTuple):
    """The last known state of a producer: its last data offset (-1: none), its epoch."""

    offset: int
    epoch: int


class Retention(NamedTuple):
    """The inputs of a round of cleaning: times, and the producers that are still known."""

    now_ms: int
    delete_retention_ms: int
    producers: Mapping[int, LastRecord]


def collect_batch_keys(
    buffer: Buffer,
    header: BatchHeader,
    from_offset: int,
    offsets: OffsetMap,
    transactions: CleanedTransactions,
) -> bool:
    """Takes the keys of a batch into the map; false when the map is full before its end.

    Raises:
        BrokerError: the batch is damaged.
    """
    check_batch(buffer, header)
    if header.is_control:
        transactions.may_drop_marker(buffer, header)
    elif not transactions.is_aborted(header):
        if header.magic < 2:
            if not _collect_legacy_keys(read_batch(buffer, header), from_offset, offsets):
                return False
        elif not collect_keys(
            records_bytes(buffer, header, _LIMIT_BYTES),
            header.record_count,
            header.base_offset,
            from_offset,
            offsets,
        ):
            return False
    offsets.latest_offset = max(offsets.latest_offset, header.last_offset)
    return True


class BatchCleaner:
    """Cleans the batches of a log, in order, by the map of its dirty keys."""

    def __init__(
        self, offsets: OffsetMap, transactions: CleanedTransactions, retention: Retention
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._retention = retention
        self._filter = RecordFilter(offsets)

    def clean(
        self, buffer: Buffer, header: BatchHeader, *, drop_legacy_tombstones: bool
    ) -> Buffer | None:
        """Returns the batch's replacement; None for nothing.

        The batch itself comes back as a view of `buffer`. Messages of the old formats have no
        horizon: their tombstones are dropped when the caller says that their segment is old enough.

        Raises:
            BrokerError: the batch is damaged.
        """
        check_batch(buffer, header)
        whole = memoryview(buffer)[header.position : header.end_position]
        if header.base_offset > self._offsets.latest_offset:
            self._transactions.pass_over(header)
            return whole
        if header.magic < 2:
            return self._clean_legacy(whole, buffer, header, drop_legacy_tombstones)
        if header.is_control:
            return self._clean_control(whole, buffer, header)
        if self._transactions.is_aborted(header):
            return self._emptied(header)
        return self._clean_data(whole, buffer, header)

    def _clean_control(
        self, whole: memoryview, buffer: Buffer, header: BatchHeader
    ) -> Buffer | None:
        may_go = self._transactions.may_drop_marker(buffer, header)
        if header.record_count == 0 or (may_go and self._is_past_horizon(header)):
            return self._emptied(header)
        if not may_go or header.has_delete_horizon:
            return whole
        return self._with_horizon(header, records_bytes(buffer, header), header.record_count)

    def _clean_data(self, whole: memoryview, buffer: Buffer, header: BatchHeader) -> Buffer | None:
        records = records_bytes(buffer, header, _LIMIT_BYTES)
        found = self._filter
        found.filter(
            records, header.record_count, header.base_offset, self._is_past_horizon(header)
        )
        if found.kept_count == 0:
            return self._emptied(header)
        needs_horizon = found.has_tombstone and not header.has_delete_horizon
        if found.kept is None and not needs_horizon:
            return whole
        kept = records if found.kept is None else bytes(found.kept)
        if header.timestamp_type != LOG_APPEND_TIME:
            header.max_timestamp = header.base_timestamp + found.max_timestamp_delta
        if needs_horizon:
            return self._with_horizon(header, kept, found.kept_count)
        return _rebuilt(header, kept, found.kept_count, header.attributes, header.base_timestamp)

    def _clean_legacy(
        self, whole: memoryview, buffer: Buffer, header: BatchHeader, drop_tombstones: bool
    ) -> Buffer | None:
        records = read_batch(buffer, header, limit_bytes=_LIMIT_BYTES)
        kept = [record for record in records if self._keeps_legacy(record, drop_tombstones)]
        if len(kept) == len(records):
            return whole
        if not kept:
            return None
        is_append_time = header.magic == 1 and header.timestamp_type == LOG_APPEND_TIME
        time_ms = header.max_timestamp if is_append_time else NO_TIMESTAMP
        return build_message_set(kept, header.magic, header.codec, log_append_time_ms=time_ms)

    def _keeps_legacy(self, record: Record, drop_tombstones: bool) -> bool:
        if record.offset > self._offsets.latest_offset:
            return True
        if record.key is None or (record.value is None and drop_tombstones):
            return False
        return self._offsets.is_newest(bytes(record.key), record.offset)

    def _emptied(self, header: BatchHeader) -> bytes | None:
        """The batch without its records, if its sequence or offset is still needed."""
        if header.next_offset != self._offsets.latest_offset + 1 and not self._is_last_of_producer(
            header
        ):
            return None
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
        return _rebuilt(header, b"", 0, attributes, NO_TIMESTAMP)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if not header.has_producer_id:
            return False
        last = self._retention.producers.get(header.producer_id)
        if last is None:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self._retention.now_ms

    def _with_horizon(self, header: BatchHeader, records: bytes, record_count: int) -> bytes:
        horizon_ms = self._retention.now_ms + self._retention.delete_retention_ms
        shifted = shift_timestamps(records, record_count, horizon_ms - header.base_timestamp)
        attributes = header.attributes | DELETE_HORIZON_BIT
        return _rebuilt(header, shifted, record_count, attributes, horizon_ms)


def _rebuilt(
    header: BatchHeader, records: bytes, record_count: int, attributes: int, base_timestamp: int
) -> bytes:
    return assemble_batch(
        compress(attributes & CODEC_MASK, records) if records else b"",
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=record_count,
    )


def _collect_legacy_keys(records: list[Record], from_offset: int, offsets: OffsetMap) -> bool:
    for record in records:
        if record.offset >= from_offset:
            if record.key is not None and not offsets.put(bytes(record.key), record.offset):
                return False
            offsets.latest_offset = record.offset
    return True
