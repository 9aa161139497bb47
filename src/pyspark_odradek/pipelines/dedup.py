"""`dedup`: writes a topic without duplicates to Parquet or to another topic.

Two records are duplicates when `by` (SQL over the columns of the source; else the key) is the same
for both and their times are no further apart than `within`. Spark remembers for at least that long,
and forgets only between batches: in one batch it leaves out every duplicate. A record for which
`by` is null is never a duplicate. A record that is `within` older than the newest record of earlier
batches could be a duplicate of one that Spark has forgotten, and is left out; the summary counts
them. Times before the year -71000 count as one, and so do those after 75000.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_odradek.pipelines.ends.batches import open_output
from pyspark_odradek.pipelines.ends.checkpoints import Checkpoint
from pyspark_odradek.pipelines.ends.directories import Mark
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.owners import Lock
from pyspark_odradek.pipelines.ends.snapshots import is_there, no_topic
from pyspark_odradek.pipelines.ends.streams import (
    check_event_times,
    event_time,
    read_topic,
    write_stream,
)
from pyspark_odradek.pipelines.running.jobs import StreamJob
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

_NAME: Final = "dedup"
_ID: Final = "_id"
_TIME: Final = "_time"


def build(spark: SparkSession, settings: PipelineSettings) -> StreamJob:
    """The job; it continues where an earlier one with the same checkpoint ended.

    Raises:
        PipelineError: there is no output, or there are two, or the directory belongs to something
            else or was begun with another `by` or by an earlier version, or there is no such topic.
    """
    if settings.to is not None and settings.to_topic is not None:
        raise PipelineError(f"{_NAME} writes to one place: say --to DIR or --to-topic T, not both")
    records = read_topic(spark, settings, includeHeaders="true")
    once = dedup(records, settings.by, settings.within)
    if settings.to_topic is None:
        output = open_output(spark, settings, _NAME, same=("by",))
        check_event_times(output.checkpoint, "directory")
        return output.job(write_stream(once, settings, _NAME))
    target = replace(settings, topic=settings.written(settings.to_topic))
    if not is_there(target):
        raise no_topic(target, " to write to")
    files = FileSystem(spark)
    checkpoint = Checkpoint(files, settings.checkpoint_or(None))
    check_event_times(checkpoint, "topic and checkpoint")
    # There is no other directory of two runs at once.
    lock = Lock(files, checkpoint.path)
    # The other topic has its own number of partitions: there the key decides.
    writer = write_stream(once.drop("partition"), settings, _NAME)
    writer = _to_topic(writer, settings, settings.to_topic, checkpoint.path)

    @contextmanager
    def alone() -> Iterator[None]:
        with lock:
            checkpoint.mark(Mark(_NAME, settings.topic, settings.lasting("by")))
            yield

    def take_back() -> None:
        if not lock.is_taken_over():
            checkpoint.take_back_unless_planned()

    return StreamJob(writer, take_back, alone)


def dedup(records: DataFrame, by: str, within: str) -> DataFrame:
    """Removes duplicates from a stream of records."""
    # Records without an id get their place as one; otherwise all of them would count as one record.
    place = f.concat_ws("-", "topic", "partition", "offset")
    own = f.struct(f.expr(by).alias("given"), f.when(f.isnull(f.expr(by)), place).alias("place"))
    named = records.withColumns({_ID: own, _TIME: event_time("timestamp")})
    named = named.withWatermark(_TIME, within)
    return named.dropDuplicatesWithinWatermark([_ID]).drop(_ID, _TIME)


def _to_topic(
    writer: DataStreamWriter, settings: PipelineSettings, topic: str, checkpoint: str
) -> DataStreamWriter:
    options: Mapping[str, str] = {
        **settings.broker_options(),
        "topic": topic,
        "exactlyOnce": "true",
        "failOnDataLoss": str(not settings.allow_loss),
        "keepTimestamps": "true",
        "checkpointLocation": checkpoint,
    }
    return writer.format("odradek").options(**options)
