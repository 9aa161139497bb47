"""How fast does Spark read a topic and write one: ours beside the official connector?

    python -m benchmarks.spark [--records N] [--rounds N] [--memory 3g] [--only read|write] [--json]

One broker of ours, one topic of four partitions (15-byte keys, 190 bytes of JSON, one header),
one Spark session on two cores. Each query aggregates over every column that it names, so that
all of them are made, by sums of numbers: a `max` of strings would make Spark sort all rows, and
the sort would be most of what is measured. `noop` hands the rows to nobody, as they are. What is
written are the keys and values of the Parquet copy, as a table and as a stream of one batch.

All cases take turns within a round, the first round is dropped, and what counts are ratios of
medians: the Parquet copy of the same rows says how fast this machine is today. CPU is that of
Spark with its Python workers, and of the broker. Without Maven the connector is left out, and
said so. Takes six minutes on two idle cores with the defaults; `--records 1000000 --rounds 2`
takes half of that.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tools import peers

from benchmarks.process_usage import cpu_seconds, tree_cpu_seconds
from odradek.testing.processes import BrokerProcess
from pyspark_odradek import session

TOPIC = "benchmark"
PARTITIONS = 4

COLUMNS = {
    "plain": ("key", "value", "topic", "partition", "offset", "timestamp"),
    "headers": ("key", "value", "topic", "partition", "offset", "timestamp", "headers"),
    "narrow": ("key", "offset", "timestamp"),
    "noop": ("key", "value", "topic", "partition", "offset", "timestamp"),
}


class Broker(NamedTuple):
    """Ours, as a process."""

    bootstrap: str
    data_dir: str
    pid: int

    def cpu_s(self) -> float:
        """User and system time so far."""
        return cpu_seconds(self.pid)


class Case(NamedTuple):
    """A reader or writer, its topic, and its way: `run` is what is measured."""

    who: str
    what: str
    run: Callable[[], object]


class Measured(NamedTuple):
    """The seconds that one run of a case took."""

    wall: float
    spark_cpu: float
    broker_cpu: float


@contextmanager
def our_broker() -> Iterator[Broker]:
    """`odradek start` in a temporary directory."""
    with (
        tempfile.TemporaryDirectory(prefix="odradek-benchmark-") as folder,
        BrokerProcess(folder) as broker,
    ):
        yield Broker(broker.bootstrap_servers, folder, broker.pid)


def fill(bootstrap: str, records: int) -> None:
    """Makes the topic; segments of 64 MiB, so that there is something to read in parallel."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(TOPIC, PARTITIONS, 1, config={"segment.bytes": str(64 << 20)})
    admin.create_topics([new])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 16_384})
    padding = "x" * 130
    for number in range(records):
        value = f'{{"id":{number},"user":{number % 9973},"kind":"click","text":"{padding}"}}'
        message = (TOPIC, value.encode(), b"customer-%06d" % (number % 100_000))
        while True:
            try:
                producer.produce(*message, headers=[("trace", b"%020d" % number)])
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        sys.exit("the broker did not take all records")


def aggregate(frame: DataFrame, columns: str) -> None:
    """One aggregate over all of these columns, or handing them to nobody."""
    if columns == "noop":
        frame.select(*COLUMNS["noop"]).write.format("noop").mode("overwrite").save()
        return
    touches = {
        "key": f.sum(f.octet_length("key")),
        "value": f.sum(f.octet_length("value")),
        "topic": f.sum(f.octet_length("topic")),
        "partition": f.sum("partition"),
        "offset": f.sum("offset"),
        "timestamp": f.sum(f.unix_millis("timestamp")),
        "headers": f.sum(f.octet_length(f.expr("headers[0].value"))),
    }
    frame.agg(*(touches[column] for column in COLUMNS[columns])).collect()


