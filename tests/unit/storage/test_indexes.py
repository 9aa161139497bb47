"""The indexes of a segment: sorted files of entries, and what is done about one that lies."""

import os
import struct

import pytest

from odradek.errors import BrokerError
from odradek.records.builder import build_end_marker
from odradek.records.errors import CorruptRecords
from odradek.records.reader import iter_records
from odradek.storage import OffsetIndex, OsFileSystem, TimeIndex
from odradek.storage.index.transaction_index import AbortedEntry, TransactionIndex, encode_check
from odradek.testing.faulty_files import FaultyFileSystem

SMALL = {"index_interval_bytes": "50"}


@pytest.fixture
def files() -> OsFileSystem:
    return OsFileSystem(8, durable=False)


@pytest.fixture
def offset_index(files, tmp_path) -> OffsetIndex:
    return OffsetIndex(files, str(tmp_path / "5.index"), 5, 8 * 1000)


@pytest.fixture
def time_index(files, tmp_path) -> TimeIndex:
    return TimeIndex(files, str(tmp_path / "5.timeindex"), 5, 12 * 100)


def lookup(index: OffsetIndex | TimeIndex, target: int) -> tuple[int, int] | None:
    """The last entry that is not above the target."""
    found = index.index_of(target)
    return index.entry(found) if found >= 0 else None


def test_lookup_finds_the_last_entry_not_above(offset_index: OffsetIndex):
    """A reader would start behind the record that it asked for."""
    assert lookup(offset_index, 99) is None
    for number in range(1, 900):
        offset_index.append(5 + number * 3, number * 100)
    for number in range(1, 900):
        for within in range(3):
            assert lookup(offset_index, 5 + number * 3 + within) == (5 + number * 3, number * 100)
    assert lookup(offset_index, 7) is None
    assert lookup(offset_index, 4) is None


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
    assert lookup(offset_index, 10_000) == (9000, 9000)
    assert lookup(offset_index, 600) == (600, 594)


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
        assert lookup(index, 2) == (2, 20)
    assert len(files.pool) <= 8


def test_time_lookup_and_strict_rise(time_index: TimeIndex):
    """A search by time would begin behind the first record of that time."""
    assert lookup(time_index, 10) is None
    assert time_index.maybe_append(100, 7)
    assert not time_index.maybe_append(100, 9)
    assert not time_index.maybe_append(90, 10)
    assert time_index.maybe_append(200, 11)
    assert lookup(time_index, 99) is None
    assert lookup(time_index, 100) == (100, 7)
    assert lookup(time_index, 199) == (100, 7)
    assert lookup(time_index, 10**15) == (200, 11)


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


def test_dropped_entries_leave_no_trace(offset_index: OffsetIndex, time_index: TimeIndex):
    """After a crash the file would name batches that were cut off."""
    for number in range(6, 20):
        offset_index.append(number, number * 10)
        time_index.maybe_append(number, number)
    offset_index.truncate_to(10)
    time_index.truncate_to(10)
    for index, count in ((offset_index, 4), (time_index, 4)):
        assert index.entry_count == count
        with open(index.path, "rb") as file:
            assert not any(file.read()[index.used_bytes :])


def fill(log, batches, count: int = 12) -> None:
    for n in range(count):
        log.appender.append_as_leader([batches(b"%03d" % n)], 0)


@pytest.mark.parametrize("entry", [(5, -219), (5, 1 << 30), (5, 1), (5, 497), (4, 497), (5, 0)])
def test_an_entry_that_lies_is_mended(world, batches, values, entry):
    """A reader would be led behind the end, into a batch, to another one, or for ever."""
    manager = world.start()
    log = world.log(manager, **SMALL)
    fill(log, batches)
    log.appender.roll()
    index = log.segments.first.offset_index
    before = [index.entry(n) for n in range(index.entry_count)]
    position = next(n for n, (offset, _) in enumerate(before) if offset >= 5)
    with open(index.path, "r+b") as file:
        file.seek(position * 8)
        file.write(struct.pack(">ii", *entry))
    for offset in range(12):
        records = list(iter_records(b"".join(log.read(offset, 1, 12, True).records)))
        assert [record.offset for record in records] == [offset]
    assert [index.entry(n) for n in range(index.entry_count)] == before


