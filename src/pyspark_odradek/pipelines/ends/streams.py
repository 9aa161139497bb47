"""The parts that pipelines have in common: a topic as a stream, its event times and how far apart
they are, the trigger."""

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_odradek.pipelines.ends.checkpoints import Checkpoint
from pyspark_odradek.pipelines.ends.snapshots import is_there, no_topic
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

# So far from 1970, in microseconds, event times are told apart.
_FARTHEST_US: Final = 1 << 61
# The year 10000. A watermark before it is of times that were not moved: it would be one of the year
# -63000.
_FIRST_MOVED_MS: Final = 253_402_300_800_000
_UNITS: Final = ("year", "month", "day", "hour", "minute", "second")
# As long as those of watermarks.
_HOURS_OF_A_DAY: Final = 24
_DAYS_OF_A_MONTH: Final = 31


def read_topic(
    spark: SparkSession, settings: PipelineSettings, why_missing: str | None = None, **more: str
) -> DataFrame:
    """The topic as a stream; `more` are further options of the source.

    The topic is looked up first: a query that fails at its start leaves half a checkpoint. If it
    does not exist, `why_missing` is the error; without it the error says where the topic was looked
    for.

    Raises:
        PipelineError: there is no such topic.
        SourceError: the broker could not be asked.
    """
    if not is_there(settings):
        raise no_topic(settings, None if why_missing is None else f": {why_missing}")
    return spark.readStream.format("odradek").options(**settings.source_options(), **more).load()


def event_time(time: str) -> Column:
    """Returns the times of a column for a watermark, as far apart as they are, but moved behind
    1970: Spark takes an earlier one for late, even in the first batch.

    Times before the year -71000 become one, and so do those after 75000: Spark can add to each.
    """
    found = f.greatest(f.unix_micros(time), f.lit(1 - _FARTHEST_US))
    return f.timestamp_micros(f.least(found, f.lit(_FARTHEST_US)) + _FARTHEST_US)


def check_event_times(checkpoint: Checkpoint, other: str) -> None:
    """Checks that what a query remembers has times as those of `event_time`; `other` is what the
    user has to choose if not.

    Raises:
        PipelineError: it is of an earlier version, so no record would be near to those in it.
    """
    if 0 < checkpoint.watermark_ms() < _FIRST_MOVED_MS:
        raise PipelineError(
            f"{checkpoint.path} is of an earlier version: its times are not those of this one, "
            f"which would find no record near to them. Choose another {other}: there everything "
            "is read from the beginning"
        )


def distance(interval: str) -> Column:
    """Returns an interval that is as long wherever clocks change, and as long as in a watermark: by
    itself a day of Spark's has 23 or 25 hours there.
    """
    given = f.lit(interval).cast("interval")
    years, months, days, hours, minutes, seconds = (
        f.extract(f.lit(unit), given) for unit in _UNITS
    )
    all_days = (years * 12 + months) * _DAYS_OF_A_MONTH + days
    return f.make_interval(hours=all_days * _HOURS_OF_A_DAY + hours, mins=minutes, secs=seconds)


def write_stream(frame: DataFrame, settings: PipelineSettings, name: str) -> DataStreamWriter:
    """Returns a writer for the result that runs as often as the settings say."""
    writer = frame.writeStream.queryName(f"{name}-{settings.topic}")
    if settings.every is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=settings.every)
