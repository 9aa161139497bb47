"""How fast does Spark read a topic: from segments, through the broker, by the official connector?

    python -m benchmarks.spark [--records N] [--rounds N] [--memory 3g] [--json]

One broker of ours, one topic of four partitions (15-byte keys, 190 bytes of JSON, one header),
one Spark session. Each query aggregates over every column that it names, so that all of them
are made, by sums of numbers: a `max` of strings would make Spark sort all rows, and the sort
would be most of what is measured. `noop` hands the rows to nobody, as they are. All cases take
turns within a round, the first round is dropped, and what counts are ratios: the Parquet copy
of the same rows says how fast this machine is today. Without Maven the connector is left out,
and said so.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tools import peers

from benchmarks.process_usage import cpu_seconds
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
    """One way to read these columns."""

    reader: str
    columns: str
    open: Callable[[], DataFrame]


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


def seconds(case: Case) -> float:
    """How long one aggregate over all columns of the case takes, or handing them to nobody."""
    frame = case.open()
    if case.columns == "noop":
        started = time.monotonic()
        frame.select(*COLUMNS["noop"]).write.format("noop").mode("overwrite").save()
        return time.monotonic() - started
    touches = {
        "key": f.sum(f.octet_length("key")),
        "value": f.sum(f.octet_length("value")),
        "topic": f.sum(f.octet_length("topic")),
        "partition": f.sum("partition"),
        "offset": f.sum("offset"),
        "timestamp": f.sum(f.unix_millis("timestamp")),
        "headers": f.sum(f.octet_length(f.expr("headers[0].value"))),
    }
    started = time.monotonic()
    frame.agg(*(touches[column] for column in COLUMNS[case.columns])).collect()
    return time.monotonic() - started


def cases(spark: SparkSession, broker: Broker, copy: str, with_connector: bool) -> list[Case]:
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
        found += [
            Case("segments", columns, lambda c=columns: topic("odradek", c, broker.data_dir)),
            Case("broker", columns, lambda c=columns: topic("odradek", c)),
            Case("parquet", columns, lambda: spark.read.parquet(copy)),
        ]
        if with_connector:
            found.append(Case("connector", columns, lambda c=columns: topic("kafka", c)))
    return found


def measure(
    spark: SparkSession, broker: Broker, records: int, rounds: int, with_connector: bool
) -> dict[str, object]:
    """All cases in turns; the first round only warms up."""
    with tempfile.TemporaryDirectory(prefix="odradek-benchmark-") as folder:
        copy = f"{folder}/copy"
        source = spark.read.format("odradek").option("path", broker.data_dir)
        source = source.option("kafka.bootstrap.servers", broker.bootstrap)
        source.option("subscribe", TOPIC).option("includeHeaders", "true").load().write.parquet(
            copy
        )
        everything = cases(spark, broker, copy, with_connector)
        taken: dict[tuple[str, str], list[float]] = {}
        cpu: dict[tuple[str, str], list[float]] = {}
        for number in range(rounds + 1):
            for case in everything:
                before = broker.cpu_s()
                elapsed = seconds(case)
                if number:
                    taken.setdefault((case.reader, case.columns), []).append(elapsed)
                    cpu.setdefault((case.reader, case.columns), []).append(broker.cpu_s() - before)
    return summary(taken, cpu, records)


def summary(
    taken: dict[tuple[str, str], list[float]], cpu: dict[tuple[str, str], list[float]], records: int
) -> dict[str, object]:
    """Records per second and the broker's CPU seconds by reader and columns, and ratios."""
    speed = {key: records / statistics.median(values) for key, values in taken.items()}
    readers = dict.fromkeys(reader for reader, _ in speed)
    over = {
        f"{ours}_over_{other}": {
            columns: round(speed[ours, columns] / speed[other, columns], 2) for columns in COLUMNS
        }
        for ours in ("segments", "broker")
        for other in ("connector", "parquet")
        if other in readers
    }
    return {
        "records": records,
        "records_per_s": {
            reader: {columns: round(speed[reader, columns]) for columns in COLUMNS}
            for reader in readers
        },
        "broker_cpu_s": {
            reader: {c: round(statistics.median(cpu[reader, c]), 2) for c in COLUMNS}
            for reader in readers
        },
        **over,
    }


def table(result: dict[str, object]) -> str:
    """The result for a person."""
    lines = [f"{'':24}" + "".join(f"{columns:>12}" for columns in COLUMNS)]
    for name, values in result.items():
        if isinstance(values, dict):
            rows = values.items() if name in ("records_per_s", "broker_cpu_s") else [(name, values)]
            lines += [f"{name}:"] if name in ("records_per_s", "broker_cpu_s") else []
            for label, cells in rows:
                line = "".join(f"{cells[columns]:>12,}" for columns in COLUMNS)
                lines.append(f"{label:24}{line}")
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
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args(arguments)
    jars = connector_jars()
    conf = {"spark.jars": jars} if jars else {}
    with our_broker() as broker:
        fill(broker.bootstrap, options.records)
        with session("benchmark", master="local[2]", memory=options.memory, conf=conf) as spark:
            result = measure(spark, broker, options.records, options.rounds, bool(jars))
    print(table(result))
    if options.json:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
