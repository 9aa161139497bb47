"""Varints and the walk over records: if these fail, malformed records enter the log."""

import pytest

from odradek.records.errors import InvalidRecords
from odradek.records.varint import append_varint, read_varint, read_varlong
from odradek.records.walk import walk_records

EDGES = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**20, 2**31 - 1, -(2**31)]
LONG_EDGES = [*EDGES, 2**31, 2**40, -(2**40), 2**62, 2**63 - 1, -(2**63)]


def varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


def field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    offset_delta: int,
    timestamp_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: bytes = b"\0",
) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + field(key) + field(value)
    body += headers
    return varint(len(body)) + body


@pytest.mark.parametrize("value", EDGES)
def test_varints_of_32_bits(value: int) -> None:
    data = b"x" + varint(value) + b"rest"
    assert read_varint(data, 1) == (value, len(data) - len(b"rest"))
    assert read_varlong(data, 1) == (value, len(data) - len(b"rest"))


@pytest.mark.parametrize("value", LONG_EDGES)
def test_varints_of_64_bits(value: int) -> None:
    assert read_varlong(varint(value), 0) == (value, len(varint(value)))


def test_varints_that_run_over() -> None:
    for data in (b"\xff" * 5 + b"\0", b"\xff\xff\xff\xff\x1f", varint(2**31)):
        with pytest.raises(InvalidRecords):
            read_varint(data, 0)
    for data in (b"\xff" * 10 + b"\0", b"\xff" * 9 + b"\x02"):
        with pytest.raises(InvalidRecords):
            read_varlong(data, 0)
    for cut in range(5):
        with pytest.raises(IndexError):
            read_varint(b"\xff" * cut, 0)


def test_the_summary() -> None:
    records = [
        record(0, 5),
        record(1, 300, key=None),
        record(2, -70, value=None),
        record(3, 300, headers=varint(2) + field(b"h") + field(b"w") + field(b"") + field(None)),
    ]
    summary = walk_records(b"".join(records), 4)
    assert summary.max_timestamp_delta == 300
    assert summary.max_timestamp_index == 1
    assert summary.min_timestamp_delta == -70
    assert summary.null_key_count == 1


def test_nothing_is_fine_where_nothing_is_announced() -> None:
    assert walk_records(b"", 0).max_timestamp_index == -1


MALFORMED = {
    "one announced, none there": (b"", 1),
    "none announced, one there": (record(0), 0),
    "two announced, one there": (record(0), 2),
    "one announced, two there": (record(0) + record(1), 1),
    "offsets from 1": (record(1), 1),
    "the same offset twice": (record(0) + record(0), 2),
    "a gap": (record(0) + record(2), 2),
    "a negative offset": (record(-1), 1),
    "a negative length": (varint(-5) + record(0)[1:], 1),
    "a length too long": (varint(60) + record(0)[1:], 1),
    "a length too short": (varint(6) + record(0)[1:] + b"\0", 1),
    "a key of length -2": (varint(7) + b"\0\0\0" + varint(-2) + b"\2v\0", 1),
    "a value of length -2": (varint(6) + b"\0\0\0\1" + varint(-2) + b"\0", 1),
    "a key longer than everything": (varint(7) + b"\0\0\0" + varint(50) + b"\2v\0", 1),
    "a key of 2 GiB": (varint(10) + b"\0\0\0" + varint(2**31 - 1) + b"\0\0", 1),
    "a negative header count": (record(0, headers=varint(-1)), 1),
    "headers that are not there": (record(0, headers=varint(1)) + record(1), 2),
    "two billion headers": (record(0, headers=varint(2**31 - 1)), 1),
    "a header without a key": (record(0, headers=varint(1) + field(None) + field(b"v")), 1),
    "a header value of length -2": (record(0, headers=varint(1) + b"\0" + varint(-2)), 1),
    "a varint of six bytes": (b"\xff\xff\xff\xff\xff\1", 1),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_records_are_refused(name: str) -> None:
    data, record_count = MALFORMED[name]
    with pytest.raises(InvalidRecords):
        walk_records(data, record_count)


def test_compacted_batches_have_gaps() -> None:
    records = record(2) + record(5) + record(9)
    walk_records(records, 3, dense=False)
    with pytest.raises(InvalidRecords):
        walk_records(records, 3)
    with pytest.raises(InvalidRecords):
        walk_records(record(5) + record(2), 2, dense=False)
