"""An archive that is a Delta table as well, where Spark has Delta's jars.

    orders/_delta_log/                                      Delta's: which files are the table
    orders/batch=0/date=2026-11-22/hour=03/part-*.parquet   as in an archive of plain Parquet

The table is partitioned by the number of the batch first, so that its files lie where those of a
plain archive do, and the manifest, `audit` and `restore` know no difference. A batch is one
transaction with the archive's name and the batch's number: Delta passes over one that it has.
"""

from collections.abc import Sequence
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.files import FileSystem
from pyspark_odradek.pipelines.settings import PipelineError

_LOG: Final = "_delta_log"
# Batches of a directory without its checkpoint are refused, so this name needs no more in it.
_APPLICATION: Final = "odradek-archive"
# What Delta asks of a session, beside its jars.
SESSION: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def is_delta(spark: SparkSession, archive: str) -> bool:
    """Whether an archive is a Delta table."""
    return FileSystem(spark).exists(f"{archive.rstrip('/')}/{_LOG}")


def check_format(spark: SparkSession, archive: str, wanted: str) -> None:
    """Checks that an archive can be written in a format, before anything is.

    Raises:
        PipelineError: Delta is not there, or the archive was begun in the other format.
    """
    if wanted == "delta":
        try:
            # Does nothing but look for the format.
            spark.read.format("delta").schema("batch LONG").load(archive)
        except (PySparkException, Py4JError) as error:
            if "DATA_SOURCE_NOT_FOUND" in str(error):
                raise PipelineError(
                    f"this Spark {spark.version} has no Delta: say with --conf "
                    "spark.jars.packages where its jars are"
                ) from error
    files = FileSystem(spark)
    begun = any(name.startswith("batch=") for name in files.names(archive))
    if begun and is_delta(spark, archive) != (wanted == "delta"):
        raise PipelineError(f"{archive} was begun in another format than {wanted}")


def append(
    batch: DataFrame, archive: str, batch_id: int, columns: Sequence[str], records_per_file: int
) -> None:
    """Adds a batch to the table, unless it is in it; what a killed attempt has left goes."""
    spark, place = batch.sparkSession, f"{archive}/batch={batch_id}"
    files = FileSystem(spark)
    if not _files(spark, archive, batch_id):
        files.remove(place)
    writer = batch.withColumn("batch", f.lit(batch_id).cast("long")).write.format("delta")
    writer = writer.mode("append").partitionBy("batch", *columns)
    writer = writer.option("txnAppId", _APPLICATION).option("txnVersion", batch_id)
    writer.option("maxRecordsPerFile", records_per_file).save(archive)


def table_files(spark: SparkSession, archive: str, batch_id: int) -> set[str]:
    """The names of a batch's files that are in the table; a repeated task may leave others."""
    return {path.rpartition("/")[2] for path in _files(spark, archive, batch_id)}


def _files(spark: SparkSession, archive: str, batch_id: int) -> list[str]:
    if not is_delta(spark, archive):
        return []
    table = spark.read.format("delta").load(archive)
    return list(table.where(f.col("batch") == batch_id).inputFiles())
