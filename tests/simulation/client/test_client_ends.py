"""The end of clients whose brokers say nothing any more. If these fail, who has little time waits
as long as somebody else who has more."""

import asyncio
from typing import Any

import pytest
from tests.simulation.client.test_client_cluster import BROKERS, PROTOCOLS, Stage, play, read

from odradek.client import Consumer, Producer


async def closed_in_s(client: Any, *timeouts_ms: int | None) -> float:
    """How long it takes to close a client for those with so much time, one after the other."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    closing = []
    for timeout_ms in timeouts_ms:
        closing.append(asyncio.create_task(client.close(timeout_ms=timeout_ms)))
        await asyncio.sleep(0)
    await asyncio.gather(*closing)
    return loop.time() - begun_s


@pytest.mark.parametrize("timeouts_ms", [(None, 500), (20_000, 500), (500, None), (500, 20_000)])
def test_who_closes_a_producer_waits_no_longer_than_they_said(
    timeouts_ms: tuple[int | None, ...],
) -> None:
    async def scenario(stage: Stage) -> None:
        producer = stage.client(Producer)
        sending = asyncio.create_task(producer.send("t", b"never"))
        await asyncio.sleep(0.1)
        stage.silent |= set(BROKERS)
        assert await closed_in_s(producer, *timeouts_ms) < 1
        sending.cancel()

    play(scenario)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_closes_a_member_waits_no_longer_than_they_said(protocol: str) -> None:
    async def scenario(stage: Stage) -> None:
        consumer: Consumer = stage.member(protocol)
        consumer.subscribe(["t"])
        await read(consumer, 1)
        stage.silent |= set(BROKERS)
        assert await closed_in_s(consumer, 20_000, 500) < 1

    play(scenario)
