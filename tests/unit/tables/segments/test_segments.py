"""If these fail, reading a data directory loses records, invents some, or trips over its broker."""

from pathlib import Path

import pytest

from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import iter_records
from odradek.tables.errors import MissingData
from odradek.tables.scan.directory import DataDirectory
from odradek.tables.scan.segments import PartitionFiles

ORDERS = TopicPartition("orders", 0)
FIRST_TIME_MS = 1_700_000_000_000


def offsets_read(files: PartitionFiles, start: int, end: int) -> list[int]:
    """The offsets of [start, end) that the chunks hold, in the order of reading."""
    return [
        record.offset
        for chunk in files.read(start, end)
        for record in iter_records(bytes(chunk.records))
        if start <= record.offset < end
    ]


@pytest.fixture
def three_segments(log_dir, batch_of):
    log_dir.segment([batch_of(0, 4), batch_of(5, 9)], 0)
    log_dir.segment([batch_of(10, 14), batch_of(15, 19)], 10)
    log_dir.segment([batch_of(20, 24)], 20)
    return log_dir


@pytest.mark.parametrize(("start", "end"), [(0, 25), (3, 22), (9, 10), (10, 11), (24, 25), (7, 7)])
def test_a_range_is_read_across_segments(three_segments, start: int, end: int) -> None:
    assert offsets_read(three_segments.files, start, end) == list(range(start, end))


def test_no_chunk_begins_before_the_batch_of_its_range(three_segments) -> None:
    chunks = list(three_segments.files.read(16, 18))
    assert [record.offset for record in iter_records(bytes(chunks[0].records))] == [
        15, 16, 17, 18, 19,
    ]  # fmt: skip
    assert chunks[0].next_offset == 20


def test_the_offset_index_is_followed_up_to_its_preallocated_tail(log_dir, batch_of) -> None:
    first, second = batch_of(0, 4), batch_of(5, 9)
    # What comes before the position of the index is not looked at: here it is no batch.
    log_dir.segment([b"\xff" * len(first), second], 0)
    log_dir.offset_index(0, [(4, len(first))])
    assert offsets_read(log_dir.files, 5, 10) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\0\0\0", b"torn"])
def test_what_follows_the_last_batch_of_the_last_segment_is_its_end(
    log_dir, batch_of, tail
) -> None:
    log_dir.segment([batch_of(0, 4)], 0, tail=tail)
    assert offsets_read(log_dir.files, 0, 5) == [0, 1, 2, 3, 4]
    with pytest.raises(MissingData, match="end at offset 5"):
        offsets_read(log_dir.files, 0, 6)


def test_half_a_batch_is_no_batch(log_dir, batch_of) -> None:
    log_dir.segment([batch_of(0, 4)], 0, tail=batch_of(5, 9)[:-3])
    with pytest.raises(MissingData, match="end at offset 5"):
        offsets_read(log_dir.files, 0, 10)


def test_a_closed_segment_must_not_be_torn(log_dir, batch_of) -> None:
    log_dir.segment([batch_of(0, 4)], 0, tail=b"\0" * 40)
    log_dir.segment([batch_of(10, 14)], 10)
    with pytest.raises(MissingData, match="torn"):
        offsets_read(log_dir.files, 0, 15)


def test_offsets_that_compaction_took_away_are_no_loss(log_dir) -> None:
    builder = RecordBatchBuilder(0, 0)
    builder.append_at(2, FIRST_TIME_MS, b"k", b"v")
    log_dir.segment([builder.build(last_offset=9)], 0)
    later = RecordBatchBuilder(0, 40)
    later.append(FIRST_TIME_MS, b"k", b"v")
    log_dir.segment([later.build()], 30)
    assert offsets_read(log_dir.files, 0, 41) == [2, 40]


def test_records_before_the_first_segment_are_missing(log_dir, batch_of) -> None:
    log_dir.segment([batch_of(10, 14)], 10)
    with pytest.raises(MissingData, match="offset 3 is wanted, the first is 10"):
        offsets_read(log_dir.files, 3, 12)


