"""Building and reading: if these fail, tools, conversions and the broker's own records do."""

import pytest

from odradek.records.batch import parse_header
from odradek.records.builder import RecordBatchBuilder
from odradek.records.compression import Compression
from odradek.records.convert import down_convert
from odradek.records.errors import CorruptRecords, InvalidRecords
from odradek.records.legacy import build_message
from odradek.records.reader import iter_records, read_batch

HEADERS = [("empty", b""), ("none", None), ("", b"no key"), ("ä", b"\xff")]


@pytest.mark.parametrize("codec", Compression)
def test_records_come_back_as_they_were_appended(codec: Compression) -> None:
    builder = RecordBatchBuilder(codec, 1 << 40, producer_id=3, base_sequence=2**31 - 2)
    assert builder.append(1000, b"k", b"v", HEADERS) == 1 << 40
    builder.append(-1, None, None)
    builder.append(2**62, b"", memoryview(b"view"))
    builder.append_at((1 << 40) + 9, 999, b"late", b"")
    assert builder.record_count == 4
    batch = builder.build()
    if codec is Compression.NONE:
        assert builder.size_bytes == len(batch)
    first, second, third, last = iter_records(batch, check_crc=True)
    assert (first.key, first.value, first.headers) == (b"k", b"v", HEADERS)
    assert (second.timestamp, second.key, second.value, second.headers) == (-1, None, None, [])
    assert (third.timestamp, third.key, third.value) == (2**62, b"", b"view")
    assert (last.offset, last.timestamp) == ((1 << 40) + 9, 999)
    assert [first.sequence, third.sequence] == [2**31 - 2, 0]
    header = parse_header(batch)
    assert (header.record_count, header.last_offset_delta) == (4, 9)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 2**62)
    assert repr(second) == f"Record({second.offset}, -1, None, None)"


def test_an_empty_batch_keeps_the_offsets_it_stood_for() -> None:
    """Compaction leaves such batches behind, for the sequence of their producer."""
    batch = RecordBatchBuilder(0, 10, producer_id=1, base_sequence=4).build(last_offset=14)
    header = parse_header(batch)
    assert (header.last_offset, header.last_sequence, header.record_count) == (14, 8, 0)
    assert read_batch(batch, header, check_crc=True) == []


def test_offsets_only_rise() -> None:
    builder = RecordBatchBuilder()
    builder.append(0, None, None)
    with pytest.raises(AssertionError):
        builder.append_at(0, 0, None, None)


def test_a_partial_tail_ends_the_reading() -> None:
    builder = RecordBatchBuilder()
    builder.append(1, None, b"x")
    batch = builder.build()
    assert len(list(iter_records(batch + batch[:-1], drop_partial_tail=True))) == 1
    with pytest.raises(CorruptRecords):
        list(iter_records(batch + batch[:-1]))


def test_what_no_checksum_covers_is_looked_at() -> None:
    builder = RecordBatchBuilder()
    builder.append(1, None, b"x")
    batch = bytearray(builder.build())
    batch[0] = 0xFF
    with pytest.raises(CorruptRecords):
        list(iter_records(batch))
    batch[0] = 0x7F
    batch[1:8] = b"\xff" * 7
    with pytest.raises(CorruptRecords):
        list(iter_records(batch))


def test_timestamps_have_64_bits() -> None:
    batch = bytearray(RecordBatchBuilder().build())
    builder = RecordBatchBuilder()
    builder.append(0, None, None)
    builder.append(2, None, None)
    batch = bytearray(builder.build())
    batch[27:35] = (2**63 - 2).to_bytes(8, "big")
    with pytest.raises(InvalidRecords):
        list(iter_records(batch))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_down_conversion_keeps_offsets_and_drops_headers(magic: int, codec: int) -> None:
    builder = RecordBatchBuilder(codec, 100)
    builder.append(5, b"a", b"1", HEADERS)
    builder.append_at(107, 9, None, b"2")
    control = RecordBatchBuilder(0, 108, is_control=True)
    control.append(0, b"\0\0\0\1", b"")
    last = RecordBatchBuilder(codec, 109, log_append_time_ms=77)
    last.append(1, b"c", None)
    old = build_message(magic, 110, 3, b"d", b"4")
    source = builder.build() + control.build() + last.build() + old
    records = list(iter_records(down_convert(source + source[:30], magic), check_crc=True))
    assert [(r.offset, r.key, r.value) for r in records] == [
        (100, b"a", b"1"),
        (107, None, b"2"),
        (109, b"c", None),
        (110, b"d", b"4"),
    ]
    assert all(not r.headers and r.batch.magic == magic for r in records)
    expected = [(5, 0), (9, 0), (77, 1), (3, 0)] if magic == 1 else [(-1, 0)] * 4
    assert [(r.timestamp, r.timestamp_type) for r in records] == expected


def test_down_conversion_starts_where_the_consumer_asks() -> None:
    builder = RecordBatchBuilder(0, 0)
    for index in range(5):
        builder.append(index, None, b"%d" % index)
    batch = builder.build()
    offsets = [r.offset for r in iter_records(down_convert(batch, 1, from_offset=3))]
    assert offsets == [3, 4]
    assert down_convert(batch, 1, from_offset=9) == b""


def test_zstd_cannot_be_converted_down() -> None:
    builder = RecordBatchBuilder(Compression.ZSTD)
    builder.append(1, None, b"x")
    with pytest.raises(Exception, match="UNSUPPORTED_COMPRESSION_TYPE"):
        down_convert(builder.build(), 1)
