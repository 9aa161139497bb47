"""The columns that Spark sees: if these fail, a topic and its DataFrame differ."""

import pytest

from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.records.columnar import BinaryViewBuffers, ColumnBuffers, ColumnDecoder
from odradek.records.compression import Compression
from odradek.records.errors import CorruptRecords, InvalidRecords
from odradek.records.legacy import build_message_set
from odradek.records.reader import iter_records
from odradek.records.record import Record

HEADERS = [[], [("h", b"x")], [("ä", None), ("", b"")], []]


def batch(base_offset: int, count: int, codec: int = 0, **fields) -> bytes:
    builder = RecordBatchBuilder(codec, base_offset, **fields)
    for offset in range(base_offset, base_offset + count):
        builder.append(
            1_000_000 + offset * 1000,
            None if offset % 3 == 1 else b"k%d" % offset,
            None if offset % 5 == 2 else b"v" * offset,
            HEADERS[offset % 4],
        )
    return builder.build()


def integers(column: bytes, width: int) -> list[int]:
    return [
        int.from_bytes(column[start : start + width], "little", signed=True)
        for start in range(0, len(column), width)
    ]


def bits(validity: bytes | None, count: int) -> list[bool]:
    if validity is None:
        return [True] * count
    assert len(validity) == (count + 7) // 8
    return [bool(validity[row // 8] >> (row % 8) & 1) for row in range(count)]


def values(column, count: int) -> list[bytes | None]:
    offsets = integers(column.offsets, 4)
    assert len(offsets) == count + 1
    valid = bits(column.validity, count)
    assert column.null_count == valid.count(False)
    return [
        column.data[offsets[row] : offsets[row + 1]] if valid[row] else None for row in range(count)
    ]


def rows(columns: ColumnBuffers) -> list[tuple]:
    count = columns.row_count
    headers: list = [None] * count
    if columns.headers is not None:
        lists = integers(columns.headers.offsets, 4)
        keys = values(columns.headers.keys, columns.headers.header_count)
        contents = values(columns.headers.values, columns.headers.header_count)
        pairs = [(k.decode(), v) for k, v in zip(keys, contents, strict=True)]
        valid = bits(columns.headers.validity, count)
        headers = [pairs[lists[r] : lists[r + 1]] if valid[r] else [] for r in range(count)]
    return list(
        zip(
            integers(columns.offset, 8),
            integers(columns.timestamp, 8),
            integers(columns.timestamp_type, 4),
            values(columns.key, count),
            values(columns.value, count),
            headers,
            strict=True,
        )
    )


def timestamp_type(record: Record) -> int:
    """Messages of magic 0 have no timestamps, and so no type of them, as Kafka's clients see it."""
    return record.timestamp_type if record.batch.magic else -1


def expected(buffer: bytes, start: int = 0, end: int = 1 << 62) -> list[tuple]:
    return [
        (r.offset, r.timestamp, timestamp_type(r), r.key, r.value, r.headers)
        for r in iter_records(buffer)
        if start <= r.offset < end and not r.is_control
    ]


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("wrap", [bytes, bytearray, lambda b: memoryview(bytearray(b))])
def test_columns_are_the_records(codec: Compression, wrap) -> None:
    data = (
        batch(0, 50, codec)
        + batch(50, 1, codec, is_control=True)
        + batch(51, 30, codec, log_append_time_ms=99)
    )
    decoder = ColumnDecoder(headers=True, check_crc=True)
    assert decoder.append(wrap(data)) == len(data)
    assert decoder.next_offset == 81
    columns = decoder.finish()
    assert columns.row_count == 80
    assert rows(columns) == expected(data)
    assert decoder.finish().row_count == 0


def seen(column: BinaryViewBuffers, count: int) -> list[bytes | None]:
    """The values of views, read as Arrow's specification has them."""
    valid = bits(column.validity, count)
    found: list[bytes | None] = []
    for row in range(count):
        view = column.views[16 * row : 16 * row + 16]
        length = int.from_bytes(view[:4], "little")
        data = view[4 : 4 + length]
        if length > 12:
            buffer, start = (int.from_bytes(view[at : at + 4], "little") for at in (8, 12))
            data = column.data[buffer][start : start + length]
            assert view[4:8] == data[:4], "Arrow compares by these first"
        else:
            assert not any(view[4 + length :]), "Arrow compares these, too"
        found.append(data if valid[row] else None)
    return found


def long_batch(base_offset: int, codec: Compression) -> bytes:
    builder = RecordBatchBuilder(codec, base_offset)
    for size in (None, 0, 1, 12, 13, 2_000):
        builder.append(5, b"k", None if size is None else (bytes(range(200, 210)) * 200)[:size], [])
    return builder.build()


@pytest.mark.parametrize("codec", Compression)
def test_views_show_the_same_values(codec: Compression) -> None:
    """Without a copy: each batch's records are pointed at where they were read."""
    data = long_batch(0, codec) + batch(6, 40, codec) + long_batch(46, Compression.NONE)
    decoder = ColumnDecoder(check_crc=True, views=True)
    assert decoder.append(data) == len(data)
    columns = decoder.finish()
    assert columns.value is None
    assert columns.value_views is not None
    assert columns.row_count == 52
    assert seen(columns.value_views, 52) == [record.value for record in iter_records(data)]
    if codec is Compression.NONE:
        assert [each is data for each in columns.value_views.data] == [True]


@pytest.mark.parametrize("wanted", ["binary", "binary_view"])
def test_arrow_takes_views(wanted: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    from odradek.tables.arrow import record_batch

    data = long_batch(0, Compression.ZSTD) + batch(6, 40)
    decoder = ColumnDecoder(views=True)
    decoder.append(data)
    schema = pa.schema([("value", getattr(pa, wanted)())])
    rows = record_batch(decoder.finish(), schema, TopicPartition("t", 0))
    rows.validate(full=True)
    assert rows.column("value").to_pylist() == [record.value for record in iter_records(data)]


def test_a_time_that_arrow_does_not_hold_is_told_with_its_partition() -> None:
    """Of a record whose clock counts nanoseconds nobody knew where it was."""
    pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    from odradek.tables.arrow import record_batch

    builder = RecordBatchBuilder(0, 0)
    for time in (1, 1_700_000_000_000_000_000, 2):
        builder.append(time, b"k", b"v")
    decoder = ColumnDecoder()
    decoder.append(builder.build())
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC"))])
    with pytest.raises(ValueError, match="t-3 has a record whose time, 1700000000000000000 ms"):
        record_batch(decoder.finish(), schema, TopicPartition("t", 3))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_formats_come_out_alike(magic: int, codec: int) -> None:
    data = build_message_set(list(iter_records(batch(0, 20))), magic, codec) + batch(20, 5)
    decoder = ColumnDecoder(headers=True, start_offset=3)
    decoder.append(data)
    assert rows(decoder.finish()) == expected(data, 3)


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 5), (3, 12), (10, 20), (15, 99), (30, 40)])
def test_only_the_wanted_offsets(start: int, end: int) -> None:
    data = batch(0, 10) + batch(10, 10) + batch(20, 10)
    decoder = ColumnDecoder(headers=True, start_offset=start, end_offset=end)
    position = decoder.append(data)
    assert rows(decoder.finish()) == expected(data, start, end)
    assert decoder.is_done == (decoder.next_offset >= end)
    assert (position < len(data)) == (end <= 20)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize(
    ("earliest_ms", "latest_ms"),
    [(None, None), (1_004_000, None), (None, 1_013_000), (1_004_000, 1_013_000), (1_029_500, None),
     (1_010_000, 1_010_000), (None, -2), (1 << 70, None), (-1 << 70, 1 << 70), (None, -1 << 70)],
)  # fmt: skip
def test_only_the_wanted_times(magic: int, earliest_ms: int | None, latest_ms: int | None) -> None:
    """In batches whose time is that of the append, too, and where times are not in order."""
    builder = RecordBatchBuilder(0, 30)
    for time_ms in (1_020_000, -1, 1_005_000, 0):
        builder.append(time_ms, None, b"odd")
    data = batch(0, 10) + batch(10, 20) + builder.build()
    if magic < 2:
        data = build_message_set(list(iter_records(data)), magic, 0)
    data += batch(34, 3, log_append_time_ms=1_010_000) + batch(37, 3, log_append_time_ms=2_000_000)
    decoder = ColumnDecoder(headers=True, earliest_ms=earliest_ms, latest_ms=latest_ms)
    assert decoder.append(data) == len(data)
    lowest = -1 << 70 if earliest_ms is None else earliest_ms
    highest = 1 << 70 if latest_ms is None else latest_ms
    assert rows(decoder.finish()) == [row for row in expected(data) if lowest <= row[1] <= highest]
    assert decoder.next_offset == 40


def test_columns_that_nobody_wants_are_none() -> None:
    none = dict.fromkeys(["key", "value", "offset", "timestamp", "timestamp_type"], False)
    data = batch(0, 10)
    for wanted in none:
        decoder = ColumnDecoder(**{**none, wanted: True})
        decoder.append(data)
        columns = decoder.finish()
        assert columns.row_count == 10
        assert [name for name in none if getattr(columns, name) is not None] == [wanted]
        assert columns.headers is None


def test_it_stops_when_it_is_full_and_goes_on_after_finish() -> None:
    data = b"".join(batch(start, 10) for start in range(0, 100, 10))
    decoder = ColumnDecoder(headers=True, max_rows=25)
    found, position = [], 0
    while position < len(data):
        position = decoder.append(data, position)
        assert decoder.is_full or position == len(data)
        assert decoder.row_count <= 30
        found += rows(decoder.finish())
    assert found == expected(data)


def test_bytes_fill_it_too() -> None:
    """Keys, values and headers alike, or a few large records would take all memory."""
    data = b"".join(batch(start, 10) for start in range(0, 100, 10))
    decoder = ColumnDecoder(headers=True, max_bytes=1)
    assert decoder.append(data) < len(data)
    assert (decoder.row_count, decoder.is_full) == (10, True)
    only_headers = ColumnDecoder(key=False, value=False, headers=True, max_bytes=1)
    assert only_headers.append(data) < len(data)


def test_a_batch_that_is_cut_off_is_left_for_later() -> None:
    data = batch(0, 3)
    for cut in range(len(data)):
        decoder = ColumnDecoder()
        assert decoder.append(data + data[:cut]) == len(data)
        assert decoder.row_count == 3


def test_header_keys_become_utf8() -> None:
    good = batch(0, 2)
    data = good.replace(b"\x02h\x02x", b"\x02\xff\x02x")
    assert data != good
    decoder = ColumnDecoder(headers=True)
    decoder.append(data)
    headers = decoder.finish().headers
    assert headers is not None
    assert headers.keys.data.decode() == "\ufffd"


def test_damage_raises() -> None:
    data = bytearray(batch(0, 5))
    data[-1] ^= 1
    with pytest.raises(CorruptRecords):
        ColumnDecoder(check_crc=True).append(data)
    data = bytearray(batch(0, 5))
    data[57:61] = (6).to_bytes(4, "big")
    for wrap in (bytes, bytearray):
        with pytest.raises(InvalidRecords):
            ColumnDecoder().append(wrap(data))
    data[57:61] = (4).to_bytes(4, "big")
    with pytest.raises(InvalidRecords):
        ColumnDecoder().append(data)
    data = bytearray(batch(0, 5))
    data[0] = 0x80
    with pytest.raises(CorruptRecords):
        ColumnDecoder().append(data)


def test_arrow_takes_the_buffers_as_they_are() -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    data = batch(0, 40, Compression.ZSTD)
    decoder = ColumnDecoder(headers=True)
    decoder.append(data)
    columns = decoder.finish()

    def binary(column, count: int, arrow_type):
        buffers = [column.validity and pa.py_buffer(column.validity)]
        buffers += [pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
        return pa.Array.from_buffers(arrow_type, count, buffers, column.null_count)

    key = binary(columns.key, 40, pa.binary())
    value = binary(columns.value, 40, pa.binary())
    inner = columns.headers
    assert inner is not None
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    children = [
        binary(inner.keys, inner.header_count, pa.string()),
        binary(inner.values, inner.header_count, pa.binary()),
    ]
    struct = pa.Array.from_buffers(pair, inner.header_count, [None], 0, children=children)
    headers = pa.Array.from_buffers(
        pa.list_(pair),
        40,
        [pa.py_buffer(inner.validity), pa.py_buffer(inner.offsets)],
        inner.null_count,
        children=[struct],
    )
    for array in (key, value, headers):
        array.validate(full=True)
    wanted = expected(data)
    assert key.to_pylist() == [row[3] for row in wanted]
    assert value.to_pylist() == [row[4] for row in wanted]
    assert [
        [(pair["key"], pair["value"]) for pair in row or []] for row in headers.to_pylist()
    ] == [row[5] for row in wanted]
