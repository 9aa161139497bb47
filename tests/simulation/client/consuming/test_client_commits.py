"""Commits of a reader that always has something at hand, or has nothing to read.

If these fail, who works through what was fetched commits nothing meanwhile, or is not told what its
commits came to, and reads all of it again after a crash.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.simulation.client.consuming import client_groups
from tests.simulation.client.consuming.client_groups import (
    FETCH,
    LIST_OFFSETS,
    TOPIC,
)
from tests.simulation.client.test_client_cluster import (
    ALL,
    Answer,
    Stage,
    answering,
    play,
    silence,
)
from tests.simulation.virtual import Connection, VirtualLoop

from odradek.client import Consumer
from odradek.client.aio.group import ConsumerProtocolMembership
from odradek.client.apis import OFFSET_COMMIT
from odradek.client.core.consuming.positions import PartitionPosition, Positions
from odradek.client.errors import KafkaError, NoOffsetForPartition, OffsetOutOfRange
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.header import RequestHeader

Read = Callable[[Consumer], Awaitable[object]]
Work = Callable[[], Awaitable[None]]
ONE = ALL[0]
INTERVAL_MS = 200
COUNT = 500


async def asleep() -> None:
    await asyncio.sleep(0.01)


async def busy() -> None:
    """Work that keeps the loop: its time goes by, and nothing else runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.pass_by(0.01)


READS: dict[str, Read] = {
    "getone": lambda consumer: consumer.getone(),
    "iteration": anext,
    "getmany": lambda consumer: consumer.getmany(timeout_ms=5_000, max_records=1),
}
reads = pytest.mark.parametrize("read", READS)
works = pytest.mark.parametrize("work", [asleep, busy])


@pytest.fixture(autouse=True)
def _large_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_groups, "RECORDS_A_FETCH", 100 * COUNT)


@reads
@works
def test_auto_commit_does_not_wait_until_all_that_was_fetched_is_given_out(
    read: str, work: Work
) -> None:
    """Fails when a commit waits for all fetched records: after a crash they are read again.
    aiokafka and librdkafka commit meanwhile.
    """

    async def scenario(stage: Stage) -> None:
        stage.brokers.ends[0] = COUNT
        async with stage.consumer(auto_commit_interval_ms=INTERVAL_MS) as consumer:
            consumer.assign([ONE])
            await READS[read](consumer)
            seen = set()
            for number in range(1, 200):
                await READS[read](consumer)
                await work()
                seen.add(stage.committed(ONE))
                assert stage.committed(ONE) <= number, "of what was given out before the last read"
            # Every 20 records, and one that is under way.
            assert len(seen) >= 8
            assert stage.committed(ONE) >= 160

    play(scenario)


@reads
@works
def test_a_callback_does_not_wait_until_all_that_was_fetched_is_given_out(
    read: str, work: Work
) -> None:
    async def scenario(stage: Stage) -> None:
        stage.brokers.ends[0] = COUNT
        async with stage.consumer(enable_auto_commit=False) as consumer:
            consumer.assign([ONE])
            await READS[read](consumer)
            told: list[tuple[dict[TopicPartition, object], KafkaError | None]] = []
            for number in range(2, 12):
                await READS[read](consumer)
                consumer.commit_async(callback=lambda *what: told.append(what))
                for _ in range(20):
                    await work()
                    await READS[read](consumer)
                [(offsets, error)] = told
                assert error is None
                assert ONE in offsets, number
                told.clear()

    play(scenario)


@reads
def test_auto_commit_is_made_while_a_read_waits(read: str) -> None:
    """A reader that waits for the next record has dealt with the records before."""

    async def scenario(stage: Stage) -> None:
        settings = {"auto_commit_interval_ms": 1_000}
        stage.brokers.ends[0] = 3
        async with stage.consumer(**settings) as consumer:
            consumer.assign([ONE])
            for _ in range(3):
                await READS[read](consumer)
            reading = asyncio.create_task(READS["getone"](consumer))
            await asyncio.sleep(2)
            assert stage.committed(ONE) == 3
            assert not reading.done()
            stage.brokers.ends[0] = 4
            await reading

    play(scenario)


