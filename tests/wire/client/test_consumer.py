"""The consumer against brokers. If these fail, records are missed, repeated or given twice."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.records.test_columnar import seen
from tests.wire.client.consuming import fill, read, write
from tests.wire.client.test_producer import make, make_anew

import odradek
from odradek.client import Consumer, Producer
from odradek.client.aio.consuming.handout import Records
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.errors import BadRecord, NoOffsetForPartition, OffsetOutOfRange, UsageError
from odradek.model import TopicPartition

Run = Callable[[Any], Any]


def test_assigned_partitions_are_read_from_where_one_says(
    servers: str, topic: str, run: Run
) -> None:
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def scenario() -> None:
        await fill(servers, topic, [700, 40], compression_type="zstd", batch_size=2000)
        async with Consumer(servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([one, two])
            records = await read(consumer, 740)
            for partition, size in ((0, 700), (1, 40)):
                mine = [each for each in records if each.partition == partition]
                assert [each.value for each in mine] == [b"%d" % n for n in range(size)]
                assert [each.offset for each in mine] == list(range(size))
            assert await consumer.position(one) == 700
            assert consumer.lag(one) == 0
            consumer.seek(one, 690)
            assert [each.offset for each in await read(consumer, 10)] == list(range(690, 700))
            await consumer.seek_to_beginning(two)
            consumer.pause(one)
            assert len((await consumer.getmany(two, timeout_ms=5000, max_records=3))[two]) == 3
            assert await consumer.position(two) == 3
            await consumer.seek_to_end()
            assert await consumer.position(two) == 40
            assert await consumer.getmany(timeout_ms=0) == {}
            assert await consumer.beginning_offsets([one, two]) == {one: 0, two: 0}
            assert await consumer.end_offsets([one, two]) == {one: 700, two: 40}
            times = await consumer.offsets_for_times({one: 1_000_007, two: 2_000_000})
            assert times[one] is not None
            assert times[one].offset == 7
            assert times[two] is None

    run(scenario())


def test_columns_hold_the_same_records(servers: str, topic: str, run: Run) -> None:
    one = TopicPartition(topic, 0)

    async def scenario() -> None:
        await fill(servers, topic, [50], batch_size=300)
        async with Consumer(servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([one])
            consumer.seek(one, 7)
            rows, data = 0, b""
            while rows < 43:
                columns = (await consumer.getmany(timeout_ms=5000, columns=True))[one]
                assert columns.value is not None
                rows += columns.row_count
                data += columns.value.data
            assert data == b"".join(b"%d" % number for number in range(7, 50))
            assert await consumer.position(one) == 50

    run(scenario())


def test_columns_with_views_show_the_same_values(servers: str, topic: str, run: Run) -> None:
    one = TopicPartition(topic, 0)
    values = [b"short", b"longer than what a view has room for", b""] * 10

    async def scenario() -> None:
        await make(servers, topic, 1)
        async with Producer(servers) as producer:
            await producer.send_many(topic, values, partition=0)
        async with Consumer(servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([one])
            found: list[bytes | None] = []
            while len(found) < len(values):
                columns = (await consumer.getmany(timeout_ms=5000, columns=True, views=True))[one]
                assert columns.value is None
                assert columns.value_views is not None
                found += seen(columns.value_views, columns.row_count)
            assert found == values

    run(scenario())


def test_where_to_begin_is_a_policy(servers: str, topic: str, run: Run) -> None:
    one = TopicPartition(topic, 0)

    async def scenario() -> None:
        await fill(servers, topic, [5])
        for policy, expected in (("latest", 5), ("earliest", 0), ("by_duration:PT1H", 5)):
            async with Consumer(servers, auto_offset_reset=policy) as consumer:
                consumer.assign([one])
                assert await consumer.position(one) == expected
                consumer.seek(one, 99)
                while await consumer.position(one) == 99:
                    await asyncio.sleep(0.02)
                assert await consumer.position(one) == expected
        async with Consumer(servers, auto_offset_reset="none") as consumer:
            consumer.assign([one])
            with pytest.raises(NoOffsetForPartition):
                await consumer.getmany(timeout_ms=5000)
            consumer.seek(one, 99)
            with pytest.raises(OffsetOutOfRange):
                await consumer.getmany(timeout_ms=5000)
            consumer.seek(one, 4)
            assert [each.offset for each in await read(consumer, 1)] == [4]

    run(scenario())


def test_a_record_that_cannot_be_read_is_told_and_can_be_passed(
    bootstrap: str, topic: str, run: Run
) -> None:
    one = TopicPartition(topic, 0)

    def only_even(data: bytes) -> int:
        if int(data) == 3:
            raise ValueError("three")
        return int(data)

    async def scenario() -> None:
        await fill(bootstrap, topic, [6])
        settings = {"auto_offset_reset": "earliest"}
        async with Consumer(bootstrap, value_deserializer=only_even, **settings) as consumer:
            consumer.assign([one])
            assert [each.value for each in await read(consumer, 3)] == [0, 1, 2]
            for _ in range(2):
                with pytest.raises(BadRecord, match="three") as caught:
                    await consumer.getmany(timeout_ms=5000)
            assert (caught.value.partition, caught.value.offset) == (one, 3)
            consumer.seek(one, 4)
            assert [each.value for each in await read(consumer, 2)] == [4, 5]

    run(scenario())


class Schemas:
    """Finds what it needs by topic and headers, as a registry's client does."""

    def deserialize(
        self, topic: str, headers: list[tuple[str, bytes | None]], data: bytes, /
    ) -> tuple[object, ...]:
        if dict(headers).get("schema") is None:
            raise ValueError("no schema")
        return topic, dict(headers)["schema"], data


