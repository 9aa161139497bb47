"""Where a reader stands, whichever way it reads, and by turns.

If these fail, what a consumer says of itself (position, lag, what it commits) is not what it has
given out: records are passed over, given out twice, or out of a partition that is another's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import cycle
from typing import Any

import pytest
from tests.simulation.client.consuming.client_groups import (
    FETCH,
    GROUP,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    TOPIC,
)
from tests.simulation.client.test_client_cluster import (
    ALL,
    CONSUMER_HEARTBEAT,
    HEARTBEAT,
    PROTOCOLS,
    Answer,
    Bend,
    Stage,
    Told,
    answering,
    play,
    silence,
)
from tests.simulation.virtual import Connection

from odradek.client import Consumer
from odradek.client.aio.consuming.handout import Records
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.errors import CommitFailed, RecordTooLarge, UsageError
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.direct.fetch import decode_fetch_request
from odradek.protocol.header import RequestHeader

Offsets = dict[TopicPartition, list[int]]
Way = Callable[[Consumer], Awaitable[Offsets]]


def offsets_of(records: Iterable[ConsumerRecord]) -> Offsets:
    found: Offsets = {}
    for each in records:
        found.setdefault(TopicPartition(each.topic, each.partition), []).append(each.offset)
    return found


async def by_getone(consumer: Consumer) -> Offsets:
    return offsets_of([await consumer.getone()])


async def by_iteration(consumer: Consumer) -> Offsets:
    return offsets_of([await anext(consumer)])


async def by_getmany(consumer: Consumer) -> Offsets:
    found = await consumer.getmany(timeout_ms=5_000)
    return offsets_of(each for records in found.values() for each in records)


async def by_few(consumer: Consumer) -> Offsets:
    found = await consumer.getmany(timeout_ms=5_000, max_records=2)
    return offsets_of(each for records in found.values() for each in records)


async def of_one_partition(consumer: Consumer) -> Offsets:
    partition = min(consumer.assignment(), key=lambda each: consumer.lag(each) == 0)
    found = await consumer.getmany(partition, timeout_ms=500)
    return offsets_of(each for records in found.values() for each in records)


async def by_columns(consumer: Consumer) -> Offsets:
    found = await consumer.getmany(timeout_ms=5_000, columns=True)
    return {
        partition: list(memoryview(columns.offset or b"").cast("q"))
        for partition, columns in found.items()
    }


WAYS: dict[str, list[Way]] = {
    "getone": [by_getone],
    "iteration": [by_iteration],
    "getmany": [by_getmany],
    "few": [by_few],
    "columns": [by_columns],
    "by turns": [by_getone, by_columns, by_getone, of_one_partition, by_getone, by_few],
}
ways = pytest.mark.parametrize("way", WAYS)


async def read_by(way: str, consumer: Consumer, found: Offsets, count: int) -> None:
    """Reads so many records in all, or more where many come at once."""
    for read in cycle(WAYS[way]):
        if sum(map(len, found.values())) >= count:
            return
        for partition, offsets in (await read(consumer)).items():
            found.setdefault(partition, []).extend(offsets)


@ways
def test_position_lag_and_commit_are_of_what_was_given_out(way: str) -> None:
    """Fails when position, lag or commit counts records that still wait for `getone`."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer(enable_auto_commit=False) as consumer:
            consumer.assign(ALL[:2])
            found: Offsets = {}
            while sum(map(len, found.values())) < 40:
                await read_by(way, consumer, found, sum(map(len, found.values())) + 1)
                await consumer.commit()
                committed = stage.brokers.world.committed(GROUP)
                for partition, offsets in found.items():
                    behind = offsets[-1] + 1
                    assert await consumer.position(partition) == behind
                    assert consumer.lag(partition) == 20 - behind
                    assert committed[partition] == behind
                measured = consumer.metrics()["consumer-fetch-manager-metrics"]
                assert measured["records-consumed-total"] == sum(map(len, found.values()))
                lags = [consumer.lag(each) for each in ALL[:2]]
                assert measured["records-lag-max"] == max(each for each in lags if each is not None)
            assert found == {each: list(range(20)) for each in ALL[:2]}

    play(scenario)


