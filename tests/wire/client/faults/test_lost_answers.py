"""Answers to Produce that are lost between a producer and Apache Kafka, or ours.

A proxy stands before the broker, under whose port the broker is known. Our simulation has the same
(`test_client_sequences`) with brokers of its own; here Kafka's rules for sequences decide.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.deadlines import deadline_ms
from tests.streams import serving
from tests.wire.client.faults.lies import Lie, LyingProxy, silence
from tests.wire.client.test_producer import make, stored

from odradek.client import Producer
from odradek.client.apis import METADATA, PRODUCE
from odradek.client.errors import RequestTimedOut

Run = Callable[[Coroutine[Any, Any, None]], None]
ALWAYS = 1_000_000
DELIVERY_MS = deadline_ms(4000)


def known_by(port: int, other: int) -> Lie:
    """The answer of a broker whose port is another one."""
    return lambda frame: frame.replace(struct.pack(">i", port), struct.pack(">i", other))


@asynccontextmanager
async def losing(servers: str) -> AsyncIterator[tuple[str, LyingProxy]]:
    """Where a broker can be reached, and a proxy on the way that loses answers to Produce."""
    loses = LyingProxy(PRODUCE, silence, 0)
    loses.target = int(servers.rpartition(":")[2])
    async with serving(loses.serve) as inner:
        names: dict[str, Lie] = {}
        outer = LyingProxy(METADATA, lambda frame: names["own"](frame), ALWAYS)
        outer.target = inner
        async with serving(outer.serve) as port:
            names["own"] = known_by(loses.target, port)
            yield f"127.0.0.1:{port}", loses


def test_a_batch_that_expires_doubles_none_of_another_partition(
    servers: str, topic: str, run: Run
) -> None:
    """The log had `warm`, `B`, `B`: who gave up `A` had numbered `B` anew, which was stored."""

    async def scenario() -> None:
        await make(servers, topic, 2)
        limits = {"delivery_timeout_ms": DELIVERY_MS, "request_timeout_ms": DELIVERY_MS // 4}
        async with (
            losing(servers) as (reached, proxy),
            Producer(reached, linger_ms=0, **limits) as producer,
        ):
            for index in (0, 1):
                await producer.send_and_wait(topic, b"warm", partition=index)
            proxy.left = ALWAYS
            expiring = await producer.send(topic, b"A", partition=0)
            await asyncio.sleep(DELIVERY_MS / 2000)
            again = [await producer.send(topic, value, partition=1) for value in (b"B", b"C")]
            with pytest.raises(RequestTimedOut):
                await expiring
            assert not any(each.done() for each in again), "it is still to be sent again"
            proxy.left = 0
            later = await producer.send_and_wait(topic, b"D", partition=0)
            assert [(await each).offset for each in again] == [1, 2]
            assert later.offset == 2
        for index, values in enumerate(([b"warm", b"A", b"D"], [b"warm", b"B", b"C"])):
            found = await asyncio.to_thread(stored, servers, topic, index)
            assert [each.value for each in found] == values

    run(scenario())
