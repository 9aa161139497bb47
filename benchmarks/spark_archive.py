"""Measures the memory that the archive of a large topic takes, and whether it grows with the topic.

    python -m benchmarks.spark_archive [--gigabytes N] [--json]

A quarter of the topic at a time is written, and archived by the same session, whose heap of 1 GiB
serves driver and executor. The topic's values of 1 000 bytes are digits, most of them zeros: they
take their room in Spark and little on the disk, so that 100 GB fit there as many small files.
"""

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.long_polls import PRODUCE, answer, ask, connect
from benchmarks.process_usage import below, resident_mb
from benchmarks.spark_small import jvm_pid_beside
from odradek.protocol.direct.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    encode_produce_request,
)
from odradek.records.builder import RecordBatchBuilder
from odradek.records.compression import Compression
from odradek.testing.processes import BrokerProcess
from pyspark_odradek import session
from pyspark_odradek.pipelines import PipelineSettings, archive, audit
from pyspark_odradek.pipelines.running.jobs import Outcome

TOPIC: Final = "orders"
VERSION: Final = 9  # of Produce
PARTITIONS: Final = 4
VALUE_BYTES: Final = 1_000
# Records of a batch in the log, and of a batch of the query.
IN_A_BATCH: Final = 1_000
A_TRIGGER: Final = 2_000_000
PARTS: Final = 4
HOUR_MS: Final = 3_600_000
BEGUN_MS: Final = 1_700_000_000_000 // HOUR_MS * HOUR_MS
HOURS_OF_A_PART: Final = 6
SAMPLE_S: Final = 0.2


class Cost(NamedTuple):
    """The cost of a run: seconds, and the largest resident sizes of the JVM, of one of its Python
    processes and of all of these at once, in MB.
    """

    seconds: float
    jvm_mb: float
    python_mb: float
    pythons_mb: float


def create_topic(servers: str) -> None:
    """Creates the topic, which keeps all that is written."""
    topic = NewTopic(TOPIC, PARTITIONS, config={"retention.ms": "-1"})
    AdminClient({"bootstrap.servers": servers}).create_topics([topic])[TOPIC].result(60)


async def fill(servers: str, part: int, records: int) -> None:
    """Writes a part of the topic, alike into each partition."""
    pair = await connect(servers)
    requests = records // (IN_A_BATCH * PARTITIONS)
    for hour in range(HOURS_OF_A_PART):
        builder = RecordBatchBuilder(Compression.ZSTD)
        at_ms = BEGUN_MS + (part * HOURS_OF_A_PART + hour) * HOUR_MS
        for number in range(IN_A_BATCH):
            builder.append(at_ms + number, b"%d" % number, b"%0*d" % (VALUE_BYTES, number))
        batch = builder.build()
        partitions = [ProducePartition(partition, batch) for partition in range(PARTITIONS)]
        topics = [ProduceTopic(TOPIC, None, partitions)]
        request = encode_produce_request(ProduceRequest(None, 1, 30_000, topics), VERSION)
        for _ in range(requests // HOURS_OF_A_PART):
            await ask(pair, PRODUCE, VERSION, request)
            await answer(pair)
    pair[1].close()


@contextmanager
def peaks(jvm_pid: int) -> Iterator[list[float]]:
    """The largest resident sizes of the JVM, of one of its Pythons and of all, in MB."""
    found, is_over = [0.0, 0.0, 0.0], threading.Event()

    def look() -> None:
        while not is_over.wait(SAMPLE_S):
            pythons = [size_mb(pid) for pid in below(jvm_pid) if is_python(pid)]
            now = (size_mb(jvm_pid), max(pythons, default=0.0), sum(pythons))
            found[:] = map(max, found, now)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        is_over.set()
        looking.join()


def is_python(pid: int) -> bool:
    """Whether a process runs Python, as do those that the JVM keeps. What it forks to run a command
    has the size of the JVM until then."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8")
    except OSError:
        return False
    return name.startswith("python")


def size_mb(pid: int) -> float:
    """The resident memory of a process, none if it has ended."""
    try:
        return resident_mb(pid)
    except (OSError, IndexError):
        return 0.0


def cost_of(jvm_pid: int, run: Callable[[], Outcome]) -> tuple[Outcome, Cost]:
    """Runs a pipeline; returns its report, and what it took."""
    begun_s = time.monotonic()
    with peaks(jvm_pid) as found:
        report = run()
    return report, Cost(time.monotonic() - begun_s, *found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_archive", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=100, help="of values")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args(arguments)
    records = int(options.gigabytes * 1e9 / VALUE_BYTES / PARTS)
    with (
        tempfile.TemporaryDirectory(prefix="odradek-benchmark-") as folder,
        BrokerProcess(f"{folder}/data") as broker,
        session("benchmark", master="local[2]", memory="1g") as spark,
    ):
        servers, jvm_pid = broker.bootstrap_servers, jvm_pid_beside(broker.pid)
        create_topic(servers)
        settings = PipelineSettings(
            servers, TOPIC, to=f"{folder}/archive", max_offsets_per_trigger=A_TRIGGER
        )
        print(f"{'':10}{'records':>12}{'M/s':>8}{'JVM MB':>8}{'a Python':>10}{'all Pythons':>12}")
        figures: dict[str, Cost] = {}
        for part in range(PARTS):
            asyncio.run(fill(servers, part, records))
            report, cost = cost_of(jvm_pid, archive.build(spark, settings).run)
            figures[f"part {part}"] = cost
            print_cost(f"part {part}", report.records, cost)
        checked = PipelineSettings(servers, TOPIC, source=f"{folder}/archive")
        report, figures["audit"] = cost_of(jvm_pid, audit.build(spark, checked).run)
        assert not report.findings, report.findings
        print_cost("audit", report.facts["records"], figures["audit"])
        sizes = [path.stat().st_size for path in Path(folder, "archive").rglob("*.parquet")]
        print(f"{len(sizes)} files, {sum(sizes) / 1e9:.2f} GB")
    if options.json:
        print(json.dumps({name: cost._asdict() for name, cost in figures.items()}))
    return 0


def print_cost(name: str, records: int, cost: Cost) -> None:
    """A line of the table."""
    rate = records / cost.seconds / 1e6
    sizes = f"{cost.jvm_mb:>8.0f}{cost.python_mb:>10.0f}{cost.pythons_mb:>12.0f}"
    print(f"{name:10}{records:>12}{rate:>8.2f}{sizes}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
