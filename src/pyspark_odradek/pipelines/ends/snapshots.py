"""A topic at one moment: offsets that are asked for once, and read as a table.

Two reads of a growing topic see different ends. A job that reads a topic more than once, or several
topics, asks for the ends first and passes them to every read.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.suggestions import did_you_mean
from odradek.tables.plan.bounds import Bounds, open_bounds
from odradek.tables.plan.offsets import offsets_to_json
from odradek.tables.plan.options import TopicSelection
from pyspark_odradek.errors import telling_in_one_sentence
from pyspark_odradek.options import parse_options
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings


@dataclass(frozen=True)
class Span:
    """Offsets from `start` up to, and without, `end`."""

    start: int
    end: int

    def __and__(self, other: "Span | None") -> "Span | None":
        """The intersection of both; None where it is empty."""
        if other is None:
            return None
        both = Span(max(self.start, other.start), min(self.end, other.end))
        return both if both.start < both.end else None


def topic_spans(settings: PipelineSettings) -> dict[TopicPartition, Span]:
    """The first and end offsets of the partitions of the settings' topic now; none if it does not
    exist.

    Raises:
        SourceError: the broker could not be asked.
    """
    with _asking(settings) as (bounds, partitions):
        starts, ends = bounds.earliest(partitions), bounds.latest(partitions)
        return {part: Span(starts[part], ends[part]) for part in partitions}


def is_there(settings: PipelineSettings) -> bool:
    """Whether the settings' topic exists.

    Raises:
        SourceError: the broker could not be asked.
    """
    with _asking(settings) as (_, partitions):
        return bool(partitions)


def no_topic(settings: PipelineSettings, which: str | None = None) -> PipelineError:
    """Returns the error for an unknown topic, with the most similar name.

    `which` says what the topic is for; without it the error says where the topic was looked for.

    Raises:
        SourceError: the broker could not be asked.
    """
    with _asking(settings, subscribePattern=".*") as (_, partitions):
        meant = did_you_mean(settings.topic, {part.topic for part in partitions})
    which = f" at {settings.bootstrap_servers}" if which is None else which
    return PipelineError(f"there is no topic {settings.topic}{which}{meant}")


def read_spans(
    spark: SparkSession,
    settings: PipelineSettings,
    spans: Mapping[TopicPartition, Span],
    **more: str,
) -> DataFrame:
    """Reads exactly these offsets, with headers; `more` are further options of the source."""
    partitions: dict[str, list[int]] = {}
    for part in spans:
        partitions.setdefault(part.topic, []).append(part.partition)
    ends = {
        "assign": partitions,
        "startingOffsets": offsets_to_json({part: span.start for part, span in spans.items()}),
        "endingOffsets": offsets_to_json({part: span.end for part, span in spans.items()}),
    }
    reader = spark.read.format("odradek").options(**settings.where())
    reader = reader.options(**{name: json.dumps(value) for name, value in ends.items()}, **more)
    return reader.option("includeHeaders", "true").load()


def of_partition(numbers: Mapping[int, int], missing: int) -> Column:
    """Returns the number of a record's partition, or the one for those that are `missing`.

    Spark makes a list of one text: a map would be an expression, and some calls of the JVM, for
    each partition, and searched from its beginning for each record.
    """
    if not numbers:
        return f.lit(missing)
    text = ",".join(str(numbers.get(each, missing)) for each in range(max(numbers) + 1))
    found = f.get(f.split(f.lit(text), ",").cast("array<long>"), f.col("partition"))
    return f.coalesce(found, f.lit(missing))


@contextmanager
def _asking(
    settings: PipelineSettings, **topics: str
) -> Iterator[tuple[Bounds, list[TopicPartition]]]:
    """Opens a client, and finds the partitions of the settings' topic, or of other topics; none if
    the topic does not exist.
    """
    where = {
        **settings.broker_options(),
        "kafka.isolation.level": settings.isolation_level,
        **(topics or {"subscribe": settings.topic}),
    }
    with telling_in_one_sentence():
        options = parse_options(where, streaming=False)
        with closing(open_bounds(options)) as bounds:
            yield bounds, _partitions(bounds, options.selection)


def _partitions(bounds: Bounds, selection: TopicSelection) -> list[TopicPartition]:
    try:
        return bounds.partitions(selection)
    except BrokerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return []
