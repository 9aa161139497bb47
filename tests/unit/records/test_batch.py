"""Headers of batches: if these fail, every offset, producer id and checksum is read wrongly."""

import pytest
from fastcrc import crc32

from odradek.errors import ErrorCode
from odradek.records.batch import (
    LOG_APPEND_TIME,
    BatchHeader,
    check_checksum,
    checksum,
    parse_header,
    split_batches,
    stamp,
    stamp_timestamps,
)
from odradek.records.builder import RecordBatchBuilder, build_end_marker
from odradek.records.errors import CorruptRecords
from odradek.records.legacy import build_message
from odradek.records.reader import read_batch


def build(record_count: int = 3, **fields: int) -> bytes:
    builder = RecordBatchBuilder(**fields)
    for index in range(record_count):
        builder.append(1000 + index, b"k", b"v%d" % index)
    return builder.build()


def test_header_fields_are_where_kafka_puts_them() -> None:
    batch = build(
        base_offset=5,
        partition_leader_epoch=9,
        producer_id=77,
        producer_epoch=2,
        base_sequence=40,
        is_transactional=True,
    )
    header = parse_header(batch)
    assert int.from_bytes(batch[0:8], "big") == header.base_offset == 5
    assert int.from_bytes(batch[8:12], "big") == len(batch) - 12
    assert int.from_bytes(batch[12:16], "big") == header.partition_leader_epoch == 9
    assert batch[16] == header.magic == 2
    assert int.from_bytes(batch[17:21], "big") == header.crc == crc32.iscsi(batch[21:])
    assert int.from_bytes(batch[21:23], "big") == header.attributes == 0x10
    assert int.from_bytes(batch[23:27], "big") == header.last_offset_delta == 2
    assert int.from_bytes(batch[27:35], "big") == header.base_timestamp == 1000
    assert int.from_bytes(batch[35:43], "big") == header.max_timestamp == 1002
    assert int.from_bytes(batch[43:51], "big") == header.producer_id == 77
    assert int.from_bytes(batch[51:53], "big") == header.producer_epoch == 2
    assert int.from_bytes(batch[53:57], "big") == header.base_sequence == 40
    assert int.from_bytes(batch[57:61], "big") == header.record_count == 3
    assert (header.last_offset, header.next_offset, header.last_sequence) == (7, 8, 42)
    assert header.is_transactional
    assert header.has_producer_id
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header.size_bytes == header.end_position == len(batch)


def test_sequences_wrap_at_two_to_the_31() -> None:
    header = parse_header(build(3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 1))
    assert header.last_sequence == 1
    assert parse_header(build()).last_sequence == -1


@pytest.mark.parametrize("wrap", [bytes, bytearray, lambda b: memoryview(bytearray(b))])
def test_batches_are_split_whatever_the_buffer(wrap) -> None:
    first, second = build(), build(1, base_offset=3)
    headers = split_batches(wrap(first + second))
    assert [h.position for h in headers] == [0, len(first)]
    assert [h.base_offset for h in headers] == [0, 3]


def test_a_partial_tail_is_dropped_only_when_asked() -> None:
    batch = build()
    for cut in range(1, len(batch)):
        buffer = batch + batch[:cut]
        assert len(split_batches(buffer, drop_partial_tail=True)) == 1
        with pytest.raises(CorruptRecords):
            split_batches(buffer)


def test_lengths_and_magic_that_cannot_be() -> None:
    batch = bytearray(build())
    for length in (-1, 0, 48, -(2**31)):
        batch[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptRecords) as raised:
            parse_header(batch)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    for magic in (3, 127, 255):
        batch = bytearray(build())
        batch[16] = magic
        with pytest.raises(CorruptRecords):
            split_batches(batch, drop_partial_tail=True)


def test_stamping_a_place_leaves_the_checksum_right() -> None:
    buffer = bytearray(b"before" + build())
    stamp(memoryview(buffer), parse_header(buffer, 6), 1 << 40, 12)
    header = parse_header(buffer, 6)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 12)
    check_checksum(buffer, header)


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_is_one_bit_one_field_and_the_checksum(codec: int) -> None:
    buffer = bytearray(build(codec=codec))
    before = bytes(buffer)
    header = parse_header(buffer)
    stamp_timestamps(buffer, header, LOG_APPEND_TIME, 5_000)
    stamped = parse_header(buffer)
    assert (stamped.timestamp_type, stamped.max_timestamp, stamped.codec) == (1, 5_000, codec)
    assert (header.attributes, header.crc) == (stamped.attributes, stamped.crc)
    check_checksum(buffer, stamped)
    assert {record.timestamp for record in read_batch(buffer, stamped)} == {5_000}
    assert buffer[43:] == before[43:]


def test_a_wrong_checksum_names_both() -> None:
    buffer = bytearray(build())
    buffer[-1] ^= 1
    header = parse_header(buffer)
    with pytest.raises(CorruptRecords, match=f"{checksum(buffer, header)}.*{header.crc}"):
        check_checksum(buffer, header)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_have_a_header_too(magic: int) -> None:
    message = build_message(magic, 41, 1234, b"k", b"v", attributes=2)
    header = parse_header(message)
    assert (header.magic, header.base_offset, header.last_offset) == (magic, 41, 41)
    assert header.size_bytes == len(message) == (26, 34)[magic] + 2
    assert header.max_timestamp == (-1, 1234)[magic]
    assert (header.codec, header.producer_id, header.record_count) == (2, -1, -1)


def test_an_end_marker_is_one_control_record() -> None:
    batch = build_end_marker(
        commit=True,
        base_offset=10,
        timestamp_ms=1,
        producer_id=4,
        producer_epoch=1,
        coordinator_epoch=6,
    )
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    (record,) = read_batch(batch, header, check_crc=True)
    assert record.key == b"\0\0\0\1"
    assert record.value == b"\0\0\0\0\0\6"


def test_headers_compare_by_what_was_parsed() -> None:
    """Position is kept apart from the batch's own fields."""
    batch = build()
    one, two = parse_header(batch), parse_header(b"x" + batch, 1)
    assert isinstance(one, BatchHeader)
    assert (one.position, two.position) == (0, 1)
    assert one.crc == two.crc