async def to_the_beginning(consumer: Consumer) -> int:
    await consumer.seek_to_beginning(ALL[0])
    return 0


async def to_the_end(consumer: Consumer) -> int:
    await consumer.seek_to_end(ALL[0])
    return 20


async def back(consumer: Consumer) -> int:
    consumer.seek(ALL[0], 1)
    return 1


async def ahead(consumer: Consumer) -> int:
    consumer.seek(ALL[0], 15)
    return 15


async def read_into_a_chunk(consumer: Consumer, partition: TopicPartition) -> int:
    """Reads of one partition alone until some of it waits for `getone` and some was fetched; how
    many records were read."""
    others = consumer.assignment() - {partition}
    consumer.pause(*others)
    state = consumer._positions.get(partition)
    assert state is not None
    read = 0
    while not (state.held and state.chunk):
        await asyncio.sleep(1)
        assert await by_getone(consumer) == {partition: [read]}
        read += 1
    consumer.resume(*others)
    return read


@ways
@pytest.mark.parametrize("go", [to_the_beginning, to_the_end, back, ahead])
def test_a_seek_takes_what_waits_for_getone_away(
    go: Callable[[Consumer], Awaitable[int]], way: str
) -> None:
    """Position, lag and commit would stay where the held records begin, and these would still be
    given out, or those behind them in the fetched chunk. What is held of another partition is kept.
    """

    async def scenario(stage: Stage) -> None:
        async with stage.consumer(enable_auto_commit=False, max_poll_records=2) as consumer:
            consumer.assign(ALL[:2])
            await read_into_a_chunk(consumer, ALL[0])
            kept = await read_into_a_chunk(consumer, ALL[1])
            offset = await go(consumer)
            assert await consumer.position(ALL[0]) == offset
            assert consumer.lag(ALL[0]) == 20 - offset
            assert consumer.lag(ALL[1]) == 20 - kept
            await consumer.commit()
            committed = stage.brokers.world.committed(GROUP)
            assert (committed[ALL[0]], committed[ALL[1]]) == (offset, kept)
            after: Offsets = {ALL[0]: [], ALL[1]: []}
            await read_by(way, consumer, after, 40 - offset - kept)
            assert after == {ALL[0]: list(range(offset, 20)), ALL[1]: list(range(kept, 20))}

    play(scenario)


def test_one_partition_is_no_list_of_them() -> None:
    """Fails when `committed(partition)`, as with aiokafka, complains of values to unpack."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer() as consumer:
            one: Any = TopicPartition("ab", 0)
            why = "is one partition, where a list of partitions"
            with pytest.raises(TypeError, match=why):
                consumer.assign(one)
            for asked in (consumer.committed, consumer.beginning_offsets, consumer.end_offsets):
                with pytest.raises(TypeError, match=why):
                    await asked(one)

    play(scenario)


async def asked_meanwhile(stage: Stage, *then: Callable[[Consumer], None]) -> int:
    """The position told to who asks while `assign` takes the partition away, and `then`."""
    async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
        consumer.assign(ALL[:1])
        with stage.bent(silence(LIST_OFFSETS)):
            asking = asyncio.create_task(consumer.position(ALL[0], timeout_ms=5_000))
            await asyncio.sleep(1)
            for each in (lambda c: c.assign(ALL[1:2]), *then):
                each(consumer)
            return await asking


def test_the_position_of_what_is_taken_away_is_not_waited_for() -> None:
    """It would be waited for until the time is up: what was asked for is nobody's any more."""

    async def scenario(stage: Stage) -> None:
        with pytest.raises(UsageError, match="t-0 is not assigned"):
            await asked_meanwhile(stage)

    play(scenario)