def reads(spark: SparkSession, broker: Broker, copy: str, with_connector: bool) -> list[Case]:
    """Every way to read every set of columns."""

    def topic(source: str, columns: str, path: str | None = None) -> DataFrame:
        reader = spark.read.format(source).option("kafka.bootstrap.servers", broker.bootstrap)
        reader = reader.option("subscribe", TOPIC)
        if source == "odradek":
            reader = reader.option("columns", ",".join(COLUMNS[columns]))
        elif "headers" in COLUMNS[columns]:
            reader = reader.option("includeHeaders", "true")
        return (reader if path is None else reader.option("path", path)).load()

    found = []
    for columns in COLUMNS:
        frames = {
            "segments": topic("odradek", columns, broker.data_dir),
            "broker": topic("odradek", columns),
            "parquet": spark.read.parquet(copy),
        }
        if with_connector:
            frames["connector"] = topic("kafka", columns)
        found += [
            Case(reader, columns, lambda frame=frame, c=columns: aggregate(frame, c))  # type: ignore[misc]
            for reader, frame in frames.items()
        ]
    return found


class Writes:
    """Every way to write the keys and values of a Parquet copy, each time to a new topic."""

    def __init__(self, spark: SparkSession, broker: Broker, copy: str, folder: str) -> None:
        self._spark = spark
        self._servers = {"kafka.bootstrap.servers": broker.bootstrap}
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._copy = copy
        self._folder = folder
        self._numbers = itertools.count()

    def cases(self, with_connector: bool) -> list[Case]:
        """Tables and streams; exactly once is for streams."""
        formats = {"sink": "odradek", **({"connector": "kafka"} if with_connector else {})}
        tables = [
            Case(who, "table", lambda f=name: self._table(f))  # type: ignore[misc]
            for who, name in formats.items()
        ]
        streams = [
            Case(who, "stream", lambda f=name: self._stream(f, {}))  # type: ignore[misc]
            for who, name in formats.items()
        ]
        once = Case(
            "exactly once", "stream", lambda: self._stream("odradek", {"exactlyOnce": "true"})
        )
        return [*tables, *streams, once]

    def _table(self, format: str) -> None:
        with self._topic() as topic:
            frame = self._spark.read.parquet(self._copy).select("key", "value")
            writer = frame.write.format(format).mode("append").options(**self._servers)
            writer.option("topic", topic).save()

    def _stream(self, format: str, options: dict[str, str]) -> None:
        with self._topic() as topic:
            source = self._spark.read.parquet(self._copy)
            stream = self._spark.readStream.schema(source.schema).parquet(self._copy)
            writer = stream.select("key", "value").writeStream.format(format)
            writer = writer.options(**self._servers, **options).option("topic", topic)
            writer = writer.option("checkpointLocation", f"{self._folder}/{topic}")
            writer.trigger(availableNow=True).start().awaitTermination()

    @contextmanager
    def _topic(self) -> Iterator[str]:
        """A topic that is there already: to be made by its first write is no part of this."""
        name = f"written-{next(self._numbers)}"
        self._admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        yield name
        self._admin.delete_topics([name])[name].result(30)


def measure(cases: Sequence[Case], broker: Broker, rounds: int) -> dict[Case, Measured]:
    """All cases in turns; the first round only warms up. Medians."""
    taken: dict[Case, list[Measured]] = {case: [] for case in cases}
    for number in range(rounds + 1):
        for case in cases:
            spark_cpu, broker_cpu, started = _spark_cpu(broker), broker.cpu_s(), time.monotonic()
            case.run()
            wall = time.monotonic() - started
            if number:
                used = _spark_cpu(broker) - spark_cpu, broker.cpu_s() - broker_cpu
                taken[case].append(Measured(wall, *used))
    return {
        case: Measured(*map(statistics.median, zip(*runs, strict=True)))
        for case, runs in taken.items()
    }


def _spark_cpu(broker: Broker) -> float:
    """This process and all below it, that is Spark with its workers, but for the broker."""
    return tree_cpu_seconds(os.getpid()) - tree_cpu_seconds(broker.pid)


def copy_topic(spark: SparkSession, broker: Broker, copy: str) -> None:
    """The same rows as Parquet."""
    source = spark.read.format("odradek").option("path", broker.data_dir)
    source = source.option("kafka.bootstrap.servers", broker.bootstrap)
    source.option("subscribe", TOPIC).option("includeHeaders", "true").load().write.parquet(copy)


