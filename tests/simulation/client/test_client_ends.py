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
    CONSUMER_HEARTBEAT,
    HEARTBEAT,
    METADATA,
    PROTOCOLS,
    TOPIC,
    Stage,
    Told,
    answering,
    play,
    read,
    silence,
)

from odradek.client import Admin, Consumer, Producer, ShareConsumer
from odradek.client.errors import ClientClosed
from odradek.errors import ErrorCode
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
        has_ended = closing.done()
        cancel_all_tasks()
        await asyncio.wait([closing])
        assert has_ended or closing.cancelled(), "it was told to end, and not only its work was"
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


class CutShort(Told):
    """A listener whose first call of a kind is still under way when all tasks are cancelled."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.begun = asyncio.Event()

    async def _hang(self, name: str) -> None:
        if name == self.name and not self.begun.is_set():
            self.begun.set()
            await asyncio.get_running_loop().create_future()

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._hang("revoked")
        self.told.append(("revoked", partitions))

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        await self._hang("lost")
        self.told.append(("lost", partitions))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_loss_is_told_again_where_the_call_was_cancelled(protocol: str) -> None:
    """The listener would take what is another's by now for its own."""
    key = CONSUMER_HEARTBEAT if protocol == "consumer" else HEARTBEAT
    thrown_out = {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}

    async def scenario(stage: Stage) -> None:
        told = CutShort("lost")
        async with stage.member(protocol, enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            await consumer.getone()
            with stage.bent(answering(key, thrown_out, times=1)):
                reading = asyncio.create_task(read(consumer, 1_000))
                await told.begun.wait()
            cancel_all_tasks()
            await asyncio.wait([reading])
            found = await read(consumer, 80)
            assert found == {each: list(range(20)) for each in ALL}
            assert told.gone == [("lost", ALL)]

    play(scenario)


def test_a_member_gives_up_in_the_end_what_it_was_giving_up_when_all_was_cancelled() -> None:
    """The other one would wait for its share for ever."""

    async def scenario(stage: Stage) -> None:
        told = CutShort("revoked")
        settings = {"enable_auto_commit": False}
        async with (
            stage.member("cooperative-sticky", **settings) as consumer,
            stage.member("cooperative-sticky", **settings) as other,
        ):
            consumer.subscribe([TOPIC], listener=told)
            await read(consumer, 80)
            other.subscribe([TOPIC])
            tasks = [
                asyncio.create_task(each.getmany(timeout_ms=60_000)) for each in (consumer, other)
            ]
            await told.begun.wait()
            cancel_all_tasks()
            await asyncio.wait(tasks)
            async with asyncio.timeout(60):
                while len(other.assignment()) < 2:
                    await asyncio.gather(
                        consumer.getmany(timeout_ms=200), other.getmany(timeout_ms=200)
                    )
            assert not consumer.assignment() & other.assignment()

    play(scenario)


def test_a_member_looks_again_where_its_look_at_the_topics_was_cancelled() -> None:
    """Its new topics would not be read before `metadata.max.age.ms` has passed."""

    async def scenario(stage: Stage) -> None:
        async with stage.member("consumer") as consumer:
            consumer.subscribe(pattern="nothing")
            assert await consumer.getmany(timeout_ms=5_000) == {}
            with stage.bent(silence(METADATA)):
                before = stage.count(METADATA)
                consumer.subscribe(pattern=TOPIC)
                while stage.count(METADATA) == before:
                    await asyncio.sleep(0.1)
                cancel_all_tasks()
                await asyncio.sleep(0.1)
            assert await read(consumer, 80) == {each: list(range(20)) for each in ALL}

    play(scenario)


def test_who_waits_for_records_gets_them_though_all_other_tasks_were_cancelled() -> None:
    """Records would not be fetched before the next read."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL)
            await read(consumer, 80)
            reading = asyncio.create_task(consumer.getone())
            await asyncio.sleep(1)
            for task in asyncio.all_tasks() - {asyncio.current_task(), reading}:
                if getattr(task.get_coro(), "__name__", "") != "tick":
                    task.cancel()
            await asyncio.sleep(1)
            stage.brokers.ends[0] += 1
            async with asyncio.timeout(10):
                assert (await reading).offset == 20

    play(scenario)


def test_a_partition_is_read_though_its_check_was_cancelled_before_it_began() -> None:
    """It would be taken for one that is being checked, for ever."""

    async def scenario(stage: Stage) -> None:
        cancelled = []

        def task_of(loop: asyncio.AbstractEventLoop, work: Any, **given: Any) -> asyncio.Task[Any]:
            task = asyncio.Task(work, loop=loop, **given)
            if "validate" in work.__name__ and not cancelled:
                cancelled.append(task.cancel())
            return task

        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL[:1])
            await read(consumer, 20)
            asyncio.get_running_loop().set_task_factory(task_of)
            stage.brokers.cut_off(0, 12)
            stage.brokers.ends[0] = 25
            assert await read(consumer, 13) == {ALL[0]: list(range(12, 25))}
            assert cancelled == [True]

    play(scenario)