def test_who_goes_to_the_end_again_goes_to_the_end_of_now() -> None:
    """Records of before would be read: the earlier question is answered late."""
    late: list[Callable[[], None]] = []

    async def scenario(stage: Stage) -> None:
        def keep(
            connection: Connection, header: RequestHeader, frame: bytes, answer: Answer
        ) -> bool:
            if header.api_key != LIST_OFFSETS or late:
                return False
            stage.brokers.serve(connection, frame, lambda data: late.append(lambda: answer(data)))
            return True

        async with stage.consumer(group_id="") as consumer:
            consumer.assign(ALL[:1])
            with stage.bent(keep):
                await consumer.seek_to_end(ALL[0])
                asking = asyncio.create_task(consumer.position(ALL[0]))
                await asyncio.sleep(1)
                stage.brokers.ends[0] += 4
                await consumer.seek_to_end(ALL[0])
                (tell,) = late
                tell()
                assert await asking == 24

    play(scenario)


def test_the_position_of_what_comes_back_is_where_it_came_back_to() -> None:
    """The answer would be that of before, or none at all."""

    async def scenario(stage: Stage) -> None:
        again = (lambda c: c.assign(ALL[:1]), lambda c: c.seek(ALL[0], 5))
        assert await asked_meanwhile(stage, *again) == 5

    play(scenario)


