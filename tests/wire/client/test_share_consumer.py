"""The share consumer against brokers. If these fail, records of a share group are lost, or handed
out again though they were dealt with."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.deadlines import deadline_s
from tests.wire.client.test_producer import make

import odradek
from odradek.client import (
    AcknowledgeType,
    Admin,
    ConfigChange,
    ConfigResource,
    ConsumerRecord,
    KafkaError,
    Producer,
    ShareConsumer,
    TopicPartition,
    sync,
)
from odradek.client.errors import UsageError
from odradek.errors import ErrorCode

Run = Callable[[Any], Any]
Outcomes = list[tuple[Mapping[TopicPartition, frozenset[int]], KafkaError | None]]


async def fill(servers: str, topic: str, *counts: int) -> None:
    """Makes a topic with so many records in each partition, and a group of its name that begins
    with the first."""
    await make(servers, topic, len(counts))
    await begin_with_the_first(servers, topic)
    await produce(servers, topic, *counts)


async def begin_with_the_first(servers: str, group: str) -> None:
    begin = ConfigChange("share.auto.offset.reset", "earliest")
    async with Admin(servers) as admin:
        await admin.alter_configs({ConfigResource.group(group): [begin]})


async def produce(servers: str, topic: str, *counts: int) -> None:
    async with Producer(servers) as producer:
        for partition, count in enumerate(counts):
            for number in range(count):
                await producer.send(topic, b"%d" % number, partition=partition)


def explicit(servers: str, topic: str, **settings: Any) -> ShareConsumer:
    settings = {"share_acknowledgement_mode": "explicit", **settings}
    return ShareConsumer(servers, group_id=topic, topics=[topic], fetch_max_wait_ms=100, **settings)


async def read(consumer: ShareConsumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        found += [
            each
            for records in (await consumer.getmany(timeout_ms=1000)).values()
            for each in records
        ]
    assert len(found) == count
    return found


def test_records_are_accepted_by_the_next_read(modern_servers: str, topic: str, run: Run) -> None:
    where = TopicPartition(topic, 0)
    outcomes: Outcomes = []

    async def scenario() -> None:
        await fill(modern_servers, topic, 30, 20)
        async with ShareConsumer(modern_servers, group_id=topic, topics=[topic]) as consumer:
            consumer.set_acknowledgement_commit_callback(lambda *told: outcomes.append(told))
            records = await read(consumer, 50)
            assert {each.delivery_count for each in records} == {1}
            of_first = sorted(each.offset for each in records if each.partition == 0)
            assert of_first == list(range(30))
            assert set((await consumer.commit()).values()) <= {None}
            assert consumer.acquisition_lock_timeout_ms == 30_000
            with pytest.raises(UsageError, match="implicit"):
                consumer.acknowledge(records[0])
        told = {offset for offsets, _ in outcomes for offset in offsets.get(where, ())}
        assert told == set(range(30))
        assert {error for _, error in outcomes} == {None}
        await produce(modern_servers, topic, 2)
        async with ShareConsumer(modern_servers, group_id=topic, topics=[topic]) as consumer:
            assert [each.offset for each in await read(consumer, 2)] == [30, 31]

    run(scenario())


def test_no_more_are_acquired_than_a_read_may_return(
    modern_servers: str, topic: str, run: Run
) -> None:
    """By whole batches the second member would get nothing before the first has answered."""

    async def scenario() -> None:
        await fill(modern_servers, topic, 10)
        settings = {"group_id": topic, "share_acquire_mode": "record_limit"}
        async with (
            ShareConsumer(modern_servers, topics=[topic], max_poll_records=3, **settings) as one,
            ShareConsumer(modern_servers, topics=[topic], **settings) as two,
        ):
            found = [*await read(one, 3), *await read(two, 7)]
            assert sorted(each.offset for each in found) == list(range(10))

    run(scenario())


def test_each_record_is_answered_for_itself(modern_servers: str, topic: str, run: Run) -> None:
    """Released records come again and are counted, rejected ones do not; what was renewed is still
    this consumer's."""
    outcomes: Outcomes = []

    async def scenario() -> None:
        await fill(modern_servers, topic, 6)
        async with explicit(modern_servers, topic) as consumer:
            consumer.set_acknowledgement_commit_callback(lambda *told: outcomes.append(told))
            records: list[ConsumerRecord] = []
            while len(records) < 6:
                records.append(await consumer.getone())
            with pytest.raises(UsageError, match="not all records"):
                await consumer.getmany()
            kinds = ("ACCEPT", "RELEASE", "REJECT", "RENEW", "RELEASE", "ACCEPT")
            for record, kind in zip(records, kinds, strict=True):
                consumer.acknowledge(record, AcknowledgeType[kind])
            with pytest.raises(UsageError, match="is answered"):
                consumer.acknowledge(records[0])
            assert await consumer.commit() == {TopicPartition(topic, 0): None}
            again = [await consumer.getone(), await consumer.getone()]
            assert [(each.offset, each.delivery_count) for each in again] == [(1, 2), (4, 2)]
            for record in (records[3], *again):
                consumer.acknowledge(record)
            assert await consumer.commit() == {TopicPartition(topic, 0): None}
        assert {error for _, error in outcomes} == {None}

    run(scenario())


