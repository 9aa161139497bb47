"""Converts stored batches down for clients that ask in an old Fetch version.

As in Kafka, the older format omits headers, producer ids and control batches. Offsets are kept, so
a consumer sees gaps where control batches were.
"""

from odradek.model import NO_TIMESTAMP
from odradek.records.batch import LOG_APPEND_TIME, BatchHeader, Buffer, split_batches
from odradek.records.compression import DEFAULT_LIMIT_BYTES
from odradek.records.legacy import build_message_set
from odradek.records.reader import read_batch


def down_convert(
    buffer: Buffer,
    magic: int,
    *,
    from_offset: int = 0,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> bytes:
    """Converts the batches of `buffer` to `magic` (0 or 1); batches of that format or older are
    copied.

    A last batch that the buffer cuts off is left out. Records below `from_offset` are left
    out where they are single messages; a compressed set is kept whole, as its consumer expects.

    Raises:
        CorruptRecords, InvalidRecords: a batch cannot be read.
        BrokerError: UNSUPPORTED_COMPRESSION_TYPE, a batch is compressed with zstd.
    """
    pieces: list[bytes] = []
    for header in split_batches(buffer, drop_partial_tail=True):
        if header.magic <= magic:
            pieces.append(bytes(buffer[header.position : header.end_position]))
        elif not header.is_control:
            pieces.append(_convert_batch(buffer, header, magic, from_offset, limit_bytes))
    return b"".join(pieces)


def _convert_batch(
    buffer: Buffer, header: BatchHeader, magic: int, from_offset: int, limit_bytes: int
) -> bytes:
    records = read_batch(buffer, header, limit_bytes=limit_bytes)
    if header.codec == 0:
        records = [record for record in records if record.offset >= from_offset]
    append_time = NO_TIMESTAMP
    if header.timestamp_type == LOG_APPEND_TIME:
        append_time = header.max_timestamp
    return build_message_set(records, magic, header.codec, log_append_time_ms=append_time)
