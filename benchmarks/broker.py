"""What do producing, consuming, one acknowledged record and one ListOffsets cost a broker?

    python -m benchmarks.broker                          # starts ours and an Apache Kafka 4.3
    python -m benchmarks.broker --bootstrap-server B [--peer B2] [--json]

Rounds alternate between the two brokers, so that a noisy machine is noisy for both, and medians
are reported with the broker's own CPU seconds per GB (its process is found by its listening
port; a broker elsewhere gets no CPU figures). The client is librdkafka: confluent-kafka for
producing and latency, kcat for consuming, because a Python loop over records would be what is
measured. A peer is warmed up first; a JVM's first gigabytes run at a third of its later rate.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tools import kafka_node, peers

from benchmarks.process_usage import cpu_seconds
from odradek.client.addresses import parse_bootstrap_servers
from odradek.client.apis import LIST_OFFSETS
from odradek.client.sync.connection import BlockingConnection
from odradek.protocol.direct.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    encode_list_offsets_request,
)
from odradek.testing.processes import BrokerProcess

T = TypeVar("T")

RECORD_BYTES = 1024
RECORDS_PER_CALL = 10_000
QUEUED_RECORDS_MAX = 300_000
LATEST = -1
DELETION_SECONDS = 1.5


@dataclass
class Target:
    """A broker under test, librdkafka's settings to log in to it, and what was measured of it, a
    list of rounds for each figure."""

    name: str
    bootstrap: str
    pid: int | None
    figures: dict[str, list[float]] = field(default_factory=dict)
    topics: int = 0
    security: Mapping[str, str] = field(default_factory=dict)

    def new_topic(self) -> str:
        """A fresh topic of one partition."""
        self.topics += 1
        topic = f"benchmark-{os.getpid()}-{self.topics}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **self.security})
        settings = {"file.delete.delay.ms": "0"}
        admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(30)
        return topic

    def delete(self, topic: str) -> None:
        """Gives disk and page cache back, for the next to use.

        A virtual machine may pay several seconds a GB for memory that its host has to find
        first; with every workload in the same pages that is paid in the warm-up.
        """
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **self.security})
        admin.delete_topics([topic])[topic].result(30)
        time.sleep(DELETION_SECONDS)

    def cpu_s(self) -> float:
        """User and system time of the broker's process so far; 0 when it is not known."""
        return 0.0 if self.pid is None else cpu_seconds(self.pid)

    def note(self, figure: str, value: float) -> None:
        """Keeps one round's value."""
        self.figures.setdefault(figure, []).append(value)

    def medians(self) -> dict[str, float]:
        """The median over the rounds of every figure."""
        return {name: round(statistics.median(v), 4) for name, v in self.figures.items()}


def measured(target: Target, name: str, megabytes: float, work: Callable[[], None]) -> None:
    """Runs `work` and notes its rate and what it cost the broker."""
    cpu, start = target.cpu_s(), time.perf_counter()
    work()
    elapsed = time.perf_counter() - start
    target.note(f"{name}_mb_per_s", megabytes / elapsed)
    if target.pid is not None:
        target.note(f"{name}_cpu_s_per_gb", (target.cpu_s() - cpu) / (megabytes / 1000))


