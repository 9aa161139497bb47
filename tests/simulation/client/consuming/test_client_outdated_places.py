"""A consumer's place in a partition, and its errors, are of another topic or assignment by then.

As `test_client_outdated`, of the steps between an assignment and the first fetch. If these fail,
records are passed over or read once more, or a reader is told of what it does not read.
"""

import asyncio
from collections.abc import Callable

import pytest
from tests.simulation.client.consuming.client_groups import (
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    TOPIC,
)
from tests.simulation.client.consuming.test_client_outdated import (
    ALONE,
    OFFSET_FETCH,
    ONE,
    Held,
    reads_on,
    topic_id_of,
)
from tests.simulation.client.test_client_cluster import (
    ALL,
    GROUP,
    KNOWN_BROKERS,
    Answer,
    Stage,
    answering,
    play,
    read,
)
from tests.simulation.virtual import Connection

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.header import RequestHeader


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_place_is_of_the_topic_that_it_was_found_in(is_committed: bool) -> None:
    """The partition is paused, and nothing was fetched there yet. So many records of the next topic
    of that name would be passed over."""

    async def scenario(stage: Stage) -> None:
        stage.brokers.starts[0] = 5
        async with stage.consumer(**ALONE) as consumer:
            await consumer.end_offsets(ALL)  # all brokers are connected
            if is_committed:
                await consumer.commit({ONE: 5})
            consumer.assign([ONE])
            consumer.pause(ONE)
            assert await consumer.position(ONE) == 5
            former = topic_id_of(consumer)
            stage.brokers.make_anew(30)
            stage.brokers.starts[0] = 0
            await reads_on(consumer, lambda: topic_id_of(consumer) != former)
            consumer.resume(ONE)
            assert await read(consumer, 30) == {ONE: [*range(30)]}

    play(scenario)


def test_where_a_log_was_cut_off_does_not_move_who_has_gone_to_that_offset_since() -> None:
    """With `seek`, to the very offset that is in doubt: it is meant, whatever was read before."""

    async def scenario(stage: Stage) -> None:
        held = Held(stage, OFFSET_FOR_LEADER_EPOCH)
        async with stage.consumer(**ALONE) as consumer:
            consumer.assign([ONE])
            await read(consumer, 20)
            with stage.bent(held.bend):
                stage.brokers.cut_off(0, 12)
                stage.brokers.ends[0] = 12
                await reads_on(consumer, lambda: held.is_asked)
                stage.brokers.ends[0] = 30
                consumer.seek(ONE, 20)
            held.release()
            assert await read(consumer, 10) == {ONE: [*range(20, 30)]}

    play(scenario)


SECRET = TopicPartition("secret", 0)
NO_TOPIC = {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "name": SECRET.topic}
NO_OFFSET = {
    "partition_index": 1,
    "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "timestamp": -1,
    "offset": -1,
}
NOTHING_COMMITTED = {
    "partition_index": 1,
    "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "committed_offset": -1,
}
OF_TOPIC = [{"name": TOPIC, "partitions": [NOTHING_COMMITTED]}]
OF_GROUP = {"group_id": GROUP, "topics": OF_TOPIC}


@pytest.mark.parametrize(
    ("partition", "key", "values"),
    [
        (SECRET, METADATA, {"brokers": KNOWN_BROKERS, "topics": [NO_TOPIC]}),
        (ALL[1], LIST_OFFSETS, {"topics": [{"name": TOPIC, "partitions": [NO_OFFSET]}]}),
        (
            ALL[1],
            OFFSET_FETCH,
            {"groups": [{"group_id": GROUP, "topics": OF_TOPIC}], "topics": OF_TOPIC},
        ),
    ],
)
def test_nobody_is_told_of_a_partition_that_is_not_assigned_any_more(
    partition: TopicPartition, key: int, values: dict[str, object]
) -> None:
    """Its error would end the reading of those that are."""

    async def scenario(stage: Stage) -> None:
        refused = answering(key, values)
        late: list[Callable[[], object]] = []

        def bend(
            connection: Connection, header: RequestHeader, frame: bytes, answer: Answer
        ) -> bool:
            if header.api_key != key or late:
                return False
            late.append(lambda: refused(connection, header, frame, answer))
            return True

        async with stage.consumer(**ALONE) as consumer:
            await consumer.end_offsets(ALL)
            with stage.bent(bend):
                consumer.assign([partition])
                while not late:
                    await asyncio.sleep(0.01)
                consumer.assign([ONE])
                late[0]()
                assert await read(consumer, 20) == {ONE: [*range(20)]}

    play(scenario)


def test_nobody_is_told_late_of_a_partition_that_is_not_assigned_any_more() -> None:
    """Its broker has answered while it was assigned, and another broker answers afterwards."""

    async def scenario(stage: Stage) -> None:
        refused = answering(LIST_OFFSETS, {"topics": [{"name": TOPIC, "partitions": [NO_OFFSET]}]})
        late: list[Callable[[], object]] = []

        def bend(
            connection: Connection, header: RequestHeader, frame: bytes, answer: Answer
        ) -> bool:
            if header.api_key != LIST_OFFSETS or len(late) == 2:
                return False
            late.append(lambda: refused(connection, header, frame, answer))
            return True

        async with stage.consumer(**ALONE) as consumer:
            await consumer.end_offsets(ALL)
            with stage.bent(bend):
                consumer.assign([ALL[1], ALL[2]])
                while len(late) < 2:
                    await asyncio.sleep(0.01)
                for each in late:
                    each()
                    await asyncio.sleep(0.01)
                    consumer.assign([ONE])
                assert await read(consumer, 20) == {ONE: [*range(20)]}

    play(scenario)


def test_who_comes_back_does_not_wait_for_a_broker_that_was_asked_with_it_before() -> None:
    """That broker is silent; the one of the partition has refused the earlier question."""

    async def scenario(stage: Stage) -> None:
        refused = answering(LIST_OFFSETS, {"topics": [{"name": TOPIC, "partitions": [NO_OFFSET]}]})
        asked: list[Callable[[], object]] = []

        def bend(
            connection: Connection, header: RequestHeader, frame: bytes, answer: Answer
        ) -> bool:
            if header.api_key != LIST_OFFSETS or len(asked) == 2:
                return False
            asked.append(lambda: refused(connection, header, frame, answer))
            return True

        async with stage.consumer(**ALONE) as consumer:
            await consumer.end_offsets(ALL)
            with stage.bent(bend):
                consumer.assign([ALL[1], ALL[2]])
                while len(asked) < 2:
                    await asyncio.sleep(0.01)
                consumer.assign([])
                consumer.assign([ALL[1]])
                asked[0]()
                async with asyncio.timeout(30):
                    assert await read(consumer, 20) == {ALL[1]: [*range(20)]}

    play(scenario)