def test_columns_leave_out_nothing_that_is_held_of_a_partition_that_is_resumed_meanwhile() -> None:
    """Columns are made of chunks, and would begin behind what waits for `getone`."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL[:1])
            found = await by_getone(consumer)
            consumer.pause(ALL[0])
            reading = asyncio.create_task(by_columns(consumer))
            await asyncio.sleep(1)
            consumer.resume(ALL[0])
            found[ALL[0]] += (await reading).get(ALL[0], [])
            await read_by("columns", consumer, found, 20)
            assert found == {ALL[0]: list(range(20))}

    play(scenario)


class Seeing:
    """An interceptor that remembers."""

    def __init__(self) -> None:
        self.seen: Offsets = {}

    def on_consume(self, records: Records) -> Records:
        for partition, some in records.items():
            self.seen.setdefault(partition, []).extend(each.offset for each in some)
        return records

    def on_commit(self, offsets: object) -> None:
        """Ignores commits."""


def test_interceptors_see_a_record_once() -> None:
    """Fails when interceptors see waiting records once more, because a reader changes from one
    record to those of one partition, or pauses one.
    """

    async def scenario(stage: Stage) -> None:
        seeing = Seeing()
        settings = {"group_id": "", "auto_offset_reset": "earliest"}
        async with stage.consumer(interceptors=[seeing], **settings) as consumer:
            consumer.assign(ALL[:2])
            found: Offsets = {}
            for read in cycle([by_getone, of_one_partition, by_getone, by_few]):
                consumer.pause(ALL[0])
                consumer.resume(ALL[0])
                for partition, offsets in (await read(consumer)).items():
                    found.setdefault(partition, []).extend(offsets)
                if sum(map(len, found.values())) == 40:
                    break
            assert seeing.seen == found == {each: list(range(20)) for each in ALL[:2]}

    play(scenario)


def give_others_up(consumer: Consumer) -> None:
    consumer.assign(ALL[:1])


def pause_others(consumer: Consumer) -> None:
    consumer.pause(*ALL[1:])


def pass_over_others(consumer: Consumer) -> None:
    for partition in ALL[1:]:
        consumer.seek(partition, 20)


@pytest.mark.parametrize("read", [by_getone, by_getmany])
@pytest.mark.parametrize("change", [give_others_up, pause_others, pass_over_others])
def test_a_deserializer_may_change_what_is_read(
    read: Way, change: Callable[[Consumer], None]
) -> None:
    """The read would end with an AssertionError, and without what it has taken, or give out records
    of what is paused."""

    async def scenario(stage: Stage) -> None:
        def deserialize(value: bytes) -> bytes:
            change(consumer)
            return value

        settings = {"group_id": "", "auto_offset_reset": "earliest"}
        async with stage.consumer(value_deserializer=deserialize, **settings) as consumer:
            consumer.assign(ALL)
            for partition in ALL:
                await consumer.position(partition)
            await asyncio.sleep(5)
            found: Offsets = {}
            while len(found.get(ALL[0], [])) < 20:
                for partition, offsets in (await read(consumer)).items():
                    found.setdefault(partition, []).extend(offsets)
            assert found == {ALL[0]: list(range(20))}

    play(scenario)


@ways
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_is_fenced_and_let_in_again_between_two_reads_reads_nothing_twice(
    protocol: str, way: str
) -> None:
    """From the commit on, in order: what waited for `getone` is of the time before."""
    key = CONSUMER_HEARTBEAT if protocol == "consumer" else HEARTBEAT
    thrown_out = {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}

    async def scenario(stage: Stage) -> None:
        told = Told()
        config = {"enable_auto_commit": False, "max_poll_interval_ms": 300_000}
        async with stage.member(protocol, **config) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            before: Offsets = {}
            await read_by("getone", consumer, before, 7)
            await consumer.commit()
            with stage.bent(answering(key, thrown_out, times=1)):
                await asyncio.sleep(8)
            after: Offsets = {}
            await read_by(way, consumer, after, 73)
            assert told.gone == [("lost", ALL)]
            assert {each: before.get(each, []) + after[each] for each in ALL} == {
                each: list(range(20)) for each in ALL
            }

    play(scenario)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_after_a_revocation_leaves_the_commit_of_another_alone(protocol: str) -> None:
    """Records that waited for `getone` when their partition went do not set this member's position:
    Java's consumer commits positions of what is assigned (`allConsumed` of its
    `SubscriptionState`).
    """

    async def scenario(stage: Stage) -> None:
        config = {"enable_auto_commit": False}
        async with stage.member(protocol, **config) as one, stage.member(protocol, **config) as two:
            one.subscribe([TOPIC])
            found: Offsets = {}
            await read_by("getone", one, found, 6)
            two.subscribe([TOPIC])
            while len(two.assignment()) < 2:
                await asyncio.gather(one.getmany(max_records=1), two.getmany(timeout_ms=200))
            await two.seek_to_end()
            for each in two.assignment():
                assert await two.position(each) == 20
            await two.commit()
            await one.getone()
            await one.commit()
            committed = stage.brokers.world.committed(GROUP)
            assert [committed[each] for each in sorted(two.assignment())] == [20, 20]
            assert all(committed[each] < 20 for each in one.assignment())

    play(scenario)


def unanswered(key: int) -> Bend:
    """Leaves the first request of an API without an answer."""
    asked: list[int] = []

    def bend(_: Connection, header: RequestHeader, *__: object) -> bool:
        if header.api_key == key:
            asked.append(header.correlation_id)
        return header.api_key == key and len(asked) == 1

    return bend


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_that_waited_during_a_revocation_leaves_the_commit_of_another_alone(
    protocol: str,
) -> None:
    """Nor does the commit before it, when that is repeated."""

    async def scenario(stage: Stage) -> None:
        config = {"enable_auto_commit": False, "default_api_timeout_ms": 60_000}
        slow = config | {"request_timeout_ms": 20_000}
        async with stage.member(protocol, **slow) as one, stage.member(protocol, **config) as two:
            one.subscribe([TOPIC])
            await read_by("getone", one, {}, 6)
            with stage.bent(unanswered(OFFSET_COMMIT)):
                commits = [asyncio.create_task(one.commit(dict.fromkeys(ALL, 1))) for _ in "12"]
                two.subscribe([TOPIC])
                while len(two.assignment()) < 2:
                    await asyncio.gather(one.getmany(max_records=1), two.getmany(timeout_ms=200))
                await two.commit(dict.fromkeys(two.assignment(), 20))
                assert not any(each.done() for each in commits)
                ended = await asyncio.gather(*commits, return_exceptions=True)
            assert [type(each) for each in ended] == [CommitFailed] * 2
            committed = stage.brokers.world.committed(GROUP)
            assert [committed[each] for each in sorted(two.assignment())] == [20, 20]

    play(scenario)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("is_let_in_again", [True, False])
def test_a_commit_that_waited_while_its_member_was_fenced_fails(
    is_let_in_again: bool, protocol: str
) -> None:
    """Also when the member has the partitions again: another had them meanwhile."""
    key = CONSUMER_HEARTBEAT if protocol == "consumer" else HEARTBEAT
    thrown_out = {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}

    async def scenario(stage: Stage) -> None:
        config = {"enable_auto_commit": False, "default_api_timeout_ms": 60_000}
        slow = config | {"request_timeout_ms": 20_000, "max_poll_interval_ms": 300_000}
        async with stage.member(protocol, **slow) as consumer:
            consumer.subscribe([TOPIC])
            await read_by("getone", consumer, {}, 6)
            with stage.bent(unanswered(OFFSET_COMMIT)):
                commits = [asyncio.create_task(consumer.commit()) for _ in "12"]
                with stage.bent(answering(key, thrown_out, times=1)):
                    await asyncio.sleep(8)
                if is_let_in_again:
                    await consumer.getmany(timeout_ms=8_000)
                    assert consumer.assignment() == set(ALL)
                assert not any(each.done() for each in commits)
                ended = await asyncio.gather(*commits, return_exceptions=True)
            assert [type(each) for each in ended] == [CommitFailed] * 2
            assert stage.brokers.world.committed(GROUP) == {}

    play(scenario)


def test_two_fetches_of_a_partition_at_most_wait_for_the_reader() -> None:
    """Fails when a whole topic comes into memory while a reader takes long for a record."""
    asked: dict[int, set[int]] = {}

    def look(_: object, header: Any, frame: bytes, __: object) -> bool:
        if header.api_key == FETCH:
            request = decode_fetch_request(
                memoryview(frame), header.api_version, header.body_position
            )
            for topic in request.topics:
                for each in topic.partitions:
                    asked.setdefault(each.index, set()).add(each.fetch_offset)
        return False

    async def scenario(stage: Stage) -> None:
        stage.brokers.ends = dict.fromkeys(stage.brokers.ends, 1_000)
        with stage.bent(look):
            async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
                consumer.assign(ALL)
                assert await consumer.getmany(timeout_ms=5_000, max_records=1)
                await asyncio.sleep(1)
                before = stage.count(FETCH)
                await asyncio.sleep(9)
                assert stage.count(FETCH) == before
        assert {index: len(offsets) for index, offsets in asked.items()} == dict.fromkeys(
            range(4), 2
        )

    play(scenario)


def test_a_batch_that_is_cut_off_is_blamed_on_both_limits() -> None:
    """The error named the one of the whole answer, and not the one that was in the way."""

    async def scenario(stage: Stage) -> None:
        read_whole = stage.brokers._read

        def read_a_part(broker: int, asked: Any) -> Any:
            answer = read_whole(broker, asked)
            answer.records = [each[: asked.partition_max_bytes] for each in answer.records]
            return answer

        stage.brokers._read = read_a_part  # type: ignore[method-assign]
        async with stage.consumer(
            group_id="",
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=65,
            fetch_max_bytes=900,
        ) as consumer:
            consumer.assign(ALL[:1])
            limits = r"max\.partition\.fetch\.bytes \(65\) or fetch\.max\.bytes \(900\)"
            with pytest.raises(RecordTooLarge, match=f"behind 65 bytes: .* {limits}"):
                await consumer.getmany(timeout_ms=5_000)

    play(scenario)


@pytest.mark.parametrize("offset", [-1, 1 << 63])
def test_a_reader_goes_to_no_offset_that_there_cannot_be(offset: int) -> None:
    partition = TopicPartition(TOPIC, 0)

    async def scenario(stage: Stage) -> None:
        async with stage.client(Consumer) as consumer:
            consumer.assign([partition])
            with pytest.raises(UsageError, match=f"there is no offset {offset}"):
                consumer.seek(partition, offset)

    play(scenario)
