"""Cancelling a call, wherever it waits, loses no task, no socket and no record.

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
from odradek.client.core.admin_types import (
    CommittedOffset,
    ConfigChange,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from odradek.client.core.groups.group_metadata import GroupMetadata
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
            await consumer.commit()  # the last one may have been what was cancelled
            assert seen == [b"%d" % number for number in range(RECORDS)], f"cancelled at {wait}"
            committed = await consumer.committed([TopicPartition(topic, 0)])
            assert [each.offset for each in committed.values() if each] == [RECORDS]
            await consumer.close()
            await assert_nothing_is_left(before)
        assert wait > 5, "it was cancelled here and there"

    run(scenario())


def test_writers(bootstrap: str, topic: str, names: Callable[[str], str], run: Run) -> None:
    """Acknowledged records are there, none is there twice, and they are in order."""

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


def test_every_other_call_of_a_consumer(
    bootstrap: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    async def scenario() -> None:
        await fill(bootstrap, topic)
        before = sockets()
        one = TopicPartition(topic, 0)
        wait = 0
        goes_on = True
        while goes_on:
            wait += 1
            settings = {"group_id": names("group"), "auto_offset_reset": "earliest"}
            async with Consumer(bootstrap, heartbeat_interval_ms=100, **settings) as consumer:

                async def use(consumer: Consumer = consumer) -> None:
                    await consumer.unsubscribe()
                    assert (await consumer.end_offsets([one])) == {one: RECORDS}
                    assert (await consumer.beginning_offsets([one])) == {one: 0}
                    assert (await consumer.offsets_for_times({one: 0}))[one] is not None
                    assert len((await consumer.partitions_for(topic)).partitions) == 1
                    consumer.assign([one])
                    await consumer.seek_to_end()
                    assert await consumer.position(one) == RECORDS
                    await consumer.seek_to_beginning(one)
                    assert (await consumer.getone()).offset == 0
                    consumer.commit_async()
                    columns: int = 0
                    while columns < RECORDS - 1:
                        found = await consumer.getmany(timeout_ms=5000, columns=True)
                        columns += sum(each.row_count for each in found.values())
                    assert await consumer.position(one) == RECORDS
                    consumer.assign([])
                    consumer.subscribe([topic])
                    # All of it may have been read and committed before: no record ends the wait.
                    while not consumer.assignment():
                        await consumer.getmany(timeout_ms=50)
                    await consumer.unsubscribe()

                goes_on = await cancel(use, wait)
                await use()
            await assert_nothing_is_left(before)
        assert wait > 10, "it was cancelled here and there"

    run(scenario())


def test_transactions(bootstrap: str, topic: str, names: Callable[[str], str], run: Run) -> None:
    """Each is committed once, whole, or not at all, when whoever is cancelled does what the
    documentation says: aborts, and commits again what it was about to commit."""

    async def scenario() -> None:
        before = sockets()
        wait = 0
        goes_on = True
        while goes_on:
            wait += 1
            name, group = names(topic), names("group")
            one = TopicPartition(name, 0)
            producer = Producer(bootstrap, transactional_id=names("id"), linger_ms=0)
            reached: list[str] = []

            async def write(
                producer: Producer = producer,
                reached: list[str] = reached,
                one: TopicPartition = one,
                group: str = group,
            ) -> None:
                reached.append("init")
                await producer.init_transactions()
                reached.append("open")
                producer.begin_transaction()
                await producer.send(one.topic, b"0", partition=0)
                await producer.send_offsets_to_transaction(
                    {one: CommittedOffset(1)}, GroupMetadata(group)
                )
                await producer.send_and_wait(one.topic, b"1", partition=0)
                reached.append("commit")
                await producer.commit_transaction()
                reached.append("done")

            goes_on = await cancel(write, wait)
            if reached[-1] == "init":
                await write()
            elif reached[-1] == "open":
                await producer.abort_transaction()
                async with producer.transaction():
                    await producer.send(name, b"0", partition=0)
                    await producer.send_offsets_to_transaction(
                        {one: CommittedOffset(1)}, GroupMetadata(group)
                    )
                    await producer.send(name, b"1", partition=0)
            elif reached[-1] == "commit":
                await producer.commit_transaction()
            async with producer.transaction():
                await producer.send(name, b"2", partition=0)
            await producer.close()
            await assert_nothing_is_left(before)
            settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
            async with Consumer(bootstrap, group_id=group, **settings) as consumer:
                consumer.assign([one])
                await consumer.seek_to_beginning()
                found: list[bytes] = []
                while b"2" not in found:
                    records = await consumer.getmany(timeout_ms=5000)
                    found += [each.value for each in records.get(one, ())]
                assert found == [b"0", b"1", b"2"], f"cancelled at {wait}, {reached}"
                committed = (await consumer.committed([one]))[one]
                assert committed is not None
                assert committed.offset == 1, f"cancelled at {wait}, {reached}"
        assert wait > 5, "it was cancelled here and there"

    run(scenario())


def test_an_abort_that_is_cancelled(
    bootstrap: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    """After another abort the next transaction has nothing of the first."""

    async def scenario() -> None:
        wait = 0
        goes_on = True
        while goes_on:
            wait += 1
            name = names(topic)
            settings = {"transactional_id": names("id"), "linger_ms": 0}
            async with Producer(bootstrap, **settings) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await producer.send_and_wait(name, b"never", partition=0)
                await producer.send(name, b"nor this", partition=0)
                goes_on = await cancel(producer.abort_transaction, wait)
                if goes_on:
                    await producer.abort_transaction()
                async with producer.transaction():
                    await producer.send(name, b"1", partition=0)
            reading = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
            async with Consumer(bootstrap, **reading) as consumer:
                one = TopicPartition(name, 0)
                consumer.assign([one])
                found = await consumer.getmany(timeout_ms=5000)
                assert [each.value for each in found[one]] == [b"1"]
        assert wait > 1, "it was cancelled here and there"

    run(scenario())


def test_every_other_call_of_an_admin(
    bootstrap: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    async def scenario() -> None:
        before = sockets()
        wait = 0
        goes_on = True
        while goes_on:
            wait += 1
            name, group = names(topic), names("group")
            one, resource = TopicPartition(name, 0), ConfigResource.topic(name)
            async with Admin(bootstrap) as admin:

                async def ask(
                    admin: Admin = admin,
                    name: str = name,
                    group: str = group,
                    one: TopicPartition = one,
                    resource: ConfigResource = resource,
                ) -> None:
                    await admin.create_topics([NewTopic(name, 1)])
                    await admin.create_partitions({name: NewPartitions(2)})
                    assert len((await admin.describe_topics([name]))[name].partitions) == 2
                    await admin.alter_configs({resource: [ConfigChange("retention.ms", "60000")]})
                    found = (await admin.describe_configs([resource]))[resource]
                    assert found["retention.ms"].value == "60000"
                    await admin.alter_group_offsets(group, {one: CommittedOffset(0)})
                    assert (await admin.list_group_offsets([group]))[group]
                    await admin.describe_groups([group])
                    assert one in await admin.list_offsets({one: -1})
                    await admin.delete_records({one: 0})
                    await admin.elect_leaders(partitions=[one])
                    await admin.describe_log_dirs()
                    await admin.describe_producers([one])
                    await admin.describe_cluster()
                    await admin.list_transactions()

                goes_on = await cancel(ask, wait)
                await ask()
                deleted = await admin.delete_group_offsets(group, [one])
                assert deleted == {one: None}
                assert (await admin.delete_topics([name])) == {name: None}
            await assert_nothing_is_left(before)
        assert wait > 10, "it was cancelled here and there"

    run(scenario())
