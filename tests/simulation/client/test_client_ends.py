"""The end of clients whose brokers say nothing any more. If these fail, who has little time waits
as long as somebody else who has more."""

import asyncio
from typing import Any

import pytest
from tests.simulation.client.test_client_cluster import (
    ALL,
    BROKERS,
    PROTOCOLS,
    Stage,
    Told,
    play,
    read,
)

from odradek.client import Consumer, Producer
from odradek.client.errors import ClientClosed
from odradek.model import TopicPartition


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


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whoever_waits_for_leaving_is_told_that_closing_has_ended_it(protocol: str) -> None:
    """As if somebody had cancelled them, their tasks would end without a word."""

    async def scenario(stage: Stage) -> None:
        consumer: Consumer = stage.member(protocol)
        consumer.subscribe(["t"])
        await read(consumer, 1)
        stage.silent |= set(BROKERS)
        leaving = asyncio.create_task(consumer.unsubscribe())
        await asyncio.sleep(0.1)
        reading = asyncio.create_task(consumer.getone())
        again = asyncio.create_task(consumer.unsubscribe())
        await asyncio.sleep(0.1)
        assert await closed_in_s(consumer, 500) < 1
        async with asyncio.timeout(1):
            ended = await asyncio.gather(leaving, reading, again, return_exceptions=True)
        assert [type(each) for each in ended] == [ClientClosed] * 3

    play(scenario)


class Endless(Told):
    """A listener that never ends by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.has_ended = False

    async def on_partitions_assigned(  # type: ignore[override]
        self, partitions: list[TopicPartition]
    ) -> None:
        del partitions
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.has_ended = True


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_closing_ends_a_listener_though_a_commit_takes_all_its_time(protocol: str) -> None:
    """It would go on with a client that is closed, and its reader would wait for it."""

    async def scenario(stage: Stage) -> None:
        listener = Endless()
        consumer: Consumer = stage.member(protocol)
        consumer.subscribe(["t"], listener=listener)
        reading = asyncio.create_task(consumer.getone())
        await listener.begun.wait()
        stage.silent |= set(BROKERS)
        consumer.commit_async({ALL[0]: 1})
        assert await closed_in_s(consumer, 500) < 1
        assert listener.has_ended
        async with asyncio.timeout(1):
            [ended] = await asyncio.gather(reading, return_exceptions=True)
        assert isinstance(ended, ClientClosed)

    play(scenario)
