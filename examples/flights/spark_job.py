"""The Spark part: both topics to Parquet, departures joined with their weather, and the tables.

The archive is the pipeline that `odradek pipeline archive` runs; it reads segments where they
lie. It is audited, and that of the weather restored to a topic, which is compared with the
original. How far the archives are is committed as groups, like that of any consumer. The join
is a stream of its own through the broker: departures and weather of the same hour and airport
meet in Spark's state, whichever comes first.
"""

import asyncio
import csv
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as parquet
from examples.flights.dataset import FLIGHTS, WEATHER
from examples.flights.replay import PARTITIONS, Position
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from odradek.client import Admin
from odradek.client.core.admin_types import CommittedOffset, OffsetAndTimestamp
from odradek.client.core.consuming.list_offsets import LATEST
from odradek.client.errors import KafkaError
from odradek.model import TopicPartition
from pyspark_odradek.pipelines import PipelineSettings, archive, audit, restore
from pyspark_odradek.pipelines.ends.batches import CHECKPOINT, Output
from pyspark_odradek.progress import ProgressGroups, group_of

# Partitions of a topic are read at the same pace, but one may be days ahead of another.
LATENESS: Final = "30 days"
FLIGHTS_PER_BATCH: Final = 120_000
WEATHER_PER_BATCH: Final = 10_000
DELAY_STEP: Final = 5
SHORTEST_DELAY: Final = -20
LONGEST_DELAY: Final = 90
LOCAL_ZONE: Final = "America/New_York"
# How long Spark may take to tell a listener of a query that has ended.
_TELLING_S: Final = 30

FLIGHT_FIELDS: Final = (
    "id LONG, carrier STRING, tailnum STRING, origin STRING, dest STRING, flight INT, "
    "dep_delay DOUBLE, arr_delay DOUBLE, air_time DOUBLE, distance DOUBLE"
)
WEATHER_FIELDS: Final = (
    "id LONG, origin STRING, temp DOUBLE, humid DOUBLE, wind_speed DOUBLE, wind_gust DOUBLE, "
    "precip DOUBLE, pressure DOUBLE, visib DOUBLE"
)


@dataclass
class Tables:
    """The results, as rows of plain values for the report."""

    by_hour: list[dict[str, Any]] = field(default_factory=list)
    by_day: list[dict[str, Any]] = field(default_factory=list)
    by_carrier: list[dict[str, Any]] = field(default_factory=list)
    by_weather: list[dict[str, Any]] = field(default_factory=list)
    by_delay: list[dict[str, Any]] = field(default_factory=list)
    joined: int = 0
    cancelled: int = 0


@dataclass
class Archived:
    """The records in the archive, counted in its files, and how fast Spark filled it."""

    positions: list[Position]
    records_per_s: float


def archive_topics(
    spark: SparkSession, bootstrap_servers: str, data_dir: Path | None, target: Path
) -> Archived:
    """Archives both topics and counts what is in the files afterwards. Segments are read where they
    lie in `data_dir`; without one everything comes from the brokers.

    Raises:
        StreamingQueryException: a query failed.
    """
    spark.streams.addListener(ProgressGroups(bootstrap_servers))
    rows, seconds = 0, 0.0
    for topic in (FLIGHTS, WEATHER):
        settings = _archive_settings(bootstrap_servers, topic, target)
        if data_dir is not None:
            settings = replace(settings, path=str(data_dir), isolation_level="read_uncommitted")
        query = archive.build(spark, settings).start()
        query.awaitTermination()
        topic_rows, topic_seconds = _throughput(query)
        rows, seconds = rows + topic_rows, seconds + topic_seconds
    return Archived(archived_positions(target), rows / seconds if seconds else 0.0)


def audit_archives(spark: SparkSession, bootstrap_servers: str, target: Path) -> list[str]:
    """The records that the archives have and the topics do not, or the other way round; none is
    good."""
    return [
        finding
        for topic in (FLIGHTS, WEATHER)
        for finding in audit.build(spark, _archive_settings(bootstrap_servers, topic, target))
        .run()
        .findings
    ]


