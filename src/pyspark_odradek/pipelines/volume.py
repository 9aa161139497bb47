"""`volume`: measures how much a topic gets, by hour and partition.

Counts records, bytes, and records without a key or a value, by the records' timestamps in hours of
UTC, not by their arrival. The state is one row per partition and hour, so it stays small over
years. Every trigger writes the whole table: to the screen, or to a directory as Parquet, where it
replaces the last one.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.ends.batches import open_output
from pyspark_odradek.pipelines.ends.hours import begin_of_hour
from pyspark_odradek.pipelines.ends.streams import read_topic, write_stream
from pyspark_odradek.pipelines.running.jobs import StreamJob
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

SHOWN_ROWS = 48


def build(spark: SparkSession, settings: PipelineSettings) -> StreamJob:
    """The count as a job; with a directory it continues where an earlier one ended.

    Raises:
        PipelineError: the directory belongs to something else, or a checkpoint is set without one.
    """
    if settings.to is None and settings.checkpoint is not None:
        raise PipelineError(
            "without --to everything is counted again each time: leave out --checkpoint"
        )
    records = read_topic(spark, settings, columns="key,value,partition,timestamp")
    writer = write_stream(volume(records), settings, "volume").outputMode("complete")
    if settings.to is None:
        return StreamJob(writer.foreachBatch(_show))
    output = open_output(spark, settings, "volume")
    return output.job(writer, output.write_whole)


def volume(records: DataFrame) -> DataFrame:
    """Returns the table, for a stream or a batch of records."""
    key_bytes = f.coalesce(f.octet_length("key"), f.lit(0))
    value_bytes = f.coalesce(f.octet_length("value"), f.lit(0))
    return records.groupBy(begin_of_hour("timestamp").alias("hour"), "partition").agg(
        f.count("*").alias("records"),
        f.sum(key_bytes + value_bytes).alias("bytes"),
        f.count_if(f.col("key").isNull()).alias("without_key"),
        f.count_if(f.col("value").isNull()).alias("without_value"),
    )


def _show(table: DataFrame, _: int) -> None:
    table.orderBy(f.desc("hour"), "partition").show(SHOWN_ROWS, truncate=False)
