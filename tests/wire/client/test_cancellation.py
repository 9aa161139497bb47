"""Whoever is cancelled, wherever it waits, loses no task, no socket and no record.

A scenario is run again and again: cancelled where it waits for the first time, for the second, and
so on, until it ends before it could be cancelled. What it was doing is done again after that.
"""

import asyncio
import os
import types
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any

import pytest

from odradek.client import Admin, Consumer, Producer
from odradek.model import TopicPartition

pytestmark = pytest.mark.slow
Run = Callable[[Coroutine[Any, Any, None]], None]
RECORDS = 6


@types.coroutine
def cancelled_at(
    coroutine: Coroutine[Any, Any, None], wait: int, reached: list[int]
) -> Generator[Any, Any, None]:
    """Runs a coroutine, and cancels its task when it waits for the `wait`th time."""
    waits = 0
    send: Callable[[Any], Any] = coroutine.send
    argument: Any = None
    while True:
        try:
            waited = send(argument)
        except StopIteration:
            return
        waits += 1
        if waits == wait:
            reached.append(waits)
            task = asyncio.current_task()
            assert task is not None, "it runs in one"
            task.cancel()
        try:
            argument = yield waited
            send = coroutine.send
        except BaseException as error:  # noqa: BLE001 - it is the coroutine's to handle
            send, argument = coroutine.throw, error


async def cancel(make: Callable[[], Coroutine[Any, Any, None]], wait: int) -> bool:
    """Runs it so; whether it waited that often."""
    reached: list[int] = []
    task = asyncio.create_task(_awaited(cancelled_at(make(), wait, reached)))
    with suppress(asyncio.CancelledError):
        await task
    return bool(reached)


async def _awaited(what: Any) -> None:
    await what


def sockets() -> int:
    """How many sockets this process has."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


async def assert_nothing_is_left(sockets_before: int) -> None:
    """Only this task runs, and no connection is open."""
    for _ in range(100):
        if asyncio.all_tasks() == {asyncio.current_task()} and sockets() <= sockets_before:
            return
        await asyncio.sleep(0.02)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert sockets() <= sockets_before


async def fill(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"%d" % number, partition=0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_readers(
    bootstrap: str, topic: str, names: Callable[[str], str], run: Run, protocol: str
) -> None:
    async def scenario() -> None:
        await fill(bootstrap, topic)
        before = sockets()
        wait = 0
        goes_on = True
        while goes_on:
            wait += 1
            settings = {
                "group_id": names("group"),
                "group_protocol": protocol,
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 100,
            }
            seen: list[bytes] = []
            consumer = Consumer(bootstrap, **settings)
            consumer.subscribe([topic])

            async def read(consumer: Consumer = consumer, seen: list[bytes] = seen) -> None:
                while len(seen) < RECORDS:
                    found = await consumer.getmany(timeout_ms=5000, max_records=2)
                    seen += [each.value for records in found.values() for each in records]
                    await consumer.commit()

            goes_on = await cancel(read, wait)
            await read()
            assert seen == [b"%d" % number for number in range(RECORDS)], f"cancelled at {wait}"
            committed = await consumer.committed([TopicPartition(topic, 0)])
            assert [each.offset for each in committed.values() if each] == [RECORDS]
            await consumer.close()
            await assert_nothing_is_left(before)
        assert wait > 5, "it was cancelled here and there"

    run(scenario())


def test_writers(bootstrap: str, topic: str, names: Callable[[str], str], run: Run) -> None:
    """What was acknowledged is there, nothing is there twice, and in order."""

    async def scenario() -> None:
        before = sockets()
        wait = 0
        goes_on = True
        while goes_on:
            wait += 1
            name = names(topic)
            producer = Producer(bootstrap, linger_ms=0)
            acknowledged: list[int] = []

            async def write(
                name: str = name,
                producer: Producer = producer,
                acknowledged: list[int] = acknowledged,
            ) -> None:
                for number in range(RECORDS):
                    await producer.send_and_wait(name, b"%d" % number, partition=0)
                    acknowledged.append(number)
                await producer.flush()

            goes_on = await cancel(write, wait)
            await producer.send_and_wait(name, b"99", partition=0)
            await producer.close()
            await assert_nothing_is_left(before)
            async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
                one = TopicPartition(name, 0)
                consumer.assign([one])
                found = []
                while not found or found[-1] != 99:
                    records = await consumer.getmany(timeout_ms=5000)
                    found += [int(each.value) for each in records.get(one, ())]
            assert found == sorted(set(found)), f"cancelled at {wait}"
            assert set(acknowledged) <= set(found), f"cancelled at {wait}"
            await assert_nothing_is_left(before)
        assert wait > 5, "it was cancelled here and there"

    run(scenario())


def test_admins_and_ends(bootstrap: str, topic: str, names: Callable[[str], str], run: Run) -> None:
    """Asking goes on after a cancelled question; `close` may be cancelled and called again."""

    async def scenario() -> None:
        await fill(bootstrap, topic)
        before = sockets()
        wait = 0
        goes_on = True
        while goes_on:
            wait += 1
            admin = Admin(bootstrap)

            async def ask(admin: Admin = admin) -> None:
                assert topic in await admin.list_topics()
                await admin.describe_configs([])
                await admin.list_groups()

            goes_on = await cancel(ask, wait)
            await ask()
            consumer = Consumer(bootstrap, group_id=names("group"), auto_offset_reset="earliest")
            consumer.subscribe([topic])
            await consumer.getmany(timeout_ms=5000)
            await cancel(consumer.close, wait)
            await consumer.close()
            await cancel(admin.close, wait)
            await admin.close()
            await assert_nothing_is_left(before)
        assert wait > 2, "it was cancelled here and there"

    run(scenario())
