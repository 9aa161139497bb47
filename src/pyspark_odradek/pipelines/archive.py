"""`archive`: every record of a topic to Parquet, with all that a record has, exactly once.

    orders/batch=0/date=2026-11-22/hour=03/part-*.parquet     by the hour of the records' times
    orders/_manifest/batch-0.json                             offsets and checksum of every file

Columns are those of the source: key, value, topic, partition, offset, timestamp,
timestampType and headers; `date` and `hour`, in UTC, come from the directories. A batch has one
file an hour, or several when that is larger than a file should be. Within a file records are
in the order of their partitions and offsets.
"""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.batches import BatchDirectory
from pyspark_odradek.pipelines.jobs import StreamJob
from pyspark_odradek.pipelines.manifest import Manifest
from pyspark_odradek.pipelines.settings import PipelineSettings
from pyspark_odradek.pipelines.streams import read_topic, write_stream

_ORDER: Final = ("topic", "partition", "offset")
_HOURS: Final[dict[str, tuple[str, ...]]] = {
    "hour": ("date", "hour"),
    "day": ("date",),
    "none": (),
}


def build(spark: SparkSession, settings: PipelineSettings) -> StreamJob:
    """The archive as a job; it goes on where an earlier one to the same directory ended.

    Raises:
        PipelineError: no directory is given, or one that belongs to something else.
    """
    target = settings.directory("archive")
    directory = BatchDirectory(spark, target, settings.checkpoint)
    manifest = Manifest(spark, target)
    columns = _HOURS[settings.partition_by]

    def keep(batch: DataFrame, batch_id: int) -> None:
        if not manifest.has(batch_id):
            directory.write(arranged(batch, settings), batch_id, columns)
            manifest.write(batch_id, directory.path_of(batch_id))

    records = read_topic(spark, settings, includeHeaders="true")
    writer = write_stream(records, settings, "archive").foreachBatch(keep)
    return StreamJob(writer.option("checkpointLocation", directory.checkpoint))


def arranged(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Records as they go to files: together that go into one, in their order, with its names."""
    time = f.to_utc_timestamp("timestamp", f.current_timezone())
    named = {"date": f.date_format(time, "yyyy-MM-dd"), "hour": f.date_format(time, "HH")}
    columns = _HOURS[settings.partition_by]
    if not columns:
        return records
    with_names = records.withColumns({name: named[name] for name in columns})
    share = f.floor(f.col("offset") / settings.records_per_file)
    return with_names.repartition(*columns, share).sortWithinPartitions(*columns, *_ORDER)
