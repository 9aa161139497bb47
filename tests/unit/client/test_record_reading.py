"""If these fail, a consumer gives out other records than are in the log, or dies of bad ones."""

import copy
import pickle

import pytest

from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.core.consuming.fetched import FetchedChunk
from odradek.client.core.consuming.record_reading import read_consumer_records
from odradek.client.errors import BadRecord
from odradek.model import TopicPartition
from odradek.records.batch import HEADER_BYTES, split_batches
from odradek.records.builder import RecordBatchBuilder
from odradek.records.errors import CorruptRecords, InvalidRecords
from odradek.records.reader import iter_records

ONE = TopicPartition("t", 3)
BASE_MS = 1_700_000_000_000
SAMPLES = [
    (BASE_MS, None, b"first", ()),
    (BASE_MS + 5, b"key", None, ()),
    (BASE_MS - 70_000, b"", b"", [("a", b"1"), ("a", None), ("é", b"")]),
    (BASE_MS + 9, b"k" * 200, b"v" * 5_000, ()),
]


def batch(codec: int = 0, base_offset: int = 40, log_append_time_ms: int = -1) -> bytes:
    builder = RecordBatchBuilder(
        codec, base_offset, log_append_time_ms=log_append_time_ms, partition_leader_epoch=7
    )
    for sample in SAMPLES:
        builder.append(*sample)
    return builder.build()


def read(data: bytes, first_offset: int = 0, *, check_crc: bool = True) -> list[ConsumerRecord]:
    [header] = split_batches(data)
    return read_consumer_records(ONE, data, header, first_offset, check_crc=check_crc)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("log_append_time_ms", [-1, BASE_MS + 1_000])
def test_every_field_is_what_the_reader_of_batches_says(codec, log_append_time_ms):
    data = batch(codec, log_append_time_ms=log_append_time_ms)
    expected = [
        (each.offset, each.timestamp, each.timestamp_type, each.key, each.value, each.headers)
        for each in iter_records(data)
    ]
    found = read(data)
    assert [
        (each.offset, each.timestamp, each.timestamp_type, each.key, each.value, each.headers)
        for each in found
    ] == expected
    assert {(each.topic, each.partition, each.leader_epoch) for each in found} == {("t", 3, 7)}


def test_records_before_the_position_are_left_out():
    assert [each.offset for each in read(batch(), 42)] == [42, 43]
    assert read(batch(), 44) == []


def test_a_list_of_headers_is_kept_once_it_was_asked_for():
    record = read(batch())[0]
    record.headers.append(("x", b"y"))
    assert record.headers == [("x", b"y")]
    assert read(batch())[1].headers == []


def test_a_record_is_equal_to_its_copies_only():
    for record in read(batch()):
        assert copy.copy(record) == pickle.loads(pickle.dumps(record)) == record
    one, other = read(batch())[:2]
    assert one != other
    assert repr(one).startswith("ConsumerRecord(topic='t', partition=3, offset=40, timestamp=1700")


def test_a_value_that_is_no_json_is_told_with_its_place():
    """Of a hundred records nobody would know which one it is."""
    record = read(batch())[0]
    assert record._fields()[:3] == ("t", 3, 40)
    with pytest.raises(ValueError, match="the value of t-3 at offset 40 is no JSON: b'") as failed:
        record.json()
    assert failed.value.__context__ is None


def test_bad_bytes_are_told_and_nothing_else_happens():
    """Every byte of the records set to every of some values, without a checksum to tell."""
    data = batch()
    for position in range(HEADER_BYTES, HEADER_BYTES + 60):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = bytearray(data)
            changed[position] = value
            try:
                read(bytes(changed), check_crc=False)
            except InvalidRecords:
                continue
    cut = bytearray(data[: HEADER_BYTES + 30])
    cut[8:12] = (len(cut) - 12).to_bytes(4, "big")
    with pytest.raises(InvalidRecords):
        read(bytes(cut), check_crc=False)
    with pytest.raises(CorruptRecords):
        read(bytes(cut))


def test_a_chunk_gives_out_as_many_as_are_wanted_and_stops_before_a_bad_one():
    chunk = FetchedChunk(ONE, 41, memoryview(batch() + batch(base_offset=50)), None)
    assert [each.offset for each in chunk.take(2, None, None)] == [41, 42]
    assert chunk.position == 43
    assert [each.offset for each in chunk.take(3, None, None)] == [43, 50, 51]

    def upper(value: bytes) -> str:
        if len(value) > 100:
            raise ValueError("too long")
        return value.decode().upper()

    assert [each.value for each in chunk.take(9, None, upper)] == [""]
    assert chunk.position == 53
    with pytest.raises(BadRecord, match="too long") as told:
        chunk.take(9, None, upper)
    assert told.value.offset == 53
    assert [each.value for each in chunk.take(9, None, None)] == [b"v" * 5_000]
    assert (chunk.position, chunk.is_used_up) == (54, True)


def test_columns_are_given_out_up_to_a_bad_batch_whole():
    """The rows of the batches before it, and none of its own, which are good up to the last."""
    bad = bytearray(batch(base_offset=50))
    bad[-1] ^= 0xFF  # the last record has more headers than bytes
    chunk = FetchedChunk(
        ONE, 42, memoryview(batch() + batch(base_offset=44) + bad), None, check_crcs=False
    )
    columns = chunk.columns()
    assert columns.offset is not None
    offsets = list(memoryview(columns.offset).cast("q"))
    assert (offsets, columns.row_count, chunk.position) == ([42, 43, 44, 45, 46, 47], 6, 48)
    for _ in range(2):
        with pytest.raises(BadRecord) as told:
            chunk.columns()
        assert (told.value.offset, chunk.is_used_up) == (50, False)
