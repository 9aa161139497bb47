"""`lag`: reports how far every group of a topic is behind, in records and in time.

A group counts if it has committed offsets for the topic, whether consumers or a query own it. Its
lag in time is the age of the first record that it has not read; if very many partitions are behind,
Spark's tasks read those records. With `to` every round is saved as Parquet; with `max_lag` every
partition that is further behind is a finding: the command ends with 1, so that a scheduler notices.
"""

import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from odradek.model import TopicPartition
from odradek.tables.plan.options import ReadOptions
from odradek.tables.plan.ranges import OffsetRange
from odradek.tables.scan.reading import first_times
from odradek.tables.write.query_run import is_bookkeeping
from pyspark_odradek.errors import telling_in_one_sentence
from pyspark_odradek.options import parse_options
from pyspark_odradek.pipelines.bookkeeping.described import committed
from pyspark_odradek.pipelines.ends.directories import ClaimedLock, put_table
from pyspark_odradek.pipelines.ends.snapshots import no_topic, topic_spans
from pyspark_odradek.pipelines.running.jobs import IsStopped, Job, Outcome, Tell, never, silent
from pyspark_odradek.pipelines.running.settings import PipelineSettings

if TYPE_CHECKING:
    import pyarrow as pa

_SCHEMA: Final = (
    "at timestamp, group string, topic string, partition int, committed long, end long, "
    "records long, seconds double"
)
_STEP_S: Final = 0.2
# So many partitions are asked for from here, and by one task.
PIECES_HERE: Final = 256
_MOST_TASKS: Final = 64
# One batch of each partition is enough.
_FETCH_BYTES: Final = "65536"
_UNITS: Final = {"seconds": 1, "minutes": 60, "hours": 3600}


@dataclass(frozen=True)
class Lag:
    """The lag of a group in a partition; `seconds` is None if it has read all records."""

    at: datetime
    group: str
    topic: str
    partition: int
    committed: int
    end: int
    records: int
    seconds: float | None

    def __str__(self) -> str:
        text = f"{self.group} {self.topic}-{self.partition}: {self.records:,} records behind"
        return text if self.seconds is None else f"{text}, {self.seconds:,.0f} s"


def build(spark: SparkSession, settings: PipelineSettings) -> "LagJob":
    """The job; it measures once, or at an interval until it is stopped."""
    return LagJob(spark, settings)


class LagJob(Job):
    """Measures, prints or saves the lags, and remembers those over the limit."""

    def __init__(self, spark: SparkSession, settings: PipelineSettings) -> None:
        self._spark: Final = spark
        self._settings: Final = settings

    def run(self, _tell: Tell = silent, is_stopped: IsStopped = never, /) -> Outcome:
        """See `Job.run`; returns the findings of the last round."""
        outcome = self._round()
        while self._settings.every is not None and not is_stopped():
            until = time.monotonic() + seconds_of(self._settings.every)
            while time.monotonic() < until and not is_stopped():
                time.sleep(_STEP_S)
            if not is_stopped():
                outcome = self._round()
        return outcome

    def _round(self) -> Outcome:
        lags = lags_of(self._spark, self._settings)
        frame = self._spark.createDataFrame([tuple(asdict(lag).values()) for lag in lags], _SCHEMA)
        if self._settings.to is None:
            frame.show(max(1, len(lags)), truncate=False)
        else:
            directory = self._settings.directory("lag")
            options = self._settings.lasting()
            lock = ClaimedLock(self._spark, directory, "lag", self._settings.topic, options=options)
            put_table(self._spark, frame.coalesce(1), directory, lock, is_whole=False)
        limit = self._settings.max_lag
        findings = [str(lag) for lag in lags if limit is not None and lag.records > limit]
        groups = len({lag.group for lag in lags})
        return Outcome(findings, {"groups": groups, "behind": sum(lag.records for lag in lags)})


def lags_of(spark: SparkSession, settings: PipelineSettings) -> list[Lag]:
    """Returns every group's lag in every partition that it has committed for, except the groups of
    sinks.

    Raises:
        PipelineError: there is no such topic, or a coordinator does not answer.
    """
    # Groups first: the other way round one that reads meanwhile would be ahead of the end.
    groups = committed(settings.brokers, settings.topic)
    spans = topic_spans(settings)
    if not spans:
        raise no_topic(settings)
    unread = [
        (group, at, OffsetRange(part, max(at, spans[part].start), spans[part].end))
        for group, offsets in sorted(groups.items())
        if not is_bookkeeping(group)
        for partition, at in sorted(offsets.items())
        if (part := TopicPartition(settings.topic, partition)) in spans
    ]
    since = first_times_of(spark, settings, {piece for *_, piece in unread if piece.size > 0})
    now = datetime.now(UTC)
    lags = []
    for group, at, piece in unread:
        time = since.get(piece)
        age = None if time is None else max(0.0, now.timestamp() - time / 1000)
        behind = max(0, piece.size)
        lags.append(Lag(now, group, *piece.topic_partition, at, piece.end, behind, age))
    return lags


def seconds_of(interval: str) -> int:
    """Reads `30 seconds`, `5 minutes` or `1 hours`, the form of the command."""
    number, _, unit = interval.partition(" ")
    return int(number) * _UNITS[unit]


def first_times_of(
    spark: SparkSession, settings: PipelineSettings, pieces: Collection[OffsetRange]
) -> dict[OffsetRange, int]:
    """Returns the time of the first record of each of these, in milliseconds: the driver reads a
    few, tasks read many.
    """
    options = parse_options(
        {
            **settings.broker_options(),
            "kafka.isolation.level": settings.isolation_level,
            "subscribe": settings.topic,
            "failOnDataLoss": "false",
            "kafka.max.partition.fetch.bytes": _FETCH_BYTES,
        },
        streaming=False,
    )
    with telling_in_one_sentence():
        if len(pieces) <= PIECES_HERE:
            return dict(first_times(options, pieces))
    return dict(_found_by_tasks(spark, options, pieces))


def _found_by_tasks(
    spark: SparkSession, options: ReadOptions, pieces: Collection[OffsetRange]
) -> Iterator[tuple[OffsetRange, int]]:
    columns = "topic string, partition int, start long, end long"

    def look(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            asked = (
                OffsetRange(
                    TopicPartition(row["topic"], row["partition"]), row["start"], row["end"]
                )
                for row in batch.to_pylist()
            )
            rows = [{**_row_of(piece), "time": time} for piece, time in first_times(options, asked)]
            types = [
                *zip(batch.schema.names, batch.schema.types, strict=True),
                ("time", pa.int64()),
            ]
            yield pa.RecordBatch.from_pylist(rows, pa.schema(types))

    frame = spark.createDataFrame([tuple(_row_of(piece).values()) for piece in pieces], columns)
    tasks = -(-len(pieces) // PIECES_HERE)
    found = frame.repartition(min(tasks, _MOST_TASKS)).mapInArrow(look, f"{columns}, time long")
    for row in found.collect():
        yield OffsetRange(TopicPartition(row.topic, row.partition), row.start, row.end), row.time


def _row_of(piece: OffsetRange) -> dict[str, object]:
    topic, partition = piece.topic_partition
    return {"topic": topic, "partition": partition, "start": piece.start, "end": piece.end}