def test_a_block_accepts_its_record_or_releases_it(
    modern_servers: str, topic: str, run: Run
) -> None:
    async def scenario() -> None:
        await fill(modern_servers, topic, 3)
        seen: list[tuple[int, int | None]] = []
        async with explicit(modern_servers, topic) as consumer:
            async for record in consumer:
                try:
                    async with consumer.process(record):
                        seen.append((record.offset, record.delivery_count))
                        if seen[-1] == (1, 1):
                            raise ValueError("not now")
                except ValueError:
                    pass
                if len(seen) == 4:
                    break
            assert seen == [(0, 1), (1, 1), (2, 1), (1, 2)]
        async with explicit(modern_servers, topic) as consumer:
            assert await consumer.getmany(timeout_ms=1500) == {}, "all were accepted on closing"

    run(scenario())


def test_what_is_not_answered_on_closing_is_another_ones(
    modern_servers: str, topic: str, run: Run
) -> None:
    async def scenario() -> None:
        await fill(modern_servers, topic, 5)
        async with explicit(modern_servers, topic) as first, explicit(modern_servers, topic) as two:
            await first.getone()
            waiting = asyncio.create_task(two.getone())
            await asyncio.sleep(0)
            await first.close()
            record = await waiting
            assert (record.offset, record.delivery_count) == (0, 2)
            two.acknowledge(record, AcknowledgeType.REJECT)

    run(scenario())


