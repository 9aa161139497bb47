"""A consumer knew something before it waited, and all is different when it acts upon it.

Somebody subscribes anew, the topic is deleted and made anew, the group goes on, while an answer is
under way. If these fail, records are passed over, a commit goes back, or a partition is read no
more.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.client.consuming.client_groups import (
    FETCH,
    GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    SETTINGS,
    TOPIC,
)
from tests.simulation.client.test_client_cluster import (
    ALL,
    HEARTBEAT,
    PROTOCOLS,
    Answer,
    Bend,
    Stage,
    Told,
    answering,
    play,
    read,
)
from tests.simulation.virtual import Connection

from odradek.client import Consumer, Producer
from odradek.client.errors import CommitFailed, KafkaError
from odradek.errors import ErrorCode
from odradek.protocol.direct.fetch import (
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    decode_fetch_request,
    encode_fetch_response,
)
from odradek.protocol.header import RequestHeader
from odradek.records.builder import RecordBatchBuilder

OFFSET_FETCH = 9
INIT_PRODUCER_ID, ADD_OFFSETS, END = 22, 25, 26
ONE = ALL[0]
ALONE: dict[str, object] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "metadata_max_age_ms": 100,
    "request_timeout_ms": 60_000,
    "default_api_timeout_ms": 60_000,
}


class Held:
    """Answers to an API that are made at once, and come when the test says so."""

    def __init__(self, stage: Stage, key: int, client_id: str | None = None) -> None:
        self._stage = stage
        self._key = key
        self._client_id = client_id
        self._releases: list[Callable[[], None]] = []

    def bend(
        self, connection: Connection, header: RequestHeader, frame: bytes, answer: Answer
    ) -> bool:
        if header.api_key != self._key or self._client_id not in (None, header.client_id):
            return False
        made: list[bytes] = []
        self._stage.brokers.serve(connection, frame, made.append)
        self._releases.append(lambda: answer(made[0]))
        return True

    @property
    def is_asked(self) -> bool:
        return bool(self._releases)

    async def has_some(self) -> None:
        while not self.is_asked:
            await asyncio.sleep(0.01)

    def release(self) -> None:
        for each in self._releases:
            each()


async def reads_on(consumer: Consumer, until: Callable[[], bool]) -> None:
    while not until():
        await consumer.getmany(timeout_ms=100)


async def goes_on(consumer: Consumer) -> None:
    """Reads and commits, for ever."""
    consumer.subscribe([TOPIC])
    while True:
        await consumer.getmany(timeout_ms=100)
        await consumer.commit()


def topic_id_of(consumer: Consumer) -> Any:
    return consumer._cluster.metadata.topics[TOPIC].topic_id


def fetched(header: RequestHeader, frame: bytes, part: FetchPartitionResponse) -> bytes:
    """An answer to a fetch of one partition."""
    view = memoryview(frame)
    [topic] = decode_fetch_request(view, header.api_version, header.body_position).topics
    response = FetchResponse([FetchTopicResponse(topic.name, topic.topic_id, [part])])
    parts = encode_fetch_response(response, header.api_version, header.correlation_id)
    return b"".join(map(bytes, parts))


# --- subscriptions ------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_look_at_all_topics_does_not_undo_the_next_subscription(protocol: str) -> None:
    """The topics that match the former pattern would be read for good."""

    async def scenario(stage: Stage) -> None:
        held = Held(stage, METADATA)
        async with stage.member(protocol) as consumer:
            consumer.subscribe(pattern=TOPIC)
            with stage.bent(held.bend):
                reading = asyncio.create_task(consumer.getmany(timeout_ms=100))
                await held.has_some()
                await reading
                consumer.subscribe(["another"])
            held.release()
            await consumer.getmany(timeout_ms=3_000)
            assert consumer.subscription() == {"another"}
            assert not consumer.assignment()

    play(scenario)


# --- commits ------------------------------------------------------------------------------------


def refused(code: ErrorCode, index: int = 0) -> Bend:
    partition = {"partition_index": index, "error_code": code}
    topics = [{"name": TOPIC, "partitions": [partition]}]
    return answering(OFFSET_COMMIT, {"topics": topics}, times=1)


def test_a_commit_that_is_repeated_does_not_come_behind_a_later_one() -> None:
    """Though the consumer was given other partitions in between."""

    async def scenario(stage: Stage) -> None:
        settings = {"enable_auto_commit": False, "retry_backoff_ms": 1_000}
        async with stage.consumer(**settings) as consumer:
            consumer.assign([ONE])
            with stage.bent(refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)):
                consumer.commit_async({ONE: 10})
                await asyncio.sleep(0.5)
                await consumer.unsubscribe()
                consumer.assign([ONE])
                await consumer.commit({ONE: 20})
                await asyncio.sleep(3)
            assert stage.committed(ONE) == 20

    play(scenario)


def test_a_commit_by_hand_does_not_come_behind_one_of_a_member() -> None:
    """The group is empty again by then, and takes it of anybody."""

    async def scenario(stage: Stage) -> None:
        pauses = {"retry_backoff_ms": 20_000, "retry_backoff_max_ms": 20_000}
        patient = {"default_api_timeout_ms": 60_000, **pauses}
        async with stage.consumer(enable_auto_commit=False, **patient) as consumer:
            consumer.assign([ONE])
            await read(consumer, 20)
            with stage.bent(refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)):
                consumer.commit_async({ONE: 10})
                await asyncio.sleep(0.1)
            await consumer.unsubscribe()
            consumer.subscribe([TOPIC])
            await read(consumer, 80)
            await consumer.commit()
            await consumer.unsubscribe()
            await asyncio.sleep(30)
            assert stage.committed(ONE) == 20

    play(scenario)


def test_a_commit_of_what_was_given_up_is_not_sent_in_the_next_generation() -> None:
    """It would take back what the next owner has committed."""

    async def scenario(stage: Stage) -> None:
        told: list[KafkaError | None] = []
        late: list[Callable[[], None]] = []

        def refuses_late(
            connection: Connection, header: RequestHeader, frame: bytes, answer: Answer
        ) -> bool:
            if (header.api_key, header.client_id) != (OFFSET_COMMIT, "reader") or late:
                return False
            bend = refused(ErrorCode.REBALANCE_IN_PROGRESS)
            late.append(lambda: bend(connection, header, frame, answer) and None)
            return True

        patient = {"request_timeout_ms": 60_000, "default_api_timeout_ms": 60_000}
        settings = {"enable_auto_commit": False, **patient}
        reader = stage.member("range", client_id="reader", **settings)
        other = stage.member("range", enable_auto_commit=False)
        reader.subscribe([TOPIC])
        await reads_on(reader, lambda: len(reader.assignment()) == 4)
        going = asyncio.create_task(goes_on(other))
        await reads_on(reader, lambda: not reader.assignment())
        with stage.bent(refuses_late):
            reader.commit_async({ONE: 3}, lambda _, error: told.append(error))
            await reads_on(reader, lambda: len(reader.assignment()) == 2)
            assert ONE not in reader.assignment()
            await reads_on(reader, lambda: stage.committed(ONE) == 20)
            for each in late:
                each()
            await reads_on(reader, lambda: bool(told))
        assert isinstance(told[0], CommitFailed)
        assert stage.committed(ONE) == 20
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        for consumer in (other, reader):
            await consumer.close()

    play(scenario)


def test_a_commit_that_waits_for_metadata_does_not_outlast_a_rebalance() -> None:
    """Fails when a commit that began in the old epoch is sent in the new one, with partitions that
    are gone: what their new owner has committed goes back. A classic member joins only when the
    metadata has come."""
    patient = {"request_timeout_ms": 60_000, "default_api_timeout_ms": 60_000}

    async def scenario(stage: Stage) -> None:
        held = Held(stage, METADATA, "reader")
        others = [stage.member("consumer", enable_auto_commit=False) for _ in range(3)]
        reader = stage.member("consumer", client_id="reader", enable_auto_commit=False, **patient)
        going = [asyncio.create_task(goes_on(others[0]))]
        reader.subscribe([TOPIC])
        await reads_on(reader, lambda: len(reader.assignment()) == 2)
        for partition in reader.assignment():
            reader.seek(partition, 3)
        before = reader.assignment()
        told: list[KafkaError | None] = []
        reader._cluster.doubt([TOPIC])
        with stage.bent(held.bend):
            reader.commit_async(callback=lambda _, error: told.append(error))
            going += [asyncio.create_task(goes_on(each)) for each in others[1:]]
            await reads_on(reader, lambda: len(reader.assignment()) == 1)
            [gone] = before - reader.assignment()
            await reads_on(reader, lambda: stage.committed(gone) == 20)
        held.release()
        await reads_on(reader, lambda: bool(told))
        assert isinstance(told[0], CommitFailed)
        assert stage.committed(gone) == 20
        for each in going:
            each.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        for consumer in (*others, reader):
            await consumer.close()

    play(scenario)


def test_a_commit_is_not_sent_to_a_group_that_was_made_anew() -> None:
    """Though its member is in the generation of that number once more."""

    async def scenario(stage: Stage) -> None:
        told: list[KafkaError | None] = []
        gone: list[object] = []
        pauses = {"retry_backoff_ms": 20_000, "retry_backoff_max_ms": 20_000}
        patient = {"default_api_timeout_ms": 120_000, "max_poll_interval_ms": 600_000, **pauses}
        reader = stage.member("range", enable_auto_commit=False, **patient)
        other = stage.member("range", enable_auto_commit=False)
        for generation in (1, 2):
            reader.subscribe([TOPIC])
            await reads_on(
                reader, lambda number=generation: reader.group_metadata().generation_id == number
            )
        with stage.bent(refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)):
            reader.commit_async({ONE: 3}, lambda _, error: told.append(error))
            await asyncio.sleep(0.1)
        with stage.bent(answering(HEARTBEAT, {"error_code": ErrorCode.UNKNOWN_MEMBER_ID})):
            await asyncio.sleep(8)
        stage.brokers.world.groups.delete_group(GROUP, gone.append)
        while not gone:
            await asyncio.sleep(0.1)
        going = asyncio.create_task(goes_on(other))
        while other.group_metadata().generation_id != 1:
            await asyncio.sleep(0.1)
        await reads_on(reader, lambda: reader.group_metadata().generation_id == 2)
        await reads_on(reader, lambda: bool(told))
        assert isinstance(told[0], CommitFailed)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        for consumer in (other, reader):
            await consumer.close()

    play(scenario)


def test_a_member_that_is_readmitted_late_has_lost_what_it_had() -> None:
    """Its request to join waits for metadata for longer than its session lasts. A group with
    members of both protocols readmits it without saying so, and what it has not read yet was read
    and committed by others."""

    async def scenario(stage: Stage) -> None:
        held = Held(stage, METADATA, "reader")
        patient = {"request_timeout_ms": 60_000, "default_api_timeout_ms": 60_000}
        settings = {"client_id": "reader", "auto_commit_interval_ms": 600_000, **patient}
        config = SETTINGS | {"metadata.max.age.ms": 1_000}
        strategy = {"partition_assignment_strategy": "cooperative-sticky"}
        reader = stage.client(Consumer, config=config, **strategy, **settings)
        other = stage.member("consumer", enable_auto_commit=False)
        listener = Told()
        reader.subscribe([TOPIC], listener=listener)
        await reads_on(reader, lambda: len(reader.assignment()) == 4)
        for partition in ALL:
            reader.seek(partition, 3)
        reader.pause(*ALL)
        with stage.bent(held.bend):
            await held.has_some()
            going = asyncio.create_task(goes_on(other))
            await reads_on(reader, lambda: [*map(stage.committed, ALL)] == [20] * 4)
        held.release()
        await reads_on(reader, lambda: len(other.assignment()) == 2)
        await reader.getmany(timeout_ms=3_000)
        assert [*map(stage.committed, ALL)] == [20] * 4
        assert listener.gone == [("lost", ALL)]
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        for consumer in (other, reader):
            await consumer.close()

    play(scenario)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_was_removed_is_told_apart_from_nobody(protocol: str) -> None:
    """The offsets of a transaction are accepted of somebody outside of the group: those of what it
    has read are taken back, and read and written once more, by others."""

    async def scenario(stage: Stage) -> None:
        settings = {"enable_auto_commit": False, "max_poll_interval_ms": 2_000}
        late = stage.member(protocol, **settings)
        late.subscribe([TOPIC])
        await read(late, 80)
        other = stage.member(protocol, enable_auto_commit=False)
        going = asyncio.create_task(goes_on(other))
        while [*map(stage.committed, ALL)] != [20] * 4:
            await asyncio.sleep(0.1)
        known = {"producer_id": 1, "producer_epoch": 0}
        bends = [answering(INIT_PRODUCER_ID, known), answering(ADD_OFFSETS, {}), answering(END, {})]
        stage.bends += bends
        async with stage.client(Producer, transactional_id="x") as producer:
            await producer.init_transactions()
            with pytest.raises(KafkaError) as refused:
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({ONE: 3}, late.group_metadata())
        assert refused.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        for consumer in (other, late):
            await consumer.close()

    play(scenario)


# --- partitions that stay after all -------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "consumer"])
def test_a_partition_that_stays_after_all_is_read_on(protocol: str) -> None:
    """A program cancels all tasks of its loop while a partition is given up; then it is not to go
    any more."""

    async def scenario(stage: Stage) -> None:
        held = Held(stage, OFFSET_COMMIT, "reader")
        settings = {"auto_commit_interval_ms": 600_000, "request_timeout_ms": 60_000}
        reader = stage.member(protocol, client_id="reader", **settings)
        other = stage.member(protocol)
        reader.subscribe([TOPIC])
        await read(reader, 80)
        with stage.bent(held.bend):
            going = [goes_on(other), reads_on(reader, lambda: False)]
            going = [asyncio.create_task(each) for each in going]
            await held.has_some()
            polling = reader._subscription._polling
            assert polling is not None
            going[1].cancel()
            polling.cancel()
            await asyncio.wait([polling, going[1]])
        held.release()
        going[0].cancel()
        await asyncio.gather(going[0], return_exceptions=True)
        await other.close()
        stage.brokers.ends = dict.fromkeys(stage.brokers.ends, 30)
        found = await read(reader, 40)
        assert found == {each: [*range(20, 30)] for each in ALL}
        await reader.close()

    play(scenario)


# --- topics that are deleted and made anew ------------------------------------------------------


@pytest.mark.parametrize("key", [OFFSET_FETCH, LIST_OFFSETS])
def test_a_place_in_a_deleted_topic_is_none_in_the_next(key: int) -> None:
    """It is what a group has committed, or where a log began: so many records of the next topic of
    that name would be passed over."""

    async def scenario(stage: Stage) -> None:
        held = Held(stage, key)
        stage.brokers.starts[0] = 5
        async with stage.consumer(**ALONE) as consumer:
            await consumer.end_offsets(ALL)  # all brokers are connected
            if key == OFFSET_FETCH:
                await consumer.commit({ONE: 5})
            consumer.assign([ONE])
            former = topic_id_of(consumer)
            with stage.bent(held.bend):
                await held.has_some()
                stage.brokers.make_anew(30)
                stage.brokers.starts[0] = 0
                async with stage.consumer(enable_auto_commit=False) as other:
                    await other.commit({ONE: 0})
                await reads_on(consumer, lambda: topic_id_of(consumer) != former)
            held.release()
            assert await read(consumer, 30) == {ONE: [*range(30)]}

    play(scenario)


def test_records_of_a_deleted_topic_are_none_of_the_next() -> None:
    """Their answer comes when both have the same position: so many records of the next topic would
    be passed over."""

    async def scenario(stage: Stage) -> None:
        stage.brokers.ends[0] = 0
        late: list[Callable[[], None]] = []

        def holds(_: Connection, header: RequestHeader, frame: bytes, answer: Answer) -> bool:
            if header.api_key != FETCH or late:
                return False
            builder = RecordBatchBuilder(base_offset=0)
            for offset in range(3):
                builder.append_at(offset, 0, None, b"old")
            part = FetchPartitionResponse(0, 0, 3, 3, 0, records=[builder.build()])
            late.append(lambda: answer(fetched(header, frame, part)))
            return True

        async with stage.consumer(**ALONE) as consumer:
            consumer.assign([ONE])
            values: list[bytes | None] = []

            async def reads_values(count: int) -> None:
                while len(values) < count:
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        values.extend(each.value for each in records)

            with stage.bent(holds):
                await reads_on(consumer, lambda: bool(late))
                former = topic_id_of(consumer)
                stage.brokers.make_anew(0)
                stage.brokers.lead(0, 2)
                await reads_on(consumer, lambda: topic_id_of(consumer) != former)
                await reads_on(consumer, lambda: stage.count(FETCH) > 1)
                late[0]()
                await asyncio.sleep(0.1)
            stage.brokers.ends[0] = 9
            await reads_values(9)
            assert values == [b"%d" % offset for offset in range(9)]

    play(scenario)


def test_the_leader_of_a_deleted_topic_is_none_of_the_next() -> None:
    """In an epoch that the next topic will not have for long: it would be asked for ever. The
    answer comes while records of the deleted topic wait for the reader."""

    async def scenario(stage: Stage) -> None:
        stage.brokers.leaders = dict.fromkeys(stage.brokers.leaders, (1, 7))
        late: list[Callable[[], None]] = []

        def holds(_: Connection, header: RequestHeader, frame: bytes, answer: Answer) -> bool:
            if header.api_key != FETCH or late or stage.count(FETCH) < 2:
                return False
            part = FetchPartitionResponse(
                0,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                current_leader_id=2,
                current_leader_epoch=8,
            )
            late.append(lambda: answer(fetched(header, frame, part)))
            return True

        async with stage.consumer(**ALONE) as consumer:
            await consumer.end_offsets(ALL)  # all brokers are connected
            consumer.assign([ONE])
            with stage.bent(holds):
                while not late:
                    await asyncio.sleep(0.01)
                    consumer._fetcher.pump()
                stage.brokers.make_anew(0)
                stage.brokers.leaders = dict.fromkeys(stage.brokers.leaders, (3, 0))
                await consumer._cluster.refresh([TOPIC])
                late[0]()
                await asyncio.sleep(0.1)
            stage.brokers.ends[0] = 30
            waiting = consumer._positions.get(ONE).fetch_offset
            assert await read(consumer, waiting + 30) == {ONE: [*range(waiting), *range(30)]}

    play(scenario)


def test_a_follower_that_lags_behind_does_not_reset_a_reader_that_went_to_its_leader() -> None:
    """The reader went while the follower was asked, and was refused there, too: it would begin once
    more where its policy says."""

    async def scenario(stage: Stage) -> None:
        late: list[Callable[[], None]] = []
        leader = stage.brokers.leaders[0][0]
        asked_leader = [0]

        def bend(
            connection: Connection, header: RequestHeader, frame: bytes, answer: Answer
        ) -> bool:
            if header.api_key != FETCH or asked_leader[0] == 2:
                return False
            if connection.port == leader:
                asked_leader[0] += 1
                part = FetchPartitionResponse(0, 0, 20, 20, 0, preferred_read_replica=2)
                if late:
                    part = FetchPartitionResponse(0, ErrorCode.KAFKA_STORAGE_ERROR)
                answer(fetched(header, frame, part))
            else:
                behind = FetchPartitionResponse(0, ErrorCode.OFFSET_OUT_OF_RANGE)
                late.append(lambda: answer(fetched(header, frame, behind)))
            return True

        patient = {"request_timeout_ms": 500_000, "retry_backoff_ms": 1_000}
        async with stage.consumer(**ALONE | patient) as consumer:
            consumer.assign([ONE])
            consumer.seek(ONE, 10)
            with stage.bent(bend):
                await reads_on(consumer, lambda: asked_leader[0] == 2)
                await asyncio.sleep(0.1)
                late[0]()
                await asyncio.sleep(0.1)
            assert await read(consumer, 10) == {ONE: [*range(10, 20)]}

    play(scenario)
