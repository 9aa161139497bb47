"""What does a transaction cost a broker, and what do open and aborted ones cost others?

    python -m benchmarks.transactions                    # starts ours and an Apache Kafka 4.3
    python -m benchmarks.transactions --without-kafka --rounds 1 --seconds 2

Rounds alternate between the two brokers, and medians are reported. Producers write one record to
one partition of their own and commit, one transaction after another, alone and a hundred at a
time; one transaction is measured from its first write to 100 partitions to the acknowledgement
of its end, long after the one before. What kcat reads are transactions of 1 000 records of which
every tenth is aborted; its rate counts all that lies in the log.

Transactional ids are loaded in this process, without sockets, as `benchmarks.groups` loads
offsets. Open transactions are ours alone: what does a write cost a partition in which thousands
have begun? The last line is one JSON object.
"""

import argparse
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic
from tools import kafka_node, peers

from benchmarks.broker import Target, in_turn, our_broker, pid_listening_on, ratios, table
from benchmarks.groups import MemoryLog
from benchmarks.transactional_client import TransactionalProducer, run_commits
from odradek.cli.start import ease_collector
from odradek.clock import SystemClock
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.records.transaction_codec import TransactionRecordCodec
from odradek.coordinator.records.transaction_records import (
    TransactionKey,
    TransactionState,
    TransactionValue,
)
from odradek.coordinator.runtime.batches import EndMarker
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.transactions.markers import MarkerWriter, OnMarked
from odradek.coordinator.transactions.shard import TransactionServices, TransactionShard
from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.records.builder import RecordBatchBuilder
from odradek.timer import SystemTimer

PRODUCERS: Final = (1, 100)
WIDE_PARTITIONS: Final = 100
WIDE_PAUSE_S: Final = 0.05
TRANSACTION_RECORDS: Final = 1_000
RECORD_BYTES: Final = 1_000
ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")
IDS_PER_BATCH: Final = 100
TOPIC_TIMEOUT_S: Final = 60


class NoLeaders(MarkerWriter):
    """No transaction is decided, so no marker is written."""

    def write(
        self, marker: EndMarker, partitions: Sequence[TopicPartition], on_done: OnMarked
    ) -> None:
        raise AssertionError(f"{marker} for {partitions}, awaited by {on_done}")


def create_topic(target: Target, partitions: int) -> str:
    """A fresh topic."""
    target.topics += 1
    name = f"transactions-{os.getpid()}-{target.topics}"
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TOPIC_TIMEOUT_S)
    return name


def producers_of(target: Target, topic: str, count: int) -> list[TransactionalProducer]:
    """Producers with a partition each."""
    return [
        TransactionalProducer(target.bootstrap, f"{topic}-{n}", topic, [n], [b"v" * 100])
        for n in range(count)
    ]


def close_all(producers: Sequence[TransactionalProducer]) -> None:
    for each in producers:
        each.connection.close()


def measure_commits(target: Target, count: int, seconds: float) -> None:
    """Commits a second, and what one costs the broker in CPU microseconds."""
    producers = producers_of(target, create_topic(target, count), count)
    run_commits(producers, 0)
    cpu, began = target.cpu_s(), time.perf_counter()
    commits = run_commits(producers, seconds)
    target.note(f"commits_{count}_per_s", commits / (time.perf_counter() - began))
    target.note(f"commits_{count}_cpu_us", 1e6 * (target.cpu_s() - cpu) / commits)
    close_all(producers)


def measure_wide(target: Target, transactions: int) -> None:
    """Milliseconds from the first write, to 100 partitions, to the acknowledged end."""
    topic = create_topic(target, WIDE_PARTITIONS)
    partitions = range(WIDE_PARTITIONS)
    producer = TransactionalProducer(target.bootstrap, topic, topic, partitions, [b"v" * 100])
    producer.transact()
    times = []
    for _ in range(transactions):
        time.sleep(WIDE_PAUSE_S)
        times.append(producer.transact())
    target.note("wide_ms", 1000 * statistics.median(times))
    close_all([producer])


def fill(target: Target, transactions: int) -> str:
    """A topic with so many transactions, every tenth of them aborted."""
    topic = create_topic(target, 1)
    values = [os.urandom(8) + b"v" * (RECORD_BYTES - 8) for _ in range(TRANSACTION_RECORDS)]
    producer = TransactionalProducer(target.bootstrap, topic, topic, [0], values)
    for number in range(transactions):
        producer.transact(number % 10 != 9)
    close_all([producer])
    return topic


def measure_reading(target: Target, topic: str, transactions: int, level: str) -> None:
    """Records of the log that kcat gets past in a second."""
    aborted = transactions // 10 if level == "read_committed" else 0
    records = (transactions - aborted) * TRANSACTION_RECORDS
    command = [peers.kcat(), "-b", target.bootstrap, "-C", "-t", topic, "-p", "0"]
    options = ["-o", "beginning", "-c", str(records), "-q", "-f", ".", "-X"]
    tuning = ["-X", "fetch.message.max.bytes=8388608", "-X", "queued.max.messages.kbytes=65536"]
    cpu, began = target.cpu_s(), time.perf_counter()
    done = subprocess.run(
        [*command, *options, f"isolation.level={level}", *tuning],
        stdout=subprocess.PIPE,
        check=True,
        timeout=600,
    )
    elapsed = time.perf_counter() - began
    assert len(done.stdout) == records, f"{len(done.stdout)} of {records} records came"
    everything = transactions * TRANSACTION_RECORDS
    target.note(f"{level}_records_per_s", everything / elapsed)
    target.note(f"{level}_cpu_s", target.cpu_s() - cpu)


