"""Builds one record batch of magic 2, record by record.

For the broker's own records (markers, coordinators), for its client, for conversions and for
tests. The batch is laid out as Kafka's producers lay it out: the base timestamp is the first
record's, offset deltas follow from `append`, or are given by `append_at` where a compacted or
converted batch has gaps.
"""

import struct
from collections.abc import Sequence
from typing import Final

from fastcrc import crc32
from librt.strings import BytesWriter

from odradek.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from odradek.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    Buffer,
)
from odradek.records.compression import compress
from odradek.records.varint import varint_size, write_varint

Headers = Sequence[tuple[str, bytes | None]]

_HEAD: Final = struct.Struct(">qiiB")
_CRC: Final = struct.Struct(">I")
_TAIL: Final = struct.Struct(">hiqqqhii")
_CONTROL_KEY: Final = struct.Struct(">hh")
_END_MARKER: Final = struct.Struct(">hi")


class RecordBatchBuilder:
    """A batch under construction. Call `build` after the last `append`, and again after
    `set_producer`.

    `log_append_time_ms` other than -1 makes it a LogAppendTime batch of that time.
    """

    def __init__(
        self,
        codec: int = 0,
        base_offset: int = 0,
        *,
        level: int | None = None,
        log_append_time_ms: int = NO_TIMESTAMP,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = NO_LEADER_EPOCH,
    ) -> None:
        self._codec = codec
        self._base_offset = base_offset
        self._level = level
        self._log_append_time_ms = log_append_time_ms
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._is_transactional = is_transactional
        self._is_control = is_control
        self._partition_leader_epoch = partition_leader_epoch
        self._records = BytesWriter()
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self._last_offset = base_offset - 1
        self._record_count = 0

    @property
    def record_count(self) -> int:
        """How many records were appended."""
        return self._record_count

    @property
    def size_bytes(self) -> int:
        """The size `build` would give without a codec."""
        return HEADER_BYTES + len(self._records)

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers = (),
    ) -> int:
        """Adds a record at the next offset and returns that offset."""
        offset = self._last_offset + 1
        self.append_at(offset, timestamp_ms, key, value, headers)
        return offset

    def append_at(
        self,
        offset: int,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers = (),
    ) -> None:
        """Adds a record at `offset`, which is above those of the records before."""
        assert offset > self._last_offset, f"{offset} is not above {self._last_offset}"
        if self._record_count == 0:
            self._base_timestamp = timestamp_ms
        out = self._records
        timestamp_delta = timestamp_ms - self._base_timestamp
        offset_delta = offset - self._base_offset
        size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
        size += _field_size(key) + _field_size(value) + varint_size(len(headers))
        encoded: list[tuple[bytes, Buffer | None]] = []
        if headers:  # few records have any: to go over none costs as much as the rest
            encoded = [(name.encode(), content) for name, content in headers]
            for header_name, content in encoded:
                size += _field_size(header_name) + _field_size(content)
        write_varint(out, size)
        out.append(0)
        write_varint(out, timestamp_delta)
        write_varint(out, offset_delta)
        _write_field(out, key)
        _write_field(out, value)
        write_varint(out, len(encoded))
        for header_name, content in encoded:
            _write_field(out, header_name)
            _write_field(out, content)
        self._last_offset = offset
        self._record_count += 1
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)

    def set_producer(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Sets the producer, before `build`: a batch is filled before its producer is known."""
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._is_transactional = is_transactional

    def build(self, last_offset: int = -1) -> bytes:
        """Builds the batch. `last_offset` keeps offsets at its end whose records are gone."""
        attributes = self._codec
        max_timestamp = self._max_timestamp
        if self._log_append_time_ms != NO_TIMESTAMP:
            attributes |= 1 << 3
            max_timestamp = self._log_append_time_ms
        if self._is_transactional:
            attributes |= TRANSACTIONAL_BIT
        if self._is_control:
            attributes |= CONTROL_BIT
        return assemble_batch(
            compress(self._codec, self._records.getvalue(), self._level),
            base_offset=self._base_offset,
            partition_leader_epoch=self._partition_leader_epoch,
            attributes=attributes,
            last_offset_delta=max(last_offset, self._last_offset) - self._base_offset,
            base_timestamp=self._base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._base_sequence,
            record_count=self._record_count,
        )


def assemble_batch(
    records: bytes,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytes:
    """Assembles a batch of magic 2 from its fields and its records, compressed already."""
    tail = _TAIL.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    crc = crc32.iscsi(records, crc32.iscsi(tail))
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(records)
    head = _HEAD.pack(base_offset, length, partition_leader_epoch, 2)
    return b"".join((head, _CRC.pack(crc), tail, records))


def build_end_marker(
    *,
    commit: bool,
    base_offset: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch that ends a producer's transaction in one partition."""
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )
    builder.append(
        timestamp_ms,
        _CONTROL_KEY.pack(0, 1 if commit else 0),
        _END_MARKER.pack(0, coordinator_epoch),
    )
    return builder.build()


def _field_size(data: Buffer | None) -> int:
    if data is None:
        return 1
    size = len(data)
    return varint_size(size) + size


def _write_field(out: BytesWriter, data: Buffer | None) -> None:
    if data is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(data))
        out.write(data if isinstance(data, bytes) else bytes(data))
