"""`window`: counts and sums by windows of the records' time, and keeps late records apart.

    DIR/windows/batch=3-*/part-*.parquet   windows that are complete, each in one batch
    DIR/late/batch=3-*/part-*.parquet      records that came when theirs was complete already
    DIR/_open/batch=3-*/part-*.parquet     windows that are still filled

A window is complete when a record has come that is `within` later than its end. Spark's own windows
drop late records and only count them; here the open windows are carried from batch to batch as a
table, so that late records are known, and kept: windows and late records together are the whole
topic. A batch is a function of its records and of the previous batch's state, so a repeated one has
the same result; all three are committed as one. A record whose window would end after the last
possible time counts as late, and completes no window.

Sums are exact: whole numbers, decimals and text, which JSON gives, are added as decimals of 38
digits. A record without a number is only counted; if a number does not fit, its window has no sum,
minimum or maximum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from pyspark_odradek.pipelines.ends.batches import open_output
from pyspark_odradek.pipelines.ends.parquet import read_parquet
from pyspark_odradek.pipelines.ends.streams import distance, read_topic, write_stream
from pyspark_odradek.pipelines.running.jobs import StreamJob
from pyspark_odradek.pipelines.running.settings import PipelineSettings

_NAME: Final = "window"
_KEYS: Final = ("start", "end", "by")
_MOST_DIGITS: Final = 38
# A text may have its decimal point anywhere.
_OF_TEXT: Final = t.DecimalType(_MOST_DIGITS, 18)
_NUMBER: Final = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_SAME: Final = ("window", "by", "measure")
_WINDOWS, _LATE, _OPEN = _PARTS = ("windows", "late", "_open")


@dataclass(frozen=True)
class Counted:
    """The result of counting a batch of records."""

    complete: DataFrame
    late: DataFrame
    still_open: DataFrame


def build(spark: SparkSession, settings: PipelineSettings) -> StreamJob:
    """The job; it continues where an earlier one to the same directory ended.

    Raises:
        PipelineError: there is no directory, or it belongs to something else, or was begun with
            other windows.
    """
    records = read_topic(spark, settings, includeHeaders="true")
    check(records, settings)
    output = open_output(spark, settings, _NAME, _PARTS, _SAME)
    root = output.table.directory

    def count(batch: DataFrame, batch_id: int) -> None:
        left = output.left_by_the_one_before(batch_id)
        if output.has(batch_id):
            # The run that committed it may have been killed before this.
            output.table.drop(left["state"] if left is not None else ())
            return
        before, horizon = None, None
        if left is not None:
            paths = [f"{root}/{file['path']}" for file in left["state"]]
            # Over Spark Connect this runs in the server, where only the batch has a session.
            before, horizon = read_parquet(batch.sparkSession, paths), left["horizon"]
        batch = batch.persist()
        try:
            found, horizon = counted(batch, before, horizon, settings)
            files = output.stage(found.complete, batch_id, part=_WINDOWS)
            files += output.stage(found.late, batch_id, part=_LATE)
            state = output.stage(found.still_open, batch_id, part=_OPEN)
        finally:
            batch.unpersist()
        output.commit(batch_id, files, {"state": state, "horizon": horizon})
        if left is not None:
            output.table.drop(left["state"])

    return output.job(write_stream(records, settings, _NAME), count)


def check(records: DataFrame, settings: PipelineSettings) -> None:
    """Makes Spark check the SQL in the settings before the first batch does.

    Raises:
        PySparkException: the SQL is invalid.
    """
    # Over Spark Connect nothing is looked at before somebody asks what comes of it.
    # A watermark has `within` read, which nothing else looks at before there are records.
    _ = opened(records.withWatermark("timestamp", settings.within), settings).schema


def opened(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Returns the windows of records."""
    number, is_number = _number(records, settings.measure or "NULL")
    all_fit = f.bool_and(number.isNotNull() | ~is_number)
    counted = records.groupBy(
        _window(settings).alias("window"), f.expr(settings.by).alias("by")
    ).agg(
        f.count("*").alias("records"),
        f.count_if(is_number).alias("measured"),
        f.when(all_fit, f.try_sum(number)).alias("sum"),
        f.when(all_fit, f.min(number)).alias("least"),
        f.when(all_fit, f.max(number)).alias("largest"),
    )
    return counted.select("window.start", "window.end", *counted.columns[1:])


def _number(records: DataFrame, measure: str) -> tuple[Column, Column]:
    """Returns the measure in the type of sums, null where it does not fit or is not a number; and
    whether it is a number.
    """
    [column] = records.select(f.expr(measure)).schema
    given = f.expr(measure)
    match column.dataType:
        case t.StringType():
            number = given.try_cast(_OF_TEXT)
            return number, f.coalesce(number.isNotNull() | given.rlike(_NUMBER), f.lit(False))
        case t.IntegralType():
            number = given.cast(t.DecimalType(_MOST_DIGITS, 0))
        case t.DecimalType() as decimal:
            number = given.cast(t.DecimalType(_MOST_DIGITS, decimal.scale))
        case _:
            number = given.try_cast("double")
    return number, number.isNotNull()


def merged(windows: DataFrame) -> DataFrame:
    """Merges the parts of each window into one."""
    return windows.groupBy(*_KEYS).agg(
        f.sum("records").alias("records"),
        f.sum("measured").alias("measured"),
        _of_all("sum", f.try_sum),
        _of_all("least", f.min),
        _of_all("largest", f.max),
    )


def _of_all(name: str, together: Callable[[str], Column]) -> Column:
    """Returns the value over all parts of a window: null if a part has numbers but no value."""
    is_known = f.bool_and(f.col(name).isNotNull() | (f.col("measured") == 0))
    return f.when(is_known, together(name)).alias(name)


def counted(
    records: DataFrame, before: DataFrame | None, horizon: int | None, settings: PipelineSettings
) -> tuple[Counted, int | None]:
    """Counts a batch, and returns the new horizon: windows that end there or before are complete.

    `before` are the windows that the batch before left open, and `horizon` is its horizon, in
    microseconds: as local text it would depend on the time zone, and be ambiguous in autumn.
    """
    newest = f.try_subtract(f.max(_time(settings)), distance(settings.within))
    now = records.agg(f.unix_micros(newest).alias("now")).collect()[0].now
    is_late = _is_complete(_window(settings)["end"], horizon)
    windows = opened(records.where(~is_late), settings)
    if before is not None:
        windows = merged(windows.unionByName(before))
    horizon = max((time for time in (horizon, now) if time is not None), default=None)
    done = _is_complete(f.col("end"), horizon)
    # A condition on a window adds the window as a column.
    late = records.where(is_late).select(*records.columns)
    late = late.union(records.where(_time(settings).isNull()))
    return Counted(windows.where(done), late, windows.where(~done)), horizon


def _window(settings: PipelineSettings) -> Column:
    """Returns the window of a record; a null leaves the record out, as in Spark."""
    return f.window(_time(settings), settings.window)


def _time(settings: PipelineSettings) -> Column:
    """Returns the time of a record; null where a window around it would not fit."""
    time, size = f.col("timestamp"), f.lit(settings.window).cast("interval")
    has_room = f.try_add(time, size).isNotNull() & f.try_subtract(time, size).isNotNull()
    return f.when(has_room, time)


def _is_complete(end: Column, horizon: int | None) -> Column:
    return f.lit(False) if horizon is None else f.unix_micros(end) <= horizon
