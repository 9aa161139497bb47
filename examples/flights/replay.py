"""Sends the year to the broker, in the order in which it happened, and keeps the receipts.

The client is confluent-kafka: what comes of the broker is to be seen with somebody else's
eyes. What counts as produced is what the broker acknowledged, with its partition and offset.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from examples.flights.dataset import FLIGHTS, WEATHER, Event
from examples.flights.screen import Bar

PARTITIONS: Final = {FLIGHTS: 4, WEATHER: 3}
PROBE: Final = "probe"
_SAMPLE_S: Final = 0.1
_POLL_EVERY: Final = 500
# The records are of 2013: under the default retention they would be old enough to be deleted.
# Small segments, so that Spark has several to read at the same time.
_TOPIC_CONFIG: Final = {"retention.ms": "-1", "segment.bytes": str(8 << 20)}

Position = tuple[str, int, int]


@dataclass
class Receipts:
    """The records that the broker acknowledged: topic, partition and offset of every record."""

    positions: list[Position] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    samples: list[tuple[float, int]] = field(default_factory=list)
    """How many were acknowledged, some times a second: (seconds since the start, count)."""

    def note(self, error: KafkaError | None, message: Message) -> None:
        """Takes a delivery report."""
        if error is not None:
            self.failures.append(str(error))
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        self.positions.append((topic, partition, offset))

    def sample(self) -> None:
        """Notes how many are acknowledged by now, unless that was just done."""
        elapsed_s = time.monotonic() - self.began
        if not self.samples or elapsed_s - self.samples[-1][0] >= _SAMPLE_S:
            self.samples.append((elapsed_s, len(self.positions)))


def create_topics(bootstrap_servers: str, replicas: int = 1) -> None:
    """Creates the topics of the job.

    Raises:
        KafkaException: the broker refuses.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = {**PARTITIONS, PROBE: 1}
    topics = [
        NewTopic(name, count, replication_factor=replicas, config=_TOPIC_CONFIG)
        for name, count in wanted.items()
    ]
    for created in admin.create_topics(topics).values():
        created.result()


def replay(
    bootstrap_servers: str,
    events: Sequence[Event],
    halfway: Callable[[float], None] | None = None,
) -> Receipts:
    """Produces every event as fast as the broker takes them, idempotently and with acks=all.

    `halfway` is called in the middle, with the time of `time.monotonic` at which it all began.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "replay",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 10,
            "batch.size": 262_144,
        }
    )
    receipts = Receipts()
    bar = Bar("replay", len(events))
    with _no_collections():
        for number, event in enumerate(events):
            if number == len(events) // 2 and halfway is not None:
                halfway(receipts.began)
            _produce(producer, event, receipts)
            if number % _POLL_EVERY == 0:
                producer.poll(0)
                receipts.sample()
                bar.show(len(receipts.positions))
        while producer.flush(_SAMPLE_S):
            receipts.sample()
            bar.show(len(receipts.positions))
    receipts.seconds = time.monotonic() - receipts.began
    receipts.samples.append((receipts.seconds, len(receipts.positions)))
    bar.finish(len(receipts.positions))
    return receipts


@contextmanager
def _no_collections() -> Iterator[None]:
    """Keeps the cyclic collector away: it would look at all events and receipts, and find nothing.

    While it looks, this process hears of no acknowledgement, and the rate has a dip that is not
    the broker's.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _produce(producer: Producer, event: Event, receipts: Receipts) -> None:
    while True:
        try:
            producer.produce(
                event.topic,
                key=event.key,
                value=event.value,
                timestamp=event.timestamp_ms,
                on_delivery=receipts.note,
            )
        except BufferError:
            # The client's queue is full: the broker sets the pace from here.
            producer.poll(0.1)
            receipts.sample()
        else:
            return