def restore_weather(spark: SparkSession, bootstrap_servers: str, target: Path) -> list[str]:
    """Writes an archive to a new topic, and compares this one with the original row by row.

    Raises:
        PipelineError: the archive is damaged.
    """
    settings = _archive_settings(bootstrap_servers, WEATHER, target)
    again = replace(settings, topic=f"{WEATHER}-restored")
    restore.build(spark, again).run()
    original, restored = (
        _records(spark, bootstrap_servers, topic) for topic in (WEATHER, again.topic)
    )
    return [
        f"{count} rows of {name} are not in the other topic"
        for name, one, other in (
            (WEATHER, original, restored),
            (again.topic, restored, original),
        )
        if (count := one.exceptAll(other).count())
    ]


def await_groups(bootstrap_servers: str) -> list[str]:
    """Which of the archives' groups are behind; nothing is good.

    Spark tells its listeners some time after a query has ended.
    """
    deadline = time.monotonic() + _TELLING_S
    while (behind := asyncio.run(_behind(bootstrap_servers))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [f"group {group} is {count} records behind" for group, count in behind.items()]


async def _behind(bootstrap_servers: str) -> dict[str, int]:
    """Records between what the archives' groups have committed and the ends of their topics."""
    async with Admin(bootstrap_servers) as admin:
        lags = {}
        for topic, count in PARTITIONS.items():
            partitions = [TopicPartition(topic, index) for index in range(count)]
            group = group_of(f"archive-{topic}")
            ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
            found = (await admin.list_group_offsets([group]))[group]
            committed = {} if isinstance(found, KafkaError) else found
            lags[group] = sum(_offset(ends[each]) - _offset(committed.get(each)) for each in ends)
    return {group: lag for group, lag in lags.items() if lag}


def _offset(answer: CommittedOffset | OffsetAndTimestamp | KafkaError | None) -> int:
    """An offset, 0 where there is none yet.

    Raises:
        KafkaError: that is the answer.
    """
    if isinstance(answer, KafkaError):
        raise answer
    return 0 if answer is None else answer.offset


def _records(spark: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    """A topic's records with all that they have, but for its name."""
    records = (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    return records.drop("topic")


def _archive_settings(bootstrap_servers: str, topic: str, target: Path) -> PipelineSettings:
    """The archive of a topic; a year of hours would be nine thousand small files."""
    directory = str(target / topic)
    return PipelineSettings(
        bootstrap_servers, topic, to=directory, source=directory, partition_by="none"
    )


def archived_positions(target: Path) -> list[Position]:
    """Topic, partition and offset of every row in the archive's files, repeated ones included."""
    positions: list[Position] = []
    for topic in (FLIGHTS, WEATHER):
        table = parquet.dataset(target / topic, format="parquet").to_table(
            columns=["topic", "partition", "offset"]
        )
        positions.extend(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return positions


def join_weather(spark: SparkSession, bootstrap_servers: str, target: Path) -> DataFrame:
    """Joins the two streams to the end of the topics; gives the departures with their weather.

    Raises:
        StreamingQueryException: the query failed.
    """
    flights = _events(spark, bootstrap_servers, FLIGHTS, FLIGHT_FIELDS, FLIGHTS_PER_BATCH)
    weather = _events(spark, bootstrap_servers, WEATHER, WEATHER_FIELDS, WEATHER_PER_BATCH)
    joined = flights.join(weather.drop("id", "time"), ["origin", "hour"])
    output = Output(spark, str(target), f"{target}/{CHECKPOINT}")
    query = (
        joined.writeStream.queryName("departures-with-weather")
        .option("checkpointLocation", output.checkpoint.path)
        .trigger(availableNow=True)
        .foreachBatch(output.write)
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(str(target))


def tabulate(joined: DataFrame, table: Path) -> Tables:
    """The tables of the report; delay by hour, carrier and weather also goes to a file."""
    local = f.from_utc_timestamp("time", LOCAL_ZONE)
    departed = (
        joined.withColumns(
            {
                "local_hour": f.hour(local),
                "day": f.to_date(local),
                "wind": f.least(f.floor(f.col("wind_speed") / 5) * 5, f.lit(25)),
                "visibility": _visibility(),
            }
        )
        .select("id", "carrier", "dep_delay", "local_hour", "day", "wind", "visibility")
        .cache()
    )
    _write_table(departed, table)
    flown = departed.where("dep_delay IS NOT NULL")
    return Tables(
        by_hour=_delays(flown, "local_hour"),
        by_day=_delays(flown, "day"),
        by_carrier=_delays(flown, "carrier"),
        by_weather=_delays(flown.where("wind IS NOT NULL"), "visibility", "wind"),
        by_delay=_distribution(flown),
        joined=departed.count(),
        cancelled=departed.where("dep_delay IS NULL").count(),
    )


def _visibility() -> Any:
    """Miles, in the steps that matter to a pilot: below 1, 1 to 3, 3 to 5, 5 to 10, 10."""
    visibility = f.col("visib")
    return (
        f.when(visibility < 1, 0).when(visibility < 3, 1).when(visibility < 5, 3)
        .when(visibility < 10, 5).otherwise(10)
    )  # fmt: skip


def _events(
    spark: SparkSession, bootstrap_servers: str, topic: str, fields: str, per_batch: int
) -> DataFrame:
    """A topic as a stream of typed rows with their `time` and the `hour` that they belong to."""
    records = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .option("columns", "value,timestamp")
        .load()
    )
    event = f.from_json(f.col("value").cast("string"), fields)
    rows = records.select(event.alias("event"), f.col("timestamp").alias("time"))
    hour = f.date_trunc("hour", "time")
    return rows.select("event.*", "time", hour.alias("hour")).withWatermark("hour", LATENESS)


def _delays(flown: DataFrame, *keys: str) -> list[dict[str, Any]]:
    """Departures, mean, middle and late ones, for each value of the keys, in their order."""
    rows = (
        flown.groupBy(*keys)
        .agg(
            f.count("*").alias("flights"),
            f.avg("dep_delay").alias("mean"),
            f.percentile("dep_delay", f.lit(0.5)).alias("median"),
            f.percentile("dep_delay", f.lit(0.9)).alias("p90"),
            f.avg((f.col("dep_delay") > 15).cast("double")).alias("late"),
        )
        .orderBy(*keys)
        .collect()
    )
    return [row.asDict() for row in rows]


def _distribution(flown: DataFrame) -> list[dict[str, Any]]:
    """Departures by their delay, in steps of five minutes; the ends hold all beyond them."""
    step = f.floor(f.col("dep_delay") / DELAY_STEP) * DELAY_STEP
    delay = f.greatest(f.least(step, f.lit(LONGEST_DELAY)), f.lit(SHORTEST_DELAY))
    rows = flown.groupBy(delay.alias("delay")).agg(f.count("*").alias("flights"))
    return [row.asDict() for row in rows.orderBy("delay").collect()]


def _write_table(departed: DataFrame, path: Path) -> None:
    """Delay by hour, carrier and weather, as a table that any tool opens."""
    keys = ["local_hour", "carrier", "wind", "visibility"]
    table = departed.groupBy(*keys).agg(
        f.count("dep_delay").alias("departed"),
        f.count_if(f.col("dep_delay").isNull()).alias("cancelled"),
        f.round(f.avg("dep_delay"), 2).alias("mean_delay_min"),
    )
    rows = table.orderBy(*keys).collect()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerows(rows)


def _throughput(query: StreamingQuery) -> tuple[int, float]:
    """Rows and seconds of a query's batches."""
    progress = query.recentProgress
    rows = sum(batch["numInputRows"] for batch in progress)
    milliseconds = sum(batch["durationMs"]["triggerExecution"] for batch in progress)
    return rows, milliseconds / 1000