def measure_ids(count: int) -> dict[str, float]:
    """Memory of so many transactional ids, and the seconds until their log is replayed."""
    log = MemoryLog()
    codec = TransactionRecordCodec(lambda: 2)
    for some in _batches(count):
        builder = RecordBatchBuilder()
        for record in some:
            builder.append(0, *codec.encode(record))
        log.append(0, bytearray(builder.build()), lambda _error: None)
    timer = SystemTimer(SystemClock())
    deferred: list[Any] = []
    services = TransactionServices(
        NoLeaders(),
        DelayedOperationPurgatory("TransactionMarkers", timer),
        deferred.append,
        SystemClock(),
    )
    runtime = CoordinatorRuntime[TransactionShard](
        log,
        codec,
        SystemClock(),
        deferred.append,
        lambda: 1,
        lambda partition, _epoch, append, _execute: TransactionShard(
            partition, 0, services, append, runtime.is_busy
        ),
        RuntimeSettings(lambda: 1_000_000),
        DelayedOperationPurgatory("TransactionWrite", timer),
    )
    gc.collect()
    before, began = _resident_mb(), time.perf_counter()
    runtime.on_elected(0, 0)
    while deferred:
        deferred.pop(0)()
    figures = {
        "ids_reload_s": round(time.perf_counter() - began, 3),
        "ids_mb": round(_resident_mb() - before, 1),
    }
    (shard,) = runtime.shards()
    assert len(shard.transactions) == count, "not every id is there"
    return figures


def _batches(count: int) -> Iterator[list[CoordinatorRecord]]:
    """Ids that have ended a transaction, as a log has them after compaction."""
    for first in range(0, count, IDS_PER_BATCH):
        yield [
            CoordinatorRecord(
                TransactionKey(f"orders-application-{number}-0_{number % 50}"),
                TransactionValue(
                    4000 + number,
                    7,
                    60_000,
                    TransactionState.COMPLETE_COMMIT,
                    (),
                    1_700_000_000_000,
                    1_700_000_000_000,
                    previous_producer_id=4000 + number,
                    client_transaction_version=2,
                ),
            )
            for number in range(first, min(first + IDS_PER_BATCH, count))
        ]


def _resident_mb() -> float:
    pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_open(target: Target, count: int, seconds: float, rounds: int) -> dict[str, float]:
    """The cost of a transaction in a partition in which so many others are open, and in one in
    which none is, in CPU microseconds of the broker; alternating."""
    topic = create_topic(target, 2)
    for number in range(count):
        begun = TransactionalProducer(
            target.bootstrap, f"{topic}-open-{number}", topic, [0], [b"v" * 100]
        )
        begun.write()
        begun.connection.close()
    writers = [
        TransactionalProducer(target.bootstrap, f"{topic}-{n}", topic, [n], [b"v" * 100])
        for n in range(2)
    ]
    costs: list[list[float]] = [[], []]
    for _ in range(2 * rounds):
        for writer, noted in zip(writers, costs, strict=True):
            cpu = target.cpu_s()
            commits = run_commits([writer], seconds)
            noted.append(1e6 * (target.cpu_s() - cpu) / commits)
    close_all(writers)
    beside, alone = (statistics.median(noted) for noted in costs)
    return {
        "beside_open_cpu_us": round(beside, 1),
        "beside_none_cpu_us": round(alone, 1),
        "beside_open_ratio": round(beside / alone, 3),
    }


def run_rounds(targets: Sequence[Target], options: argparse.Namespace) -> None:
    """Every workload against every broker, in turns."""
    topics = [fill(target, options.transactions) for target in targets]
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        for count in PRODUCERS:
            for target in in_turn(targets, number):
                measure_commits(target, count, options.seconds)
        for target in in_turn(targets, number):
            measure_wide(target, options.wide)
        for level in ISOLATION_LEVELS:
            for target, topic in in_turn(list(zip(targets, topics, strict=True)), number):
                measure_reading(target, topic, options.transactions, level)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of commits, a round")
    parser.add_argument("--wide", type=int, default=40, help="transactions of 100 partitions")
    parser.add_argument("--transactions", type=int, default=300, help="of 1 000 records, to read")
    parser.add_argument("--ids", type=int, default=100_000, help="transactional ids to load")
    parser.add_argument("--open", type=int, default=10_000, help="transactions that stay open")
    parser.add_argument("--warm-up", type=float, default=15, help="seconds before the first")
    parser.add_argument("--without-kafka", action="store_true", help="ours only")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measures and prints."""
    options = parse(arguments)
    ease_collector()  # as `odradek start` does
    figures = measure_ids(options.ids)
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(our_broker())
        targets = [Target("odradek", ours, pid_listening_on(ours))]
        if not options.without_kafka:
            kafka = stack.enter_context(kafka_node.kafka_node(heap="1g")).bootstrap_servers
            targets.append(Target("kafka", kafka, pid_listening_on(kafka)))
        for target in targets:
            for count in PRODUCERS:
                measure_commits(target, count, options.warm_up)
            target.figures.clear()
        run_rounds(targets, options)
        # Last, since open transactions cannot be taken away again.
        figures |= measure_open(targets[0], options.open, options.seconds, options.rounds)
    over = ratios(*targets) if len(targets) == 2 else {}
    print(table(targets, over))
    for name, figure in figures.items():
        print(f"{name:28}{figure:14.3f}")
    everything: dict[str, Any] = {each.name: each.medians() for each in targets}
    print(json.dumps(everything | {"ratios": over} | figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
