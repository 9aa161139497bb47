"""Where readers begin and go on when a leader cannot say yet, or has lost what was committed.

If these fail, a reader gives up what passes by itself, or begins behind records that it never saw.
"""

import asyncio

import pytest
from tests.simulation.client.consuming.client_groups import (
    FETCH,
    GROUP,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    TOPIC,
)
from tests.simulation.client.test_client_cluster import (
    ALL,
    FLEXIBLE_FROM,
    Answer,
    Stage,
    answering,
    play,
    read,
)
from tests.simulation.virtual import Connection

from odradek.client.errors import LogTruncated
from odradek.errors import ErrorCode
from odradek.protocol import messages
from odradek.protocol.header import RequestHeader, decode_request_header

# What a new leader says until its high watermark is known, and one whose disk comes back.
PASSING = [ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR]


async def asked(stage: Stage, key: int, times: int) -> None:
    while stage.count(key) < times:
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("code", PASSING)
def test_offsets_that_are_not_available_yet_are_asked_for_again(code: ErrorCode) -> None:
    """By who begins to read, and by who only wants to know."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL)
            stage.brokers.fetch_error = code
            reading = asyncio.create_task(read(consumer, 80))
            telling = asyncio.create_task(consumer.end_offsets(ALL))
            await asked(stage, LIST_OFFSETS, 12)
            assert not reading.done()
            assert not telling.done()
            stage.brokers.fetch_error = ErrorCode.NONE
            assert await telling == dict.fromkeys(ALL, 20)
            assert await reading == {each: list(range(20)) for each in ALL}

    play(scenario)


@pytest.mark.parametrize("code", PASSING)
def test_the_end_of_an_epoch_that_is_not_available_yet_is_asked_for_again(code: ErrorCode) -> None:
    """Fails when records are read before the new leader has answered: it may have others there."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL[:1])
            await read(consumer, 20)
            stage.brokers.fetch_error = code
            stage.brokers.cut_off(0, 12)
            stage.brokers.ends[0] = 25
            reading = asyncio.create_task(read(consumer, 13))
            await asked(stage, OFFSET_FOR_LEADER_EPOCH, 4)
            assert not reading.done()
            stage.brokers.fetch_error = ErrorCode.NONE
            assert await reading == {ALL[0]: list(range(12, 25))}

    play(scenario)


@pytest.mark.parametrize("stores_itself", [True, False])
@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_who_begins_at_a_commit_that_was_cut_off_begins_at_the_cut(
    policy: str, stores_itself: bool
) -> None:
    """Its epoch is committed with it: by the offset alone what came instead is passed over."""

    async def scenario(stage: Stage) -> None:
        settings = {"enable_auto_commit": False, "enable_auto_offset_store": stores_itself}
        async with stage.consumer(**settings) as before:
            before.assign(ALL[:1])
            records = [await before.getone() for _ in range(20)]
            if not stores_itself:
                before.store_offsets(*records)
            await before.commit()
        assert stage.brokers.world.committed(GROUP)[TOPIC, 0] == 20
        stage.brokers.cut_off(0, 12)
        stage.brokers.ends[0] = 25
        async with stage.consumer(enable_auto_commit=False, auto_offset_reset=policy) as consumer:
            consumer.assign(ALL[:1])
            if policy == "none":
                with pytest.raises(LogTruncated, match="from offset 12 on"):
                    await read(consumer, 1)
                consumer.seek(ALL[0], 12)
            assert await read(consumer, 13) == {ALL[0]: list(range(12, 25))}

    play(scenario)


def test_whoever_is_asked_is_told_which_leader_is_meant() -> None:
    """Fails when a leader that is behind, or ahead, may answer about another log."""

    async def scenario(stage: Stage) -> None:
        told: set[tuple[int, int]] = set()

        def listen(_: Connection, header: RequestHeader, frame: bytes, __: Answer) -> bool:
            if header.api_key in (FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH):
                data = memoryview(frame)
                position = decode_request_header(data, FLEXIBLE_FROM).body_position
                request = messages.decode_request(
                    header.api_key, header.api_version, data, position
                )
                told.update(
                    (header.api_key, each.current_leader_epoch)
                    for topic in request.topics
                    for each in topic.partitions
                )
            return False

        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL[:1])
            with stage.bent(listen):
                await read(consumer, 20)
                assert told == {(LIST_OFFSETS, 0), (FETCH, 0)}
                stage.brokers.cut_off(0, 12)
                stage.brokers.ends[0] = 25
                await read(consumer, 13)
        assert told >= {(OFFSET_FOR_LEADER_EPOCH, 1), (FETCH, 1)}

    play(scenario)


OTHER = [{"topic": "other", "partitions": [{"partition": 0, "leader_epoch": 1, "end_offset": 1}]}]


@pytest.mark.parametrize("topics", [[], OTHER], ids=["nothing", "another"])
def test_an_answer_without_the_end_of_an_epoch_is_no_storm(topics: list[object]) -> None:
    """The leader is asked again after a pause, and the reader reads nothing until it has said."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL[:1])
            await read(consumer, 20)
            stage.brokers.cut_off(0, 12)
            stage.brokers.ends[0] = 25
            reading = asyncio.create_task(read(consumer, 13))
            with stage.bent(answering(OFFSET_FOR_LEADER_EPOCH, {"topics": topics})):
                await asyncio.sleep(10)
            assert not reading.done()
            assert 4 <= stage.count(OFFSET_FOR_LEADER_EPOCH) <= 150
            assert await reading == {ALL[0]: list(range(12, 25))}

    play(scenario)
