"""Messages of magic 0 and 1: read, build, and convert to and from batches of magic 2.

    position  0 offset (8)                       magic 1 only: 18 timestamp (8)
              8 length of what follows (4)       then: key length (4), key,
             12 CRC-32 of 16... (4)                    value length (4), value
             16 magic (1)
             17 attributes (1): bits 0-2 codec, bit 3 LogAppendTime (magic 1)

So a message takes 26 bytes (magic 0) or 34 (magic 1) around its key and value. A compressed one is
a wrapper: its value is a whole set of messages, its offset that of the *last* one. Inside, magic 0
has the offsets of the log; magic 1 has 0, 1, 2..., counted back from the wrapper's. A wrapper's
LogAppendTime counts for all inside. Clarity matters more than speed here: these formats are rarely
written today.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from odradek.errors import BrokerError, ErrorCode
from odradek.model import NO_TIMESTAMP
from odradek.records.batch import (
    CODEC_MASK,
    LEGACY_OVERHEAD_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    split_batches,
)
from odradek.records.compression import DEFAULT_LIMIT_BYTES, Compression, compress, decompress
from odradek.records.errors import CorruptRecords, InvalidRecords
from odradek.records.record import Record

_ENTRY: Final = struct.Struct(">qiI")
_MAGIC_0: Final = struct.Struct(">BB")
_MAGIC_1: Final = struct.Struct(">BBq")
_LENGTH: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")


def message_checksum(buffer: Buffer, header: BatchHeader) -> int:
    """The CRC-32 that the message of `header` should have."""
    return zlib.crc32(memoryview(buffer)[header.position + MAGIC_POSITION : header.end_position])


def check_message(buffer: Buffer, header: BatchHeader) -> None:
    """Compares a message with its checksum.

    Raises:
        CorruptRecords: they differ.
    """
    computed = message_checksum(buffer, header)
    if computed != header.crc:
        raise CorruptRecords(
            f"the message at position {header.position} is corrupt: its CRC-32 is {computed}, "
            f"it says {header.crc}"
        )


def read_message(
    buffer: Buffer,
    header: BatchHeader,
    *,
    check_crc: bool = False,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> list[Record]:
    """The record of one message, or all records of a compressed one.

    Raises:
        CorruptRecords: a checksum, a length or the codec says so.
        InvalidRecords: a wrapper that holds what it may not.
    """
    if check_crc:
        check_message(buffer, header)
    key, value = _key_and_value(buffer, header)
    if header.codec == Compression.NONE:
        return [Record(header, header.base_offset, header.max_timestamp, key, value, [])]
    return _read_wrapped(header, value, check_crc, limit_bytes)


def first_offset(buffer: Buffer, header: BatchHeader) -> int:
    """The first record's offset in the message of `header`; a compressed one is read for it."""
    if header.codec == Compression.NONE:
        return header.base_offset
    return read_message(buffer, header)[0].offset


def _key_and_value(buffer: Buffer, header: BatchHeader) -> tuple[bytes | None, bytes | None]:
    position = header.position + LOG_OVERHEAD_BYTES + LEGACY_OVERHEAD_BYTES[header.magic] - 8
    key, position = _read_field(buffer, position, header)
    value, position = _read_field(buffer, position, header)
    if position != header.end_position:
        raise CorruptRecords(f"the message at position {header.position} is not as long as it says")
    return key, value


def _read_field(buffer: Buffer, position: int, header: BatchHeader) -> tuple[bytes | None, int]:
    start = position + 4
    if start > header.end_position:
        raise CorruptRecords(f"the message at position {header.position} has no room for a length")
    length: int = _LENGTH.unpack_from(buffer, position)[0]
    if length == -1:
        return None, start
    end = start + length
    if length < 0 or end > header.end_position:
        raise CorruptRecords(
            f"the message at position {header.position} has a field of {length} bytes"
        )
    return bytes(buffer[start:end]), end


def _read_wrapped(
    wrapper: BatchHeader, value: bytes | None, check_crc: bool, limit_bytes: int
) -> list[Record]:
    if value is None:
        raise InvalidRecords("a compressed message holds no messages")
    inside = decompress(wrapper.codec, value, limit_bytes, broken_lz4_header=wrapper.magic == 0)
    headers = split_batches(inside)
    if not headers:
        raise InvalidRecords("a compressed message holds no messages")
    # Magic 1 counts from 0 inside; the wrapper has the last one's place in the log.
    shift = wrapper.base_offset - headers[-1].base_offset if wrapper.magic == 1 else 0
    records: list[Record] = []
    for header in headers:
        if header.magic != wrapper.magic:
            raise InvalidRecords(
                f"a message of magic {header.magic} lies in one of magic {wrapper.magic}"
            )
        if header.codec != Compression.NONE:
            raise InvalidRecords("a compressed message lies in a compressed one")
        if check_crc:
            check_message(inside, header)
        key, inner_value = _key_and_value(inside, header)
        timestamp = header.max_timestamp
        if wrapper.timestamp_type == LOG_APPEND_TIME:
            timestamp = wrapper.max_timestamp
        offset = header.base_offset + shift
        records.append(Record(wrapper, offset, timestamp, key, inner_value, []))
    return records


def build_message(
    magic: int,
    offset: int,
    timestamp_ms: int,
    key: Buffer | None,
    value: Buffer | None,
    attributes: int = 0,
) -> bytes:
    """One message as it stands in a log; magic 0 drops the timestamp."""
    if magic == 0:
        head = _MAGIC_0.pack(0, attributes & CODEC_MASK)
    else:
        head = _MAGIC_1.pack(1, attributes, timestamp_ms)
    body = b"".join((head, _field(key), _field(value)))
    return _ENTRY.pack(offset, 4 + len(body), zlib.crc32(body)) + body


def _field(data: Buffer | None) -> bytes:
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data


def build_message_set(
    records: Sequence[Record],
    magic: int,
    codec: int = 0,
    *,
    base_offset: int | None = None,
    log_append_time_ms: int = NO_TIMESTAMP,
    level: int | None = None,
) -> bytes:
    """`records` as messages of `magic`, in one wrapper if there is a codec.

    Their offsets are kept, or counted from `base_offset` where it is given. Headers are lost:
    the format has no place for them.

    Raises:
        BrokerError: UNSUPPORTED_COMPRESSION_TYPE, zstd came after these formats.
    """
    if codec == Compression.ZSTD:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"messages of magic {magic} cannot be compressed with zstd",
        )
    if not records:
        return b""
    offsets = [record.offset for record in records]
    if base_offset is not None:
        offsets = list(range(base_offset, base_offset + len(records)))
    attributes = TIMESTAMP_TYPE_BIT if magic == 1 and log_append_time_ms != NO_TIMESTAMP else 0
    timestamps = [record.timestamp for record in records]
    if attributes:
        timestamps = [log_append_time_ms] * len(records)
    if codec == Compression.NONE:
        return _join(records, magic, offsets, timestamps, attributes)
    shift = offsets[0] if magic == 1 else 0
    inside = _join(records, magic, [offset - shift for offset in offsets], timestamps, attributes)
    value = compress(codec, inside, level, broken_lz4_header=magic == 0)
    return build_message(magic, offsets[-1], max(timestamps), None, value, attributes | codec)


def _join(
    records: Sequence[Record],
    magic: int,
    offsets: Iterable[int],
    timestamps: Iterable[int],
    attributes: int,
) -> bytes:
    return b"".join(
        build_message(magic, offset, timestamp, record.key, record.value, attributes)
        for record, offset, timestamp in zip(records, offsets, timestamps, strict=True)
    )
