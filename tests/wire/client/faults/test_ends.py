"""Clients that are closed, left or cut off while somebody waits, and brokers that stay silent.

A waiting call is told, in the time that the settings say; none waits for ever, and nothing that was
begun is left behind. The time limits of silent brokers' requests are hours here: a wait for one of
those fails with its test.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from tests.deadlines import deadline_s
from tests.wire.client.consuming import fill, keep_reading, read, until
from tests.wire.client.faults.lies import LyingProxy, behind, refusal, silence
from tests.wire.client.faults.test_cancellation import assert_nothing_is_left, sockets

import odradek
from odradek.client import Admin, Consumer, Producer
from odradek.client.aio.admin.base import AdminBase
from odradek.client.aio.producing.sender import Sender
from odradek.client.apis import (
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    LEAVE_GROUP,
    METADATA,
    OFFSET_COMMIT,
)
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.errors import (
    ClientClosed,
    FencedInstance,
    KafkaError,
    NetworkError,
    UsageError,
)
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

Run = Callable[[Coroutine[Any, Any, None]], None]
FOR_EVER = 1_000_000
HOURS_MS = 10_000_000
ONE = TopicPartition("t", 0)


async def in_time(scenario: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(deadline_s(60)):
        await scenario


async def forever(consumer: Consumer) -> None:
    """Reads until something is raised."""
    while True:
        await consumer.getmany(timeout_ms=200)


# --- a producer ---------------------------------------------------------------------------------


def test_send_that_waits_for_room_is_told_that_the_producer_closed(run: Run) -> None:
    """Its record would go where nobody sends any more, and its future never be done."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            settings = {"buffer_memory": 3_000, "delivery_timeout_ms": 60_000}
            producer = Producer(broker.bootstrap_servers, **settings)
            await producer.partitions_for("t")
            with broker.pause():
                held = [await producer.send("t", b"x" * 1000) for _ in range(2)]
                waiting = asyncio.create_task(producer.send("t", b"x" * 1000))
                while not producer._hurried:
                    await asyncio.sleep(0)
                await producer.close(timeout_ms=100)
                with pytest.raises(ClientClosed):
                    await waiting
            assert all(isinstance(each.exception(), KafkaError) for each in held)

    run(in_time(scenario()))


def test_a_silent_broker_costs_a_producer_no_more_than_its_settings_say(run: Run) -> None:
    async def scenario() -> None:
        async with behind(LyingProxy(METADATA, silence, FOR_EVER)) as servers:
            settings = {"request_timeout_ms": HOURS_MS, "delivery_timeout_ms": 2 * HOURS_MS}
            async with Producer(servers, max_block_ms=100, **settings) as producer:
                with pytest.raises(KafkaError) as caught:
                    await producer.send("t", b"v")
                assert caught.value.retriable
        async with behind(LyingProxy(INIT_PRODUCER_ID, silence, FOR_EVER)) as servers:
            settings = {"request_timeout_ms": 200, "delivery_timeout_ms": 300, "linger_ms": 0}
            async with Producer(servers, max_block_ms=HOURS_MS, **settings) as producer:
                with pytest.raises(KafkaError) as caught:
                    await producer.send_and_wait("t", b"v")
                assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT

    run(in_time(scenario()))


