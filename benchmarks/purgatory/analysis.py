"""Spark's analysis of the measurements, read back from their topic by our data source.

Per workload, design, harness and target rate: medians over the rounds, and quantiles of lateness
over all time-outs together. Per workload, design and harness: the knee, which lies between the
highest rate that was followed in most rounds and the next one that was not.
"""

from typing import NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody does

from benchmarks.purgatory.topic import TOPIC

SCHEMA = (
    "kind string, workload string, label string, completions string, target_per_s double, "
    "enqueued_per_s double, cpu_s_per_million double, gc_s double, requests long, "
    "expired_share double, peak_rss_mb double, followed boolean, error string, "
    "late_ms int, count long"
)
PLACE = ["workload", "label", "completions", "target_per_s"]
QUANTILES = "array(0.5, 0.9, 0.99, 0.999)"


class Analysis(NamedTuple):
    """The tables of the report."""

    records: int
    rates: list[Row]
    knees: list[Row]


def analyse(spark: SparkSession, bootstrap_servers: str) -> Analysis:
    """Reads the topic and computes everything."""
    measured = read(spark, bootstrap_servers).cache()
    runs = measured.where("kind = 'run'")
    return Analysis(
        measured.count(),
        rates(runs, measured.where("kind = 'lateness'")).collect(),
        knees(runs).collect(),
    )


def read(spark: SparkSession, bootstrap_servers: str) -> DataFrame:
    """The records of the topic, as columns."""
    topic = (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", TOPIC)
        .load()
    )
    return topic.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("m")).select("m.*")


def rates(runs: DataFrame, lateness: DataFrame) -> DataFrame:
    """One row for each workload, design and target rate."""
    seconds = F.col("requests") / F.col("enqueued_per_s")
    medians = runs.groupBy(*PLACE).agg(
        F.count("*").alias("rounds"),
        F.median("enqueued_per_s").alias("enqueued_per_s"),
        F.median("cpu_s_per_million").alias("cpu_s_per_million"),
        F.median(F.col("cpu_s_per_million") * F.col("enqueued_per_s") / 1e6).alias("cores"),
        F.median(F.col("gc_s") * 1000 / seconds).alias("gc_ms_per_s"),
        F.median("expired_share").alias("expired_share"),
        F.max("peak_rss_mb").alias("peak_rss_mb"),
        F.max("error").alias("error"),
    )
    late = lateness.groupBy(*PLACE).agg(
        F.expr(f"percentile(late_ms, {QUANTILES}, count)").alias("late_ms"),
    )
    return medians.join(late, PLACE, "left").orderBy(*PLACE)


def knees(runs: DataFrame) -> DataFrame:
    """Between which two rates a design stops following, by the majority of the rounds."""
    mostly = F.avg(F.col("followed").cast("int")) >= 0.5
    followed, missed = F.col("followed"), ~F.col("followed")
    best = F.coalesce("followed_per_s", F.lit(0.0))
    return (
        runs.groupBy(*PLACE)
        .agg(mostly.alias("followed"))
        .groupBy("completions", "workload", "label")
        .agg(
            F.max(F.when(followed, F.col("target_per_s"))).alias("followed_per_s"),
            F.collect_list(F.when(missed, F.col("target_per_s"))).alias("missed"),
        )
        .withColumn("missed_per_s", F.array_min(F.filter("missed", lambda rate: rate > best)))
        .drop("missed")
        .orderBy("completions", "workload", "label")
    )
