"""Clocks that begin below zero: a moment that has not been yet is no sign that there was none.

Nothing may wait until such a clock has come to 0, which it never does while it stands.
"""

import asyncio
from collections.abc import Iterator

import pytest

import odradek
from odradek.client import Consumer, Producer
from odradek.model import TopicPartition

BEGIN_MS = -(10**9)
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> odradek.ManualClock:
    return odradek.ManualClock(monotonic_ms=BEGIN_MS)


@pytest.fixture
def broker(clock: odradek.ManualClock) -> Iterator[odradek.Broker]:
    with odradek.Broker(clock=clock) as made:
        made.create_topic("orders")
        yield made


def values(broker: odradek.Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def test_a_scheduled_record_is_delivered_when_it_is_due(
    broker: odradek.Broker, clock: odradek.ManualClock
) -> None:
    """It would be at 0, by the clock that is never set back."""
    broker.create_topic("later", config={"schedule.target.topic": "orders"})
    broker.produce("later", "spool", headers=[("deliver-after", "1h")])
    clock.advance(HOUR_MS)
    assert values(broker, "orders") == [b"spool"]


def test_scheduled_records_that_have_a_rate_begin_at_once(
    broker: odradek.Broker, clock: odradek.ManualClock
) -> None:
    """The first of them would wait for its turn until 0."""
    settings = {"schedule.target.topic": "orders", "schedule.release.max.rate": 10}
    broker.create_topic("later", config=settings)
    broker.produce("later", "spool", headers=[("deliver-after", "1h")])
    clock.advance(HOUR_MS)
    assert values(broker, "orders") == [b"spool"]


def test_a_topic_is_compacted(broker: odradek.Broker, clock: odradek.ManualClock) -> None:
    """The cleaner would be at its rate, for all that it moves, until 0."""
    compacted = {
        "cleanup.policy": "compact",
        "segment.ms": HOUR_MS,
        "min.cleanable.dirty.ratio": 0.01,
    }
    broker.create_topic("prices", config=compacted)
    for price in ("1", "2", "3"):
        broker.produce("prices", price, key="spool")
    clock.advance(2 * HOUR_MS)
    broker.produce("prices", "4", key="thread")
    clock.advance(15_000)
    assert values(broker, "prices") == [b"3", b"4"]


def test_clients_go_by_such_a_clock(broker: odradek.Broker, clock: odradek.ManualClock) -> None:
    """They would ask for no metadata, send no batch and fetch nothing; the clock stands."""

    async def work() -> bytes | None:
        servers = broker.bootstrap_servers
        async with Producer(servers, clock=clock) as producer:
            await producer.send("orders", b"spool")
            await producer.flush()
        consumer = Consumer(servers, clock=clock, auto_offset_reset="earliest")
        async with consumer:
            consumer.assign([TopicPartition("orders", 0)])
            return (await consumer.getone()).value

    assert asyncio.run(work()) == b"spool"
