"""How fast is our client beside aiokafka, kafka-python and confluent-kafka?

    python -m benchmarks.client                          # on a broker of ours and an Apache Kafka
    python -m benchmarks.client --bootstrap-server B [--peer B2] [--no-peer] [--json]

Every client does the same with the same settings: acks=all, 5 ms of linger, batches of 64 KiB, no
codec, one topic of one partition. Rounds alternate between the clients, so that a noisy machine is
noisy for all; medians are reported, records a second and the client's own CPU microseconds a
record. Besides: what an idle consumer costs, what a hundred take, how long a tool takes to start.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic
from tools import kafka_node

from benchmarks.broker import our_broker
from benchmarks.process_usage import resident_mb
from odradek.client import Consumer, Producer
from odradek.model import TopicPartition

LINGER_MS = 5
BATCH_BYTES = 65_536
POLL_MS = 1000
QUEUED_MAX = 100_000
MANY_RECORDS = 1000
IDLE_S = 10
MANY_CONSUMERS = 100
Work = Callable[[str, str, int, bytes], None]


# --- producing --------------------------------------------------------------------------------


def produce_ours(bootstrap: str, topic: str, count: int, value: bytes) -> None:
    """`send` in a loop, then `flush`."""

    async def work() -> None:
        settings = {"acks": "all", "linger.ms": LINGER_MS, "batch.size": BATCH_BYTES}
        async with Producer(bootstrap, settings) as producer:
            for _ in range(count):
                await producer.send(topic, value)
            await producer.flush()

    run(work())


def produce_many(bootstrap: str, topic: str, count: int, value: bytes) -> None:
    """`send_many` of a thousand at a time, then `flush`."""

    async def work() -> None:
        settings = {"acks": "all", "linger.ms": LINGER_MS, "batch.size": BATCH_BYTES}
        async with Producer(bootstrap, settings) as producer:
            values = [value] * MANY_RECORDS
            for start in range(0, count, MANY_RECORDS):
                await producer.send_many(topic, values[: count - start])
            await producer.flush()

    run(work())


def produce_aiokafka(bootstrap: str, topic: str, count: int, value: bytes) -> None:
    """The same."""

    async def work() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
            enable_idempotence=True,
        )
        await producer.start()
        try:
            for _ in range(count):
                await producer.send(topic, value)
            await producer.flush()
        finally:
            await producer.stop()

    run(work())


def produce_kafka_python(bootstrap: str, topic: str, count: int, value: bytes) -> None:
    """The same, with its thread."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
    )
    for _ in range(count):
        producer.send(topic, value)
    producer.flush()
    producer.close()


def produce_confluent(bootstrap: str, topic: str, count: int, value: bytes) -> None:
    """`produce` in a loop with a callback for each, as our futures are one for each."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "enable.idempotence": True,
            "queue.buffering.max.messages": QUEUED_MAX * 2,
        }
    )
    delivered: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        delivered.append(error)

    for _ in range(count):
        producer.produce(topic, value, on_delivery=on_delivery)
        producer.poll(0)
        while len(producer) > QUEUED_MAX:
            producer.poll(0.01)
    producer.flush()
    assert len(delivered) == count, f"{len(delivered)} of {count} were delivered"


# --- consuming --------------------------------------------------------------------------------


def looked_at(records: Sequence[Any]) -> int:
    """How many records these are, with a look at each value."""
    for record in records:
        assert record.value is not None
    return len(records)


def consume_ours(bootstrap: str, topic: str, count: int, _: bytes) -> None:
    """`getmany` until all are there."""

    async def work() -> None:
        async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            left = count
            while left > 0:
                for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    left -= looked_at(records)

    run(work())


def consume_columns(
    bootstrap: str, topic: str, count: int, _: bytes, *, views: bool = False
) -> None:
    """`getmany(columns=True)` until all are there."""

    async def work() -> None:
        async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            left = count
            while left > 0:
                found = await consumer.getmany(timeout_ms=POLL_MS, columns=True, views=views)
                left -= sum(columns.row_count for columns in found.values())

    run(work())


def consume_aiokafka(bootstrap: str, topic: str, count: int, _: bytes) -> None:
    """`getmany` until all are there."""

    async def work() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            left = count
            while left > 0:
                for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    left -= looked_at(records)
        finally:
            await consumer.stop()

    run(work())


def consume_kafka_python(bootstrap: str, topic: str, count: int, _: bytes) -> None:
    """`poll` until all are there."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    left = count
    while left > 0:
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            left -= looked_at(records)
    consumer.close()


