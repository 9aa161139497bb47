"""Answers of a broker that is newer, or that lies, are an error, and never the end of the asking
one."""

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.deadlines import deadline_s

from odradek.client.addresses import Address
from odradek.client.apis import ClientApi
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.direct.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    encode_list_offsets_response,
)
from odradek.server.peers.leader_channel import SocketLeaderChannel
from odradek.timer import MockTimer

VERSIONS = 18
LIST_OFFSETS = 2
END_TXN = ClientApi(26, "EndTxn", 5, 5, 5)
UNKNOWN = 9999
TIMEOUT_MS = 10_000

Asking = Callable[[SocketLeaderChannel, Callable[[Any], None]], None]


def list_offsets_answer(topics: list[ListOffsetsTopicResponse]) -> Callable[[int, int], bytes]:
    return lambda version, correlation_id: encode_list_offsets_response(
        ListOffsetsResponse(topics), version, correlation_id
    )


def unknown_code(version: int, correlation_id: int) -> bytes:
    """An EndTxn 5: throttled for no time, a code of the future, producer id and epoch, no tags."""
    return struct.pack(">ibihqhb", correlation_id, 0, 0, UNKNOWN, -1, -1, 0)


def ask(answer: Callable[[int, int], bytes | None], asking: Asking) -> Any:
    """The outcome where every request is answered by `answer`. Where that gives None the other side
    is silent, and the channel's time-out passes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            frame = await reader.readexactly(struct.unpack(">i", size)[0])
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if key == VERSIONS:
                served = [{"api_key": one, "min_version": 0, "max_version": 11} for one in (2, 26)]
                values: Mapping[str, object] = {"error_code": 0, "api_keys": served}
                body = struct.pack(">i", correlation_id) + messages.encode_response(
                    key, version, values
                )
            else:
                body = answer(version, correlation_id)
            if body is None:
                timer.advance_clock(TIMEOUT_MS - 1)
                assert not heard_now()
                timer.advance_clock(1)
                continue
            writer.write(struct.pack(">i", len(body)) + body)
        writer.close()
        await writer.wait_closed()
        served_all.set()

    served_all = asyncio.Event()
    timer = MockTimer()
    heard: list[asyncio.Future[Any]] = []

    def heard_now() -> bool:
        return heard[0].done()

    async def main() -> Any:
        broken: list[BaseException] = []
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
            channel = SocketLeaderChannel(address, 1, timer, TIMEOUT_MS, broken.append)
            heard.append(asyncio.get_running_loop().create_future())
            asking(channel, heard[0].set_result)
            outcome = await asyncio.wait_for(heard[0], deadline_s(10))
            channel.close()
            await served_all.wait()
        assert broken == []
        return outcome

    return asyncio.run(main())


def find_offset(channel: SocketLeaderChannel, on_done: Callable[[Any], None]) -> None:
    channel.find_offset(TopicPartition("t", 0), -1, 0, on_done)


def end_transaction(channel: SocketLeaderChannel, on_done: Callable[[Any], None]) -> None:
    values = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "committed": True}
    channel.ask(END_TXN, values, on_done)


@pytest.mark.parametrize(
    "topics", [[], [ListOffsetsTopicResponse("t", [])]], ids=["no topic", "no partition"]
)
def test_an_answer_without_what_was_asked_for_is_none(
    topics: list[ListOffsetsTopicResponse],
) -> None:
    """The follower would be stopped by an IndexError, and its broker with it."""
    outcome = ask(list_offsets_answer(topics), find_offset)
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.NETWORK_EXCEPTION


def test_a_code_of_the_future_is_an_unknown_error() -> None:
    """A cluster could not be brought to a newer version broker by broker."""
    row = ListOffsetsPartitionResponse(0, UNKNOWN)
    outcome = ask(list_offsets_answer([ListOffsetsTopicResponse("t", [row])]), find_offset)
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_code_of_the_future_in_a_cold_answer_is_an_unknown_error() -> None:
    """Here another reader is at work, whose table may end earlier still."""
    outcome = ask(unknown_code, end_transaction)
    assert ErrorCode(outcome.error_code) is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("asking", [find_offset, end_transaction])
def test_a_silent_broker_is_left_after_the_time_out(asking: Asking) -> None:
    """A follower, or a transaction, would wait for it for good."""
    outcome = ask(lambda _version, _correlation_id: None, asking)
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.NETWORK_EXCEPTION
    assert f"was silent for {TIMEOUT_MS} ms" in outcome.message
