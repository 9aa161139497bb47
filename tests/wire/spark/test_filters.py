"""Spark's filters leave nothing out: every query beside the same one over rows that are all read.

If these fail, a query with a `where` on partition, offset or time lacks rows.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.wire.spark.topics import CASES, FORMATS, write_topics

import odradek

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

# A record of every ordinary case has this time; log append times are the first of them.
MIDDLE = "timestamp_millis(1700000030000)"
CHOSEN = (
    "magic 2, zstd",
    "magic 1, gzip",
    "log append time",
    "offsets missing in batches",
    "odd times",
)
PARTITIONS = [list(CASES).index(name) for name in CHOSEN]
FIRST, SECOND, *_, LAST = sorted(PARTITIONS)
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PUSHED = {"filterPushdown": "true"}
FILTERS = [
    f"partition IN ({FIRST}, {LAST}, 99)",
    f"partition > {FIRST} AND partition < {LAST}",
    f"partition = {FIRST} OR offset = 2",
    f"NOT partition = {FIRST} AND partition <> {LAST}",
    "offset >= 10 AND offset < 20",
    "offset IN (1, 55, NULL)",
    "offset > 10.5",
    "offset <=> 5",
    "offset = CAST(NULL AS BIGINT)",
    f"NOT (offset < 50 AND partition = {FIRST})",
    f"timestamp = {MIDDLE}",
    f"timestamp > {MIDDLE} + INTERVAL 1 MICROSECOND",
    f"timestamp >= {MIDDLE} AND timestamp < {MIDDLE} + INTERVAL 5 SECONDS",
    f"timestamp <= {MIDDLE} AND partition >= {SECOND}",
    f"timestamp IN ({MIDDLE}, timestamp_millis(1700000031000))",
    "timestamp < '2023-11-15 03:43:50'",
    "timestamp >= TIMESTAMP '2023-11-14T22:13:50+00:00'",
    "timestamp > TIMESTAMP_NTZ '2023-11-15 03:43:50'",
    "timestamp >= timestamp_millis(-2) AND timestamp < timestamp_millis(2)",
    "timestamp > TIMESTAMP '2090-01-01 00:00:00'",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """By which routes the topic of all cases is read."""
    data_dir = tmp_path_factory.mktemp("broker")
    write_topics(data_dir)
    with odradek.Broker(data_dir=str(data_dir)) as broker:
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        path = {"path": str(data_dir)}
        yield {"broker": servers, "segments and broker": {**servers, **path}}


def table(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    assigned = json.dumps({FORMATS: PARTITIONS})
    return spark.read.format("odradek").options(assign=assigned, **options).load()


def test_a_filter_leaves_out_no_row(spark, place, tmp_path: Path) -> None:
    """On every format of records, with gaps, odd times and times of the append."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    spark.conf.set(PUSHDOWN, "true")
    try:
        table(spark, place["broker"]).write.parquet(str(tmp_path / "all"))
        everything = spark.read.parquet(str(tmp_path / "all")).cache()
        assert everything.select("partition").distinct().count() == len(PARTITIONS)
        wrong, routes = [], itertools.cycle(place.items())
        for condition in FILTERS:
            expected = sorted(map(repr, everything.where(condition).collect()))
            route, options = next(routes)
            found = table(spark, {**options, **PUSHED}).where(condition).collect()
            if sorted(map(repr, found)) != expected:
                wrong.append((condition, route, len(found), len(expected)))
        assert wrong == []
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set(PUSHDOWN, "false")


def test_filters_decide_what_is_read(spark, place) -> None:
    """It would be right and slow otherwise."""
    spark.conf.set(PUSHDOWN, "true")
    try:
        frame = table(spark, {**place["broker"], **PUSHED})
        assert frame.where(f"partition IN ({FIRST}, {LAST})").rdd.getNumPartitions() == 2
        # What Spark does with a DataFrame that is used again, and why this is not the default.
        reused = frame.where(f"partition = {FIRST}").union(frame.where(f"partition = {LAST}"))
        assert reused.select("partition").distinct().count() == 1
        again = table(spark, place["broker"])
        both = again.where(f"partition = {FIRST}").union(again.where(f"partition = {LAST}"))
        assert both.select("partition").distinct().count() == 2
    finally:
        spark.conf.set(PUSHDOWN, "false")


def test_filters_that_spark_keeps_to_itself_are_no_option(spark, place) -> None:
    with pytest.raises(PySparkException, match=PUSHDOWN):
        table(spark, {**place["broker"], **PUSHED}).count()
