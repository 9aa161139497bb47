"""`archive`: writes every record of a topic to Parquet, with all its fields, exactly once.

    orders/batch=0-9f2c11ab/date=2026-11-22/hour=03/part-*.parquet   by the records' times
    orders/_manifest/batch-0.json     the files of the batch, with offsets and checksums
    orders/_topic.json                the topic's partitions and settings, and groups, as of then

Columns are those of the source: key, value, topic, partition, offset, timestamp,
timestampType and headers; `date` and `hour`, in UTC, come from the directories. A batch has one
file an hour, or several when that is larger than a file should be; `compact` makes one of small
ones. Within a file records are in the order of their partitions and offsets.

With `format` it is a Delta or Iceberg table as well (`lake`).
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.bookkeeping import described
from pyspark_odradek.pipelines.bookkeeping.lake.table import open_table, refuse_unusable
from pyspark_odradek.pipelines.bookkeeping.manifest import TIME_COLUMNS, Manifest
from pyspark_odradek.pipelines.bookkeeping.shares import records_per_file
from pyspark_odradek.pipelines.ends.batches import open_output
from pyspark_odradek.pipelines.ends.hours import utc_date, utc_hour
from pyspark_odradek.pipelines.ends.streams import read_topic, write_stream
from pyspark_odradek.pipelines.running.jobs import StreamJob
from pyspark_odradek.pipelines.running.settings import PipelineSettings

_ORDER: Final = ("topic", "partition", "offset")


def build(spark: SparkSession, settings: PipelineSettings) -> StreamJob:
    """The archive as a job; it continues where an earlier one to the same directory ended.

    Raises:
        PipelineError: no directory is given, or it belongs to something else; or there is no such
            topic; or Spark lacks the jars of the format.
    """
    target, columns = settings.directory("archive"), TIME_COLUMNS[settings.partition_by]
    records = read_topic(spark, settings, includeHeaders="true")
    # Claimed before there is a table, whose files would be nobody's; of an archive that cannot be
    # there is nothing at all.
    refuse_unusable(spark, settings, target)
    output = open_output(spark, settings, "archive")
    table = open_table(spark, settings, output)

    def keep(batch: DataFrame, batch_id: int) -> None:
        # Over Spark Connect this runs in the server, where only the batch has a session.
        manifest = Manifest(batch.sparkSession, target)
        if not output.has(batch_id):
            manifest.check_topics(batch_id, output.checkpoint.offsets(batch_id))
            # As those of the batch before turned out: bytes are known when they are written.
            limit = records_per_file(manifest.batch_files(batch_id - 1), settings.file_bytes)
            share = f.floor(f.col("offset") / limit)
            rows = arranged(batch, columns, share) if columns else batch
            files = manifest.look(output.stage(rows, batch_id, columns, limit))
            described.keep(batch.sparkSession, target, settings)
            output.commit(batch_id, [asdict(file) for file in files])
        if table is not None:
            table.append(batch_id, manifest.batch_files(batch_id))

    return output.job(write_stream(records, settings, "archive"), keep)


def arranged(records: DataFrame, columns: Sequence[str], share: Column) -> DataFrame:
    """Arranges records for their files: those of an hour with the same share together, in order,
    with the names of their directories.
    """
    named = {"date": utc_date("timestamp"), "hour": utc_hour("timestamp")}
    with_names = records.withColumns({name: named[name] for name in columns})
    return with_names.repartition(*columns, share).sortWithinPartitions(*columns, *_ORDER)
