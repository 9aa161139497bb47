"""Reads records one by one, of any magic, for tools, conversions and the cleaner.

`read_batch` gives the records of one batch; `iter_records` those of a whole buffer. Checks what it
touches, so that bad bytes raise and never crash; checksums only where asked. `columnar` makes
columns instead of objects.

Records of magic 2 are walked in four more places, for speed: `walk` checks what is produced,
`columnar` makes columns, `storage.cleaner.record_filter` looks at keys, and the client's
`record_reading` makes what users get. Each is a compiled loop of its own: one walk for all would
call back, or make an object, for every record, which costs more than the loops do. They share
`varint`.
"""

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from odradek.records import legacy
from odradek.records.batch import (
    CREATE_TIME,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    check_checksum,
    split_batches,
)
from odradek.records.compression import DEFAULT_LIMIT_BYTES, decompress
from odradek.records.errors import CorruptRecords, InvalidRecords
from odradek.records.record import Record
from odradek.records.varint import read_varint, read_varlong

_LARGEST: Final = 0x7FFFFFFFFFFFFFFF
_LARGEST_BASE_OFFSET: Final = _LARGEST - 0x7FFFFFFF


def iter_records(
    buffer: Buffer,
    *,
    check_crc: bool = False,
    drop_partial_tail: bool = False,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Iterator[Record]:
    """All records of `buffer`, control records included (`Record.is_control`).

    Raises:
        CorruptRecords, InvalidRecords: as `split_batches` and `read_batch`.
    """
    for header in split_batches(buffer, drop_partial_tail=drop_partial_tail):
        yield from read_batch(buffer, header, check_crc=check_crc, limit_bytes=limit_bytes)


def read_batch(
    buffer: Buffer,
    header: BatchHeader,
    *,
    check_crc: bool = False,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> list[Record]:
    """The records of the batch of `header`, in order.

    Raises:
        CorruptRecords: the checksum or the codec says so.
        InvalidRecords: a record is malformed, or there are more or fewer than the header says.
        UnsupportedCompression: the codec does not exist.
    """
    if header.magic < 2:
        return legacy.read_message(buffer, header, check_crc=check_crc, limit_bytes=limit_bytes)
    records = checked_records_bytes(buffer, header, check_crc=check_crc, limit_bytes=limit_bytes)
    try:
        return _read_records(records, header)
    except IndexError:
        raise InvalidRecords("the records end before the last one does") from None


def checked_records_bytes(
    buffer: Buffer,
    header: BatchHeader,
    *,
    check_crc: bool = False,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> bytes:
    """Returns the bytes behind the header of a magic-2 batch, decompressed, if the header can be
    believed.

    Raises:
        CorruptRecords, InvalidRecords, UnsupportedCompression: as `read_batch`.
    """
    # No checksum covers the base offset.
    if not 0 <= header.base_offset <= _LARGEST_BASE_OFFSET:
        raise CorruptRecords(f"a batch cannot have the base offset {header.base_offset}")
    if check_crc:
        check_checksum(buffer, header)
    return records_bytes(buffer, header, limit_bytes)


def records_bytes(
    buffer: Buffer, header: BatchHeader, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes:
    """Returns the bytes behind the header of a magic-2 batch, decompressed.

    Raises:
        CorruptRecords, InvalidRecords, UnsupportedCompression: as `decompress`.
    """
    start, end = header.position + HEADER_BYTES, header.end_position
    if header.codec == 0:
        return bytes(buffer[start:end])
    return decompress(header.codec, memoryview(buffer)[start:end], limit_bytes)


def _read_records(data: bytes, header: BatchHeader) -> list[Record]:
    records: list[Record] = []
    position: i64 = 0
    for index in range(header.record_count):
        length, position = read_varint(data, position)
        end = position + length
        if length < 0 or end > len(data):
            raise InvalidRecords(f"record {index} does not end with the batch or before it")
        timestamp_delta, position = read_varlong(data, position + 1)
        offset_delta, position = read_varint(data, position)
        key, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
        headers, position = read_headers(data, position, end)
        if position != end:
            raise InvalidRecords(f"record {index} is not as long as it says")
        records.append(
            Record(
                header,
                header.base_offset + offset_delta,
                _timestamp(header, timestamp_delta),
                key,
                value,
                headers,
            )
        )
    if position != len(data):
        raise InvalidRecords(f"{len(data) - position} bytes follow the last record")
    return records


def _timestamp(header: BatchHeader, delta: int) -> int:
    if header.timestamp_type != CREATE_TIME:
        return header.max_timestamp
    timestamp = header.base_timestamp + delta
    if not -_LARGEST - 1 <= timestamp <= _LARGEST:
        raise InvalidRecords(f"the timestamp {timestamp} has more than 64 bits")
    return timestamp


def _read_bytes(data: bytes, position: i64) -> tuple[bytes | None, i64]:
    length, position = read_varint(data, position)
    if length < 0:
        if length != -1:
            raise InvalidRecords(f"a field has the length {length}")
        return None, position
    end = position + length
    if end > len(data):
        raise InvalidRecords(f"a field of {length} bytes ends behind the batch")
    return data[position:end], end


def read_headers(
    data: bytes, position: i64, end: i64
) -> tuple[list[tuple[str, bytes | None]], i64]:
    """The headers whose count stands at `position`, of a record that goes to `end`; where they end.

    Raises:
        InvalidRecords: they are malformed.
        IndexError: the data ends inside of them.
    """
    count, position = read_varint(data, position)
    headers: list[tuple[str, bytes | None]] = []
    if count < 0:
        raise InvalidRecords(f"a record has {count} headers")
    while count > 0:
        if position >= end:
            raise InvalidRecords(f"a record has {count} headers fewer than it says")
        key, position = _read_bytes(data, position)
        if key is None:
            raise InvalidRecords("a header has no key")
        value, position = _read_bytes(data, position)
        headers.append((key.decode("utf-8", "replace"), value))
        count -= 1
    return headers, position
