"""Members of a group whose topic is deleted and made anew while they read it.

What was read is committed to the topic that it was read of, or to none. If these fail, the group
goes on in the new topic where it was in the old one, or its reader ends.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from tests.simulation.client.consuming.client_groups import GROUP, OFFSET_COMMIT, PRODUCE, TOPIC
from tests.simulation.client.test_client_cluster import (
    ALL,
    FLEXIBLE_FROM,
    PROTOCOLS,
    Answer,
    Stage,
    answering,
    play,
    read,
)
from tests.simulation.virtual import Connection

from odradek.client import Consumer, Producer
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.errors import ErrorCode
from odradek.protocol.direct.produce import (
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
    decode_produce_request,
    encode_produce_response,
)
from odradek.protocol.header import RequestHeader, decode_request_header

INIT_PRODUCER_ID = 22
SETTINGS: dict[str, object] = {"enable_auto_commit": False, "metadata_max_age_ms": 100}


async def read_some_of_both(stage: Stage, consumer: Consumer) -> list[ConsumerRecord]:
    """Reads until the first partition is used up, and the others are not; then the topic is made
    anew, and the first partition is read of the new one."""
    stage.brokers.ends[0] = 1
    consumer.subscribe([TOPIC])
    found: list[ConsumerRecord] = []
    while not {each.partition for each in found} >= {0, 1}:
        for records in (await consumer.getmany(timeout_ms=500, max_records=1)).values():
            found += records
    await asyncio.sleep(2)
    stage.brokers.make_anew(9)
    while sum(each.partition == 0 for each in found) < 2:
        for records in (await consumer.getmany(ALL[0], timeout_ms=500)).values():
            found += records
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_partition_is_committed_to_the_topic_it_was_read_of(protocol: str) -> None:
    """One partition was read of the new topic, the others still of the old one. OffsetCommit names
    a topic by its id from version 10 on (KIP-848).
    """

    async def scenario(stage: Stage) -> None:
        async with stage.member(protocol, **SETTINGS) as consumer:
            found = await read_some_of_both(stage, consumer)
            last = max(each.offset for each in found if each.partition == 0)
            await consumer.commit()
            assert stage.brokers.world.committed(GROUP) == {(TOPIC, 0): last + 1}

    play(scenario)


@pytest.mark.parametrize("count", range(1, 5))
def test_what_is_held_of_the_old_topic_is_given_out_and_not_committed(count: int) -> None:
    """`getone` has records of the old topic in hand when the new one is there."""

    async def scenario(stage: Stage) -> None:
        async with stage.member("range", **SETTINGS) as consumer:
            stage.brokers.ends = {0: 5, 1: 0, 2: 0, 3: 0}
            consumer.subscribe([TOPIC])
            found = [(await consumer.getone()).offset for _ in range(count)]
            await asyncio.sleep(2)
            stage.brokers.make_anew(0)
            stage.brokers.ends[0] = 9
            await asyncio.sleep(2)
            await consumer.commit()
            assert (TOPIC, 0) not in stage.brokers.world.committed(GROUP)
            found += [(await consumer.getone()).offset for _ in range(14 - count)]
            assert found == [*range(5), *range(9)]

    play(scenario)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "topics",
    [
        [],
        [{"topic_id": UUID(int=77), "partitions": [{"partition_index": 0, "error_code": 0}]}],
        [{"topic_id": UUID(int=1), "partitions": [{"partition_index": 9, "error_code": 0}]}],
    ],
)
def test_an_answer_that_speaks_of_others_commits_nothing(
    protocol: str, topics: list[dict[str, Any]]
) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.member(protocol, **SETTINGS) as consumer:
            consumer.subscribe([TOPIC])
            await read(consumer, 80)
            with stage.bent(answering(OFFSET_COMMIT, {"topics": topics}, times=3)):
                await consumer.commit()
            assert sorted(stage.brokers.world.committed(GROUP).values()) == [20] * 4

    play(scenario)


def test_what_was_dealt_with_of_the_old_topic_is_not_committed_to_the_new_one() -> None:
    async def scenario(stage: Stage) -> None:
        config = {**SETTINGS, "enable_auto_offset_store": False}
        async with stage.member("range", **config) as consumer:
            found = await read_some_of_both(stage, consumer)
            consumer.store_offsets(found[-1])
            await consumer.commit()
            committed = {(TOPIC, 0): found[-1].offset + 1}
            assert stage.brokers.world.committed(GROUP) == committed
            stage.brokers.make_anew(30)
            await read(consumer, 60)
            before = stage.count(OFFSET_COMMIT)
            await consumer.commit()
            assert stage.count(OFFSET_COMMIT) == before

    play(scenario)


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_an_answer_is_of_the_topic_that_was_asked_for(is_idempotent: bool) -> None:
    """Though nobody knows it any more, or not for the moment: the records would go again."""

    async def scenario(stage: Stage) -> None:
        settings = {"enable_idempotence": is_idempotent, "linger_ms": 0, "max_block_ms": 1_000}
        async with stage.client(Producer, **settings) as producer:

            def bend(_: Connection, header: RequestHeader, frame: bytes, send: Answer) -> bool:
                if header.api_key != PRODUCE:
                    return False
                version = header.api_version
                position = decode_request_header(memoryview(frame), FLEXIBLE_FROM).body_position
                request = decode_produce_request(memoryview(frame), version, position)
                topics = [
                    ProduceTopicResponse(
                        topic.name,
                        topic.topic_id,
                        [ProducePartitionResponse(each.index, 0, 7) for each in topic.partitions],
                    )
                    for topic in request.topics
                ]
                known = producer._cluster.metadata
                producer._cluster.metadata = known.without_topics([TOPIC])
                response = ProduceResponse(topics)
                send(encode_produce_response(response, version, header.correlation_id))
                return True

            ids = {"producer_id": 1, "producer_epoch": 0}
            with stage.bent(bend), stage.bent(answering(INIT_PRODUCER_ID, ids)):
                found = await producer.send_and_wait(TOPIC, b"v", partition=0)
                assert found.offset == 7
                assert stage.count(PRODUCE) == 1

    play(scenario)


def test_the_leader_of_the_old_topic_is_not_asked_for_the_new_one() -> None:
    """Its epoch may be one that the new topic will not have for long: no metadata would replace
    it, and no record be delivered."""

    async def scenario(stage: Stage) -> None:
        stage.brokers.leaders = dict.fromkeys(stage.brokers.leaders, (1, 7))
        late: list[Callable[[], None]] = []

        def bend(connection: Connection, header: RequestHeader, frame: bytes, send: Answer) -> bool:
            if header.api_key != PRODUCE:
                return False
            version = header.api_version
            position = decode_request_header(memoryview(frame), FLEXIBLE_FROM).body_position
            [topic] = decode_produce_request(memoryview(frame), version, position).topics
            refused = ProducePartitionResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            part = ProducePartitionResponse(0, 0, 7) if connection.port == 3 else refused
            if not late:
                refused.current_leader_id, refused.current_leader_epoch = 2, 8
            response = ProduceResponse([ProduceTopicResponse(topic.name, topic.topic_id, [part])])
            answer = encode_produce_response(response, version, header.correlation_id)
            if late:
                send(answer)
            else:
                late.append(lambda: send(answer))
            return True

        settings = {"enable_idempotence": False, "linger_ms": 0, "metadata_max_age_ms": 100}
        async with stage.client(Producer, **settings) as producer:
            await producer._cluster.connection(2)  # to ask for metadata
            with stage.bent(bend):
                delivery = await producer.send(TOPIC, b"v", partition=0)
                while not late:
                    await asyncio.sleep(0.01)
                stage.brokers.make_anew(0)
                stage.brokers.leaders = dict.fromkeys(stage.brokers.leaders, (3, 0))
                await producer._cluster.refresh([TOPIC])
                late[0]()
                assert (await delivery).offset == 7

    play(scenario)
