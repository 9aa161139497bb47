"""Writes the Parquet files of tables so that large records need no large heap.

A writer or reader of a file holds a row group of it, and a page, in memory. Parquet checks their
size for the first time after 100 rows, which may exceed the heap when the records are large.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

# Spark decodes a whole row group at once, as long as it has no more than 4096 rows.
_ROW_GROUP_BYTES: Final = 32 << 20
_OPTIONS: Final = {
    "parquet.block.size": str(_ROW_GROUP_BYTES),
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "10",
}


def write_parquet(
    rows: DataFrame, place: str, partition_by: Sequence[str] = (), records_per_file: int = 0
) -> None:
    """Writes rows to a directory, and replaces what an earlier attempt has left there.

    `records_per_file` 0 is no limit.
    """
    writer = rows.write.mode("overwrite").partitionBy(*partition_by).options(**_OPTIONS)
    writer.option("maxRecordsPerFile", records_per_file).parquet(place)
