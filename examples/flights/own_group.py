"""Reads everything back once more with our own client: a group of two, beside the other's of one.

The members share the partitions out by themselves, and commit what they have read when they leave.
"""

import asyncio
import time
from typing import Final

from examples.flights.readback import Readback
from examples.flights.replay import PARTITIONS
from examples.flights.screen import Bar

from odradek.client import Consumer
from odradek.client.errors import RequestTimedOut

MEMBERS: Final = 2
_POLL_MS: Final = 200
_GIVE_UP_S: Final = 60.0


def read_back(bootstrap_servers: str, expected: int) -> Readback:
    """The records that the members saw, together.

    Raises:
        KafkaError: the broker refuses, or nothing comes for a minute.
    """
    seen = Readback()
    bar = Bar("our group", expected)
    started = time.monotonic()
    asyncio.run(_read(bootstrap_servers, expected, seen, bar))
    seen.seconds = time.monotonic() - started
    bar.finish(seen.count)
    return seen


async def _read(bootstrap_servers: str, expected: int, seen: Readback, bar: Bar) -> None:
    last_arrival = time.monotonic()

    async def read_as_member(number: int) -> None:
        nonlocal last_arrival
        settings = {
            "client.id": f"our-group-{number}",
            "group.id": "flights-ours",
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
            "max.poll.records": 5_000,
        }
        async with Consumer(bootstrap_servers, settings) as consumer:
            consumer.subscribe(list(PARTITIONS))
            while seen.count < expected:
                found = await consumer.getmany(timeout_ms=_POLL_MS)
                for partition, records in found.items():
                    seen.positions.update((*partition, each.offset) for each in records)
                if found:
                    last_arrival = time.monotonic()
                    bar.show(seen.count)
                elif time.monotonic() - last_arrival > _GIVE_UP_S:
                    raise RequestTimedOut(f"{seen.count} of {expected} records came to our group")

    await asyncio.gather(*map(read_as_member, range(MEMBERS)))
