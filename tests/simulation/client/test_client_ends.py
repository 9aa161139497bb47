"""The end of clients whose brokers say nothing any more. If these fail, who has little time waits
as long as somebody else who has more."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.simulation.client.consuming.client_groups import GROUP
from tests.simulation.client.test_client_cluster import (
    ALL,
    BROKERS,
    METADATA,
    PROTOCOLS,
    Stage,
    Told,
    answering,
    play,
    read,
    silence,
)

from odradek.client import Admin, Consumer, Producer, ShareConsumer
from odradek.client.errors import ClientClosed
from odradek.model import TopicPartition

SHARE_HEARTBEAT = 76


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


@pytest.mark.parametrize("turns", range(12))
def test_who_is_cancelled_while_somebody_closes_is_cancelled(turns: int) -> None:
    """It would be told that the client is closed, and go on."""

    async def scenario(stage: Stage) -> None:
        producer: Producer = stage.client(Producer)
        with stage.bent(silence(METADATA)):
            asking = asyncio.create_task(producer.partitions_for("t"))
            await asyncio.sleep(0.1)
            closing = asyncio.create_task(producer.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            is_cancelled = asking.cancel()
            await closing
        [ended] = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError if is_cancelled else ClientClosed)

    play(scenario)


def cancel_all_tasks() -> None:
    """As many programs do on a signal; not the test and its brokers, though."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if getattr(task.get_coro(), "__name__", "") != "tick":
            task.cancel()


async def read_all(consumer: Consumer, found: dict[TopicPartition, list[int]]) -> None:
    while sum(map(len, found.values())) < 80:
        for partition, records in (await consumer.getmany(timeout_ms=500)).items():
            found.setdefault(partition, []).extend(each.offset for each in records)


@pytest.mark.parametrize("after_s", [0, 0.001, 0.01, 0.05, 0.1, 0.5, 1, 3.5])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_program_that_cancels_all_tasks_can_read_on(protocol: str, after_s: float) -> None:
    """Its member sends no heartbeats, or waits for a rebalance or a fetch that is over."""

    async def scenario(stage: Stage) -> None:
        told = Told()
        consumer: Consumer = stage.member(protocol, enable_auto_commit=False)
        consumer.subscribe(["t"], listener=told)
        found: dict[TopicPartition, list[int]] = {}
        reading = asyncio.create_task(read_all(consumer, found))
        await asyncio.sleep(after_s)
        cancel_all_tasks()
        await asyncio.wait([reading])
        async with asyncio.timeout(60):
            await read_all(consumer, found)
        assert found == {each: list(range(20)) for each in ALL}
        # Longer than a session, which ends without heartbeats.
        assert await consumer.getmany(timeout_ms=9_000) == {}
        await consumer.commit()
        assert told.gone == []
        async with asyncio.timeout(20):
            await consumer.close()

    play(scenario)


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
@pytest.mark.parametrize("kind", [Admin, Consumer, Producer, ShareConsumer])
def test_a_program_that_cancels_all_tasks_while_it_closes_can_close(kind: type, turns: int) -> None:
    """The second call would be told that somebody had cancelled it, and the client stay open."""

    async def scenario(stage: Stage) -> None:
        stage.bends.append(silence(SHARE_HEARTBEAT))
        is_reader = kind in (Consumer, ShareConsumer)
        client = stage.client(kind, **({"group_id": "closing"} if is_reader else {}))
        if is_reader:
            client.subscribe(["t"])
            await client.getmany(timeout_ms=100)
        else:
            await client.start()
        closing = asyncio.create_task(client.close())
        for _ in range(turns + 1):
            await asyncio.sleep(0)
        cancel_all_tasks()
        await asyncio.wait([closing])
        async with asyncio.timeout(40):
            await client.close()
        assert not stage.network.connections

    play(scenario)


class Slow(Told):
    """A listener that takes its time."""

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0.05)
        self.told.append(("revoked", partitions))


