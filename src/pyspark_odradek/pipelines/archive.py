"""`archive`: every record of a topic to Parquet, with all that a record has, exactly once.

    orders/batch=0/date=2026-11-22/hour=03/part-*.parquet     by the hour of the records' times
    orders/_manifest/batch-0.json                             offsets and checksum of every file
    orders/_groups.json                                       how far groups were then

Columns are those of the source: key, value, topic, partition, offset, timestamp,
timestampType and headers; `date` and `hour`, in UTC, come from the directories. A batch has one
file an hour, or several when that is larger than a file should be; `compact` makes one of small
ones. Within a file records are in the order of their partitions and offsets.

With `format` it is a Delta or Iceberg table as well (`lake`).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.bookkeeping import groups
from pyspark_odradek.pipelines.bookkeeping.lake.table import open_table
from pyspark_odradek.pipelines.bookkeeping.manifest import TIME_COLUMNS, ArchivedFile, Manifest
from pyspark_odradek.pipelines.ends.batches import BatchDirectory
from pyspark_odradek.pipelines.ends.directories import check_owner, claim
from pyspark_odradek.pipelines.ends.streams import read_topic, write_stream
from pyspark_odradek.pipelines.running.jobs import StreamJob
from pyspark_odradek.pipelines.running.settings import PipelineSettings

_ORDER: Final = ("topic", "partition", "offset")
_USUAL_RECORD_BYTES: Final = 128


def build(spark: SparkSession, settings: PipelineSettings) -> StreamJob:
    """The archive as a job; it goes on where an earlier one to the same directory ended.

    Raises:
        PipelineError: no directory is given, or one that belongs to something else; or there
            is no topic; or Spark has not what its format needs.
    """
    target, columns = settings.directory("archive"), TIME_COLUMNS[settings.partition_by]
    records = read_topic(spark, settings, includeHeaders="true")
    # Not claimed yet: of an archive that is refused nothing is left.
    check_owner(spark, target, "archive", settings.topic)
    directory = BatchDirectory(spark, target, settings.checkpoint)
    table = open_table(spark, settings, target)
    claim(spark, target, "archive", settings.topic)

    def keep(batch: DataFrame, batch_id: int) -> None:
        # Over Spark Connect this runs in the server, where only the batch has a session.
        manifest = Manifest(batch.sparkSession, target)
        if not manifest.has(batch_id):
            # As those of the batch before turned out: bytes are known when they are written.
            limit = records_per_file(manifest.batch_files(batch_id - 1), settings.file_bytes)
            directory.write(arranged(batch, columns, limit), batch_id, columns, limit)
            manifest.write(batch_id, directory.path_of(batch_id))
            committed = groups.committed(settings.bootstrap_servers, settings.topic)
            groups.keep(batch.sparkSession, target, committed)
        if table is not None:
            table.append(batch_id, manifest.batch_files(batch_id))

    writer = write_stream(records, settings, "archive").foreachBatch(keep)
    writer = writer.option("checkpointLocation", directory.checkpoint)
    return StreamJob(writer, directory.take_back)


def arranged(records: DataFrame, columns: Sequence[str], limit: int) -> DataFrame:
    """Records as they go to files: together that go into one, in their order, with its names.

    `limit` is how many records a file takes at most.
    """
    time = f.to_utc_timestamp("timestamp", f.current_timezone())
    named = {"date": f.date_format(time, "yyyy-MM-dd"), "hour": f.date_format(time, "HH")}
    if not columns:
        return records
    with_names = records.withColumns({name: named[name] for name in columns})
    share = f.floor(f.col("offset") / limit)
    return with_names.repartition(*columns, share).sortWithinPartitions(*columns, *_ORDER)


def records_per_file(files: Iterable[ArchivedFile], file_bytes: int) -> int:
    """How many records a file of so many bytes has, going by those of some files."""
    sizes = [(file.bytes, sum(piece.records for piece in file.ranges)) for file in files]
    total, records = sum(size for size, _ in sizes), sum(count for _, count in sizes)
    return max(1, file_bytes // max(1, total // records if records else _USUAL_RECORD_BYTES))