def test_bad_use_is_told(bootstrap: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(UsageError, match=r"group\.id"):
            ShareConsumer(bootstrap)
        with pytest.raises(ValueError, match="isolation_level"):
            ShareConsumer(bootstrap, group_id="g", isolation_level="read_committed")
        async with ShareConsumer(bootstrap, group_id=topic) as consumer:
            with pytest.raises(UsageError, match="no topic"):
                await consumer.getmany()
            with pytest.raises(UsageError, match="no topic"):
                consumer.subscribe([])
            consumer.subscribe(["not there " + topic])
            with pytest.raises(KafkaError) as refused:
                await consumer.getmany(timeout_ms=20_000)
            assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION

    run(scenario())


def test_the_blocking_twin(bootstrap: str, topic: str, run: Run) -> None:
    run(fill(bootstrap, topic, 4))
    told: list[Any] = []
    with sync.ShareConsumer(
        bootstrap, group_id=topic, topics=[topic], share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.set_acknowledgement_commit_callback(lambda *outcome: told.append(outcome))
        record = next(consumer)
        with consumer.process(record):
            assert record.value == b"0"
        with pytest.raises(ValueError, match="not now"), consumer.process(next(consumer)):
            raise ValueError("not now")
        consumer.acknowledge(next(consumer), AcknowledgeType.REJECT)
        consumer.acknowledge(next(consumer))
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        assert {offset for outcome in told for offset in outcome[0][TopicPartition(topic, 0)]} == {
            0,
            1,
            2,
            3,
        }
        [[again]] = consumer.poll(timeout_ms=10_000).values()
        assert (again.offset, again.delivery_count) == (1, 2)
        consumer.acknowledge(again)


def test_commits_that_wait_together_are_each_told_their_outcome(run: Run) -> None:
    """A given-up one took another's place: that ended with an error of our own making, and without
    its outcome."""

    async def scenario() -> None:
        async with odradek.Broker() as broker:
            await broker.produce_async("jobs", b"0")
            await begin_with_the_first(broker.bootstrap_servers, "jobs")
            async with explicit(broker.bootstrap_servers, "jobs") as consumer:
                [record] = await read(consumer, 1)
                consumer.acknowledge(record)
                with broker.delay(200, "ShareAcknowledge") as late:
                    staying = asyncio.create_task(consumer.commit())
                    leaving = asyncio.create_task(consumer.commit())
                    await broker.wait_for_fault_async(late)
                leaving.cancel()
                assert await staying == {TopicPartition("jobs", 0): None}

    run(scenario())


@pytest.mark.parametrize("failure", [ZeroDivisionError, TimeoutError])
def test_what_a_callback_raises_keeps_no_outcome_back(
    bootstrap: str, topic: str, run: Run, failure: type[Exception]
) -> None:
    """The read tells of it; whoever waits for the outcomes of other partitions would wait for
    ever."""
    told: set[TopicPartition] = set()

    def callback(offsets: Mapping[TopicPartition, frozenset[int]], _: KafkaError | None) -> None:
        told.update(offsets)
        raise failure

    async def scenario() -> None:
        await fill(bootstrap, topic, 1, 1)
        async with ShareConsumer(bootstrap, group_id=topic, topics=[topic]) as consumer:
            await read(consumer, 2)
            assert len(await consumer.commit()) == 2
            await produce(bootstrap, topic, 1)
            consumer.set_acknowledgement_commit_callback(callback)
            await read(consumer, 1)
            consumer.commit_async()
            with pytest.raises(failure):  # noqa: PT012 - one of the reads
                for _ in range(5):
                    await consumer.getmany(timeout_ms=1000)
            await produce(bootstrap, topic, 1, 1)
            consumer.set_acknowledgement_commit_callback(None)
            await read(consumer, 2)
            consumer.set_acknowledgement_commit_callback(callback)
            told.clear()
            with pytest.raises(failure):
                await consumer.commit()
            with pytest.raises(failure):
                await consumer.getmany()
        assert told == {TopicPartition(topic, 0), TopicPartition(topic, 1)}

    run(scenario())


def test_what_a_callback_raises_takes_no_record_of_the_blocking_twin_along(
    bootstrap: str, topic: str, run: Run
) -> None:
    """The next read would accept the records read with it, and nobody had seen them."""
    seen: list[bytes | None] = []
    failures = 0

    def callback(*_: object) -> None:
        raise ZeroDivisionError

    run(fill(bootstrap, topic, 10))
    with sync.ShareConsumer(bootstrap, group_id=topic, topics=[topic]) as consumer:
        consumer.set_acknowledgement_commit_callback(callback)
        for _ in range(30):
            try:
                found = consumer.poll(1000, 1)
            except ZeroDivisionError:
                failures += 1
            else:
                seen += [each.value for records in found.values() for each in records]
            if len(seen) == 10 and failures:
                break
        assert seen == [b"%d" % number for number in range(10)]
        assert failures


def test_what_a_callback_raises_keeps_no_block_from_its_end(
    bootstrap: str, topic: str, run: Run
) -> None:
    """A block that was entered and never left gives its record back, which is done a second time;
    what a callback raised in the place of the block's own error hides it."""

    def callback() -> None:
        raise ZeroDivisionError

    run(fill(bootstrap, topic, 2))
    with sync.ShareConsumer(
        bootstrap, group_id=topic, topics=[topic], share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer._todo.put(callback)
        first = next(consumer)
        with pytest.raises(ZeroDivisionError), consumer.process(first):
            pytest.fail("what was raised in the read is told before the block")
        with pytest.raises(ZeroDivisionError), consumer.process(first):  # noqa: PT012 - its end
            consumer._todo.put(callback)
            second = next(consumer)
        with pytest.raises(ValueError, match="own"), consumer.process(second):  # noqa: PT012
            consumer._todo.put(callback)
            raise ValueError("the block's own")
        with pytest.raises(ZeroDivisionError):
            consumer.commit()
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        assert [(each.offset, each.delivery_count) for each in [next(consumer)]] == [(1, 2)]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_who_is_interrupted_loses_no_record_of_a_share_group(
    bootstrap: str, topic: str, run: Run, one_by_one: bool
) -> None:
    """The next read would accept what nobody has seen."""
    seen: list[int] = []

    def interrupted(work: Any) -> None:
        del consumer._submit
        assert consumer._submit(work).result(deadline_s(60))
        raise KeyboardInterrupt

    def read() -> list[int]:
        if one_by_one:
            return [consumer.getone().offset]
        return [each.offset for records in consumer.poll(9000).values() for each in records]

    run(fill(bootstrap, topic, 10))
    consumer: Any = sync.ShareConsumer(bootstrap, group_id=topic, topics=[topic])
    with consumer:
        consumer._submit = interrupted
        with pytest.raises(KeyboardInterrupt):
            read()
        while len(seen) < 10:
            seen += read()
        assert seen == list(range(10))


def test_who_wakes_a_reader_calls_no_callback_of_its(bootstrap: str, topic: str) -> None:
    """It would be called by a thread that users do not know of, while their own reads."""
    called_by: list[threading.Thread] = []
    with sync.ShareConsumer(bootstrap, group_id=topic, topics=[topic]) as consumer:
        consumer._todo.put(lambda: called_by.append(threading.current_thread()))
        waking = threading.Thread(target=consumer.wakeup)
        waking.start()
        waking.join()
        assert not called_by
        consumer.subscription()
    assert called_by == [threading.current_thread()]


def test_an_admin_looks_after_share_groups(modern_servers: str, topic: str, run: Run) -> None:
    where = TopicPartition(topic, 0)

    async def scenario() -> None:
        await fill(modern_servers, topic, 10)
        async with Admin(modern_servers) as admin:
            async with explicit(modern_servers, topic, client_id="worker") as consumer:
                for _ in range(4):
                    consumer.acknowledge(await consumer.getone())
                await consumer.commit()
                [listed] = [
                    e for e in await admin.list_groups(types=["share"]) if e.group_id == topic
                ]
                assert (listed.state, listed.protocol_type) == ("Stable", "share")
                group = (await admin.describe_groups([topic]))[topic]
                assert not isinstance(group, KafkaError)
                assert (group.type, group.state, group.assignor) == ("Share", "Stable", "simple")
                assert [each.client_id for each in group.members] == ["worker"]
                assert [each.partitions for each in group.members] == [(where,)]
                with pytest.raises(KafkaError) as refused:
                    await admin.alter_share_group_offsets(topic, {where: 2})
                assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
            offsets = (await admin.list_share_group_offsets([topic]))[topic]
            assert not isinstance(offsets, KafkaError)
            found = offsets[where]
            assert not isinstance(found, KafkaError)
            assert (found.start_offset, found.lag) == (4, 6)
            assert await admin.alter_share_group_offsets(topic, {where: 2}) == {where: None}
            offsets = (await admin.list_share_group_offsets([topic], [where]))[topic]
            assert not isinstance(offsets, KafkaError)
            assert offsets[where].start_offset == 2  # type: ignore[union-attr]
            assert await admin.delete_share_group_offsets(topic, [topic]) == {topic: None}
            assert await admin.delete_groups([topic]) == {topic: None}
            gone = (await admin.describe_groups([topic]))[topic]
            assert isinstance(gone, KafkaError)
            assert gone.code is ErrorCode.GROUP_ID_NOT_FOUND

    run(scenario())
