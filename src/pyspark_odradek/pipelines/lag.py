"""`lag`: how far every group of a topic is behind, in records and in time.

A group is one that has committed offsets for the topic, be it a consumer's or that of a query.
Its lag in time is the age of the first record that it has not read. With `to` every round is
kept as Parquet, with `max_lag` every partition that is further behind is a finding: the command
ends with 1, so that a schedule notices.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import SparkSession

from odradek.model import TopicPartition
from odradek.tables.topic import Topic
from odradek.tables.write.transaction import is_bookkeeping
from pyspark_odradek.errors import telling_in_one_sentence
from pyspark_odradek.pipelines.bookkeeping.groups import committed
from pyspark_odradek.pipelines.ends.directories import claim
from pyspark_odradek.pipelines.ends.snapshots import topic_spans
from pyspark_odradek.pipelines.running.jobs import IsStopped, Job, Outcome, Tell, never, silent
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

_SCHEMA: Final = (
    "at timestamp, group string, topic string, partition int, committed long, end long, "
    "records long, seconds double"
)
_STEP_S: Final = 0.2
_UNITS: Final = {"seconds": 1, "minutes": 60, "hours": 3600}


@dataclass(frozen=True)
class Lag:
    """How far a group is behind in a partition; `seconds` is None where no record waits."""

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
    """The job; it asks once, or every so often until it is stopped."""
    return LagJob(spark, settings)


class LagJob(Job):
    """Asks, prints or keeps what it is told, and remembers what is too much."""

    def __init__(self, spark: SparkSession, settings: PipelineSettings) -> None:
        self._spark: Final = spark
        self._settings: Final = settings

    def run(self, _tell: Tell = silent, is_stopped: IsStopped = never, /) -> Outcome:
        """See `Job.run`; the findings are those of the last round."""
        outcome = self._round()
        while self._settings.every is not None and not is_stopped():
            until = time.monotonic() + seconds_of(self._settings.every)
            while time.monotonic() < until and not is_stopped():
                time.sleep(_STEP_S)
            if not is_stopped():
                outcome = self._round()
        return outcome

    def _round(self) -> Outcome:
        lags = lags_of(self._settings)
        frame = self._spark.createDataFrame([tuple(asdict(lag).values()) for lag in lags], _SCHEMA)
        if self._settings.to is None:
            frame.show(max(1, len(lags)), truncate=False)
        else:
            directory = self._settings.directory("lag")
            claim(self._spark, directory, "lag", self._settings.topic)
            frame.coalesce(1).write.mode("append").parquet(directory)
        limit = self._settings.max_lag
        findings = [str(lag) for lag in lags if limit is not None and lag.records > limit]
        groups = len({lag.group for lag in lags})
        return Outcome(findings, {"groups": groups, "behind": sum(lag.records for lag in lags)})


def lags_of(settings: PipelineSettings) -> list[Lag]:
    """Every group's lag in every partition that it has committed for; no sink's bookkeeping.

    Raises:
        PipelineError: there is no such topic, or a group cannot be asked.
    """
    # Groups first: the other way round one that reads meanwhile would be ahead of the end.
    groups = committed(settings.bootstrap_servers, settings.topic)
    spans = topic_spans(settings)
    if not spans:
        raise PipelineError(f"there is no topic {settings.topic}")
    ends = {part.partition: span.end for part, span in spans.items()}
    lags = []
    for group, offsets in sorted(groups.items()):
        if is_bookkeeping(group):
            continue
        for partition, at in sorted(offsets.items()):
            part = TopicPartition(settings.topic, partition)
            if part not in spans:
                continue
            first, end = max(at, spans[part].start), spans[part].end
            since = _waiting_since(settings, part, first, ends) if first < end else None
            now = datetime.now(UTC)
            age = None if since is None else max(0.0, (now - since).total_seconds())
            behind = max(0, end - first)
            lags.append(Lag(now, group, *part, at, end, behind, age))
    return lags


def seconds_of(interval: str) -> int:
    """`30 seconds`, `5 minutes` or `1 hours`, as the command has them."""
    number, _, unit = interval.partition(" ")
    return int(number) * _UNITS[unit]


def _waiting_since(
    settings: PipelineSettings, part: TopicPartition, offset: int, ends: Mapping[int, int]
) -> datetime | None:
    """The time of the first record at or after an offset."""
    topic = Topic(part.topic, bootstrap_servers=settings.bootstrap_servers, allow_loss=True)
    start = {**ends, part.partition: offset}
    with telling_in_one_sentence():
        for batch in topic.batches(start=start, end=ends, columns=["timestamp"]):
            if batch.num_rows:
                time: datetime = batch.column(0)[0].as_py()
                return time.astimezone(UTC)
    return None
