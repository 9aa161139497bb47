"""`window`: counts and sums by windows of the records' time, late records kept aside.

    DIR/windows/batch=3/part-*.parquet   windows that are complete, each in one batch
    DIR/late/batch=3/part-*.parquet      records that came when theirs was complete already
    DIR/_open/batch=3/part-*.parquet     windows that are still filled

A window is complete when a record has come that is `within` later than its end. Spark's own
windows drop what is late, and tell only how many; here the open windows are carried from batch
to batch as a table, so that what is late is known, and kept: windows and late records together
are the whole topic. A batch is a function of its records and of what the batch before left, so
that a repeated one does it again with the same result.
"""

import json
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.ends.batches import CHECKPOINT, BatchDirectory
from pyspark_odradek.pipelines.ends.directories import claim
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.streams import read_topic, write_stream
from pyspark_odradek.pipelines.running.jobs import StreamJob
from pyspark_odradek.pipelines.running.settings import PipelineSettings

_NAME: Final = "window"
_KEYS: Final = ("start", "end", "by")


@dataclass(frozen=True)
class Counted:
    """What a batch of records comes to."""

    complete: DataFrame
    late: DataFrame
    still_open: DataFrame


def build(spark: SparkSession, settings: PipelineSettings) -> StreamJob:
    """The job; it goes on where an earlier one to the same directory ended.

    Raises:
        PipelineError: there is no directory, or it is something else's.
    """
    records = read_topic(spark, settings, includeHeaders="true")
    check(records, settings)
    claim(spark, settings.directory(_NAME), _NAME, settings.topic)
    job = _Windows(spark, settings)
    writer = write_stream(records, settings, _NAME).foreachBatch(job.count)
    return StreamJob(writer.option("checkpointLocation", job.checkpoint), job.take_back)


def check(records: DataFrame, settings: PipelineSettings) -> None:
    """Has Spark look at the SQL in the settings, which the first batch would be the first to see.

    Raises:
        PySparkException: it is wrong.
    """
    # Over Spark Connect nothing is looked at before somebody asks what comes of it.
    _ = opened(records, settings).withColumn("apart", _within(settings)).schema


def opened(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    """The windows of some records."""
    measure = f.expr(settings.measure or "NULL").cast("double")
    counted = records.groupBy(
        f.window("timestamp", settings.window).alias("window"), f.expr(settings.by).alias("by")
    ).agg(
        f.count("*").alias("records"),
        f.sum(measure).alias("sum"),
        f.min(measure).alias("least"),
        f.max(measure).alias("largest"),
    )
    return counted.select("window.start", "window.end", *counted.columns[1:])


def merged(windows: DataFrame) -> DataFrame:
    """Windows that are there in several parts, as one each."""
    return windows.groupBy(*_KEYS).agg(
        f.sum("records").alias("records"),
        f.sum("sum").alias("sum"),
        f.min("least").alias("least"),
        f.max("largest").alias("largest"),
    )


def counted(
    records: DataFrame, before: DataFrame | None, horizon: str | None, settings: PipelineSettings
) -> tuple[Counted, str | None]:
    """What a batch comes to, and the new horizon: windows that end there or before are complete.

    `before` are the windows that the batch before left open, and `horizon` is its horizon.
    """
    newest = f.max("timestamp") - _within(settings)
    now = records.agg(newest.cast("string").alias("now")).collect()[0].now
    is_late = _is_complete(f.window("timestamp", settings.window)["end"], horizon)
    windows = opened(records.where(~is_late), settings)
    if before is not None:
        windows = merged(windows.unionByName(before))
    # Spark's way to write a time sorts as the time does.
    horizon = max((time for time in (horizon, now) if time is not None), default=None)
    done = _is_complete(f.col("end"), horizon)
    return Counted(windows.where(done), records.where(is_late), windows.where(~done)), horizon


def _within(settings: PipelineSettings) -> Column:
    return f.expr(f"INTERVAL {settings.within}")


def _is_complete(end: Column, horizon: str | None) -> Column:
    return f.lit(False) if horizon is None else end <= f.lit(horizon).cast("timestamp")


class _Windows:
    """The three directories, and the horizon after every batch."""

    def __init__(self, spark: SparkSession, settings: PipelineSettings) -> None:
        # No session: over Spark Connect this travels to the server, where the batch has one.
        self._settings: Final = settings
        self._root: Final = settings.directory(_NAME)
        self.checkpoint: Final = settings.checkpoint or f"{self._root}/{CHECKPOINT}"
        self._windows, self._late, self._open = (
            BatchDirectory(spark, f"{self._root}/{name}", self.checkpoint)
            for name in ("windows", "late", "_open")
        )
        self._files: Final = FileSystem(spark)

    def count(self, records: DataFrame, batch_id: int) -> None:
        """Counts a batch; what `foreachBatch` is given."""
        before, horizon = self._left_by(records.sparkSession, batch_id - 1)
        records = records.persist()
        try:
            found, horizon = counted(records, before, horizon, self._settings)
            self._windows.write(found.complete, batch_id)
            self._late.write(found.late, batch_id)
            self._open.write(found.still_open, batch_id)
        finally:
            records.unpersist()
        self._files.replace(self._horizon(batch_id), json.dumps(horizon))
        # A batch that Spark repeats is the last one, and needs what the one before it left.
        for old in self._open.batch_ids():
            if old < batch_id - 1:
                self._files.remove(self._horizon(old))
                self._files.remove(self._open.path_of(old))

    def take_back(self) -> None:
        """Removes what a query has made that failed before a batch was whole in all directories."""
        if not self._files.exists(self._horizon(0)):
            for directory in (self._windows, self._late, self._open):
                directory.take_all_back()

    def _left_by(self, spark: SparkSession, batch_id: int) -> tuple[DataFrame | None, str | None]:
        if batch_id < 0:
            return None, None
        horizon = json.loads(self._files.read(self._horizon(batch_id)))
        return spark.read.parquet(self._open.path_of(batch_id)), horizon

    def _horizon(self, batch_id: int) -> str:
        return f"{self._root}/_open/horizon-{batch_id}.json"
