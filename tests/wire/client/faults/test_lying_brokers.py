"""Brokers that lie: garbage, cut answers, wrong correlation ids, silence, sizes of gigabytes.

A proxy stands before an honest broker and lies a few times about one kind of request. Whatever it
says, the client goes on when the truth comes: every record is written once, and read once.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.deadlines import deadline_s
from tests.wire.client.faults.lies import (
    Lie,
    LyingProxy,
    behind,
    broken_off,
    cut_short,
    garbage,
    gigabytes,
    of_another_question,
    refusal,
    silence,
)

from odradek.client import Admin, Consumer, Producer
from odradek.client.apis import (
    API_VERSIONS,
    CONSUMER_GROUP_HEARTBEAT,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
    ClientApi,
)
from odradek.client.errors import BadRecord, GroupError, KafkaError
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

RECORDS = 12
Run = Callable[[Coroutine[Any, Any, None]], None]


async def in_time(scenario: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(deadline_s(60)):
        await scenario


SLOW = pytest.mark.slow
SETTINGS: dict[str, object] = {
    "request_timeout_ms": 1000,
    "retry_backoff_ms": 10,
    "socket_connection_setup_timeout_ms": 1000,
}


LIES_TOLD = (garbage, cut_short, broken_off, of_another_question, silence, gigabytes)
APIS = (API_VERSIONS, METADATA, PRODUCE, FETCH, FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP)
# What reads these answers is the same for all of them: two lies of each.
MORE_APIS = (
    *(INIT_PRODUCER_ID, LIST_OFFSETS, OFFSET_FETCH, OFFSET_COMMIT),
    *(HEARTBEAT, CONSUMER_GROUP_HEARTBEAT),
)
# What is no lie of its form: a coordinator that has forgotten the member, or is another by now.
REFUSALS = {
    JOIN_GROUP: ("UNKNOWN_MEMBER_ID", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"),
    SYNC_GROUP: ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"),
    HEARTBEAT: ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"),
    CONSUMER_GROUP_HEARTBEAT: ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "NOT_COORDINATOR"),
}
CASES = [
    pytest.param(api, lie, id=f"{api.name}-{lie.__name__}", marks=() if lie is garbage else SLOW)
    for api in (*APIS, *MORE_APIS)
    for lie in (
        *(LIES_TOLD if api in APIS else (garbage, of_another_question)),
        *(refusal(ErrorCode[code]) for code in REFUSALS.get(api, ())),
    )
    # Whoever joins is patient: others may take as long as max.poll.interval.ms.
    if lie is not silence or api not in (JOIN_GROUP, SYNC_GROUP)
]


@pytest.mark.parametrize(("api", "lie"), CASES)
def test_the_client_goes_on_when_the_truth_comes(run: Run, api: ClientApi, lie: Lie) -> None:
    """Records are doubled, missed or out of order, or a member does not come back."""

    async def scenario() -> None:
        proxy = LyingProxy(api, lie)
        async with behind(proxy) as servers:
            async with Producer(servers, linger_ms=0, **SETTINGS) as producer:
                for number in range(RECORDS):
                    await producer.send(topic="t", value=b"%d" % number)
                await producer.flush()
            more = {
                "group_id": "g",
                "group_protocol": "consumer" if api is CONSUMER_GROUP_HEARTBEAT else "classic",
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 100,
                # Who joined, and was lied to about it, is a member that nobody hears of again.
                "session_timeout_ms": 1000,
            }
            async with Consumer(servers, **SETTINGS, **more) as consumer:
                consumer.subscribe(["t"])
                seen: list[int] = []
                # A heartbeat may be lied about only after everything was read.
                while len(seen) < RECORDS or (proxy.left and api is not OFFSET_COMMIT):
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        seen += [int(each.value) for each in records]
                await commit_as_a_member(consumer)
            # Who was thrown out before it could commit reads again what it had read.
            assert list(dict.fromkeys(seen)) == list(range(RECORDS))
            assert seen[-RECORDS:] == list(range(RECORDS))
            assert proxy.left == 0, "it has lied"

    run(in_time(scenario()))


async def forever(consumer: Consumer) -> None:
    """Reads until something is raised."""
    while True:
        await consumer.getmany(timeout_ms=200)


async def commit_as_a_member(consumer: Consumer) -> None:
    """Commits, as whoever is told to read again to rejoin does it."""
    while True:
        try:
            await consumer.commit()
            return
        except GroupError:
            await consumer.getmany(timeout_ms=200)


def test_an_admin_goes_on_when_the_truth_comes(run: Run) -> None:
    async def scenario() -> None:
        for lie in (garbage, cut_short, broken_off, of_another_question, gigabytes):
            proxy = LyingProxy(LIST_GROUPS, lie)
            async with behind(proxy) as servers, Admin(servers, **SETTINGS) as admin:
                assert await admin.list_groups() == []
                assert proxy.left == 0, "it has lied"

    run(in_time(scenario()))


def test_an_assignor_that_nobody_knows_is_told_and_the_member_joins_again(run: Run) -> None:
    """A member that stumbles over what the coordinator says reads nothing ever after."""

    def of_another_assignor(frame: bytes) -> bytes:
        return frame.replace(b"range", b"grane")

    async def scenario() -> None:
        proxy = LyingProxy(JOIN_GROUP, of_another_assignor, 2)
        async with (
            behind(proxy) as servers,
            Consumer(
                servers,
                group_id="g",
                auto_offset_reset="earliest",
                partition_assignment_strategy="range",
                session_timeout_ms=1000,
                heartbeat_interval_ms=100,
                **SETTINGS,
            ) as consumer,
        ):
            consumer.subscribe(["t"])
            with pytest.raises(KafkaError, match="grane"):
                await forever(consumer)
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=200)

    run(in_time(scenario()))


def test_a_commit_whose_answer_is_lost_is_made_again(run: Run) -> None:
    async def scenario() -> None:
        proxy = LyingProxy(OFFSET_COMMIT, broken_off)
        one = TopicPartition("t", 0)
        async with (
            behind(proxy) as servers,
            Consumer(servers, group_id="g", **SETTINGS) as consumer,
        ):
            await consumer.commit({one: 7})
            committed = (await consumer.committed([one]))[one]
            assert committed is not None
            assert committed.offset == 7

    run(in_time(scenario()))


def test_a_batch_whose_checksum_is_wrong_is_told_and_can_be_passed(run: Run) -> None:
    def flip_the_last_bit(frame: bytes) -> bytes:
        return frame[:-12] + bytes([frame[-12] ^ 1]) + frame[-11:]

    async def scenario() -> None:
        proxy = LyingProxy(FETCH, flip_the_last_bit, 1)
        async with behind(proxy) as servers:
            async with Producer(servers) as producer:
                for _ in range(2):
                    await producer.send_and_wait("t", b"a value that is long enough")
            async with Consumer(servers, auto_offset_reset="earliest") as consumer:
                one = TopicPartition("t", 0)
                consumer.assign([one])
                found = []

                async def read() -> None:
                    while True:
                        found.extend((await consumer.getmany(timeout_ms=5000)).get(one, []))

                with pytest.raises(BadRecord) as caught:
                    await read()
                assert (caught.value.partition, caught.value.offset) == (one, len(found))
                consumer.seek(one, caught.value.offset)
                while len(found) < 2:
                    found += (await consumer.getmany(timeout_ms=5000)).get(one, [])
                assert [each.offset for each in found] == [0, 1]

    run(in_time(scenario()))


def test_a_broker_that_only_lies_is_an_error_in_time(run: Run) -> None:
    async def scenario() -> None:
        proxy = LyingProxy(METADATA, garbage, 1_000_000)
        async with (
            behind(proxy) as servers,
            Producer(servers, max_block_ms=500, **SETTINGS) as producer,
        ):
            with pytest.raises(KafkaError):
                await producer.send("t", b"v")

    run(in_time(scenario()))