def test_a_deleted_partition_is_missing(log_dir) -> None:
    log_dir.partition.rmdir()
    with pytest.raises(MissingData, match="deleted"):
        offsets_read(log_dir.files, 0, 1)
    with pytest.raises(MissingData, match="orders-0 is not in"):
        log_dir.directory.partition(ORDERS)


def test_a_batch_larger_than_a_read_is_read_whole(log_dir, monkeypatch, batch_of) -> None:
    monkeypatch.setattr("odradek.tables.scan.segments.READ_BYTES", 64)
    log_dir.segment([batch_of(0, 4), batch_of(5, 9)], 0)
    assert offsets_read(log_dir.files, 0, 10) == list(range(10))


@pytest.mark.parametrize("codec", [0, 4])
def test_a_time_is_found_within_its_batch(log_dir, batch_of, codec: int) -> None:
    log_dir.segment([batch_of(0, 4, codec), batch_of(5, 9, codec)], 0)
    log_dir.segment([batch_of(10, 14, codec)], 10)
    find = log_dir.files.offset_for_time
    assert find(0, 15) == 0
    assert find(FIRST_TIME_MS + 7_000, 15) == 7
    assert find(FIRST_TIME_MS + 7_001, 15) == 8
    assert find(FIRST_TIME_MS + 14_000, 15) == 14
    assert find(FIRST_TIME_MS + 14_001, 15) is None


def test_a_time_above_the_end_is_not_found(log_dir, batch_of) -> None:
    log_dir.segment([batch_of(0, 9)], 0)
    assert log_dir.files.offset_for_time(FIRST_TIME_MS + 7_000, 7) is None


def test_a_closed_segment_is_skipped_by_its_time_index(log_dir, batch_of) -> None:
    # Its content would give another answer: it is not looked at.
    log_dir.segment([batch_of(0, 9)], 0)
    log_dir.time_index(0, [(FIRST_TIME_MS, 9)])
    log_dir.segment([batch_of(10, 14)], 10)
    assert log_dir.files.offset_for_time(FIRST_TIME_MS + 5_000, 15) == 10


def test_the_bounds_are_those_that_the_broker_wrote_down(log_dir, batch_of) -> None:
    log_dir.segment([batch_of(0, 9)], 0)
    assert log_dir.directory.high_watermarks() == {}
    assert log_dir.directory.log_start_offsets([ORDERS]) == {ORDERS: 0}
    log_dir.checkpoint("replication-offset-checkpoint", 8)
    log_dir.checkpoint("log-start-offset-checkpoint", 3)
    assert log_dir.directory.high_watermarks() == {ORDERS: 8}
    assert log_dir.directory.log_start_offsets([ORDERS]) == {ORDERS: 3}


def test_a_kafka_that_ended_early_has_written_no_bounds_down(log_dir, batch_of) -> None:
    log_dir.segment([batch_of(0, 9)], 0)
    for name in ("replication-offset-checkpoint", "log-start-offset-checkpoint"):
        (log_dir.root / name).touch()
    assert log_dir.directory.high_watermarks() == {}
    assert log_dir.directory.log_start_offsets([ORDERS]) == {ORDERS: 0}


def test_only_directories_of_partitions_are_partitions(log_dir, tmp_path: Path) -> None:
    for name in ("orders-1.0123456789abcdef0123456789abcdef-delete", "lost+found"):
        (tmp_path / name).mkdir()
    (tmp_path / "orders-2").write_text("a file")
    assert list(log_dir.directory.partitions()) == [ORDERS]


def test_a_copy_in_another_directory_says_nothing_of_the_partition(log_dir, batch_of) -> None:
    """While a replica moves to another directory, readers would see it end where its copy does."""
    log_dir.segment([batch_of(0, 9)], 0)
    log_dir.checkpoint("replication-offset-checkpoint", 8)
    other = log_dir.root.parent / f"{log_dir.root.name}-other"
    (other / f"orders-0.{1:032x}-future").mkdir(parents=True)
    (other / "replication-offset-checkpoint").write_text("0\n1\norders 0 2\n")
    for first, second in ((log_dir.root, other), (other, log_dir.root)):
        directory = DataDirectory((str(first), str(second)))
        assert directory.high_watermarks() == {ORDERS: 8}
        assert list(directory.partitions()) == [ORDERS]
