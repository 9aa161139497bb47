"""Whatever is put into a batch comes out of it, by every road. Hypothesis, against a list."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from odradek.records.builder import RecordBatchBuilder
from odradek.records.columnar import ColumnDecoder
from odradek.records.compression import decompress
from odradek.records.errors import BrokerError
from odradek.records.reader import iter_records
from odradek.records.validate import BatchRules, validate_produced
from odradek.records.varint import append_varint, read_varlong

fields = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
timestamps = st.integers(-1, 2**53)
records = st.lists(st.tuples(timestamps, fields, fields, headers), min_size=1, max_size=20)
codecs = st.integers(0, 4)


def build(content: list, codec: int, base_offset: int = 0) -> bytes:
    builder = RecordBatchBuilder(codec, base_offset)
    for record in content:
        builder.append(*record)
    return builder.build()


@given(records, codecs, st.integers(0, 2**62))
def test_build_and_read(content: list, codec: int, base_offset: int) -> None:
    data = build(content, codec, base_offset)
    found = list(iter_records(data, check_crc=True))
    assert [(r.timestamp, r.key, r.value, r.headers) for r in found] == content
    assert [r.offset for r in found] == [base_offset + index for index in range(len(content))]


@given(records, codecs, st.none() | codecs)
def test_validation_keeps_the_records(content: list, codec: int, target: int | None) -> None:
    rules = BatchRules(codec=target, timestamp_after_max_ms=2**60)
    valid = validate_produced(build(content, codec), rules, 0)
    valid.assign(5, 1)
    found = list(iter_records(valid.data, check_crc=True))
    assert [(r.timestamp, r.key, r.value, r.headers) for r in found] == content
    largest = max(timestamp for timestamp, *_ in content)
    assert valid.max_timestamp == largest
    if largest >= 0:
        assert content[valid.max_timestamp_index][0] == largest


@given(records, codecs, st.integers(0, 25), st.integers(0, 25))
def test_columns_are_what_the_reader_reads(content: list, codec: int, start: int, end: int) -> None:
    data = build(content, codec)
    decoder = ColumnDecoder(headers=True, start_offset=start, end_offset=end)
    decoder.append(data)
    columns = decoder.finish()
    wanted = [r for r in iter_records(data) if start <= r.offset < end]
    assert columns.row_count == len(wanted)
    assert columns.key is not None
    assert columns.value is not None
    assert columns.key.data == b"".join(r.key or b"" for r in wanted)
    assert columns.value.data == b"".join(r.value or b"" for r in wanted)
    assert columns.key.null_count == sum(r.key is None for r in wanted)
    assert columns.offset == b"".join(r.offset.to_bytes(8, "little") for r in wanted)


@given(st.binary(max_size=200), st.integers(0, 7), st.integers(0, 100_000))
def test_decoders_only_raise_our_errors(data: bytes, codec: int, limit_bytes: int) -> None:
    with contextlib.suppress(BrokerError):
        assert len(decompress(codec, data, limit_bytes)) <= limit_bytes


@given(st.binary(max_size=300), st.integers(0, 2), st.booleans())
def test_random_bytes_in_a_plausible_frame(data: bytes, magic: int, check_crc: bool) -> None:
    frame = bytearray(b"\0" * 12 + data)
    frame[8:12] = len(data).to_bytes(4, "big")
    if len(frame) > 16:
        frame[16] = magic
    for consume in (
        lambda: list(iter_records(frame, check_crc=check_crc, limit_bytes=10_000)),
        lambda: ColumnDecoder(headers=True, limit_bytes=10_000).append(bytes(frame)),
        lambda: validate_produced(bytes(frame), BatchRules(limit_bytes=10_000), 0),
    ):
        with contextlib.suppress(BrokerError):
            consume()


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints(value: int) -> None:
    out = bytearray()
    append_varint(out, value)
    assert read_varlong(bytes(out), 0) == (value, len(out))