def test_an_index_that_a_full_disk_does_not_let_mend_costs_no_record(world, batches):
    """Retention would go by the time of the first records alone, and drop the others, and nobody
    would find them by their times."""
    files = FaultyFileSystem()
    log = world.log(world.start(files), **SMALL, retention_ms="1000")
    start_ms = world.clock.wall_ms()
    for n in range(20):
        log.appender.append_as_leader([batches(b"%03d" % n, timestamp_ms=start_ms + n * 100)], 0)
    segment = log.segments.first
    log.appender.roll()
    log.update_high_watermark(20)
    index = segment.offset_index
    with open(index.path, "r+b") as file:
        file.write(b"\xff" * index.used_bytes)
    files.is_full = True
    with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
        log.convert_offset(19)
    files.is_full = False
    assert log.fetch_offset_by_timestamp(start_ms + 1_900, 20).offset == 19
    assert segment.max_timestamp == start_ms + 1_900
    assert log.delete_old_segments(start_ms + 2_000) == 0
    for n in range(20):
        assert log.convert_offset(n) is not None


@pytest.mark.leaves_damage
def test_damaged_records_do_not_cost_the_index(world, batches):
    """Records behind a damaged batch could not be read any more."""
    log = world.log(world.start(), **SMALL)
    fill(log, batches)
    log.appender.roll()
    segment = log.segments.first
    entries = segment.offset_index.entry_count
    place = segment.locate(6)
    with open(segment.file.path, "r+b") as file:
        file.seek(place.position + 8)
        file.write(bytes(4))
    for offset in range(12):
        if offset != 6:
            assert log.convert_offset(offset) is not None
    with pytest.raises(CorruptRecords, match=segment.file.path):
        log.convert_offset(6)
    assert segment.offset_index.entry_count == entries


def test_a_transaction_index_is_sealed_and_unsealed(files, tmp_path):
    """An entry that was lost, or one too many, would not be noticed."""
    path, check_path = str(tmp_path / "0.txnindex"), str(tmp_path / "0.txncheck")
    index = TransactionIndex(files, path, check_path)
    index.seal(sync=True)
    assert not os.path.exists(check_path)
    index.append(AbortedEntry(7, 0, 3, 4))
    index.append(AbortedEntry(8, 2, 5, 6))
    index.seal(sync=True)
    assert index.read_check() == encode_check(index.read())
    index.append(AbortedEntry(7, 6, 9, 10))
    assert index.read_check() is None
    index.truncate_to(9)
    index.seal(sync=False)
    assert index.entries() == [AbortedEntry(7, 0, 3, 4), AbortedEntry(8, 2, 5, 6)]
    assert index.read_check() == encode_check(index.read())
    index.clear()
    assert os.listdir(tmp_path) == []


def test_aborts_of_one_write_know_what_is_still_open(world, batches):
    """A reader would stop looking before the second one and be given its records."""
    log = world.log(world.start())
    for producer_id in (1, 2):
        batch = batches(b"x", producer_id=producer_id, base_sequence=0, is_transactional=True)
        log.appender.append_as_leader([batch], 0)
    markers = [
        build_end_marker(
            commit=False,
            base_offset=offset,
            timestamp_ms=1000,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=1,
        )
        for offset, producer_id in ((2, 1), (3, 2))
    ]
    log.appender.append_as_follower(memoryview(bytearray(b"".join(markers))))
    assert log.segments.active.transactions.entries() == [
        AbortedEntry(1, 0, 2, 1),
        AbortedEntry(2, 1, 3, 4),
    ]
    assert log.reader.aborted_transactions(0, 2) == [(1, 0), (2, 1)]