def test_what_is_wrong_behind_what_was_fetched_is_told_after_it() -> None:
    """A read that looks before it gives something out is not told earlier."""
    out_of_range = {
        "responses": [
            {
                "topic_id": None,
                "partitions": [
                    {
                        "partition_index": 0,
                        "error_code": ErrorCode.OFFSET_OUT_OF_RANGE,
                        "high_watermark": -1,
                        "records": None,
                    }
                ],
            }
        ]
    }

    async def scenario(stage: Stage) -> None:
        stage.brokers.ends[0] = 9
        settings = {"auto_commit_interval_ms": 100, "auto_offset_reset": "none"}
        async with stage.consumer(**settings) as consumer:
            consumer.assign([ONE])
            consumer.seek(ONE, 0)
            found = [(await consumer.getone()).offset]

            async def read_on() -> None:
                while True:
                    found.append((await consumer.getone()).offset)
                    await asyncio.sleep(0.5)

            out_of_range["responses"][0]["topic_id"] = stage.brokers.topic_id  # type: ignore[index]
            with stage.bent(answering(FETCH, out_of_range)):
                await asyncio.sleep(1)
                with pytest.raises(OffsetOutOfRange):
                    await read_on()
            assert found == list(range(len(found)))
            assert await consumer.position(ONE) == len(found)
            await asyncio.sleep(1)
            rest = [(await consumer.getone()).offset for _ in range(9 - len(found))]
            assert [*found, *rest] == list(range(9))

    play(scenario)


@pytest.mark.parametrize("partitions", [(), (ALL[1],)])
def test_what_was_wrong_with_a_partition_that_was_dropped_is_not_told(
    partitions: tuple[TopicPartition, ...],
) -> None:
    """Fails when a reader is told of it: it would seek in a partition that is not assigned any
    more.
    """

    async def scenario(stage: Stage) -> None:
        async with stage.consumer(auto_offset_reset="none") as consumer:
            await consumer.commit({ALL[1]: 3})
            consumer.assign([ONE])
            await asyncio.sleep(1)
            consumer.assign(partitions)
            found = await consumer.getmany(timeout_ms=1_000)
            assert {each: records[0].offset for each, records in found.items()} == dict.fromkeys(
                partitions, 3
            )
            consumer.assign([*partitions, ONE])
            with pytest.raises(NoOffsetForPartition):
                await consumer.getmany(timeout_ms=1_000)

    play(scenario)


async def drop(consumer: Consumer) -> None:
    consumer.assign(())
    await asyncio.sleep(1)


