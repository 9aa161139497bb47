"""`join`: joins records of two topics to rows with the columns of both.

Two records match when `by` (SQL over the columns of the source; else the key) is the same for both
and their times are no further apart than `within`. The columns of the other topic begin with
`other_`. Spark remembers records of both topics for twice that long; a record that comes later
finds no match any more, and the summary counts such records. Times before the year -71000 count as
one, and so do those after 75000.
"""

from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.ends.batches import open_output
from pyspark_odradek.pipelines.ends.streams import (
    check_event_times,
    distance,
    event_time,
    read_topic,
    write_stream,
)
from pyspark_odradek.pipelines.running.jobs import StreamJob
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

_NAME: Final = "join"
_COLUMNS: Final = "key,value,topic,partition,offset,timestamp"


def build(spark: SparkSession, settings: PipelineSettings) -> StreamJob:
    """The job; it continues where an earlier one to the same directory ended.

    Raises:
        PipelineError: there is no other topic or no directory, or the directory belongs to
            something else, or is of an earlier version.
    """
    if settings.other is None:
        raise PipelineError("join needs another topic (--with T)")
    one, other = (
        read_topic(spark, replace(settings, topic=topic), columns=_COLUMNS)
        for topic in (settings.topic, settings.other)
    )
    both = replace(settings, topic=f"{settings.topic},{settings.other}")
    output = open_output(spark, both, _NAME, same=("by",))
    check_event_times(output.checkpoint, "directory")
    joined = join(one, other, settings.by, settings.within)
    return output.job(write_stream(joined, settings, _NAME))


def join(one: DataFrame, other: DataFrame, by: str, within: str) -> DataFrame:
    """Returns the matches of two streams."""
    apart = distance(within)
    left, right = (
        records.withColumns({"_by": f.expr(by), "_time": event_time("timestamp")})
        for records in (one, other)
    )
    left = left.withWatermark("_time", within)
    right = right.select(*(f.col(name).alias(f"other_{name}") for name in right.columns))
    right = right.withWatermark("other__time", within)
    near = (f.col("other__time") >= f.col("_time") - apart) & (
        f.col("_time") >= f.col("other__time") - apart
    )
    joined = left.join(right, (f.col("_by") == f.col("other__by")) & near)
    return joined.drop("_by", "_time", "other__by", "other__time")