def produce(
    bootstrap: str,
    topic: str,
    records: int,
    batch_bytes: int,
    acks: str | int = 1,
    security: Mapping[str, str] = {},
) -> None:
    """Sends records of 1 KiB to one partition and waits for every answer."""
    producer = Producer(
        {
            **security,
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": 5,
            "batch.size": batch_bytes,
            "queue.buffering.max.messages": QUEUED_RECORDS_MAX * 2,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    batch = [{"value": os.urandom(RECORD_BYTES - 64) + b"x" * 64}] * RECORDS_PER_CALL
    assert records % RECORDS_PER_CALL == 0, f"{records} records are not whole calls"
    for _ in range(records // RECORDS_PER_CALL):
        while len(producer) > QUEUED_RECORDS_MAX:
            producer.poll(0.002)
        producer.produce_batch(topic, batch, partition=0)
    left = producer.flush(300)
    assert left == 0, f"{left} records were not acknowledged"


def consume(bootstrap: str, topic: str, records: int, security: Mapping[str, str] = {}) -> None:
    """Reads the partition from its beginning with kcat and checks how much came."""
    command = [peers.kcat(), "-b", bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning"]
    tuning = ["-X", "fetch.message.max.bytes=8388608", "-X", "queued.max.messages.kbytes=65536"]
    login = [word for each in security.items() for word in ("-X", "=".join(each))]
    with tempfile.TemporaryFile() as out:
        done = [*login, "-c", str(records), "-q", "-f", "."]
        subprocess.run([*command, *tuning, *done], stdout=out, check=True, timeout=600)
        assert out.tell() == records, f"{out.tell()} of {records} records came"


def latencies_us(bootstrap: str, topic: str, count: int, acks: str | int = 1) -> list[float]:
    """The time from `produce` to its acknowledgement, one record at a time, in microseconds."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    times: list[float] = []
    for number in range(count + count // 5):
        start = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=0)
        while len(producer):
            producer.poll(0.5)
        if number >= count // 5:
            times.append((time.perf_counter() - start) * 1e6)
    return times


def list_offsets(bootstrap: str, topic: str, count: int) -> None:
    """Asks for the end of the partition, one request at a time."""
    address = parse_bootstrap_servers(bootstrap)[0]
    connection = BlockingConnection(address, client_id="benchmark", timeout_s=30)
    with contextlib.closing(connection):
        version = connection.agree(LIST_OFFSETS)
        topics = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, LATEST)])]
        body = encode_list_offsets_request(ListOffsetsRequest(-1, topics), version)
        for _ in range(count):
            connection.request(LIST_OFFSETS, version, body)


def in_turn(targets: Sequence[T], round_number: int) -> Sequence[T]:
    """The order of a round: who begins one ends the next, since who comes after another finds the
    machine otherwise (at times 10 % of the CPU)."""
    return targets if round_number % 2 == 0 else targets[::-1]


def run_round(target: Target, records: int, requests: int) -> None:
    """Every workload once against one broker."""
    megabytes = records * RECORD_BYTES / 1e6
    for name, batch_bytes in (("produce_large", 1_000_000), ("produce_16k", 16_384)):
        topic = target.new_topic()
        measured(
            target,
            name,
            megabytes,
            lambda topic=topic, size=batch_bytes: produce(target.bootstrap, topic, records, size),
        )
        if name == "produce_large":
            measured(
                target,
                "consume",
                megabytes,
                lambda topic=topic: consume(target.bootstrap, topic, records),
            )
        target.delete(topic)
    topic = target.new_topic()
    times = sorted(latencies_us(target.bootstrap, topic, requests))
    target.note("latency_p50_us", statistics.median(times))
    target.note("latency_p99_us", times[len(times) * 99 // 100])
    cpu = target.cpu_s()
    list_offsets(target.bootstrap, topic, requests)
    if target.pid is not None:
        target.note("list_offsets_cpu_us", (target.cpu_s() - cpu) / requests * 1e6)
    target.delete(topic)


def warm_up(target: Target, megabytes: int) -> None:
    """Brings a JVM up to its speed; costs a broker of ours nothing but time."""
    calls = max(megabytes * 1_000_000 // RECORD_BYTES // RECORDS_PER_CALL // 2, 1)
    for batch_bytes in (1_000_000, 16_384):
        topic = target.new_topic()
        produce(target.bootstrap, topic, calls * RECORDS_PER_CALL, batch_bytes)
        consume(target.bootstrap, topic, calls * RECORDS_PER_CALL)
        target.delete(topic)
    topic = target.new_topic()
    latencies_us(target.bootstrap, topic, 3000)
    list_offsets(target.bootstrap, topic, 3000)
    target.delete(topic)


def pid_listening_on(bootstrap: str) -> int | None:
    """The process of this machine that listens on the address's port, if it can be seen."""
    port = int(bootstrap.split(",")[0].rpartition(":")[2])
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            rows = Path(table).read_text(encoding="utf-8").splitlines()[1:]
            inodes |= {r.split()[9] for r in rows if _listens(r.split(), port)}
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))
            if found and found.group(1) in inodes:
                return int(fd.parts[2])
    return None


def _listens(fields: list[str], port: int) -> bool:
    return int(fields[1].rpartition(":")[2], 16) == port and fields[3] == "0A"


@contextlib.contextmanager
def our_broker() -> Iterator[str]:
    """`odradek start` in a temporary directory; its address."""
    with (
        tempfile.TemporaryDirectory(prefix="odradek-benchmark-") as folder,
        BrokerProcess(folder) as broker,
    ):
        yield broker.bootstrap_servers


def ratios(ours: Target, peer: Target) -> dict[str, float]:
    """Ours over the peer's, figure by figure, from the medians."""
    mine, theirs = ours.medians(), peer.medians()
    return {n: round(mine[n] / theirs[n], 3) for n in mine if theirs.get(n)}


def table(targets: list[Target], over: dict[str, float]) -> str:
    """The medians side by side, for a person."""
    lines = [f"{'median':28}" + "".join(f"{t.name:>14}" for t in targets) + f"{'ratio':>10}"]
    for figure in targets[0].medians():
        values = "".join(f"{t.medians().get(figure, float('nan')):14.3f}" for t in targets)
        lines.append(f"{figure:28}{values}{over.get(figure, float('nan')):10.3f}")
    return "\n".join(lines)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; without addresses both brokers are started here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description=__doc__)
    parser.add_argument("--bootstrap-server", help="ours; started here when left out")
    parser.add_argument("--peer", help="another broker; without addresses an Apache Kafka")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_000_000, help="of 1 KiB, a workload")
    parser.add_argument("--requests", type=int, default=10_000, help="for latency, ListOffsets")
    parser.add_argument("--warm-up-mb", type=int, default=3000, help="for the peer")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Runs the rounds and prints the table."""
    options = parse(arguments)
    with contextlib.ExitStack() as stack:
        address = options.bootstrap_server or stack.enter_context(our_broker())
        targets = [Target("odradek", address, pid_listening_on(address))]
        peer = options.peer
        if peer is None and options.bootstrap_server is None:
            peer = stack.enter_context(kafka_node.kafka_node()).bootstrap_servers
        if peer:
            targets.append(Target("peer", peer, pid_listening_on(peer)))
            warm_up(targets[1], options.warm_up_mb)
        warm_up(targets[0], min(200, options.warm_up_mb))
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            for target in in_turn(targets, number):
                run_round(target, options.records, options.requests)
    over = ratios(*targets) if len(targets) == 2 else {}
    print(table(targets, over))
    if options.json:
        result = {t.name: t.medians() for t in targets} | {"ratios": over}
        print(json.dumps({"rounds": options.rounds, "record_bytes": RECORD_BYTES} | result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
