"""A member of a group as a process: `python member.py LIBRARY PROTOCOL BROKERS TOPIC GROUP`.

It writes the partition and offset of each record on a line, then commits, one read after the other.
What is written has left the process: whoever is killed between the two reads again, and loses
nothing. Errors of a broker that is away are borne.
"""

import asyncio
import sys
from contextlib import suppress

SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 300


def note(records: list[tuple[int, int]]) -> None:
    sys.stdout.write("".join(f"{partition} {offset}\n" for partition, offset in records))
    sys.stdout.flush()


async def ours(protocol: str, servers: str, topic: str, group: str) -> None:
    from odradek.client import Consumer
    from odradek.client.errors import KafkaError

    settings = {
        "group_id": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        "partition_assignment_strategy": "range",
    }
    async with Consumer(servers, **settings) as consumer:
        consumer.subscribe([topic])
        while True:
            with suppress(KafkaError):
                found = await consumer.getmany(timeout_ms=200, max_records=20)
                note([(each.partition, each.offset) for some in found.values() for each in some])
                await consumer.commit()


def confluent(protocol: str, servers: str, topic: str, group: str) -> None:
    from confluent_kafka import Consumer, KafkaException

    settings: dict[str, object] = {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    if protocol == "classic":
        settings["session.timeout.ms"] = SESSION_TIMEOUT_MS
        settings["heartbeat.interval.ms"] = HEARTBEAT_INTERVAL_MS
        settings["partition.assignment.strategy"] = "range"
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while True:
        found = [each for each in consumer.consume(20, 0.2) if each.error() is None]
        note([(each.partition(), each.offset()) for each in found])
        with suppress(KafkaException):
            consumer.commit(asynchronous=False)


def kafka_python(servers: str, topic: str, group: str) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
    )
    while True:
        with suppress(KafkaError):
            found = consumer.poll(timeout_ms=200, max_records=20)
            note([(each.partition, each.offset) for some in found.values() for each in some])
            consumer.commit()


def main(library: str, protocol: str, *where: str) -> None:
    if library == "ours":
        asyncio.run(ours(protocol, *where))
    elif library == "confluent":
        confluent(protocol, *where)
    else:
        kafka_python(*where)


if __name__ == "__main__":
    main(*sys.argv[1:])
