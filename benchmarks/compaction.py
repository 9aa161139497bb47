"""What does compaction do to the latency of producing?

    python -m benchmarks.compaction [--records 1000000] [--rounds 5] [--json]

A broker's process with a topic of `--records` 100-byte records for each round. Rounds alternate:
first one record at a time is sent to another topic while nothing else happens, then the same while
one of the large topics, which is given `cleanup.policy=compact`, is compacted. Reported are the
acknowledgement's percentiles of both (medians over the rounds), their ratio, and how long the
compactions took. The large topics are written into the directory while the broker is not running.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.figures import print_medians
from benchmarks.micro.storage import manager_over
from odradek.clock import SystemClock
from odradek.config.topic import LogConfig
from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.testing.processes import BrokerProcess

PROBE = "probe"
RECORDS_PER_BATCH = 100
IDLE_REQUESTS = 5000
LOOK_EVERY_MS = 200
SETTINGS = {"segment.bytes": str(64 << 20), "file.delete.delay.ms": "0"}


def table(number: int) -> str:
    return f"table-{number}"


def make_topics(address: str, rounds: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    topics = [NewTopic(table(n), 1, 1, config=SETTINGS) for n in range(rounds)]
    for created in admin.create_topics([NewTopic(PROBE, 1, 1), *topics]).values():
        created.result(30)


def write_tables(folder: str, rounds: int, records: int) -> None:
    """Ten records for each key, keys scattered, in batches of a hundred."""
    manager = manager_over(folder)
    now_ms = SystemClock().wall_ms()
    config = LogConfig({"segment.bytes": int(SETTINGS["segment.bytes"])})
    for number in range(rounds):
        log = manager.get(TopicPartition(table(number), 0))
        assert log is not None, f"{folder} has no {table(number)}"
        log.update_config(config)
        for first in range(0, records, RECORDS_PER_BATCH):
            builder = RecordBatchBuilder(0)
            for n in range(first, first + RECORDS_PER_BATCH):
                key = b"key-%08d" % (n * 7919 % (records // 10))
                builder.append(now_ms, key, b"v" * 80, [])
            log.appender.append_as_leader([memoryview(bytearray(builder.build()))], 0)
        log.appender.roll()
        log.update_high_watermark(log.log_end_offset)
    manager.shutdown()


def latencies_us(producer: Producer, goes_on: Callable[[int], bool]) -> list[float]:
    """From `produce` to the acknowledgement, one record after the other."""
    times: list[float] = []
    while goes_on(len(times)):
        start = time.perf_counter()
        producer.produce(PROBE, b"x" * 100, partition=0)
        while len(producer):
            producer.poll(0.5)
        times.append((time.perf_counter() - start) * 1e6)
    return times


def begin_compaction(address: str, number: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    changes = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in changes.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, table(number), incremental_configs=entries)
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(30)


def is_compacted(folder: str, number: int) -> bool:
    checkpoint = Path(folder, "cleaner-offset-checkpoint")
    return checkpoint.exists() and f"{table(number)} 0 " in checkpoint.read_text(encoding="utf-8")


def percentiles(times: list[float], prefix: str) -> dict[str, float]:
    ordered = sorted(times)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {
        f"{prefix}_{name}_us": ordered[int(len(ordered) * share)] for name, share in shares.items()
    }


def one_round(folder: str, address: str, number: int) -> dict[str, float]:
    producer = Producer({"bootstrap.servers": address, "acks": 1, "linger.ms": 0})
    latencies_us(producer, lambda count: count < IDLE_REQUESTS // 5)
    idle = latencies_us(producer, lambda count: count < IDLE_REQUESTS)
    begin_compaction(address, number)
    begin = time.perf_counter()
    time.sleep(LOOK_EVERY_MS / 1000)
    # Asked seldom: the file is written when all is done.
    busy = latencies_us(
        producer, lambda count: count % 500 != 0 or not is_compacted(folder, number)
    )
    took_s = time.perf_counter() - begin
    figures = percentiles(idle, "idle") | percentiles(busy, "compacting")
    figures["p99_ratio"] = figures["compacting_p99_us"] / figures["idle_p99_us"]
    return figures | {"compaction_s": took_s, "compacting_requests": float(len(busy))}


def main(arguments: list[str]) -> int:
    """Runs the rounds and prints the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="odradek-compaction-") as folder:
        with BrokerProcess(folder) as broker:
            make_topics(broker.bootstrap_servers, options.rounds)
        write_tables(folder, options.rounds, options.records)
        looks_often = ("--set", f"log.cleaner.backoff.ms={LOOK_EVERY_MS}")
        with BrokerProcess(folder, *looks_often) as broker:
            address = broker.bootstrap_servers
            rounds = [one_round(folder, address, n) for n in range(options.rounds)]
    print_medians(rounds, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