ENDS: dict[str, Callable[[Consumer], Awaitable[None]]] = {
    "close": lambda consumer: consumer.close(),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "assign": drop,
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("stores_itself", [True, False])
@reads
def test_what_was_assigned_by_hand_is_committed_at_its_end(
    read: str, end: str, stores_itself: bool
) -> None:
    """Of a group whose members share out by other means all would be read again. aiokafka and
    librdkafka commit it, too.
    """

    async def scenario(stage: Stage) -> None:
        stage.brokers.ends[0] = COUNT
        settings = {"auto_commit_interval_ms": 1_000_000}
        async with stage.consumer(enable_auto_offset_store=stores_itself, **settings) as consumer:
            consumer.assign([ONE])
            for _ in range(7):
                await READS[read](consumer)
            if not stores_itself:
                consumer.store_offsets(offsets={ONE: 5})
            await ENDS[end](consumer)
            assert stage.committed(ONE) == (7 if stores_itself else 5)

    play(scenario)


@pytest.mark.parametrize("metadata_age_ms", [100, 300_000])
def test_what_is_assigned_again_at_once_is_read_from_its_commit(metadata_age_ms: int) -> None:
    """The commit of what was dropped comes before the question for it, also where the commit has
    to look first whether the topic is still the same."""

    async def scenario(stage: Stage) -> None:
        stage.brokers.ends[0] = COUNT
        settings = {"metadata_max_age_ms": metadata_age_ms, "auto_commit_interval_ms": 1_000_000}
        async with stage.consumer(**settings) as consumer:
            for number in range(50):
                consumer.assign([ONE])
                assert (await consumer.getone()).offset == number
                await asyncio.sleep(1)
                consumer.assign(())

    play(scenario)


def test_a_partition_that_comes_back_does_not_begin_where_it_was_to_begin_before() -> None:
    """The group has committed meanwhile: all before that would be read again, or be passed over
    where the policy is to begin at the end."""
    late: list[Callable[[], None]] = []

    async def scenario(stage: Stage) -> None:
        def keep(
            connection: Connection, header: RequestHeader, frame: bytes, answer: Answer
        ) -> bool:
            if header.api_key != LIST_OFFSETS:
                return False
            late.append(lambda: stage.brokers.serve(connection, frame, answer))
            return True

        other = ALL[1]  # not led by the coordinator, which has to answer
        async with stage.consumer(enable_auto_commit=False) as consumer:
            with stage.bent(keep):
                consumer.assign([other])
                await asyncio.sleep(1)
                consumer.assign(())
                await consumer.commit({other: 7})
                consumer.assign([other])
            assert len(late) == 1
            late[0]()
            assert (await consumer.getone()).offset == 7

    play(scenario)


def test_where_to_begin_in_a_partition_does_not_wait_for_the_commit_of_another() -> None:
    """Of a topic that was deleted, say: that one is repeated until its time is over."""
    unknown = {"partition_index": 0, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    async def scenario(stage: Stage) -> None:
        refused = {"topics": [{"topic_id": stage.brokers.topic_id, "partitions": [unknown]}]}
        told: list[KafkaError | None] = []
        async with stage.consumer(enable_auto_commit=False) as consumer:
            consumer.assign([ONE])
            await consumer.getone()
            with stage.bent(answering(OFFSET_COMMIT.key, refused)):
                consumer.commit_async(callback=lambda _, error: told.append(error))
                assert await consumer.committed([ALL[1]]) == {ALL[1]: None}
            await consumer.commit()
            assert told == [None], "it was being repeated yet"

    play(scenario)


def test_what_has_a_commit_is_read_before_it_is_known_where_others_begin() -> None:
    """The leader of one of them may be silent."""

    async def scenario(stage: Stage) -> None:
        stage.brokers.ends[0] = COUNT
        async with stage.consumer(enable_auto_commit=False) as consumer:
            await consumer.commit({ONE: 7})
            await consumer.partitions_for(TOPIC)  # news of it would start what is missing
            with stage.bent(silence(LIST_OFFSETS)):
                consumer.assign([ONE, ALL[1]])
                async with asyncio.timeout(1):
                    assert (await consumer.getone()).offset == 7

    play(scenario)


def test_a_commit_that_waits_costs_no_look_at_all_partitions_for_each_record() -> None:
    """Fails when a consumer that commits among many records reads slowly until the commit is
    answered.
    """

    async def scenario(stage: Stage) -> None:
        stage.brokers.ends[0] = COUNT
        async with stage.consumer(enable_auto_commit=False) as consumer:
            consumer.assign([ONE])
            await consumer.getone()
            looks = 0

            def counted() -> list[tuple[TopicPartition, PartitionPosition]]:
                nonlocal looks
                looks += 1
                return Positions.items(consumer._positions)

            with stage.bent(lambda _, header, *__: header.api_key == OFFSET_COMMIT.key):
                consumer.commit_async()
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr(consumer._positions, "items", counted)
                    assert [(await consumer.getone()).offset for _ in range(100)] == [
                        *range(1, 101)
                    ]
            assert looks < 10

    play(scenario)


class Counted(frozenset[TopicPartition]):
    """Partitions that are compared so often."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        Counted.comparisons += 1
        return super().__ne__(other)

    __hash__ = frozenset.__hash__


def test_what_a_member_is_to_have_is_not_compared_for_each_record() -> None:
    """With many partitions a comparison takes longer than to read the record."""

    async def scenario(stage: Stage) -> None:
        stage.brokers.ends[0] = COUNT
        async with stage.member("consumer", enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC])
            await consumer.getone()
            membership = consumer._subscription.membership
            assert isinstance(membership, ConsumerProtocolMembership)
            membership._target = Counted(consumer.assignment())
            Counted.comparisons = 0
            for _ in range(50):
                await consumer.getone()
            assert 1 <= Counted.comparisons < 10

    play(scenario)