NEXT: dict[str, Callable[[Consumer], Awaitable[object]]] = {
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "getmany": lambda consumer: consumer.getmany(timeout_ms=5_000),
}


@pytest.mark.parametrize("after_s", [0, 0.001, 0.02, 0.05, 0.08, 0.12])
@pytest.mark.parametrize("next_call", NEXT)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_program_that_cancels_all_tasks_while_it_leaves_can_leave(
    protocol: str, next_call: str, after_s: float
) -> None:
    """It would be told that its consumer is closed, or read on what others have by then."""

    async def scenario(stage: Stage) -> None:
        told = Slow()
        consumer: Consumer = stage.member(protocol)
        consumer.subscribe(["t"], listener=told)
        await read(consumer, 80)
        leaving = asyncio.create_task(consumer.unsubscribe())
        while consumer._subscription._leaving is None:
            await asyncio.sleep(0)
        if after_s:
            await asyncio.sleep(after_s)
        cancel_all_tasks()
        await asyncio.wait([leaving])
        async with asyncio.timeout(60):
            await NEXT[next_call](consumer)
            assert consumer.assignment() == frozenset()
            assert told.gone[-1] == ("revoked", ALL)
            assert {
                each: stage.brokers.world.committed(GROUP)[each] for each in ALL
            } == dict.fromkeys(ALL, 20)
            consumer.subscribe(["t"], listener=told)
            async with stage.member(protocol) as other:
                other.subscribe(["t"])
                while len(other.assignment()) != 2:
                    await asyncio.gather(
                        *(each.getmany(timeout_ms=100) for each in (consumer, other))
                    )
            await consumer.close()

    play(scenario)


class Unending(Told):
    """A listener that cleans up for long after it was cancelled."""

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.shield(asyncio.sleep(50))
            self.told.append(("revoked", partitions))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_closing_waits_for_no_listener_beyond_its_time(protocol: str) -> None:
    async def scenario(stage: Stage) -> None:
        consumer: Consumer = stage.member(protocol)
        consumer.subscribe(["t"], listener=(told := Unending()))
        await read(consumer, 5)
        assert 2 <= await closed_in_s(consumer, 2_000) < 3
        await asyncio.sleep(60)
        assert told.gone == [("revoked", ALL)]

    play(scenario)


@pytest.mark.parametrize("turns", range(12))
def test_a_sharing_member_finds_its_topics_though_all_tasks_were_cancelled(turns: int) -> None:
    """It would never ask again where they are."""

    async def scenario(stage: Stage) -> None:
        heartbeat = {"member_id": "m", "member_epoch": 1, "heartbeat_interval_ms": 1_000}
        with stage.bent(answering(SHARE_HEARTBEAT, heartbeat)):
            async with stage.client(ShareConsumer, group_id="sharing", topics=["t"]) as consumer:
                await consumer.start()
                reading = asyncio.create_task(consumer.getmany(timeout_ms=5_000))
                for _ in range(turns):
                    await asyncio.sleep(0)
                cancel_all_tasks()
                await asyncio.wait([reading])
                await consumer.getmany(timeout_ms=5_000)
                assert "t" in consumer._cluster.metadata.topics

    play(scenario)


def test_a_sharing_member_goes_on_though_all_tasks_were_cancelled() -> None:
    """Without heartbeats its coordinator would take it for dead, and give it nothing."""

    async def scenario(stage: Stage) -> None:
        heartbeat = {"member_id": "m", "member_epoch": 1, "heartbeat_interval_ms": 1_000}
        with stage.bent(answering(SHARE_HEARTBEAT, heartbeat)):
            async with stage.client(ShareConsumer, group_id="sharing") as consumer:
                consumer.subscribe(["t"])
                await consumer.getmany(timeout_ms=100)
                cancel_all_tasks()
                await asyncio.sleep(0.1)
                before = stage.count(SHARE_HEARTBEAT)
                await consumer.getmany(timeout_ms=5_000)
                assert stage.count(SHARE_HEARTBEAT) > before

    play(scenario)
