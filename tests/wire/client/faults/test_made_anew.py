"""Topics that are deleted and made again under our clients: another topic of the same name.

Offsets, sequence numbers and members' shares were of the one before. If these fail, a client goes
on where the old topic was, and passes over records of the new one, or never finds it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.wire.client.consuming import fill, keep_reading, read, until, write
from tests.wire.client.faults.lies import HoldingProxy, behind
from tests.wire.client.test_producer import make_anew

from odradek.client import Admin, Consumer, Producer
from odradek.client.apis import OFFSET_COMMIT
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.errors import KafkaError, OffsetOutOfRange
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

Run = Callable[[Coroutine[Any, Any, None]], None]


async def fill_anew(servers: str, topic: str, counts: list[int]) -> None:
    """Makes a topic anew, with so many records in each partition."""
    await make_anew(servers, topic, len(counts))
    await write(servers, topic, counts)


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_assigned_by_hand(servers: str, topic: str, run: Run, policy: str) -> None:
    one = TopicPartition(topic, 0)

    async def scenario() -> None:
        await fill(servers, topic, [5])
        settings = {
            "auto_offset_reset": policy,
            "metadata_max_age_ms": 100,
            "allow_auto_create_topics": False,
        }
        async with Consumer(servers, **settings) as consumer:
            consumer.assign([one])
            consumer.seek(one, 0)
            await read(consumer, 5)
            # More than there were: the old offset is within the new topic.
            await fill_anew(servers, topic, [9])
            if policy == "none":
                with pytest.raises(OffsetOutOfRange, match="recreated"):
                    await read(consumer, 1)
                consumer.seek(one, 0)
            assert [each.offset for each in await read(consumer, 9)] == list(range(9))

    run(scenario())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_read_by_a_group(
    modern_servers: str, topic: str, names: Callable[[str], str], run: Run, protocol: str
) -> None:
    settings: dict[str, object] = {
        "group_id": names("group"),
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "metadata_max_age_ms": 100,
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 10_000,
        "auto_commit_interval_ms": 50,
        # Else it may be whoever reads that makes it anew, with one partition.
        "allow_auto_create_topics": False,
    }

    async def scenario() -> None:
        await fill(modern_servers, topic, [5, 5])
        found: list[ConsumerRecord] = []
        async with (
            Consumer(modern_servers, **settings) as one,
            Consumer(modern_servers, **settings) as two,
        ):
            one.subscribe([topic])
            two.subscribe([topic])
            readers = [asyncio.create_task(keep_reading(each, found)) for each in (one, two)]
            try:
                await until(lambda: len(found) >= 10)
                found.clear()
                await fill_anew(modern_servers, topic, [9, 9])
                await until(lambda: len({(each.partition, each.offset) for each in found}) >= 18)
            finally:
                for reader in readers:
                    reader.cancel()
                await asyncio.gather(*readers, return_exceptions=True)
        places = {(each.partition, each.offset) for each in found}
        assert places == {(p, o) for p in (0, 1) for o in range(9)}

    run(scenario())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_commit_that_comes_late_is_not_of_the_new_topic(run: Run, protocol: str) -> None:
    """The group would begin in the new topic where it had been in the old one."""

    async def scenario() -> None:
        proxy = HoldingProxy(OFFSET_COMMIT)
        async with behind(proxy) as servers, Admin(servers) as admin:
            await write(servers, "t", [5])
            async with Consumer(
                servers,
                group_id="g",
                group_protocol=protocol,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                allow_auto_create_topics=False,
            ) as consumer:
                consumer.subscribe(["t"])
                await read(consumer, 5)
                committing = asyncio.create_task(consumer.commit())
                await proxy.came.wait()
                await fill_anew(servers, "t", [9])
                proxy.may_pass.set()
                await committing
                assert not (await admin.list_group_offsets(["g"]))["g"]

    run(scenario())


def test_written_to(servers: str, topic: str, run: Run) -> None:
    """A producer goes on in the new topic, with what it could not deliver to the old one."""

    async def scenario() -> None:
        await fill(servers, topic, [0])
        async with Producer(servers, linger_ms=0, retry_backoff_ms=20) as producer:
            for number in range(5):
                assert (await producer.send_and_wait(topic, b"%d" % number)).offset == number
            await fill_anew(servers, topic, [0])
            deliveries = [await producer.send(topic, b"new-%d" % number) for number in range(5)]
            await producer.flush()
            assert [(await each).offset for each in deliveries] == list(range(5))
        async with Consumer(servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            values = [each.value for each in await read(consumer, 5)]
            assert values == [b"new-%d" % number for number in range(5)]

    run(scenario())


def test_a_topic_that_stays_away_fails_its_records_in_time(
    bootstrap: str, topic: str, run: Run
) -> None:
    async def scenario() -> None:
        await fill(bootstrap, topic, [0])
        settings = {"delivery_timeout_ms": 600, "request_timeout_ms": 500, "linger_ms": 0}
        async with Producer(bootstrap, **settings) as producer:
            await producer.send_and_wait(topic, b"v")
            async with Admin(bootstrap) as admin:
                await admin.delete_topics([topic])
            with pytest.raises(KafkaError) as caught:
                await producer.send_and_wait(topic, b"v")
            assert caught.value.code in (
                ErrorCode.REQUEST_TIMED_OUT,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )

    run(scenario())
