"""The offset index and the time index as sorted files of entries."""

import os

import pytest

from odradek.storage import OffsetIndex, OsFileSystem, TimeIndex


@pytest.fixture
def files() -> OsFileSystem:
    return OsFileSystem(8, durable=False)


@pytest.fixture
def offset_index(files, tmp_path) -> OffsetIndex:
    return OffsetIndex(files, str(tmp_path / "5.index"), 5, 8 * 1000)


@pytest.fixture
def time_index(files, tmp_path) -> TimeIndex:
    return TimeIndex(files, str(tmp_path / "5.timeindex"), 5, 12 * 100)


def test_lookup_finds_the_last_entry_not_above(offset_index: OffsetIndex):
    """A reader would start behind the record that it asked for."""
    assert offset_index.lookup(99) == (5, 0)
    for number in range(1, 900):
        offset_index.append(5 + number * 3, number * 100)
    for number in range(1, 900):
        for within in range(3):
            assert offset_index.lookup(5 + number * 3 + within) == (5 + number * 3, number * 100)
    assert offset_index.lookup(7) == (5, 0)
    assert offset_index.lookup(4) == (5, 0)


def test_entries_are_eight_big_endian_bytes(offset_index: OffsetIndex):
    """Kafka could not read the index."""
    offset_index.append(7, 258)
    offset_index.append(9, 515)
    offset_index.trim()
    with open(offset_index.path, "rb") as file:
        assert file.read() == bytes.fromhex("00000002 00000102 00000004 00000203")


def test_an_index_grows_in_allocated_steps_and_is_trimmed(offset_index: OffsetIndex):
    """A sparse map on a full disk would kill the process; an untrimmed file shows zeros."""
    for number in range(600):
        offset_index.append(6 + number, number)
    assert os.stat(offset_index.path).st_size == 8192
    offset_index.trim()
    assert os.stat(offset_index.path).st_size == 4800
    offset_index.append(9000, 9000)
    assert offset_index.lookup(10_000) == (9000, 9000)
    assert offset_index.lookup(600) == (600, 594)


def test_reopened_index_knows_its_last_entry(offset_index: OffsetIndex, files):
    """Appending after a restart would break the order."""
    offset_index.append(8, 10)
    offset_index.append(12, 20)
    offset_index.trim()
    again = OffsetIndex(files, offset_index.path, 5, 80)
    assert again.entry_count == 2
    assert again.last_offset == 12
    with pytest.raises(AssertionError):
        again.append(12, 30)


def test_truncate_drops_the_offset_and_all_above(offset_index: OffsetIndex):
    """The index would name batches that were cut off."""
    for offset in (8, 12, 16):
        offset_index.append(offset, offset * 10)
    offset_index.truncate_to(12)
    assert offset_index.entry_count == 1
    assert offset_index.last_offset == 8
    offset_index.truncate_to(5)
    assert offset_index.entry_count == 0


def test_index_is_full_at_its_size(files, tmp_path):
    """A segment would never roll for its index, and entries be lost."""
    index = OffsetIndex(files, str(tmp_path / "0.index"), 0, 23)
    index.append(1, 1)
    assert not index.is_full
    index.append(2, 2)
    assert index.is_full


def test_a_part_of_an_entry_is_not_sane(offset_index: OffsetIndex, files):
    """A torn index would be read as if it were whole."""
    offset_index.append(8, 10)
    offset_index.trim()
    with open(offset_index.path, "ab") as file:
        file.write(b"abc")
    assert not OffsetIndex(files, offset_index.path, 5, 80).is_sane(1000)


def test_many_indexes_share_few_descriptors(tmp_path):
    """Ten thousand partitions would exhaust the process's descriptors."""
    files = OsFileSystem(8, durable=False)
    indexes = [OffsetIndex(files, str(tmp_path / f"{n}.index"), 0, 800) for n in range(50)]
    for number in range(1, 4):
        for index in indexes:
            index.append(number, number * 10)
    assert len(files.pool) <= 8
    for index in indexes:
        assert index.lookup(2) == (2, 20)
    assert len(files.pool) <= 8


def test_time_lookup_and_strict_rise(time_index: TimeIndex):
    """A search by time would begin behind the first record of that time."""
    assert time_index.lookup(10) == (-1, 5)
    assert time_index.maybe_append(100, 7)
    assert not time_index.maybe_append(100, 9)
    assert not time_index.maybe_append(90, 10)
    assert time_index.maybe_append(200, 11)
    assert time_index.lookup(99) == (-1, 5)
    assert time_index.lookup(100) == (100, 7)
    assert time_index.lookup(199) == (100, 7)
    assert time_index.lookup(10**15) == (200, 11)


def test_time_entries_are_twelve_big_endian_bytes(time_index: TimeIndex):
    """Kafka could not read the index."""
    time_index.maybe_append(258, 7)
    time_index.trim()
    with open(time_index.path, "rb") as file:
        assert file.read() == bytes.fromhex("0000000000000102 00000002")


def test_time_truncate_drops_by_offset(time_index: TimeIndex):
    """The largest timestamp would be that of a record that was cut off."""
    for timestamp, offset in ((100, 7), (200, 11), (300, 15)):
        time_index.maybe_append(timestamp, offset)
    time_index.truncate_to(11)
    assert (time_index.last_timestamp, time_index.last_offset) == (100, 7)
    assert time_index.maybe_append(150, 12)
