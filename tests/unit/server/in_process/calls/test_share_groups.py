"""The questions that a test may ask `odradek.Broker` about share groups. If these fail, it has to
guess which worker holds what, or finds that nothing was read and not why."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.deadlines import deadline_s

import odradek
from odradek.client import AcknowledgeType, ConfigChange, ConfigResource
from odradek.client import ShareConsumer as AsyncShareConsumer
from odradek.client.sync import Admin, ShareConsumer
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition

WHERE = TopicPartition("jobs", 0)
LOCK_MS = 30_000


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    """With five records, and a group that is to begin with the first."""
    with odradek.Broker() as broker:
        broker.create_topic("jobs", partitions=1)
        for number in range(5):
            broker.produce("jobs", b"%d" % number)
        with Admin(broker.bootstrap_servers) as admin:
            early = ConfigChange("share.auto.offset.reset", "earliest")
            admin.alter_configs({ConfigResource.group("workers"): [early]})
        yield broker


def worker(broker: odradek.Broker, group: str = "workers") -> ShareConsumer:
    return ShareConsumer(
        broker.bootstrap_servers,
        group_id=group,
        topics=["jobs"],
        share_acknowledgement_mode="explicit",
        fetch_max_wait_ms=50,
    )


def test_who_holds_which_records_and_until_when(broker: odradek.Broker) -> None:
    assert broker.share_group("workers") == ("workers", "Dead", (), {})
    with worker(broker) as consumer:
        records = [next(consumer) for _ in range(5)]
        for record, kind in zip(records[:3], ("ACCEPT", "RELEASE", "REJECT"), strict=True):
            consumer.acknowledge(record, AcknowledgeType[kind])
        assert consumer.commit() == {WHERE: None}
        group = broker.share_group("workers")
        [member] = group.members
        assert group.state == "Stable"
        partition = group.partitions[WHERE]
        assert (partition.start_offset, partition.waiting, partition.lag) == (1, 1, 3)
        [held] = partition.held
        assert held[:4] == (3, 4, member, 1)
        assert 0 < held.until_ms - records[0].timestamp <= LOCK_MS + 60_000
        assert broker.wait_for_group("workers", members=1).members[0].partitions == (WHERE,)
        assert broker.lag("workers") == {WHERE: 3}
        again = next(consumer)
        assert broker.share_group("workers").partitions[WHERE].held[0][:4] == (1, 1, member, 2)
        consumer.acknowledge(again)
    assert broker.wait_for_group("workers", "Empty").members == ()
    partition = broker.share_group("workers").partitions[WHERE]
    assert (partition.start_offset, partition.held, partition.waiting) == (3, (), 2)


def test_a_group_is_set_back_and_compared(broker: odradek.Broker) -> None:
    with worker(broker) as consumer:
        for _ in range(5):
            consumer.acknowledge(next(consumer))
        consumer.commit()
        with pytest.raises(BrokerError) as refused:
            broker.reset("workers", "earliest")
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    before = broker.snapshot()
    assert before.moment.groups == {"workers": {WHERE: 5}}
    assert broker.reset("workers", 2) == {WHERE: 2}
    assert broker.lag("workers") == {WHERE: 3}
    assert str(before.diff(broker.snapshot())) == "group workers of jobs-0 was at 5, now at 2"
    with worker(broker) as consumer:
        assert next(consumer).offset == 2


def test_the_report_says_why_nothing_was_read(broker: odradek.Broker) -> None:
    with worker(broker, "late") as consumer:
        assert consumer.poll(timeout_ms=1) == {}
        broker.wait_for_group("late", members=1)
        report = broker.report()
    assert "late: share, Stable, 1 member" in report
    assert "share.auto.offset.reset is latest: earlier records are never read" in report
    with worker(broker) as consumer:
        consumer.acknowledge(next(consumer))
        consumer.commit()
        report = broker.report()
    assert "workers: share, Stable, 1 member; jobs-0 from 1, 4 held, 0 given back\n" in report


def test_what_is_acknowledged_is_sent_without_another_read(broker: odradek.Broker) -> None:
    """If this fails, the next record's work makes the locks of those before it end."""
    with worker(broker) as consumer:
        for _ in range(3):
            consumer.acknowledge(next(consumer))
        assert broker.wait_for_lag("workers", 2) == {WHERE: 2}
        consumer.unsubscribe()  # gives back what was not given out
        consumer.subscribe(["jobs"])
        assert [next(consumer).delivery_count for _ in range(2)] == [2, 2]


def test_records_that_come_after_unsubscribing_are_released(broker: odradek.Broker) -> None:
    """Their fetch was under way. They would stay locked, and be given out after the next
    subscription, to whatever topics."""

    async def scenario() -> None:
        early = {"group_id": "workers", "topics": ["jobs"], "fetch_max_wait_ms": 20_000}
        async with AsyncShareConsumer(broker.bootstrap_servers, **early) as consumer:
            for _ in range(5):
                await consumer.getone()
            await consumer.commit()
            assert not await consumer.getmany(timeout_ms=500)
            await consumer.unsubscribe()
            await asyncio.to_thread(broker.produce, "jobs", b"late")
            async with AsyncShareConsumer(broker.bootstrap_servers, **early) as other:
                async with asyncio.timeout(deadline_s(LOCK_MS / 2_000)):
                    assert (await other.getone()).value == b"late"
            consumer.subscribe(["others"])
            assert not await consumer.getmany()

    asyncio.run(scenario())
