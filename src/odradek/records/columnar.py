"""Decodes batches straight into columns laid out as Apache Arrow lays them out.

No object is made per record beyond the slices of key and value, and Arrow itself is not
imported: `ColumnDecoder.finish` gives plain `bytes` that `pyarrow.Array.from_buffers` wraps
without a copy. The Spark source reads segments and Fetch answers with it; the columns it does
not ask for are walked over and cost nothing.

    binary column    validity bits (None: nothing is null), offsets int32[n + 1], data
    binary views     validity bits, views of 16 bytes a row, the buffers that they point into
    offset           int64[n]
    timestamp        int64[n], milliseconds
    timestamp_type   int32[n], 0 CreateTime, 1 LogAppendTime, -1 none (magic 0)
    headers          list<struct<key: string, value: binary>>, null where a record has none

Little endian, as Arrow is on every machine that Spark runs on. Control batches and records
outside the wanted offsets are left out, transactions are not looked at. Compiled; the writers
are `librt.strings`, which compiled code appends to without a call.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from odradek.records.batch import (
    CREATE_TIME,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    check_checksum,
    is_partial,
    parse_header,
)
from odradek.records.compression import DEFAULT_LIMIT_BYTES
from odradek.records.errors import CorruptRecords, InvalidRecords
from odradek.records.reader import read_batch, records_bytes
from odradek.records.record import Record
from odradek.records.varint import (
    NEGATIVE,
    SIZE_MASK,
    field_end,
    read_packed,
    read_varint,
    read_varlong,
)

NO_TIMESTAMP_TYPE: Final = -1
LARGEST_OFFSET: Final = 0x7FFFFFFFFFFFFFFF
SMALLEST: Final = -LARGEST_OFFSET - 1
LARGEST_OFFSET_BASE_OFFSET: Final = LARGEST_OFFSET - 0x7FFFFFFF
# Half of what int32 offsets can address: the batch that crosses it still fits.
LARGEST_BYTES: Final = 1 << 30
# As long a string as a view has room for.
INLINE_BYTES: Final = 12
_PADDING: Final = bytes(INLINE_BYTES)
_NO_VIEW: Final = bytes(16)


class BinaryBuffers:
    """A finished column of byte strings, nulls among them if `validity` is not None."""

    def __init__(self, validity: bytes | None, null_count: int, offsets: bytes, data: bytes):
        self.validity = validity
        self.null_count = null_count
        self.offsets = offsets
        self.data = data


class BinaryViewBuffers:
    """A finished column of byte strings that were not copied: Arrow's binary views. A view has a
    length and, of a string of 12 bytes at most, the string; of others the first four bytes, the
    number of a buffer of `data`, and the position in it.
    """

    def __init__(self, validity: bytes | None, null_count: int, views: bytes, data: list[bytes]):
        self.validity = validity
        self.null_count = null_count
        self.views = views
        self.data = data


class HeaderBuffers:
    """The finished headers column: lists into two child columns of `header_count` rows."""

    def __init__(
        self,
        validity: bytes | None,
        null_count: int,
        offsets: bytes,
        header_count: int,
        keys: BinaryBuffers,
        values: BinaryBuffers,
    ) -> None:
        self.validity = validity
        self.null_count = null_count
        self.offsets = offsets
        self.header_count = header_count
        self.keys = keys
        self.values = values


class ColumnBuffers:
    """The result of `ColumnDecoder.finish`; columns that were not asked for are None."""

    def __init__(
        self,
        row_count: int,
        key: BinaryBuffers | None,
        value: BinaryBuffers | None,
        offset: bytes | None,
        timestamp: bytes | None,
        timestamp_type: bytes | None,
        headers: HeaderBuffers | None,
        value_views: BinaryViewBuffers | None = None,
    ) -> None:
        self.row_count = row_count
        self.key = key
        self.value = value
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.headers = headers
        self.value_views = value_views


class _Validity:
    """One bit a row, lowest first, set where the row is not null; kept only once one is."""

    def __init__(self) -> None:
        self._bits = BytesWriter()
        self._row_count: i64 = 0
        self.null_count: i64 = 0

    def append_valid(self) -> None:
        row = self._row_count
        self._row_count = row + 1
        if self.null_count > 0:
            if row & 7 == 0:
                self._bits.append(1)
            else:
                byte = self._bits[row >> 3]
                self._bits[row >> 3] = byte | u8(1 << (row & 7))

    def append_null(self) -> None:
        row = self._row_count
        self._row_count = row + 1
        if self.null_count == 0:
            self._bits.write(b"\xff" * (row >> 3))
            self._bits.append((1 << (row & 7)) - 1)
        elif row & 7 == 0:
            self._bits.append(0)
        self.null_count += 1

    def finish(self) -> bytes | None:
        return self._bits.getvalue() if self.null_count > 0 else None


class _BinaryColumn:
    """A growing column of byte strings."""

    def __init__(self) -> None:
        self._validity = _Validity()
        self._offsets = BytesWriter()
        self._data = BytesWriter()
        write_i32_le(self._offsets, 0)

    @property
    def size_bytes(self) -> i64:
        """The size of its values in bytes."""
        return len(self._data)

    def append(self, value: bytes) -> None:
        self._data.write(value)
        write_i32_le(self._offsets, i32(len(self._data)))
        self._validity.append_valid()

    def append_null(self) -> None:
        write_i32_le(self._offsets, i32(len(self._data)))
        self._validity.append_null()

    def finish(self) -> BinaryBuffers:
        return BinaryBuffers(
            self._validity.finish(),
            self._validity.null_count,
            self._offsets.getvalue(),
            self._data.getvalue(),
        )


class _ViewColumn:
    """A growing column of byte strings that are not copied."""

    def __init__(self) -> None:
        self._validity = _Validity()
        self._views = BytesWriter()
        self._data: list[bytes] = []
        self._size_bytes: i64 = 0

    @property
    def size_bytes(self) -> i64:
        """The size of its values in bytes."""
        return self._size_bytes

    def point_into(self, data: bytes) -> None:
        """Makes values appended from now on point into this buffer."""
        if not self._data or self._data[-1] is not data:
            self._data.append(data)

    def append(self, data: bytes, start: i64, end: i64) -> None:
        length = end - start
        if length > INLINE_BYTES:
            write_i64_le(self._views, (i64(read_i32_le(data, start)) << 32) | length)
            write_i64_le(self._views, (start << 32) | (len(self._data) - 1))
        else:
            write_i32_le(self._views, i32(length))
            self._views.write(data[start:end])
            self._views.write(_PADDING[length:])
        self._size_bytes += length
        self._validity.append_valid()

    def append_null(self) -> None:
        self._views.write(_NO_VIEW)
        self._validity.append_null()

    def finish(self) -> BinaryViewBuffers:
        return BinaryViewBuffers(
            self._validity.finish(),
            self._validity.null_count,
            self._views.getvalue(),
            self._data,
        )


class _HeaderColumn:
    """The growing headers of all rows."""

    def __init__(self) -> None:
        self._validity = _Validity()
        self._offsets = BytesWriter()
        self._keys = _BinaryColumn()
        self._values = _BinaryColumn()
        self._header_count: i64 = 0
        write_i32_le(self._offsets, 0)

    @property
    def size_bytes(self) -> i64:
        """How many bytes keys and values have, with the offsets that Arrow keeps for each."""
        return self._keys.size_bytes + self._values.size_bytes + 8 * self._header_count

    def append_header(self, key: bytes, value: bytes | None) -> None:
        """One more header of the row that `end_row` will close."""
        if not key.isascii():
            # Kafka does not check that keys are UTF-8, Arrow's strings have to be.
            key = key.decode("utf-8", "replace").encode()
        self._keys.append(key)
        if value is None:
            self._values.append_null()
        else:
            self._values.append(value)
        self._header_count += 1

    def end_row(self, has_headers: bool) -> None:
        write_i32_le(self._offsets, i32(self._header_count))
        if has_headers:
            self._validity.append_valid()
        else:
            self._validity.append_null()

    def finish(self) -> HeaderBuffers:
        return HeaderBuffers(
            self._validity.finish(),
            self._validity.null_count,
            self._offsets.getvalue(),
            self._header_count,
            self._keys.finish(),
            self._values.finish(),
        )


class ColumnDecoder:
    """Turns batches into columns: `append` until there is enough, then `finish`, and again.

    With `views` values are not copied: `value_views` points at them in the appended buffer, or in
    its decompressed copy.

    Rows are the records of [`start_offset`, `end_offset`) whose times are not before `earliest_ms`
    and not after `latest_ms`. `append` stops behind the batch
    that reaches `max_rows` or `max_bytes` of data: `is_full` then, and `finish` makes room. After
    an exception the rows of the damaged batch may be there in part: give the decoder up.
    """

    def __init__(
        self,
        *,
        key: bool = True,
        value: bool = True,
        offset: bool = True,
        timestamp: bool = True,
        timestamp_type: bool = True,
        headers: bool = False,
        start_offset: int = 0,
        end_offset: int = LARGEST_OFFSET,
        earliest_ms: int | None = None,
        latest_ms: int | None = None,
        max_rows: int = 1 << 20,
        max_bytes: int = LARGEST_BYTES,
        check_crc: bool = False,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        views: bool = False,
    ) -> None:
        self._views = views
        self._wants_key = key
        self._wants_value = value
        self._wants_offset = offset
        self._wants_timestamp = timestamp
        self._wants_timestamp_type = timestamp_type
        self._wants_headers = headers
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._earliest_ms = SMALLEST if earliest_ms is None else max(SMALLEST, earliest_ms)
        self._latest_ms = LARGEST_OFFSET if latest_ms is None else min(LARGEST_OFFSET, latest_ms)
        assert max_bytes <= LARGEST_BYTES, f"{max_bytes} bytes cannot be addressed"
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._check_crc = check_crc
        self._limit_bytes = limit_bytes
        self._next_offset = start_offset
        self._clear()

    def _clear(self) -> None:
        self._row_count: i64 = 0
        self._keys = _BinaryColumn()
        self._values = _BinaryColumn()
        self._value_views = _ViewColumn()
        self._offsets = BytesWriter()
        self._timestamps = BytesWriter()
        self._timestamp_types = BytesWriter()
        self._headers = _HeaderColumn()

    @property
    def row_count(self) -> int:
        """How many rows `finish` would give."""
        return self._row_count

    @property
    def data_bytes(self) -> int:
        """How many bytes of keys, values and headers have been gathered."""
        values_bytes = self._values.size_bytes + self._value_views.size_bytes
        return self._keys.size_bytes + values_bytes + self._headers.size_bytes

    @property
    def is_full(self) -> bool:
        """Whether `append` takes nothing more before a `finish`."""
        return self._row_count >= self._max_rows or self.data_bytes >= self._max_bytes

    @property
    def next_offset(self) -> int:
        """The offset after the last batch seen, even if no row came from it."""
        return self._next_offset

    @property
    def is_done(self) -> bool:
        """Whether `end_offset` is reached; further batches would add nothing."""
        return self._next_offset >= self._end_offset

    def append(self, buffer: Buffer, position: int = 0) -> int:
        """Takes whole batches from `position` on; returns the position of the first one not taken.

        That is the end of the buffer, a batch that the buffer cuts off, or whatever follows
        when the decoder is full or done.

        Raises:
            CorruptRecords, InvalidRecords, UnsupportedCompression: a batch is damaged.
        """
        end = len(buffer)
        while position < end and not self.is_full and not self.is_done:
            if is_partial(buffer, position):
                break
            header = parse_header(buffer, position)
            self.append_batch(buffer, header)
            position += header.size_bytes
        return position

    def finish(self) -> ColumnBuffers:
        """The columns so far. The decoder is empty then, and continues with the next batch."""
        columns = ColumnBuffers(
            self._row_count,
            self._keys.finish() if self._wants_key else None,
            self._values.finish() if self._wants_value and not self._views else None,
            self._offsets.getvalue() if self._wants_offset else None,
            self._timestamps.getvalue() if self._wants_timestamp else None,
            self._timestamp_types.getvalue() if self._wants_timestamp_type else None,
            self._headers.finish() if self._wants_headers else None,
            self._value_views.finish() if self._wants_value and self._views else None,
        )
        self._clear()
        return columns

    def append_batch(self, buffer: Buffer, header: BatchHeader) -> None:
        """Takes the batch of `header`, whether there is room or not.

        Raises:
            CorruptRecords, InvalidRecords, UnsupportedCompression: it is damaged.
        """
        if not 0 <= header.base_offset <= LARGEST_OFFSET_BASE_OFFSET:
            raise CorruptRecords(f"a batch cannot have the base offset {header.base_offset}")
        if header.last_offset >= self._start_offset and not header.is_control:
            if header.magic < 2:
                self._append_messages(buffer, header)
            elif header.base_offset < self._end_offset and not self._is_of_other_times(header):
                if self._check_crc:
                    check_checksum(buffer, header)
                try:
                    self._append_records(buffer, header)
                except IndexError:
                    raise InvalidRecords("the records end before the last one does") from None
        self._next_offset = header.next_offset

    def _is_of_other_times(self, header: BatchHeader) -> bool:
        """Whether the header of a magic-2 batch rules out all times that are wanted."""
        is_late = header.max_timestamp > self._latest_ms
        is_append_time = header.timestamp_type != CREATE_TIME
        return header.max_timestamp < self._earliest_ms or (is_append_time and is_late)

    def _append_messages(self, buffer: Buffer, header: BatchHeader) -> None:
        """Decodes the old formats; slow, since they are rare."""
        records = read_batch(
            buffer, header, check_crc=self._check_crc, limit_bytes=self._limit_bytes
        )
        for record in records:
            is_wanted = self._earliest_ms <= record.timestamp <= self._latest_ms
            if is_wanted and self._start_offset <= record.offset < self._end_offset:
                self._append_record(
                    record, NO_TIMESTAMP_TYPE if header.magic == 0 else record.timestamp_type
                )

    def _append_record(self, record: Record, timestamp_type: int) -> None:
        if self._wants_key:
            _append_optional(self._keys, record.key)
        if self._wants_value:
            self._append_value(record.value)
        if self._wants_headers:
            self._headers.end_row(False)
        if self._wants_offset:
            write_i64_le(self._offsets, record.offset)
        if self._wants_timestamp:
            write_i64_le(self._timestamps, record.timestamp)
        if self._wants_timestamp_type:
            write_i32_le(self._timestamp_types, i32(timestamp_type))
        self._row_count += 1

    def _append_value(self, value: bytes | None) -> None:
        if not self._views:
            _append_optional(self._values, value)
        elif value is None:
            self._value_views.append_null()
        else:
            self._value_views.point_into(value)
            self._value_views.append(value, 0, len(value))

    def _append_records(self, buffer: Buffer, header: BatchHeader) -> None:
        """Decodes every record of a magic-2 batch, without a copy if the buffer is `bytes`."""
        if header.codec == 0 and isinstance(buffer, bytes):
            start = header.position + HEADER_BYTES
            self._walk(buffer, start, header.end_position, header)
        else:
            records = records_bytes(buffer, header, self._limit_bytes)
            self._walk(records, 0, len(records), header)

    def _walk(self, data: bytes, position: i64, size: i64, header: BatchHeader) -> None:
        """The hot loop: the records of `data[position:size]`."""
        base_offset: i64 = header.base_offset
        record_count: i64 = header.record_count
        timestamp_type = i32(header.timestamp_type)
        is_create_time = header.timestamp_type == CREATE_TIME
        begin_ms = header.base_timestamp if is_create_time else header.max_timestamp
        base_timestamp: i64 = begin_ms
        lowest: i64 = max(SMALLEST, SMALLEST - header.base_timestamp)
        highest: i64 = min(LARGEST_OFFSET, LARGEST_OFFSET - header.base_timestamp)
        # The wanted part of the batch, as deltas.
        first: i64 = max(0, self._start_offset - header.base_offset)
        behind: i64 = min(LARGEST_OFFSET, self._end_offset - header.base_offset)
        earliest: i64 = max(SMALLEST, min(LARGEST_OFFSET, self._earliest_ms - begin_ms))
        latest: i64 = max(SMALLEST, min(LARGEST_OFFSET, self._latest_ms - begin_ms))
        keys = self._keys if self._wants_key else None
        values = self._values if self._wants_value and not self._views else None
        views = self._value_views if self._wants_value and self._views else None
        if views is not None:
            views.point_into(data)
        headers = self._headers if self._wants_headers else None
        offsets = self._offsets if self._wants_offset else None
        timestamps = self._timestamps if self._wants_timestamp else None
        timestamp_types = self._timestamp_types if self._wants_timestamp_type else None
        index: i64 = 0
        row_count: i64 = 0
        while index < record_count:
            packed = read_packed(data, position)
            position += packed & SIZE_MASK
            end = position + (packed >> 4)
            if packed & NEGATIVE or end > size:
                raise InvalidRecords(f"record {index} does not end with the batch or before it")
            delta: i64 = data[position + 1]
            if delta < 0x80:
                delta = delta >> 1 ^ -(delta & 1)
                position += 2
            else:
                delta, position = read_varlong(data, position + 1)
            packed = read_packed(data, position)
            position += packed & SIZE_MASK
            offset_delta = packed >> 4
            if packed & NEGATIVE or delta < lowest or delta > highest:
                raise InvalidRecords(f"record {index} has a timestamp or an offset out of range")
            if not is_create_time:
                delta = 0
            if not (first <= offset_delta < behind and earliest <= delta <= latest):
                position = end
                index += 1
                continue
            packed = read_packed(data, position)
            start = position + (packed & SIZE_MASK)
            position = field_end(packed, start, end)
            if keys is not None:
                _append_field(keys, packed, data, start, position)
            packed = read_packed(data, position)
            start = position + (packed & SIZE_MASK)
            position = field_end(packed, start, end)
            if values is not None:
                _append_field(values, packed, data, start, position)
            elif views is not None:
                if packed & NEGATIVE:
                    views.append_null()
                else:
                    views.append(data, start, position)
            if data[position] != 0:
                position = _append_headers(data, position, end, headers)
            else:
                position += 1
                if headers is not None:
                    headers.end_row(False)
            if position != end:
                raise InvalidRecords(f"record {index} is not as long as it says")
            if offsets is not None:
                write_i64_le(offsets, base_offset + offset_delta)
            if timestamps is not None:
                write_i64_le(timestamps, base_timestamp + delta)
            if timestamp_types is not None:
                write_i32_le(timestamp_types, timestamp_type)
            row_count += 1
            index += 1
        if position != size:
            raise InvalidRecords(f"{size - position} bytes follow the last record")
        self._row_count += row_count


def _append_field(column: _BinaryColumn, packed: i64, data: bytes, start: i64, end: i64) -> None:
    if packed & NEGATIVE:
        column.append_null()
    else:
        column.append(data[start:end])


def _append_optional(column: _BinaryColumn, value: bytes | None) -> None:
    if value is None:
        column.append_null()
    else:
        column.append(value)


def _append_headers(data: bytes, position: i64, end: i64, column: _HeaderColumn | None) -> i64:
    """Adds the headers whose count stands at `position`, if they are wanted; where they end."""
    count, position = read_varint(data, position)
    if count < 0:
        raise InvalidRecords(f"a record has {count} headers")
    left: i64 = count
    while left > 0:
        if position >= end:
            raise InvalidRecords(f"a record has {left} headers fewer than it says")
        key_length, key_start = read_varint(data, position)
        if key_length < 0:
            raise InvalidRecords(f"a header key has the length {key_length}")
        value_length, value_start = read_varint(data, key_start + key_length)
        if value_length < -1:
            raise InvalidRecords(f"a header value has the length {value_length}")
        position = value_start + max(value_length, 0)
        if position > end:
            raise InvalidRecords("a header does not end within its record")
        if column is not None:
            value = None if value_length < 0 else data[value_start:position]
            column.append_header(data[key_start : key_start + key_length], value)
        left -= 1
    if column is not None:
        column.end_row(count > 0)
    return position