def test_a_sender_that_fails_begins_anew(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours costs the records that were there, and none of those that come."""
    prepare = Sender._preparation
    mistakes = [RuntimeError("a mistake")]

    def mistaken(self: Sender, ready: list[TopicPartition]) -> Awaitable[None] | None:
        if mistakes:
            raise mistakes.pop()
        return prepare(self, ready)

    monkeypatch.setattr(Sender, "_preparation", mistaken)

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            async with Producer(broker.bootstrap_servers) as producer:
                with pytest.raises(KafkaError, match="a mistake"):
                    await producer.send_and_wait("t", b"0")
                assert (await producer.send_and_wait("t", b"1")).offset == 0

    run(in_time(scenario()))


# --- a consumer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_whoever_reads_while_the_consumer_is_closed_is_told(run: Run, protocol: str) -> None:
    async def iterate(consumer: Consumer, into: list[ConsumerRecord]) -> None:
        async for record in consumer:
            into.append(record)  # noqa: PERF401 - they are looked at meanwhile

    async def scenario() -> None:
        before = sockets()
        async with odradek.Broker() as broker:
            await fill(broker.bootstrap_servers, "t", [3])
            settings = {"auto_offset_reset": "earliest", "group_protocol": protocol}
            for ends in (1, 2, 3):
                found: list[ConsumerRecord] = []
                consumer = Consumer(broker.bootstrap_servers, group_id=f"g{ends}", **settings)
                consumer.subscribe(["t"])
                reader = asyncio.create_task(iterate(consumer, found))
                # Before, in the midst of, and after joining.
                if ends > 1:
                    await until(lambda c=consumer, n=ends, f=found: len(f) >= (3 if n == 3 else 0))
                await consumer.close()
                await reader
                with pytest.raises(ClientClosed):
                    await consumer.getmany(timeout_ms=HOURS_MS)
        await assert_nothing_is_left(before)

    run(in_time(scenario()))


@pytest.mark.parametrize(
    ("protocol", "silent"),
    [
        ("classic", LEAVE_GROUP),
        ("classic", OFFSET_COMMIT),
        ("consumer", CONSUMER_GROUP_HEARTBEAT),
    ],
)
def test_closing_does_not_wait_for_a_silent_coordinator(
    run: Run, protocol: str, silent: Any
) -> None:
    """And the callback of a commit that has no answer comes all the same."""
    told: list[KafkaError | None] = []

    async def scenario() -> None:
        before = sockets()
        proxy = LyingProxy(silent, silence, 0)
        async with behind(proxy) as servers:
            async with Producer(servers) as producer:
                await producer.send_and_wait("t", b"v")
            consumer = Consumer(
                servers,
                group_id="g",
                group_protocol=protocol,
                auto_offset_reset="earliest",
                request_timeout_ms=HOURS_MS,
                default_api_timeout_ms=HOURS_MS,
            )
            consumer.subscribe(["t"])
            await read(consumer, 1)
            proxy.left = FOR_EVER
            consumer.commit_async(callback=lambda _, error: told.append(error))
            await consumer.close(timeout_ms=200)
        await assert_nothing_is_left(before)

    run(in_time(scenario()))
    assert len(told) == 1
    assert isinstance(told[0], ClientClosed) == (silent is OFFSET_COMMIT)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_cancelled_unsubscribe_goes_on(run: Run, protocol: str) -> None:
    """A member whose heartbeats have ended, and who believes itself a member, reads no more."""

    async def scenario() -> None:
        proxy = LyingProxy(LEAVE_GROUP, silence, 0)
        async with behind(proxy) as servers:
            async with Producer(servers) as producer:
                await producer.send_and_wait("t", b"v")
            settings = {"group_id": "g", "group_protocol": protocol, "enable_auto_commit": False}
            async with Consumer(servers, auto_offset_reset="earliest", **settings) as consumer:
                consumer.subscribe(["t"])
                await read(consumer, 1)
                leaving = asyncio.create_task(consumer.unsubscribe())
                await asyncio.sleep(0)
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
                assert leaving.cancelled()
                with pytest.raises(UsageError, match="still being left"):
                    consumer.subscribe(["t"])
                await consumer.unsubscribe()
                assert consumer.subscription() == consumer.assignment() == frozenset()
                consumer.subscribe(["t"])
                await read(consumer, 1)

    run(in_time(scenario()))


def test_callbacks_of_commits_come_whatever_others_raise(run: Run) -> None:
    told: list[str] = []

    def failing(_: object, error: object) -> None:
        told.append("failing")
        raise ZeroDivisionError

    async def scenario() -> None:
        async with odradek.Broker() as broker:
            await fill(broker.bootstrap_servers, "t", [1])
            async with Consumer(broker.bootstrap_servers, group_id="g") as consumer:
                consumer.assign([ONE])
                consumer.commit_async({ONE: 1}, callback=lambda *_: told.append("first"))
                # A later commit that is waited for comes after it, and so does its callback.
                await consumer.commit({ONE: 1})
                assert told == ["first"]
                consumer.commit_async({ONE: 1}, callback=failing)
                consumer.commit_async({ONE: 1}, callback=lambda *_: told.append("second"))
                with pytest.raises(ZeroDivisionError):
                    await consumer.getmany(timeout_ms=HOURS_MS)
                while "second" not in told:
                    await consumer.getmany(timeout_ms=50)
                # What cannot be written is an error of its own, and its callback comes, too.
                odd: Any = CommittedOffset(1, metadata=object())  # type: ignore[arg-type]
                consumer.commit_async({ONE: odd}, callback=lambda _, e: told.append(str(e)))
                consumer.commit_async({ONE: 1}, callback=failing)
                consumer.commit_async({ONE: 1}, callback=lambda *_: told.append("last"))

    run(in_time(scenario()))
    assert told[:3] == ["first", "failing", "second"]
    assert "the commit failed" in told[3]
    assert told[4:] == ["failing", "last"]


def test_who_reads_one_by_one_hands_over_before_all_was_given_out(run: Run) -> None:
    """The others of a group would wait for hundreds of records to be dealt with, and whoever takes
    long for each would be thrown out of it as if it did not read."""

    async def scenario() -> None:
        async with odradek.Broker() as broker:
            servers = broker.bootstrap_servers
            await fill(servers, "t", [400, 400])
            settings: dict[str, object] = {
                "group_id": "g",
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 20,
                "max_poll_records": 10_000,
                "max_poll_interval_ms": 2_000,
            }
            found: list[ConsumerRecord] = []
            async with (
                Consumer(servers, **settings) as one,
                Consumer(servers, **settings) as two,
            ):
                one.subscribe(["t"])
                first = [await one.getone() for _ in range(10)]
                two.subscribe(["t"])
                other = asyncio.create_task(keep_reading(two, found))
                while not two.assignment():
                    first.append(await one.getone())
                    await asyncio.sleep(0.02)
                assert len(first) < 400, "one half of it was held back"
                rest = asyncio.create_task(keep_reading(one, first))
                await until(lambda: len(first) + len(found) >= 800)
                for task in (rest, other):
                    task.cancel()
                await asyncio.gather(rest, other, return_exceptions=True)
            places = sorted((each.partition, each.offset) for each in (*first, *found))
            assert places == [(p, o) for p in (0, 1) for o in range(400)]

    run(in_time(scenario()))


def test_a_member_that_another_replaces_is_told(run: Run) -> None:
    """Two with the same `group.instance.id` would take turns for ever."""

    async def scenario() -> None:
        proxy = LyingProxy(HEARTBEAT, refusal(ErrorCode.FENCED_INSTANCE_ID), 1)
        async with behind(proxy) as servers:
            settings = {"group_id": "g", "group_instance_id": "i", "heartbeat_interval_ms": 50}
            async with Consumer(servers, **settings) as consumer:
                consumer.subscribe(["t"])
                with pytest.raises(FencedInstance):
                    await forever(consumer)
                assert consumer.assignment() == frozenset()

    run(in_time(scenario()))


# --- an admin -----------------------------------------------------------------------------------


def test_an_item_that_an_answer_leaves_out_is_an_error(run: Run) -> None:
    class Forgetful(AdminBase):
        async def ask(self) -> dict[str, int | KafkaError]:
            async def attempt(_: list[str]) -> dict[str, int | KafkaError]:
                return {"a": 1}

            return await self._retrying(["a", "b"], attempt)

    async def scenario() -> None:
        async with Forgetful("127.0.0.1:1", default_api_timeout_ms=50) as admin:
            found = await admin.ask()
            assert found["a"] == 1
            assert isinstance(found["b"], NetworkError)

    run(in_time(scenario()))


def test_a_silent_broker_costs_an_admin_no_more_than_its_settings_say(run: Run) -> None:
    async def scenario() -> None:
        async with behind(LyingProxy(METADATA, silence, FOR_EVER)) as servers:
            settings = {"request_timeout_ms": HOURS_MS, "default_api_timeout_ms": 100}
            async with Admin(servers, **settings) as admin:
                with pytest.raises(KafkaError) as caught:
                    await admin.list_topics()
                assert caught.value.retriable

    run(in_time(scenario()))
