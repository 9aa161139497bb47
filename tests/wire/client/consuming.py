"""Topics that hold records, and readers that read until it is enough, for tests of the consumer."""

import asyncio
from collections.abc import Callable, Iterable

from tests.wire.client.test_producer import make

from odradek.client import Consumer, Producer
from odradek.client.core.consuming.consumer_record import ConsumerRecord


async def fill(servers: str, topic: str, counts: Iterable[int], **settings: object) -> None:
    """Makes a topic with so many records in each partition; values are their numbers."""
    sizes = list(counts)
    await make(servers, topic, len(sizes))
    await write(servers, topic, sizes, **settings)


async def write(servers: str, topic: str, counts: Iterable[int], **settings: object) -> None:
    """Writes so many records to each partition."""
    async with Producer(servers, **settings) as producer:
        for partition, size in enumerate(counts):
            for number in range(size):
                await producer.send(
                    topic, b"%d" % number, partition=partition, timestamp_ms=1_000_000 + number
                )


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """So many records, however they come."""
    found: list[ConsumerRecord] = []
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            found += records
    assert len(found) == count
    return found


async def keep_reading(consumer: Consumer, into: list[ConsumerRecord]) -> None:
    while True:
        for records in (await consumer.getmany(timeout_ms=100)).values():
            into += records


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)
