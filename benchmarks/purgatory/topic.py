"""The measurements as records of a topic: one for each run, and one for each step of lateness.

A run's histogram of lateness becomes a record per millisecond with its count, so that quantiles
over several rounds are taken from all their time-outs together.
"""

import json
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

TOPIC = "purgatory-measurements"
FLUSH_S = 60


def records_of(measured: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Key and value of every record."""
    for run in measured:
        place = {name: run[name] for name in ("workload", "label", "completions", "target_per_s")}
        key = "/".join(map(str, place.values()))
        facts = {name: value for name, value in run.items() if name != "lateness_ms"}
        yield key, {"kind": "run", **facts}
        for late_ms, count in run.get("lateness_ms", {}).items():
            yield key, {"kind": "lateness", **place, "late_ms": int(late_ms), "count": count}


def publish(measured: list[dict[str, Any]], bootstrap_servers: str) -> int:
    """Produces all records; how many were acknowledged.

    Raises:
        RuntimeError: a record was refused, or not acknowledged in a minute.
    """
    acknowledged = 0
    refused: list[str] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            refused.append(error.str())

    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "acks": "all", "enable.idempotence": True}
    )
    for key, value in records_of(measured):
        producer.produce(TOPIC, json.dumps(value), key, on_delivery=on_delivery)
        producer.poll(0)
    if producer.flush(FLUSH_S) or refused:
        raise RuntimeError(f"measurements were not acknowledged: {refused[:1] or 'time is over'}")
    return acknowledged
