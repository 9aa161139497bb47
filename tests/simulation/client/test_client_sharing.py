"""A share consumer before brokers that give out what they are told to, on a clock that jumps.

The subscription changes, or the topic is recreated, while records and errors are on their way. If
these fail, records are used up by a consumer that does not read them, an acknowledgement goes to
another record, or an error is never told.
"""

import asyncio
from typing import Any

import pytest
from tests.simulation.client.consuming.client_groups import PARTITIONS, TOPIC
from tests.simulation.client.test_client_cluster import Answer, Stage, answering, play
from tests.simulation.virtual import Connection

from odradek.client import AcknowledgeType, ShareConsumer
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.errors import BadRecord, KafkaError, UsageError
from odradek.errors import ErrorCode
from odradek.protocol import messages
from odradek.protocol.header import RequestHeader
from odradek.records.builder import RecordBatchBuilder

SHARE_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
ANSWERS_AFTER_S = 0.02


class Sharing:
    """A group with one member, to which each partition gives one record a fetch."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._asked_for: set[tuple[object, int]] = set()
        self.assigned = [*range(PARTITIONS)]
        self.next_offsets = dict.fromkeys(self.assigned, 0)
        # The errors of partitions, each for the next fetch.
        self.codes: dict[int, ErrorCode] = {}
        self.has_coordinator = True
        # Topic id, partition, offset and type of the acknowledgements.
        self.acknowledged: list[tuple[object, int, int, int]] = []

    def bend(
        self, connection: Connection, header: RequestHeader, frame: bytes, answer: Answer
    ) -> bool:
        key = header.api_key
        if key not in (SHARE_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE):
            return False
        if key == SHARE_HEARTBEAT:
            values = self._heartbeat()
            if not self.has_coordinator:
                return True
        else:
            view = memoryview(frame)
            request = messages.decode_request(key, header.api_version, view, header.body_position)
            self._note(request)
            values = self._fetch(connection.port, gives=key == SHARE_FETCH)
        send = answering(key, values)
        asyncio.get_running_loop().call_later(
            ANSWERS_AFTER_S, lambda: send(connection, header, frame, answer)
        )
        return True

    def _heartbeat(self) -> dict[str, object]:
        topic = {"topic_id": self._stage.brokers.topic_id, "partitions": self.assigned}
        return {
            "member_id": "m",
            "member_epoch": 1,
            "heartbeat_interval_ms": 1_000,
            "assignment": {"topic_partitions": [topic]},
        }

    def _note(self, request: Any) -> None:
        for topic in request.topics:
            for each in topic.partitions:
                self._asked_for.add((topic.topic_id, each.partition_index))
                for batch in each.acknowledgement_batches:
                    [kind] = batch.acknowledge_types
                    self.acknowledged += [
                        (topic.topic_id, each.partition_index, offset, kind)
                        for offset in range(batch.first_offset, batch.last_offset + 1)
                    ]

    def _fetch(self, port: int, *, gives: bool) -> dict[str, object]:
        topic_id = self._stage.brokers.topic_id
        led = [
            index for index, (leader, _) in self._stage.brokers.leaders.items() if leader == port
        ]
        mine = [each for each in led if (topic_id, each) in self._asked_for]
        parts = [self._give(each) if gives else {"partition_index": each} for each in mine]
        return {
            "acquisition_lock_timeout_ms": 30_000,
            "responses": [{"topic_id": topic_id, "partitions": parts}],
        }

    def _give(self, index: int) -> dict[str, object]:
        if code := self.codes.pop(index, None):
            return {"partition_index": index, "error_code": code}
        offset = self.next_offsets[index]
        self.next_offsets[index] += 1
        builder = RecordBatchBuilder(base_offset=offset)
        builder.append_at(offset, self._stage.brokers.topic_id.int, None, b"%d" % offset)
        acquired = {"first_offset": offset, "last_offset": offset, "delivery_count": 1}
        return {
            "partition_index": index,
            "records": bytes(builder.build()),
            "acquired_records": [acquired],
        }


def sharer(stage: Stage, **settings: object) -> ShareConsumer:
    common = {"group_id": "sharing", "topics": [TOPIC], "fetch_max_wait_ms": 50}
    consumer: ShareConsumer = stage.client(ShareConsumer, **common, **settings)
    return consumer


async def asks(stage: Stage, consumer: ShareConsumer, count: int) -> None:
    """Until so many fetches are under way; nobody reads their answers yet."""
    while stage.count(SHARE_FETCH) < count:
        assert not await consumer.getmany()
        await asyncio.sleep(0.001)


def test_what_is_not_subscribed_to_any_more_is_not_fetched() -> None:
    """The coordinator has not heard of the change yet. Each fetch counts as an attempt: what is
    released five times is given to nobody any more."""

    async def scenario(stage: Stage) -> None:
        sharing = Sharing(stage)
        with stage.bent(sharing.bend):
            async with sharer(stage) as consumer:
                await consumer.getone()
                sharing.has_coordinator = False
                consumer.subscribe(["others"])
                before = stage.count(SHARE_FETCH)
                for _ in range(20):
                    assert not await consumer.getmany(timeout_ms=50)
                assert stage.count(SHARE_FETCH) == before

    play(scenario)


def test_what_comes_back_after_unsubscribing_is_released() -> None:
    """The records of a read that was interrupted would stay locked."""

    async def scenario(stage: Stage) -> None:
        sharing = Sharing(stage)
        with stage.bent(sharing.bend):
            async with sharer(stage) as consumer:
                found = await consumer.getmany(timeout_ms=1_000)
                await consumer.unsubscribe()
                consumer._put_back(found)
                await consumer.commit()
                released = {each[1:] for each in sharing.acknowledged}
                expected = {
                    (each.partition, each.offset, AcknowledgeType.RELEASE)
                    for some in found.values()
                    for each in some
                }
                assert expected <= released

    play(scenario)


def fails_once(value: bytes, failed: list[bytes]) -> bytes:
    if not failed:
        failed.append(value)
        raise ValueError("for once")
    return value


@pytest.mark.parametrize("are_of_brokers", [True, False])
def test_an_error_does_not_hide_another(are_of_brokers: bool) -> None:
    """They come in one read, of two brokers, or of two partitions of one; nothing else tells of the
    second one."""

    async def scenario(stage: Stage) -> None:
        sharing = Sharing(stage)
        failed: list[bytes] = []
        sharing.codes = {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        if are_of_brokers:
            failed.append(b"never")
            sharing.codes[1] = ErrorCode.INVALID_REQUEST
        else:
            sharing.assigned = [0, 3]
        with stage.bent(sharing.bend):
            async with sharer(
                stage, value_deserializer=lambda value: fails_once(value, failed)
            ) as consumer:
                await asks(stage, consumer, 3 if are_of_brokers else 1)
                await asyncio.sleep(1)
                told: list[KafkaError] = []
                records = []
                for _ in range(3):
                    try:
                        records.append(await consumer.getmany(timeout_ms=1_000))
                    except KafkaError as error:
                        told.append(error)
                assert len(told) == 2
                assert all(records)
        assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in {each.code for each in told}
        if are_of_brokers:
            assert ErrorCode.INVALID_REQUEST in {each.code for each in told}
        else:
            assert any(isinstance(each, BadRecord) for each in told)

    play(scenario)


def test_nobody_is_told_of_a_topic_that_is_not_subscribed_to_any_more() -> None:
    async def scenario(stage: Stage) -> None:
        sharing = Sharing(stage)
        sharing.codes = {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        with stage.bent(sharing.bend):
            async with sharer(stage) as consumer:
                await asks(stage, consumer, 3)
                consumer.subscribe(["others"])
                assert not await consumer.getmany(timeout_ms=1_000)

    play(scenario)


def test_a_record_of_a_deleted_topic_is_not_acknowledged_as_one_of_the_next() -> None:
    """Both have the same offset; the second one would count as accepted, though nobody has dealt
    with it."""

    async def scenario(stage: Stage) -> None:
        sharing = Sharing(stage)
        sharing.assigned = [0]
        settings = {"share_acknowledgement_mode": "explicit", "metadata_max_age_ms": 100}
        with stage.bent(sharing.bend):
            async with sharer(stage, **settings) as consumer:
                former = await consumer.getone()
                stage.brokers.make_anew(0)
                sharing.next_offsets[0] = 0
                record: ConsumerRecord | None = None
                while record is None or record.timestamp == former.timestamp:
                    if record is not None:
                        consumer.acknowledge(record)
                    record = await consumer.getone()
                assert record.offset == former.offset
                with pytest.raises(UsageError):
                    consumer.acknowledge(former)
                async with consumer.process(former):
                    pass
                consumer.acknowledge(record, AcknowledgeType.REJECT)
                await consumer.commit()
                topic_id = stage.brokers.topic_id
                assert sharing.acknowledged[-1] == (topic_id, 0, 0, AcknowledgeType.REJECT)

    play(scenario)


def test_errors_do_not_keep_records_until_others_may_have_them() -> None:
    """The locks of fetched records run, and a program may pause after each error."""

    async def scenario(stage: Stage) -> None:
        sharing = Sharing(stage)
        sharing.codes = dict.fromkeys(range(1, PARTITIONS), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with stage.bent(sharing.bend):
            async with sharer(stage) as consumer:
                await asks(stage, consumer, 3)
                await asyncio.sleep(1)
                assert await consumer.getmany(timeout_ms=1_000)
                with pytest.raises(KafkaError):
                    await consumer.getmany(timeout_ms=1_000)
                # Of each topic once: the others are not asked for meanwhile.
                assert await consumer.getmany(timeout_ms=1_000)

    play(scenario)


def test_what_waits_to_be_told_is_dropped_with_its_topic() -> None:
    async def scenario(stage: Stage) -> None:
        sharing = Sharing(stage)
        sharing.assigned = [0, 1]
        sharing.codes = {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1: ErrorCode.INVALID_REQUEST}
        with stage.bent(sharing.bend):
            async with sharer(stage) as consumer:
                await asks(stage, consumer, 2)
                await asyncio.sleep(1)
                with pytest.raises(KafkaError):
                    await consumer.getmany(timeout_ms=1_000)
                consumer.subscribe(["others"])
                assert not await consumer.getmany(timeout_ms=1_000)

    play(scenario)
