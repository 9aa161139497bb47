"""Members of a group that lose partitions while something else goes on.

If these fail, a record is given out of a partition that is another's already, or a member takes
one that it was never to have.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from tests.simulation.client.consuming.client_groups import GROUP, OFFSET_COMMIT, TOPIC
from tests.simulation.client.test_client_cluster import (
    ALL,
    CONSUMER_HEARTBEAT,
    FLEXIBLE_FROM,
    HEARTBEAT,
    PROTOCOLS,
    SYNC_GROUP,
    Answer,
    Stage,
    Told,
    answering,
    play,
    read,
    silence,
)
from tests.simulation.virtual import Connection

from odradek.client import Consumer
from odradek.client.errors import ClientClosed, CommitFailed, KafkaError, RequestTimedOut
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.consumer_protocol import Assignment, encode_assignment
from odradek.protocol.header import RequestHeader, decode_request_header

JOIN_GROUP, LEAVE_GROUP = 11, 13


def leaving(_: Connection, header: RequestHeader, frame: bytes, __: Answer) -> bool:
    """A broker that does not answer who leaves a group."""
    if header.api_key != CONSUMER_HEARTBEAT:
        return header.api_key == LEAVE_GROUP
    position = decode_request_header(memoryview(frame), FLEXIBLE_FROM).body_position
    request = messages.decode_request(
        CONSUMER_HEARTBEAT, header.api_version, memoryview(frame), position
    )
    return int(request.member_epoch) < 0


class Slow(Told):
    """A listener that takes its time to give partitions up."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def on_partitions_revoked(  # type: ignore[override]
        self, partitions: list[TopicPartition]
    ) -> None:
        super().on_partitions_revoked(partitions)
        await asyncio.sleep(self._seconds)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_late_reader_has_lost_its_partitions_before_its_leaving_is_answered(
    protocol: str,
) -> None:
    async def scenario(stage: Stage) -> None:
        told = Told()
        async with stage.member(protocol, enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            assert await consumer.getmany(timeout_ms=10_000, max_records=1)
            with stage.bent(leaving):
                await asyncio.sleep(12)  # longer than max.poll.interval.ms
                assert await consumer.getmany(timeout_ms=100, max_records=1) == {}
                assert [name for name, _ in told.gone] == ["lost"]
                assert not consumer.assignment()
                await asyncio.sleep(2)
            found = await read(consumer, 80)
            assert found == {each: list(range(20)) for each in ALL}
            # And goes on being heard.
            for _ in range(20):
                await consumer.getmany(timeout_ms=1_000)
            assert len(told.gone) == 1

    play(scenario)


def assigned(*indexes: int, topic_id: object) -> dict[str, object]:
    """An answer to a heartbeat: these are to be had."""
    topics = [{"topic_id": topic_id, "partitions": list(indexes)}]
    return {
        "member_id": "m",
        "member_epoch": 1,
        "heartbeat_interval_ms": 500,
        "assignment": {"topic_partitions": topics},
    }


def test_what_is_to_come_is_looked_at_after_a_revocation() -> None:
    """KIP-848: the partition that was to come has gone to another while these were given up."""

    async def scenario(stage: Stage) -> None:
        told = Slow(3)
        async with stage.member("consumer", enable_auto_commit=False) as consumer:
            topic_id = stage.brokers.topic_id
            consumer.subscribe([TOPIC], listener=told)

            def bent(*indexes: int) -> Callable[..., bool]:
                return answering(CONSUMER_HEARTBEAT, assigned(*indexes, topic_id=topic_id))

            with stage.bent(bent(0, 1)):
                await consumer.getmany(timeout_ms=2_000)
            with stage.bent(bent(2)):
                await asyncio.sleep(1)
                reading = asyncio.create_task(consumer.getmany(timeout_ms=6_000))
                await asyncio.sleep(1)
            with stage.bent(bent(3)):
                await reading
                await consumer.getmany(timeout_ms=2_000)
                assert consumer.assignment() == {ALL[3]}
            assert told.told == [
                ("assigned", ALL[:2]),
                ("revoked", ALL[:2]),
                ("assigned", ALL[3:]),
            ]

    play(scenario)


def test_who_is_thrown_out_while_it_gives_up_takes_nothing() -> None:
    """The classic protocol: what SyncGroup gave is another's by then."""

    def shared_out(*partitions: TopicPartition) -> dict[str, object]:
        return {"error_code": 0, "assignment": encode_assignment(Assignment(partitions))}

    async def scenario(stage: Stage) -> None:
        told = Slow(5)
        async with stage.member("cooperative-sticky", enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            with stage.bent(answering(SYNC_GROUP, shared_out(*ALL[:2]))):
                await consumer.getmany(timeout_ms=2_000)
            again = {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}
            thrown_out = {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
            with (
                stage.bent(answering(SYNC_GROUP, shared_out(*ALL[2:]), times=1)),
                stage.bent(answering(HEARTBEAT, again, times=1)),
            ):
                while not told.gone:
                    await consumer.getmany(timeout_ms=100)
            with stage.bent(answering(HEARTBEAT, thrown_out, times=1)):
                for _ in range(30):
                    await consumer.getmany(timeout_ms=500)
            assert told.told[:2] == [("assigned", ALL[:2]), ("revoked", ALL[:2])]
            assert told.told[2] == ("assigned", ALL), told.told

    play(scenario)


class Failing(Told):
    """A listener that fails each time; of a task that was cancelled, say, which it waits for."""

    def __init__(self, failure: type[BaseException]) -> None:
        super().__init__()
        self._failure = failure

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        super().on_partitions_assigned(partitions)
        raise self._failure("assigned")

    async def on_partitions_revoked(  # type: ignore[override]
        self, partitions: list[TopicPartition]
    ) -> None:
        super().on_partitions_revoked(partitions)
        raise self._failure("revoked")

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        await super().on_partitions_lost(partitions)
        raise self._failure("lost")


FAILURES = [ValueError, TimeoutError, asyncio.CancelledError]
failures = pytest.mark.parametrize("failure", FAILURES)


@failures
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_listener_raises_is_told_once_each(
    protocol: str, failure: type[BaseException]
) -> None:
    """By the read, and by `unsubscribe`; the assignment is what it would be all the same. Java's
    consumer assigns first and raises once, too (`onJoinComplete` of its `ConsumerCoordinator`).
    """

    async def scenario(stage: Stage) -> None:
        told = Failing(failure)
        async with stage.member(protocol) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            with pytest.raises(KafkaError, match="on_partitions_assigned of the listener failed"):
                await read(consumer, 1)
            assert consumer.assignment() == set(ALL)
            assert len(await read(consumer, 80)) == 4
            with pytest.raises(KafkaError, match="on_partitions_revoked of the listener failed"):
                await consumer.unsubscribe()
            assert not consumer.assignment()
            assert told.told == [("assigned", ALL), ("revoked", ALL)]
            await consumer.unsubscribe()

    play(scenario)


class SlowFailing(Failing):
    """Raises after the read that called it was given up."""

    async def on_partitions_assigned(  # type: ignore[override]
        self, partitions: list[TopicPartition]
    ) -> None:
        await asyncio.sleep(1)
        super().on_partitions_assigned(partitions)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_listener_raises_twice_before_the_group_is_left_is_told(protocol: str) -> None:
    """Fails when the second error goes with the membership: `unsubscribe` raises the first."""

    async def scenario(stage: Stage) -> None:
        told = SlowFailing(RuntimeError)
        async with stage.member(protocol) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await consumer.getone()
            await asyncio.sleep(2)
            with pytest.raises(KafkaError, match="on_partitions_assigned of the listener failed"):
                await consumer.unsubscribe()
            with pytest.raises(KafkaError, match="on_partitions_revoked of the listener failed"):
                await consumer.getmany(timeout_ms=0)
            assert not await consumer.getmany(timeout_ms=0)
            assert told.told == [("assigned", ALL), ("revoked", ALL)]

    play(scenario)


class FailingAtLast(Told):
    """A listener that takes its time, and raises, when partitions are revoked."""

    async def on_partitions_revoked(  # type: ignore[override]
        self, partitions: list[TopicPartition]
    ) -> None:
        super().on_partitions_revoked(partitions)
        await asyncio.sleep(1)
        raise RuntimeError


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_listener_raises_while_several_wait_for_leaving_is_told_once(
    protocol: str, is_cancelled: bool
) -> None:
    """Also when who has called `unsubscribe` does not wait any more: the reader is told then."""

    async def scenario(stage: Stage) -> None:
        async with stage.member(protocol) as consumer:
            consumer.subscribe([TOPIC], listener=FailingAtLast())
            await read(consumer, 1)
            leaving = [asyncio.create_task(consumer.unsubscribe()) for _ in range(2)]
            await asyncio.sleep(0.5)
            if is_cancelled:
                for each in leaving:
                    each.cancel()
            reading = asyncio.create_task(consumer.getmany(timeout_ms=3_000))
            ended = await asyncio.gather(*leaving, reading, return_exceptions=True)
            failures = [each for each in ended if isinstance(each, KafkaError)]
            assert ["of the listener failed" in str(each) for each in failures] == [True]
            assert await consumer.getmany(timeout_ms=0) == {}

    play(scenario)


@failures
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_lost_is_given_up_though_the_listener_raises(
    protocol: str, failure: type[BaseException]
) -> None:
    """The records of what is another's would be given out, and the listener told again."""
    key = CONSUMER_HEARTBEAT if protocol == "consumer" else HEARTBEAT
    thrown_out = {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}

    async def scenario(stage: Stage) -> None:
        told = Failing(failure)
        async with stage.member(protocol, enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            with pytest.raises(KafkaError, match="assigned of the listener"):
                await consumer.getone()
            await consumer.getone()
            with stage.bent(answering(key, thrown_out, times=1)):
                await asyncio.sleep(5)
            # One error a read; that of the new assignment comes after that of the loss.
            for what in ("lost", "assigned"):
                with pytest.raises(KafkaError, match=f"{what} of the listener"):
                    await consumer.getone()
            found = await read(consumer, 80)
            assert found == {each: list(range(20)) for each in ALL}
            assert told.told == [("assigned", ALL), ("lost", ALL), ("assigned", ALL)]

    play(scenario)


def test_what_is_lost_while_a_member_joins_is_not_given_out() -> None:
    """A cooperative member reads on while it joins; its commit is told that it has been removed."""

    async def scenario(stage: Stage) -> None:
        told = Told()
        async with stage.member("cooperative-sticky", enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            assert await consumer.getmany(timeout_ms=10_000, max_records=1)
            again = {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}
            refused = [
                {"partition_index": each, "error_code": ErrorCode.UNKNOWN_MEMBER_ID}
                for each in range(4)
            ]
            topics = [{"topic_id": stage.brokers.topic_id, "partitions": refused}]
            with stage.bent(silence(JOIN_GROUP)):
                with stage.bent(answering(HEARTBEAT, again, times=1)):
                    await asyncio.sleep(2)
                assert await consumer.getmany(timeout_ms=100, max_records=1)
                assert stage.count(JOIN_GROUP) > 1, "it joins again"
                with (
                    stage.bent(answering(OFFSET_COMMIT, {"topics": topics})),
                    pytest.raises(CommitFailed),
                ):
                    await consumer.commit()
                assert await consumer.getmany(timeout_ms=100, max_records=1) == {}
                assert told.gone == [("lost", ALL)]
            assert await read(consumer, 80) == {each: list(range(20)) for each in ALL}
            assert len(told.gone) == 1

    play(scenario)


def refused(stage: Stage, code: ErrorCode) -> dict[str, object]:
    """An answer to a commit, as every partition's."""
    partitions = [{"partition_index": each, "error_code": code} for each in range(4)]
    return {"topics": [{"topic_id": stage.brokers.topic_id, "partitions": partitions}]}


class Lingering(Told):
    """A listener that takes long to hear of a loss."""

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(70)
        await super().on_partitions_lost(partitions)


async def by_looking(consumer: Consumer) -> int:
    """Looks, again and again, without waiting."""
    while not (found := await consumer.getmany(timeout_ms=0)):
        await asyncio.sleep(0.1)
    return next(iter(found.values()))[0].offset


async def by_waiting(consumer: Consumer) -> int:
    return (await consumer.getone()).offset


@pytest.mark.parametrize("next_offset", [by_looking, by_waiting])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_given_out_while_a_listener_is_told_of_a_loss(
    protocol: str, next_offset: Callable[[Consumer], Awaitable[int]]
) -> None:
    """Held records are of partitions that may be another member's, also after a read's own
    time-out.
    """
    key = CONSUMER_HEARTBEAT if protocol == "consumer" else HEARTBEAT
    thrown_out = {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}

    async def scenario(stage: Stage) -> None:
        told = Lingering()
        async with stage.member(protocol, enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            assert (await consumer.getone()).offset == 0
            with stage.bent(answering(key, thrown_out, times=1)):
                await asyncio.sleep(5)
            assert await next_offset(consumer) == 0
            assert told.gone == [("lost", ALL)]

    play(scenario)


class Calling(Told):
    """A listener that makes a call of its consumer, each time."""

    def __init__(self, when: str, call: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._when = when
        self._call = call

    async def on_partitions_assigned(  # type: ignore[override]
        self, partitions: list[TopicPartition]
    ) -> None:
        super().on_partitions_assigned(partitions)
        if self._when == "assigned":
            await self._call()

    async def on_partitions_revoked(  # type: ignore[override]
        self, partitions: list[TopicPartition]
    ) -> None:
        super().on_partitions_revoked(partitions)
        if self._when == "revoked":
            await self._call()


ENDS: dict[str, Callable[[Consumer], Coroutine[Any, Any, None]]] = {
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "close": lambda consumer: consumer.close(),
}


@pytest.mark.parametrize("end", [*ENDS, "rebalance"])
@pytest.mark.parametrize("own_end", ENDS)
@pytest.mark.parametrize("when", ["assigned", "revoked"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_may_leave_the_group(protocol: str, when: str, own_end: str, end: str) -> None:
    """It would wait for a rebalance, or for leaving, that waits for it."""

    async def scenario(stage: Stage) -> None:
        consumer = stage.member(protocol)
        told = Calling(when, lambda: ENDS[own_end](consumer))
        consumer.subscribe([TOPIC], listener=told)
        with suppress(ClientClosed):
            await consumer.getmany(timeout_ms=5_000)
        async with stage.member(protocol) as other, asyncio.timeout(20):
            other.subscribe([TOPIC])
            if end == "rebalance":
                while other.assignment() != set(ALL):
                    await other.getmany(timeout_ms=100)
                    with suppress(ClientClosed):
                        await consumer.getmany(timeout_ms=100)
            else:
                await ENDS[end](consumer)
            assert not consumer.assignment()
            await consumer.close()
            while other.assignment() != set(ALL):
                await other.getmany(timeout_ms=100)

    play(scenario)


@pytest.mark.parametrize("own_end", ENDS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_may_leave_the_group_in_a_task_of_its_own(
    protocol: str, end: str, own_end: str
) -> None:
    """`asyncio.wait_for` makes one, up to Python 3.11: leaving would wait for itself."""

    async def scenario(stage: Stage) -> None:
        consumer = stage.member(protocol)
        told = Calling("revoked", lambda: asyncio.create_task(ENDS[own_end](consumer)))
        consumer.subscribe([TOPIC], listener=told)
        await consumer.getmany(timeout_ms=5_000)
        async with asyncio.timeout(2):
            await ENDS[end](consumer)
        assert told.gone == [("revoked", ALL)]
        await consumer.close()

    play(scenario)


@pytest.mark.parametrize("steps", range(6))
def test_a_member_that_leaves_takes_nothing_that_was_to_come(steps: int) -> None:
    """KIP-848: whenever in a revocation it is told to leave. It would read on what is another's."""

    async def scenario(stage: Stage) -> None:
        consumer = stage.member("consumer", enable_auto_commit=False)
        leaving: list[asyncio.Task[None]] = []

        async def leave() -> None:
            leaving.append(asyncio.create_task(consumer.unsubscribe()))
            for _ in range(steps):
                await asyncio.sleep(0)

        told = Calling("revoked", leave)
        consumer.subscribe([TOPIC], listener=told)
        answers = [assigned(*some, topic_id=stage.brokers.topic_id) for some in ([0, 1], [2])]
        with stage.bent(answering(CONSUMER_HEARTBEAT, answers[0])):
            await consumer.getmany(timeout_ms=2_000)
        with stage.bent(answering(CONSUMER_HEARTBEAT, answers[1])):
            await asyncio.sleep(1)
            await consumer.getmany(timeout_ms=2_000)
            await leaving[0]
            await consumer.getmany(timeout_ms=2_000)
        assert not consumer.assignment()
        assert ("assigned", ALL[2:3]) not in told.told
        await consumer.close()

    play(scenario)


READS: dict[str, Callable[[Consumer], Awaitable[object]]] = {
    "getone": lambda consumer: consumer.getone(),
    "getmany": lambda consumer: consumer.getmany(timeout_ms=100),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_that_reads_is_told_that_it_cannot(protocol: str, name: str) -> None:
    """The read would wait for the rebalance, and that for the listener."""

    async def scenario(stage: Stage) -> None:
        async with stage.member(protocol) as consumer:
            told = Calling("assigned", lambda: READS[name](consumer))
            consumer.subscribe([TOPIC], listener=told)
            with pytest.raises(KafkaError, match="a listener cannot read"):
                await read(consumer, 1)
            assert len(await read(consumer, 80)) == 4

    play(scenario)


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_a_commit_that_is_refused_by_a_rebalance_loses_nothing(protocol: str) -> None:
    """Of which this member has not heard yet: it is one all the same, and has what it has."""

    async def scenario(stage: Stage) -> None:
        told = Told()
        async with stage.member(protocol, enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            first = await read(consumer, 20)
            again = refused(stage, ErrorCode.REBALANCE_IN_PROGRESS)
            with stage.bent(answering(OFFSET_COMMIT, again)), pytest.raises(RequestTimedOut):
                await consumer.commit()
            assert consumer.assignment() == set(ALL)
            await consumer.commit()
            rest = await read(consumer, 80 - sum(map(len, first.values())))
            assert {each: first.get(each, []) + rest.get(each, []) for each in ALL} == {
                each: list(range(20)) for each in ALL
            }
            assert "lost" not in [name for name, _ in told.gone]

    play(scenario)


@pytest.mark.parametrize("late_s", [0.0, 0.5])
def test_a_commit_that_is_refused_while_a_member_joins_is_made_afterwards(late_s: float) -> None:
    """Whether the refusal comes before the end of the rebalance or after it."""

    async def scenario(stage: Stage) -> None:
        told = Told()
        async with stage.member("cooperative-sticky", enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            assert await read(consumer, 80)
            again = refused(stage, ErrorCode.REBALANCE_IN_PROGRESS)
            bend = answering(OFFSET_COMMIT, again, times=1)

            def late(connection: Connection, header: RequestHeader, *rest: object) -> bool:
                def send(data: bytes) -> None:
                    asyncio.get_running_loop().call_later(late_s, answer, data)

                frame, answer = rest
                assert callable(answer)
                return bend(connection, header, frame, send)  # type: ignore[arg-type]

            rejoin = {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}
            with stage.bent(answering(HEARTBEAT, rejoin, times=1)), stage.bent(late):
                before = stage.count(SYNC_GROUP)
                while stage.count(SYNC_GROUP) == before:
                    await consumer.getmany(timeout_ms=1)
                committing = asyncio.create_task(consumer.commit())
                for _ in range(20):
                    await consumer.getmany(timeout_ms=100)
                await committing
            assert sorted(stage.brokers.world.committed(GROUP).values()) == [20] * 4
            assert told.gone == []

    play(scenario)
