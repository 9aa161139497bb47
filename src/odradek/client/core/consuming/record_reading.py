"""The records of a batch as a consumer gives them, read where they lie. Compiled.

One loop creates the records that users get, without intermediate ones: reading is most of a
consumer's cost. The formats that nobody writes any more take the way of `records.reader`.
"""

from typing import Final

from mypy_extensions import i64

from odradek.client.core.consuming.consumer_record import ConsumerRecord, RecordHeaders
from odradek.model import TopicPartition
from odradek.records.batch import CREATE_TIME, BatchHeader, Buffer
from odradek.records.errors import InvalidRecords
from odradek.records.reader import checked_records_bytes, read_batch, read_headers
from odradek.records.varint import NEGATIVE, SIZE_MASK, field_end, read_packed, read_varlong

_LARGEST: Final = 0x7FFFFFFFFFFFFFFF


def read_consumer_records(
    partition: TopicPartition,
    buffer: Buffer,
    header: BatchHeader,
    first_offset: int,
    *,
    check_crc: bool,
) -> list[ConsumerRecord]:
    """The records of the batch of `header` from an offset on.

    Raises:
        CorruptRecords, InvalidRecords, UnsupportedCompression: as `records.reader.read_batch`.
    """
    if header.magic < 2:
        return _read_messages(partition, buffer, header, first_offset, check_crc)
    data = checked_records_bytes(buffer, header, check_crc=check_crc)
    try:
        return _read_records(partition, data, header, first_offset)
    except IndexError:
        raise InvalidRecords("the records end before the last one does") from None


def _read_messages(
    partition: TopicPartition,
    buffer: Buffer,
    header: BatchHeader,
    first_offset: int,
    check_crc: bool,
) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(
            partition[0],
            partition[1],
            record.offset,
            record.timestamp,
            header.timestamp_type,
            record.key,
            record.value,
            None,
            header.partition_leader_epoch,
        )
        for record in read_batch(buffer, header, check_crc=check_crc)
        if record.offset >= first_offset
    ]


def _read_records(
    where: TopicPartition, data: bytes, header: BatchHeader, first_offset: int
) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    topic, partition = where
    leader_epoch = header.partition_leader_epoch
    timestamp_type = header.timestamp_type
    is_create_time = timestamp_type == CREATE_TIME
    base_offset: i64 = header.base_offset
    base_timestamp: i64 = header.base_timestamp if is_create_time else header.max_timestamp
    # How far a timestamp may be from the base before it exceeds 64 bits.
    lowest: i64 = max(-_LARGEST - 1, -_LARGEST - 1 - header.base_timestamp)
    highest: i64 = min(_LARGEST, _LARGEST - header.base_timestamp)
    first: i64 = max(0, first_offset - header.base_offset)
    record_count: i64 = header.record_count
    size: i64 = len(data)
    position: i64 = 0
    index: i64 = 0
    while index < record_count:
        packed = read_packed(data, position)
        position += packed & SIZE_MASK
        end = position + (packed >> 4)
        if packed & NEGATIVE or end > size:
            raise InvalidRecords(f"record {index} does not end with the batch or before it")
        delta: i64 = data[position + 1]  # behind the attributes, which nobody uses yet
        if delta < 0x80:
            delta = delta >> 1 ^ -(delta & 1)
            position += 2
        else:
            delta, position = read_varlong(data, position + 1)
        if not is_create_time:
            delta = 0
        elif delta < lowest or delta > highest:
            raise InvalidRecords(f"record {index} has a timestamp of more than 64 bits")
        packed = read_packed(data, position)
        position += packed & SIZE_MASK
        offset_delta = packed >> 4
        if packed & NEGATIVE:
            raise InvalidRecords(f"record {index} has an offset before the batch's")
        packed = read_packed(data, position)
        start = position + (packed & SIZE_MASK)
        position = field_end(packed, start, end)
        key = None if packed & NEGATIVE else data[start:position]
        packed = read_packed(data, position)
        start = position + (packed & SIZE_MASK)
        position = field_end(packed, start, end)
        value = None if packed & NEGATIVE else data[start:position]
        headers: RecordHeaders | None = None
        if data[position] == 0:
            position += 1
        else:
            headers, position = read_headers(data, position, end)
        if position != end:
            raise InvalidRecords(f"record {index} is not as long as it says")
        if offset_delta >= first:
            records.append(
                ConsumerRecord(
                    topic,
                    partition,
                    base_offset + offset_delta,
                    base_timestamp + delta,
                    timestamp_type,
                    key,
                    value,
                    headers,
                    leader_epoch,
                )
            )
        index += 1
    if position != size:
        raise InvalidRecords(f"{size - position} bytes follow the last record")
    return records
