"""Messages of magic 0 and 1: if these fail, old logs and old clients are misread."""

import pytest

from odradek.records.batch import parse_header, split_batches
from odradek.records.compression import Compression, compress
from odradek.records.errors import CorruptRecords, InvalidRecords
from odradek.records.legacy import (
    build_message,
    build_message_set,
    check_message,
    first_offset,
    read_message,
)
from odradek.records.reader import iter_records

# Timestamp, key, value and checksum of messages that Kafka wrote with magic 1.
GOLDEN = [
    (1487165556824, None, b"c", 1269164006),
    (1487165689780, None, b"f", 3541136778),
    (1487163989090, b"a", b"a", 2783563669),
    (1487163998112, b"b", b"b", 740192312),
]


@pytest.mark.parametrize(("timestamp", "key", "value", "crc"), GOLDEN)
def test_golden_checksums(timestamp: int, key: bytes | None, value: bytes, crc: int) -> None:
    message = build_message(1, 0, timestamp, key, value)
    header = parse_header(message)
    assert header.crc == crc
    check_message(message, header)
    assert len(message) == 34 + len(key or b"") + len(value)
    (record,) = read_message(message, header, check_crc=True)
    assert (record.timestamp, record.key, record.value) == (timestamp, key, value)


def test_positions_differ_by_34_and_what_is_in_them() -> None:
    """The arithmetic by which people read Kafka's dumps of such logs."""
    without_keys = build_message(1, 0, 1, None, b"c") + build_message(1, 1, 1, None, b"f")
    assert [header.position for header in split_batches(without_keys)] == [0, 35]
    with_keys = build_message(1, 0, 1, b"a", b"a") + build_message(1, 1, 1, b"b", b"b")
    assert [header.position for header in split_batches(with_keys)] == [0, 36]
    assert len(build_message(0, 0, 1, None, None)) == 26


def records(magic: int = 1):
    plain = b"".join(
        build_message(magic, offset, 1000 + offset, b"k%d" % offset, None if offset == 12 else b"v")
        for offset in (10, 11, 12, 15)
    )
    return list(iter_records(plain))


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_sets_keep_offsets_with_their_gaps(magic: int, codec: int) -> None:
    data = build_message_set(records(), magic, codec)
    result = list(iter_records(data, check_crc=True))
    assert [r.offset for r in result] == [10, 11, 12, 15]
    assert [r.value for r in result] == [b"v", b"v", None, b"v"]
    assert [r.timestamp for r in result] == ([1010, 1011, 1012, 1015] if magic else [-1] * 4)
    headers = split_batches(data)
    assert headers[-1].base_offset == 15
    assert first_offset(data, headers[0]) == 10
    if codec:
        assert headers[0].max_timestamp == (1015 if magic else -1)


def test_inner_offsets_are_relative_in_magic_1_and_absolute_in_magic_0() -> None:
    for magic, expected in ((0, [10, 11, 12, 15]), (1, [0, 1, 2, 5])):
        data = build_message_set(records(), magic, 0)
        wrapped = build_message_set(records(), magic, 1)
        value = read_value(wrapped)
        assert [h.base_offset for h in split_batches(value)] == expected
        assert len(value) == len(data)


def read_value(wrapper: bytes) -> bytes:
    import zlib

    start = 26 if wrapper[16] == 0 else 34
    return zlib.decompress(wrapper[start:], 31)


def test_log_append_time_of_the_wrapper_counts_for_all_inside() -> None:
    for codec in (0, 2):
        data = build_message_set(records(), 1, codec, log_append_time_ms=7)
        assert {r.timestamp for r in iter_records(data)} == {7}
        assert {h.timestamp_type for h in split_batches(data)} == {1}
    old = build_message_set(records(), 0, 2, log_append_time_ms=7)
    assert {h.timestamp_type for h in split_batches(old)} == {0}


def test_new_offsets_from_a_base() -> None:
    for magic in (0, 1):
        for codec in (0, 1, 2, 3):
            data = build_message_set(records(), magic, codec, base_offset=70)
            assert [r.offset for r in iter_records(data)] == [70, 71, 72, 73]
    assert build_message_set([], 1, 1) == b""


def wrap(inside: bytes | None, codec: int = 1, magic: int = 1) -> bytes:
    value = None if inside is None else compress(codec, inside)
    return build_message(magic, 5, 0, None, value, codec)


BAD_WRAPPERS = {
    "nothing": wrap(None),
    "an empty set": wrap(b""),
    "another magic": wrap(build_message(0, 0, 0, None, b"x")),
    "a wrapper": wrap(wrap(build_message(1, 0, 0, None, b"x"))),
}


@pytest.mark.parametrize("name", BAD_WRAPPERS)
def test_wrappers_hold_plain_messages_of_their_own_magic(name: str) -> None:
    with pytest.raises(InvalidRecords):
        list(iter_records(BAD_WRAPPERS[name]))


def test_damaged_insides() -> None:
    inside = build_message(1, 0, 0, b"key", b"value")
    for cut in range(1, len(inside)):
        with pytest.raises(CorruptRecords):
            list(iter_records(wrap(inside[:cut])))
    for position in range(16, len(inside)):
        damaged = bytearray(inside)
        damaged[position] ^= 0x41
        with pytest.raises((CorruptRecords, InvalidRecords)):
            list(iter_records(wrap(bytes(damaged)), check_crc=True))


def test_lengths_that_lie() -> None:
    for field, length in ((26, -2), (26, 5), (26, 2**31 - 1), (30, -2), (30, 100), (30, 0)):
        message = bytearray(build_message(1, 0, 0, None, b"xy"))
        message[field : field + 4] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptRecords):
            list(iter_records(message))


def test_lz4_of_magic_0_has_the_broken_header() -> None:
    data = build_message_set(records(), 0, Compression.LZ4)
    good = build_message_set(records(), 1, Compression.LZ4)
    assert data[26:32] == good[34:40]
    assert [r.offset for r in iter_records(data)] == [10, 11, 12, 15]
