"""Reads everything back with a client that is not ours, in a group, and times single records.

`read_back` counts what a subscribed consumer sees and commits where it ended. `probe` sends
records one at a time to a consumer that is already waiting: the fetch of such a consumer lies
in the broker's purgatory until the record wakes it, or until its time is over.
"""

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from examples.flights.replay import PARTITIONS, PROBE, Position
from examples.flights.screen import Bar

PROBES: Final = 1_000
_QUIET_S: Final = 1.5
_BATCH: Final = 5_000
_POLL_S: Final = 1.0
_GIVE_UP_S: Final = 60.0


@dataclass
class Readback:
    """The records that the consumer saw: every position and every event id, with how often."""

    positions: Counter[Position] = field(default_factory=Counter)
    ids: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def count(self) -> int:
        """How many records came, repeated ones included."""
        return self.positions.total()


@dataclass
class Probe:
    """Milliseconds until a single record was acknowledged, and until a waiting consumer had it."""

    acknowledged_ms: list[float] = field(default_factory=list)
    received_ms: list[float] = field(default_factory=list)


def read_back(bootstrap_servers: str, expected: int) -> Readback:
    """Consumes all partitions from their beginning to their end, as a group of one.

    Raises:
        KafkaException: the broker refuses, or nothing comes for a minute.
    """
    consumer = _consumer(bootstrap_servers, {"enable.partition.eof": True})
    seen = Readback()
    bar = Bar("read back", expected)
    started = time.monotonic()
    try:
        consumer.subscribe(list(PARTITIONS))
        unfinished = {(topic, i) for topic, count in PARTITIONS.items() for i in range(count)}
        last_arrival = started
        while unfinished:
            messages = consumer.consume(_BATCH, _POLL_S)
            if messages:
                last_arrival = time.monotonic()
            elif time.monotonic() - last_arrival > _GIVE_UP_S:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            for message in messages:
                _note(seen, message, unfinished)
            bar.show(seen.count)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    seen.seconds = time.monotonic() - started
    bar.finish(seen.count)
    return seen


def probe(bootstrap_servers: str) -> Probe:
    """Sends records one at a time, each when the one before has been received.

    Raises:
        KafkaException: a record did not come.
    """
    consumer = _consumer(bootstrap_servers, {"fetch.wait.max.ms": 500})
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
    result = Probe()
    try:
        consumer.assign([TopicPartition(PROBE, 0, 0)])
        # Nothing comes for a while: the waiting fetches run into their time-outs.
        consumer.poll(_QUIET_S)
        for number in range(PROBES):
            _probe_once(producer, consumer, b"%d" % number, result)
    finally:
        consumer.close()
    return result


def _probe_once(producer: Producer, consumer: Consumer, value: bytes, result: Probe) -> None:
    started = time.perf_counter()
    producer.produce(PROBE, value=value)
    producer.flush()
    result.acknowledged_ms.append((time.perf_counter() - started) * 1000)
    message = consumer.poll(_GIVE_UP_S)
    result.received_ms.append((time.perf_counter() - started) * 1000)
    if message is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    error = message.error()
    if error is not None:
        raise KafkaException(error)


def _consumer(bootstrap_servers: str, more: dict[str, object]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "read-back",
            "group.id": "flights",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **more,
        }
    )


def _note(seen: Readback, message: Message, unfinished: set[tuple[str, int]]) -> None:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    error = message.error()
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        unfinished.discard((topic, partition))
        return
    value = message.value()
    assert value is not None
    assert offset is not None
    seen.positions[topic, partition, offset] += 1
    seen.ids[topic, json.loads(value)["id"]] += 1
