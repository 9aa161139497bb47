"""Writes and reads the Parquet files of tables so that large records need no large heap.

A writer or reader of a file holds a row group of it, and a page, in memory. Parquet checks their
size for the first time after 100 rows, which may exceed the heap when the records are large.

Where the workers of a cluster do not share a disk, each writes to its own, and Spark finds nothing
wrong: so the rows on the driver's are counted.
"""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from pyspark_odradek.pipelines.ends.files import HadoopFiles, LocalFiles, is_hidden, local_path
from pyspark_odradek.pipelines.running.settings import PipelineError

# Spark decodes a whole row group at once, as long as it has no more than 4096 rows.
_ROW_GROUP_BYTES: Final = 32 << 20
_OPTIONS: Final = {
    "parquet.block.size": str(_ROW_GROUP_BYTES),
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "10",
}
# What Hadoop takes a name for a pattern by.
_IN_PATTERNS: Final = re.compile(r"[\\{}\[\]*?]")


def read_parquet(
    spark: SparkSession, paths: Iterable[str], schema: StructType | str | None = None
) -> DataFrame:
    """Reads these files. Their names are no patterns: a directory may be called `orders[1]`."""
    reader = spark.read if schema is None else spark.read.schema(schema)
    return reader.parquet(*(_IN_PATTERNS.sub(r"\\\g<0>", path) for path in paths))


def write_parquet(
    rows: DataFrame, place: str, partition_by: Sequence[str] = (), records_per_file: int = 0
) -> None:
    """Writes rows to a directory, and replaces what an earlier attempt has left there.

    `records_per_file` 0 is no limit.

    Raises:
        PipelineError: the workers have written to another disk than the driver's.
    """
    disk, written = disk_of_workers(rows.sparkSession, place), Observation()
    if disk is not None:
        rows = rows.observe(written, f.count(f.lit(1)).alias("rows"))
    writer = rows.write.mode("overwrite").partitionBy(*partition_by).options(**_OPTIONS)
    writer.option("maxRecordsPerFile", records_per_file).parquet(place)
    if disk is not None:
        _check_shared(disk, written.get["rows"])


def disk_of_workers(spark: SparkSession, place: str) -> str | None:
    """Returns the path of a directory on a disk that workers write to from other machines, if they
    share it; else None.
    """
    # The session of a Spark Connect client has its own class, whatever its declared type.
    master = spark.sparkContext.master if isinstance(spark, SparkSession) else None
    if master is None or master.startswith("local"):
        return None
    return local_path(HadoopFiles(spark).uri(place))


def _check_shared(place: str, written: int) -> None:
    import pyarrow.parquet

    paths = [each.path for each in LocalFiles().below(place) if each.path.endswith(".parquet")]
    files = [os.path.join(place, path) for path in paths if not is_hidden(path)]
    found = sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)
    if found != written:
        raise PipelineError(
            f"{place} has {found} rows of {written} that Spark wrote: its workers have another "
            "disk there. Choose a directory on a disk that all of them share, or in an object store"
        )