def test_a_deserializer_may_know_topic_and_headers(bootstrap: str, topic: str, run: Run) -> None:
    """As Kafka's own does; a registry's would have nothing to find a schema by. Nothing is made of
    a value that is none."""

    async def scenario() -> None:
        async with Producer(bootstrap) as producer:
            for value in (b"v", None):
                await producer.send(topic, value, key=b"k", headers={"schema": b"7"})
            await producer.send(topic, b"w")
        settings = {"auto_offset_reset": "earliest"}
        both = {"key_deserializer": Schemas(), "value_deserializer": Schemas()}
        async with Consumer(bootstrap, **both, **settings) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found = [(each.key, each.value) for each in await read(consumer, 2)]
            key, value = (topic, b"7", b"k"), (topic, b"7", b"v")
            assert found == [(key, value), (key, None)]
            with pytest.raises(BadRecord, match="no schema"):
                await consumer.getone()

    run(scenario())


def test_aborted_records_are_not_read_by_readers_of_committed_ones(
    transactional_servers: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    one = TopicPartition(topic, 0)

    async def scenario() -> None:
        servers = transactional_servers
        await fill(servers, topic, [0])
        async with Producer(servers, transactional_id=names("id"), linger_ms=0) as producer:
            await producer.init_transactions()
            for number in range(6):
                producer.begin_transaction()
                await producer.send_and_wait(topic, b"%d" % number)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
            producer.begin_transaction()
            await producer.send_and_wait(topic, b"open")
            settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
            async with Consumer(servers, **settings) as consumer:
                consumer.assign([one])
                assert [each.value for each in await read(consumer, 3)] == [b"0", b"2", b"4"]
                assert await consumer.getmany(timeout_ms=300) == {}
                assert consumer.lag(one) == 0
                # Six records and their markers, and then one that nobody has decided on.
                assert consumer.last_stable_offset(one) == 12
                assert consumer.highwater(one) == 13
            async with Consumer(servers, auto_offset_reset="earliest") as consumer:
                consumer.assign([one])
                values = [each.value for each in await read(consumer, 7)]
                assert values == [b"0", b"1", b"2", b"3", b"4", b"5", b"open"]

    run(scenario())


def test_a_topic_made_anew_is_read_from_its_beginning(bootstrap: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        await fill(bootstrap, topic, [5])
        settings = {
            "auto_offset_reset": "earliest",
            "metadata_max_age_ms": 100,
            # Else it makes the topic itself, when it asks for it.
            "allow_auto_create_topics": False,
        }
        async with Consumer(bootstrap, **settings) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await read(consumer, 5)
            await make_anew(bootstrap, topic)
            await write(bootstrap, topic, [3])
            assert [each.offset for each in await read(consumer, 3)] == [0, 1, 2]

    run(scenario())


def test_the_next_fetch_is_under_way_before_the_reader_works(run: Run) -> None:
    """Broker and reader would wait for each other by turns, at half the speed of either."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            await fill(broker.bootstrap_servers, "t", [3])
            settings = {"auto_offset_reset": "earliest", "client_id": "me"}
            async with Consumer(broker.bootstrap_servers, **settings) as consumer:
                consumer.assign([TopicPartition("t", 0)])
                # A fault that does nothing, to count by.
                with broker.delay(0, "Fetch", client_id="me") as asked:
                    assert await consumer.getmany(timeout_ms=60_000)
                    # The work of a reader: nothing else runs on its loop meanwhile.
                    for _ in range(6000):
                        if asked.struck >= 2:
                            break
                        time.sleep(0.01)
                    assert asked.struck >= 2

    run(scenario())


def test_who_only_looks_lets_others_work(bootstrap: str, topic: str, run: Run) -> None:
    """A loop around a read that waits for nothing would keep its own answers out."""

    async def scenario() -> None:
        await fill(bootstrap, topic, [1])
        turns = 0

        async def work() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            working = asyncio.create_task(work())
            for _ in range(10):
                await consumer.getmany()
            assert turns >= 10
            while not await consumer.getmany():
                pass
            working.cancel()

    run(scenario())


def test_interceptors_and_wrong_use(bootstrap: str, topic: str, run: Run) -> None:
    seen: list[object] = []

    class Interceptor:
        def on_consume(self, records: Records) -> Records:
            return {each: found[:1] for each, found in records.items()}

        def on_commit(self, offsets: object) -> None:
            seen.append(offsets)
            raise RuntimeError("does not matter")

    async def scenario() -> None:
        await fill(bootstrap, topic, [3])
        one = TopicPartition(topic, 0)
        settings = {"group_id": topic, "auto_offset_reset": "earliest"}
        async with Consumer(bootstrap, interceptors=[Interceptor()], **settings) as consumer:
            consumer.assign([one])
            with pytest.raises(UsageError, match="by hand"):
                consumer.subscribe([topic])
            records = await consumer.getmany(timeout_ms=5000)
            assert len(records[one]) == 1
            await consumer.commit({one: 2})
            with pytest.raises(UsageError, match="not assigned"):
                consumer.seek(TopicPartition(topic, 1), 0)
        async with Consumer(bootstrap) as consumer:
            with pytest.raises(UsageError, match="group"):
                consumer.subscribe([topic])

    run(scenario())
    assert seen[0] == {TopicPartition(topic, 0): CommittedOffset(2)}
