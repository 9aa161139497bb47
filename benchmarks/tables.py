"""How fast is a topic a table without Spark, and what do producers notice when one is read?

    python -m benchmarks.tables [--records N] [--rounds N] [--requests N] [--json]

One broker of ours with the topic of `benchmarks.spark`. `to_arrow` reads all of it, from the
segments and by the broker, with different columns: millions of records a second of this
process's CPU, and by the clock. Then a producer sends a record every two milliseconds (acks=1, 100
bytes), alone and while another process reads the topic from end to end, again and again. A record's
time begins when it was due: one that waits for the answer before it would send least while the
broker stands still. Medians of rounds in turns; the first is dropped.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.compaction import PROBE, percentiles
from benchmarks.figures import print_medians
from benchmarks.spark import COLUMNS, TOPIC, fill
from odradek.tables.topic import Topic
from odradek.testing.processes import BrokerProcess

ROUTES = ("segments", "broker")
PACE_S = 0.002
# So that an answer is seen when it comes, nearly.
POLL_S = 0.0005


def topic(route: str, servers: str, data_dir: str) -> Topic:
    return Topic(TOPIC, bootstrap_servers=servers, path=data_dir if route == "segments" else None)


def table_figures(servers: str, data_dir: str, records: int) -> dict[str, float]:
    """Every way to make a table of the topic, once."""
    figures: dict[str, float] = {}
    for route in ROUTES:
        for what in ("plain", "headers", "narrow"):
            cpu_s, begin_s = time.process_time(), time.perf_counter()
            table = topic(route, servers, data_dir).to_arrow(columns=COLUMNS[what])
            cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - begin_s
            assert table.num_rows == records
            figures[f"{route}_{what}_M_a_cpu_s"] = records / cpu_s / 1e6
            figures[f"{route}_{what}_M_a_s"] = records / wall_s / 1e6
    return figures


def scan_forever(route: str, servers: str, data_dir: str, has_begun: Event) -> None:
    while True:
        for _ in topic(route, servers, data_dir).batches(columns=COLUMNS["plain"]):
            has_begun.set()


@contextmanager
def scanning(route: str, servers: str, data_dir: str) -> Iterator[None]:
    """Another process reads, until the block is left."""
    context = multiprocessing.get_context("spawn")
    has_begun = context.Event()
    process = context.Process(target=scan_forever, args=(route, servers, data_dir, has_begun))
    process.start()
    try:
        assert has_begun.wait(60)
        yield
    finally:
        process.kill()
        process.join()


def paced_latencies_us(producer: Producer, count: int) -> list[float]:
    """From when a record was due to its acknowledgement."""
    times: list[float] = []
    begin_s = time.perf_counter()
    for number in range(count):
        due_s = begin_s + number * PACE_S

        def told(_error: object, _message: object, due_s: float = due_s) -> None:
            times.append((time.perf_counter() - due_s) * 1e6)

        while (left_s := due_s - time.perf_counter()) > 0:
            producer.poll(min(left_s, POLL_S))
        producer.produce(PROBE, b"x" * 100, partition=0, on_delivery=told)
        producer.poll(0)
    producer.flush(30)
    return times


def producer_figures(servers: str, data_dir: str, requests: int) -> dict[str, float]:
    """Latencies alone, and beside a scan by every route."""
    producer = Producer({"bootstrap.servers": servers, "acks": 1, "linger.ms": 0})

    def measured(prefix: str) -> dict[str, float]:
        return percentiles(paced_latencies_us(producer, requests), prefix)

    paced_latencies_us(producer, requests // 5)
    figures = measured("alone")
    for route in ROUTES:
        with scanning(route, servers, data_dir):
            figures |= measured(route)
        figures[f"{route}_p99_ratio"] = figures[f"{route}_p99_us"] / figures["alone_p99_us"]
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and prints the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="odradek-benchmark-") as folder,
        BrokerProcess(folder) as broker,
    ):
        servers = broker.bootstrap_servers
        fill(servers, options.records)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(PROBE, 1)])[PROBE].result(60)
        rounds = [
            table_figures(servers, folder, options.records)
            | producer_figures(servers, folder, options.requests)
            for _ in range(options.rounds + 1)
        ]
    print_medians(rounds[1:], as_json=options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
