"""Which files a compaction takes: if these fail, it writes an hour again without fewer files, at
each of its runs, or leaves small files that could be one."""

import pytest

from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile, FileRange
from pyspark_odradek.pipelines.bookkeeping.shares import Shares
from pyspark_odradek.pipelines.compact import worth_it

FILE_BYTES = 10_000
# A file takes a hundred of them.
RECORD_BYTES = 100


def file_of(
    *pieces: tuple[int, int, int], hour: int = 0, bytes_each: int = RECORD_BYTES
) -> ArchivedFile:
    """A file with records of partitions: each piece has a partition, a start and an end."""
    ranges = [FileRange("t", part, start, end, end - start) for part, start, end in pieces]
    records = sum(each.records for each in ranges)
    path = f"batch=0-1/date=2026-11-22/hour={hour:02}/{pieces}.parquet"
    return ArchivedFile(path, records * bytes_each, "", ranges)


@pytest.mark.parametrize("first", [0, 70, 99, 12_345])
def test_an_hour_that_fits_into_one_file_becomes_one(first: int) -> None:
    """It became two where its offsets went over a multiple of what a file takes, or its partitions
    were at different offsets; and was written again at each run."""
    small = [file_of((0, first, first + 30)), file_of((0, first + 30, first + 60), (1, 5, 15))]
    assert Shares(small, FILE_BYTES).most_files() == 1
    assert worth_it(small, FILE_BYTES) == small


def test_hours_with_records_of_other_sizes_become_one_file_too() -> None:
    """All were cut by the number of records that there are in a file of them all."""
    large = [file_of((0, at, at + 1), bytes_each=3_000) for at in (0, 1)]
    tiny = [file_of((0, at, at + 600), hour=1, bytes_each=5) for at in (2, 602)]
    assert worth_it([*large, *tiny], FILE_BYTES) == [*large, *tiny]
    assert [Shares(hour, FILE_BYTES).most_files() for hour in (large, tiny)] == [1, 1]


def test_an_hour_of_several_files_becomes_as_many_as_its_bytes_need() -> None:
    """Wherever the offsets of its partitions begin."""
    small = [file_of((0, 0, 51), (1, 100, 120)), file_of((1, 120, 151))]
    small += [file_of((2, 9_000, 9_050), (3, 9_100, 9_120)), file_of((3, 9_120, 9_150))]
    shares = Shares(small, FILE_BYTES)
    assert shares.count == shares.most_files() == 3


def test_an_hour_that_would_have_as_many_files_is_left_alone() -> None:
    """Offsets are missing, and nobody knows where: all records may be in one share, of which there
    would be as many files as there are."""
    gaps = [
        ArchivedFile(f"{n}/h/f", 6_000, "", [FileRange("t", n, 0, 10_000, 60)]) for n in range(3)
    ]
    assert Shares(gaps, FILE_BYTES).count == 2
    assert worth_it(gaps, FILE_BYTES) == []
    assert worth_it(gaps[:1], FILE_BYTES) == []


def test_a_file_without_records_is_left_alone() -> None:
    """Of a batch whose offsets were all of transactions' markers: Spark writes one for it again."""
    empty = ArchivedFile("batch=0-1/f.parquet", 1_000, "")
    assert worth_it([empty], FILE_BYTES) == []
    assert worth_it([empty, empty], FILE_BYTES) == [empty, empty]
