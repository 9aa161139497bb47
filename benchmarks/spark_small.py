"""What does a query of Spark cost that reads little: what is fixed, not what grows with records?

    python -m benchmarks.spark_small [--records N] [--rounds N] [--json]

One broker of ours, one Spark session on two cores; the first round is dropped, medians of the rest.

- Packing: 500 partitions of 20 records beside one partition of 10 000, read and archived.
- Pushdown: 16 000 of `--records` records, found by a filter, and named by options.
- Fixed: a query in four tasks that reads four records, its wall time and the CPU of its Python
  workers; its planning alone, by Spark and without; a micro-batch of four records, as Spark tells
  of it.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from benchmarks.process_usage import cpu_seconds, tree_cpu_seconds
from odradek.testing.processes import BrokerProcess
from pyspark_odradek import session
from pyspark_odradek.pipelines import PipelineSettings, archive
from pyspark_odradek.source import DefaultSource

FOUND = 16_000
# Partitions, and records in each.
TOPICS = {"many": (500, 20), "one": (1, 10_000), "four": (4, 1)}
LARGE = "large"
MICRO_BATCHES = 20


class Cost(NamedTuple):
    """Of one run, in seconds; `python` is the CPU of Spark's Python processes."""

    wall: float
    python: float


class Bench:
    """The cases, on one broker and in one session."""

    def __init__(self, spark: SparkSession, servers: str, folder: str, records: int) -> None:
        self._spark = spark
        self._servers = servers
        self._folder = folder
        self._records = records
        self._numbers = itertools.count()

    def cases(self) -> dict[str, Callable[[], object]]:
        """By name, what is measured."""
        first = self._records // 2
        last = first + FOUND
        ends = {"startingOffsets": first, "endingOffsets": last}
        by_options = {name: json.dumps({LARGE: {"0": offset}}) for name, offset in ends.items()}
        condition = f"offset >= {first} AND offset < {last}"
        return {
            "read, 500 partitions of 20": lambda: self._topic("many").count(),
            "read, 1 partition of 10 000": lambda: self._topic("one").count(),
            "archive, 500 partitions of 20": lambda: self._archive("many"),
            "archive, 1 partition of 10 000": lambda: self._archive("one"),
            "16 000 by a filter": lambda: self._found(
                self._topic(LARGE, filterPushdown="true").where(condition)
            ),
            "16 000 by options": lambda: self._found(self._topic(LARGE, **by_options)),
            "four records in four tasks": lambda: self._topic("four").count(),
            # Spark keeps a plan with its DataFrame: a new one, whose schema is asked too.
            "its planning by Spark": lambda: (
                self._topic("four")._jdf.queryExecution().toRdd().getNumPartitions()
            ),
            "its planning without Spark": self._plan,
        }

    def micro_batches_ms(self) -> dict[str, float]:
        """Spark's figures of small micro-batches in a running query: medians of their parts."""
        reader = self._spark.readStream.format("odradek").options(**self._options("four"))
        producer = Producer({"bootstrap.servers": self._servers})
        query = reader.load().writeStream.format("noop").start()
        try:
            for _ in range(MICRO_BATCHES):
                for partition in range(4):
                    producer.produce("four", b"x", partition=partition)
                assert producer.flush(60) == 0
                query.processAllAvailable()
            done = [each["durationMs"] for each in query.recentProgress if each["numInputRows"]]
        finally:
            query.stop()
        warm = done[len(done) // 2 :]
        parts = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch")
        return {part: statistics.median(each[part] for each in warm) for part in parts}

    def _plan(self) -> None:
        source = DefaultSource(self._options("four"))
        assert len(source.reader(source.schema()).partitions()) == 4

    def _options(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._servers, "subscribe": topic}

    def _topic(self, topic: str, **options: str) -> DataFrame:
        reader = self._spark.read.format("odradek").options(**self._options(topic), **options)
        return reader.load()

    def _found(self, frame: DataFrame) -> None:
        assert frame.selectExpr("count(value)").first()[0] == FOUND

    def _archive(self, topic: str) -> None:
        target = f"{self._folder}/archive-{next(self._numbers)}"
        archive.build(self._spark, PipelineSettings(self._servers, topic, to=target)).run()


def fill(servers: str, records: int) -> None:
    """Makes the topics."""
    topics = {**TOPICS, LARGE: (1, records)}
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics(
        [NewTopic(name, partitions) for name, (partitions, _) in topics.items()]
    ).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    for name, (partitions, each) in topics.items():
        for number in range(partitions * each):
            producer.produce(name, b"%0100d" % number, partition=number % partitions)
            if number % 10_000 == 0:
                producer.flush(60)
    assert producer.flush(120) == 0


def measure(cases: dict[str, Callable[[], object]], jvm_pid: int, rounds: int) -> dict[str, Cost]:
    """All cases in turns; medians."""
    taken: dict[str, list[Cost]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, run in cases.items():
            python, begun_s = _python_cpu(jvm_pid), time.monotonic()
            run()
            cost = Cost(time.monotonic() - begun_s, _python_cpu(jvm_pid) - python)
            if number:
                taken[name].append(cost)
    return {
        name: Cost(*map(statistics.median, zip(*costs, strict=True)))
        for name, costs in taken.items()
    }


def _python_cpu(jvm_pid: int) -> float:
    return tree_cpu_seconds(jvm_pid) - cpu_seconds(jvm_pid)


def jvm_pid_beside(broker_pid: int) -> int:
    """The JVM of this process, whose other child is a broker."""
    text = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="utf-8")
    [pid] = {int(word) for word in text.split()} - {broker_pid}
    return pid


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_small", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args(arguments)
    conf = {"spark.sql.python.filterPushdown.enabled": "true"}
    with (
        tempfile.TemporaryDirectory(prefix="odradek-benchmark-") as folder,
        BrokerProcess(f"{folder}/data") as broker,
    ):
        fill(broker.bootstrap_servers, options.records)
        with session("benchmark", master="local[2]", conf=conf) as spark:
            bench = Bench(spark, broker.bootstrap_servers, folder, options.records)
            measured = measure(bench.cases(), jvm_pid_beside(broker.pid), options.rounds)
            micro_batches_ms = bench.micro_batches_ms()
    print(f"{'':34}{'wall ms':>9}{'Python CPU ms':>15}")
    for name, cost in measured.items():
        print(f"{name:34}{cost.wall * 1000:>9.0f}{cost.python * 1000:>15.0f}")
    for part, took_ms in micro_batches_ms.items():
        print(f"{'micro-batch, ' + part:34}{took_ms:>9.0f}")
    if options.json:
        costs = {name: cost._asdict() for name, cost in measured.items()}
        print(json.dumps({**costs, "micro-batch": micro_batches_ms}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