def consume_confluent(bootstrap: str, topic: str, count: int, _: bytes) -> None:
    """`consume(1000)` until all are there, and a look at each value."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    left = count
    while left > 0:
        for message in consumer.consume(1000, POLL_MS / 1000):
            assert message.value() is not None, message.error()
            left -= 1
    consumer.close()


PRODUCERS: dict[str, Work] = {
    "odradek": produce_ours,
    "odradek send_many": produce_many,
    "aiokafka": produce_aiokafka,
    "kafka-python": produce_kafka_python,
    "confluent-kafka": produce_confluent,
}
CONSUMERS: dict[str, Work] = {
    "odradek": consume_ours,
    "odradek columns": consume_columns,
    "odradek views": partial(consume_columns, views=True),
    "aiokafka": consume_aiokafka,
    "kafka-python": consume_kafka_python,
    "confluent-kafka": consume_confluent,
}


# --- rounds -----------------------------------------------------------------------------------


@dataclass
class Figures:
    """Records a second and CPU microseconds a record, a list of rounds for each client."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)

    def note(self, client: str, count: int, elapsed_s: float, cpu_s: float) -> None:
        """Keeps one round's values."""
        self.rates.setdefault(client, []).append(count / elapsed_s)
        self.cpu_us.setdefault(client, []).append(cpu_s / count * 1e6)

    def summary(self) -> dict[str, dict[str, float]]:
        """The medians, and how many times the rate of each other client ours is."""
        medians = {client: statistics.median(rates) for client, rates in self.rates.items()}
        return {
            client: {
                "records_per_s": round(rate),
                "cpu_us_per_record": round(statistics.median(self.cpu_us[client]), 2),
                "ours_over_it": round(medians["odradek"] / rate, 2),
            }
            for client, rate in medians.items()
        }


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine on uvloop, which all asyncio clients get alike."""
    import uvloop

    uvloop.run(work)


def measured(figures: Figures, client: str, count: int, work: Callable[[], None]) -> None:
    """Runs `work`, and notes its rate and what it cost this process."""
    cpu_s, start_s = time.process_time(), time.perf_counter()
    work()
    figures.note(client, count, time.perf_counter() - start_s, time.process_time() - cpu_s)


def new_topic(bootstrap: str, name: str) -> str:
    """A fresh topic of one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def delete_topic(bootstrap: str, name: str) -> None:
    """Gives its disk back."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must outlive the future
    admin.delete_topics([name])[name].result(30)


def in_turn(clients: dict[str, Work], number: int) -> list[tuple[str, Work]]:
    """The clients of a round, each time another one first: nobody alone meets a cold broker."""
    order = list(clients.items())
    first = number % len(order)
    return order[first:] + order[:first]


def run_workload(
    bootstrap: str, record_bytes: int, count: int, rounds: int, label: str
) -> dict[str, dict[str, dict[str, float]]]:
    """All clients in turn, as many rounds."""
    value = os.urandom(record_bytes // 2).hex().encode()
    producing, consuming = Figures(), Figures()
    full = new_topic(bootstrap, f"full-{record_bytes}-{os.getpid()}")
    produce_confluent(bootstrap, full, count, value)
    for number in range(rounds):
        print(f"{label}: round {number + 1} of {rounds}", file=sys.stderr)
        for client, work in in_turn(PRODUCERS, number):
            name = f"{client.replace(' ', '-')}-{record_bytes}-{number}-{os.getpid()}"
            topic = new_topic(bootstrap, name)
            job = (bootstrap, topic, count, value)
            measured(producing, client, count, lambda work=work, job=job: work(*job))
            delete_topic(bootstrap, topic)
        for client, work in in_turn(CONSUMERS, number):
            job = (bootstrap, full, count, value)
            measured(consuming, client, count, lambda work=work, job=job: work(*job))
    delete_topic(bootstrap, full)
    return {"produce": producing.summary(), "consume": consuming.summary()}


# --- standing by ------------------------------------------------------------------------------


def idle_figures(bootstrap: str) -> dict[str, float]:
    """The same in a process of its own: this one has memory to spare from the rounds."""
    command = [sys.executable, "-m", "benchmarks.client", "--stand-by", bootstrap]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def stand_by(bootstrap: str) -> dict[str, float]:
    """A consumer that has nothing to read, and a hundred of them."""
    topic = new_topic(bootstrap, f"idle-{os.getpid()}")

    async def work() -> dict[str, float]:
        partition = TopicPartition(topic, 0)
        async with contextlib.AsyncExitStack() as stack:

            async def one() -> Consumer:
                consumer = await stack.enter_async_context(Consumer(bootstrap))
                consumer.assign([partition])
                await consumer.getmany(timeout_ms=1)
                return consumer

            first = await one()
            cpu_s = time.process_time()
            await first.getmany(timeout_ms=IDLE_S * 1000)
            idle = (time.process_time() - cpu_s) / IDLE_S * 100
            before_mb = resident_mb(os.getpid())
            for _ in range(MANY_CONSUMERS):
                await one()
            return {
                "idle_consumer_core_percent": round(idle, 3),
                "hundred_consumers_mb": round(resident_mb(os.getpid()) - before_mb, 1),
            }

    return asyncio.run(work())


def tool_start_ms(bootstrap: str) -> float:
    """From the start of `odradek topics --list` to its end, the median of seven."""
    command = [sys.executable, "-m", "odradek", "topics", "--list", "--bootstrap-server", bootstrap]
    times = []
    for _ in range(7):
        start_s = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append((time.perf_counter() - start_s) * 1000)
    return round(statistics.median(times), 1)


# --- the program ------------------------------------------------------------------------------


def table(name: str, found: dict[str, dict[str, float]]) -> str:
    """One workload for a person."""
    lines = [f"{name:34}{'records/s':>12}{'CPU us':>10}{'ours over it':>14}"]
    for client, each in found.items():
        lines.append(
            f"  {client:32}{each['records_per_s']:12,.0f}{each['cpu_us_per_record']:10.2f}"
            f"{each['ours_over_it']:14.2f}"
        )
    return "\n".join(lines)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; without addresses both brokers are started here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__)
    parser.add_argument("--bootstrap-server", help="ours; started here when left out")
    parser.add_argument("--peer", help="another broker; without addresses an Apache Kafka")
    parser.add_argument("--no-peer", action="store_true", help="only ours")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=60_000, help="a workload")
    parser.add_argument("--stand-by", metavar="B", help="only the idle consumers, as JSON")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Runs the rounds and prints the tables."""
    options = parse(arguments)
    if options.stand_by:
        print(json.dumps(stand_by(options.stand_by)))
        return 0
    found: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        address = options.bootstrap_server or stack.enter_context(our_broker())
        brokers = {"odradek": address}
        if options.peer:
            brokers["peer"] = options.peer
        elif not options.no_peer and options.bootstrap_server is None:
            brokers["peer"] = stack.enter_context(kafka_node.kafka_node()).bootstrap_servers
        for name, bootstrap in brokers.items():
            for record_bytes in (1024, 100):
                label = f"{record_bytes} B on {name}"
                result = run_workload(
                    bootstrap, record_bytes, options.records, options.rounds, label
                )
                for kind, figures in result.items():
                    found[f"{kind} {label}"] = figures
                    print(table(f"{kind} {label}", figures), flush=True)
        found["idle"] = idle_figures(address)
        found["tool_start_ms"] = tool_start_ms(address)
    print(f"idle: {found['idle']}; tool start {found['tool_start_ms']} ms")
    if options.json:
        print(json.dumps({"rounds": options.rounds, "records": options.records} | found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