# What a case is compared with, and the ratio of records a second that it is to reach.
GOALS: dict[tuple[str, str], dict[str, float]] = {
    ("segments", "connector"): dict.fromkeys(COLUMNS, 3.0),
    ("broker", "connector"): dict.fromkeys(COLUMNS, 2.5),
    ("segments", "parquet"): {"plain": 0.6, "headers": 0.5, "narrow": 0.5},
    ("broker", "parquet"): {},
    ("sink", "connector"): {"table": 1.0, "stream": 1.0},
    ("exactly once", "sink"): {"stream": 0.7},
}


def summary(measured: Mapping[Case, Measured], records: int) -> dict[str, object]:
    """Records a second and CPU by case, and ratios beside their goals."""
    speed = {(case.who, case.what): records / taken.wall for case, taken in measured.items()}
    ratios: dict[str, dict[str, float]] = {}
    for who, other in GOALS:
        found = {
            what: round(speed[who, what] / speed[other, what], 2)
            for (each, what) in speed
            if each == who and (other, what) in speed
        }
        if found:
            ratios[f"{who} / {other}"] = found
    return {
        "records": records,
        "ratios": ratios,
        "cases": {
            f"{case.who}, {case.what}": {
                "records_per_s": round(records / taken.wall),
                "spark_cpu_us_per_record": round(taken.spark_cpu / records * 1e6, 2),
                "broker_cpu_us_per_record": round(taken.broker_cpu / records * 1e6, 2),
            }
            for case, taken in measured.items()
        },
    }


def table(measured: Mapping[Case, Measured], records: int) -> str:
    """The result for a person."""
    lines = [f"{'':26}{'records/s':>12}{'Spark CPU':>12}{'broker CPU':>12}   us a record"]
    for case, taken in measured.items():
        cpu = [value / records * 1e6 for value in (taken.spark_cpu, taken.broker_cpu)]
        name = f"{case.who}, {case.what}"
        lines.append(f"{name:26}{records / taken.wall:>12,.0f}{cpu[0]:>12.2f}{cpu[1]:>12.2f}")
    lines.append("")
    result = summary(measured, records)["ratios"]
    assert isinstance(result, dict), "made above"
    for (who, other), goals in GOALS.items():
        for what, ratio in result.get(f"{who} / {other}", {}).items():
            goal = f"goal {goals[what]}" if what in goals else "no goal"
            missed = ", missed" if ratio < goals.get(what, 0) else ""
            lines.append(f"{f'{who} / {other}, {what}':40}{ratio:>6.2f}  {goal}{missed}")
    return "\n".join(lines)


def connector_jars() -> str:
    """The official connector for `spark.jars`; empty, with a word, when it cannot be had."""
    try:
        return ",".join(map(str, peers.spark_connector_jars()))
    except peers.PeerUnavailable as reason:
        print(f"CONNECTOR MISSING, NOT MEASURED: {reason}", file=sys.stderr)
        return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="3g", help="the heap of Spark's JVM")
    parser.add_argument("--only", choices=("read", "write"), help="one half of it")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args(arguments)
    jars = connector_jars()
    conf = {"spark.jars": jars} if jars else {}
    with our_broker() as broker, tempfile.TemporaryDirectory(prefix="odradek-benchmark-") as folder:
        fill(broker.bootstrap, options.records)
        with session("benchmark", master="local[2]", memory=options.memory, conf=conf) as spark:
            copy = f"{folder}/copy"
            copy_topic(spark, broker, copy)
            cases: list[Case] = []
            if options.only != "write":
                cases += reads(spark, broker, copy, bool(jars))
            if options.only != "read":
                cases += Writes(spark, broker, copy, folder).cases(bool(jars))
            measured = measure(cases, broker, options.rounds)
    print(table(measured, options.records))
    if options.json:
        print(json.dumps(summary(measured, options.records)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
