"""If these fail, a record of an odd time ends an archive that is a table of Iceberg's as well."""

import pytest

from pyspark_odradek.pipelines.bookkeeping.lake.iceberg import time_of
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile


@pytest.mark.parametrize(
    ("directories", "expected"),
    [
        ("date=1970-01-01/hour=00", "timestamp_hour=0"),
        ("date=1969-12-31/hour=23", "timestamp_hour=-1"),
        ("date=2026-11-28/hour=05", f"timestamp_hour={1_795_842_000 // 3600}"),
        # A clock that counts microseconds.
        ("date=+55840-11-13/hour=13", f"timestamp_hour={1_700_000_400_000 // 3600}"),
        # The first and the last time that Spark has; Iceberg cuts their hours to 32 bits.
        ("date=-290308-12-21/hour=19", f"timestamp_hour={-2_562_047_789 + 2**32}"),
        ("date=+294247-01-10/hour=04", f"timestamp_hour={2_562_047_788 - 2**32}"),
        ("date=+294247-01-10", "timestamp_day=+294247-01-10"),
    ],
)
def test_files_of_any_time_have_a_place(directories: str, expected: str) -> None:
    """Python has no dates behind the year 9999: such a record ended the archive at each start."""
    assert time_of(ArchivedFile(f"batch=0-x/{directories}/part-0.parquet", 1, "")) == expected
