"""The leader that the tests of followers write the answers of is one as over the wire."""

import asyncio
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.unit.replication.test_follower import ScriptedLeader

from odradek.client.addresses import Address
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.direct.fetch import FetchRequest, FetchResponse, encode_fetch_response
from odradek.protocol.direct.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    encode_list_offsets_response,
)
from odradek.replication.follower.leader_channel import LeaderChannel
from odradek.server.peers.leader_channel import SocketLeaderChannel
from odradek.timer import MockTimer

TP = TopicPartition("a", 0)
FETCH, LIST_OFFSETS, VERSIONS = 1, 2, 18
FETCH_VERSION = 12
Encode = Callable[[int, int], bytes]


class Fake:
    """The leader of the tests."""

    def __init__(self) -> None:
        self._leader = ScriptedLeader()

    def ask(self, question: Callable[[LeaderChannel], None]) -> None:
        question(self._leader)

    def answer_fetch(self, code: ErrorCode, session_id: int) -> None:
        self._leader.answer(code=code, session_id=session_id)

    def answer_offset(self, code: ErrorCode, offset: int) -> None:
        self._leader.answer_question(offset if code is ErrorCode.NONE else BrokerError(code))

    def break_off(self) -> None:
        self._leader.break_off()

    def close_channel(self) -> None:
        self._leader.close()

    def close(self) -> None:
        """It holds nothing."""


class Real:
    """A channel to a broker that answers when it is told to."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._asked: list[tuple[asyncio.StreamWriter, int, int]] = []
        self._broken: list[BaseException] = []
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        self._channel = SocketLeaderChannel(address, 1, MockTimer(), 10_000, self._broken.append)

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            frame = await reader.readexactly(struct.unpack(">i", size)[0])
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if key == VERSIONS:
                _send(writer, _versions(version, correlation_id))
            else:
                self._asked.append((writer, version, correlation_id))
        writer.close()

    def ask(self, question: Callable[[LeaderChannel], None]) -> None:
        count = len(self._asked)

        async def ask() -> None:
            question(self._channel)

        async def arrive() -> None:
            while len(self._asked) == count:
                await asyncio.sleep(0)

        self._run(ask())
        self._run(arrive())

    def answer_fetch(self, code: ErrorCode, session_id: int) -> None:
        response = FetchResponse([], code, session_id=session_id)
        self._answer(lambda *head: b"".join(map(bytes, encode_fetch_response(response, *head))))

    def answer_offset(self, code: ErrorCode, offset: int) -> None:
        row = ListOffsetsPartitionResponse(0, code, offset=offset)
        response = ListOffsetsResponse([ListOffsetsTopicResponse("a", [row])])
        self._answer(lambda *head: encode_list_offsets_response(response, *head))

    def _answer(self, encode: Encode) -> None:
        writer, version, correlation_id = self._asked[-1]
        _send(writer, encode(version, correlation_id))
        self._settle()

    def break_off(self) -> None:
        self._asked[-1][0].transport.abort()
        self._settle()

    def close_channel(self) -> None:
        self._channel.close()

    def _settle(self) -> None:
        """Until nobody waits at the channel for what the broker has said."""

        async def settle() -> None:
            while self._channel._exchanges:
                await asyncio.sleep(0)

        self._run(settle())

    def close(self) -> None:
        self._channel.close()
        self._server.close()
        self._run(self._server.wait_closed())
        self._settle()
        self._run(asyncio.sleep(0))
        self._loop.close()
        assert self._broken == []


def _versions(version: int, correlation_id: int) -> bytes:
    served = [
        {"api_key": key, "min_version": 0, "max_version": most}
        for key, most in ((FETCH, FETCH_VERSION), (LIST_OFFSETS, 7))
    ]
    values: Mapping[str, object] = {"error_code": 0, "api_keys": served}
    return struct.pack(">i", correlation_id) + messages.encode_response(VERSIONS, version, values)


def _send(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(struct.pack(">i", len(body)) + body)


World = Fake | Real


@pytest.fixture(params=[Fake, Real])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World = request.param()
    yield made
    made.close()


def fetch(world: World) -> list[Any]:
    """Where the answer is, or will be."""
    answers: list[Any] = []

    def ask(channel: LeaderChannel) -> None:
        channel.fetch(FetchRequest(1, 0, 1, []), answers.append)
        assert answers == [], "no answer comes before the call has returned"

    world.ask(ask)
    return answers


def find_offset(world: World) -> list[Any]:
    answers: list[Any] = []

    def ask(channel: LeaderChannel) -> None:
        channel.find_offset(TP, -1, 5, answers.append)
        assert answers == []

    world.ask(ask)
    return answers


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND])
def test_a_fetch_is_answered_with_what_the_leader_says(world: World, code: ErrorCode) -> None:
    """A leader that refuses a session answers nevertheless: the follower asks for another."""
    answers = fetch(world)
    world.answer_fetch(code, 9)
    (answer,) = answers
    assert isinstance(answer, FetchResponse)
    assert (answer.error_code, answer.session_id) == (code, 9)


def test_a_leader_that_is_gone_is_told_once_and_can_be_asked_again(world: World) -> None:
    """A follower would wait for ever, or never come back to a leader that was restarted."""
    answers = fetch(world)
    world.break_off()
    (answer,) = answers
    assert isinstance(answer, BrokerError)
    assert answer.code is ErrorCode.NETWORK_EXCEPTION
    again = fetch(world)
    world.answer_fetch(ErrorCode.NONE, 1)
    assert (len(answers), len(again)) == (1, 1)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH])
def test_where_a_log_ends_is_a_number_or_an_error(world: World, code: ErrorCode) -> None:
    """A follower would truncate its log to an offset that nobody has said."""
    answers = find_offset(world)
    world.answer_offset(code, 70)
    (answer,) = answers
    if code is ErrorCode.NONE:
        assert answer == 70
    else:
        assert isinstance(answer, BrokerError)
        assert answer.code is code


def test_nothing_is_answered_once_the_channel_is_closed(world: World) -> None:
    """A follower of the next leader would append what the last one says."""
    fetched, found = fetch(world), find_offset(world)
    world.close_channel()
    world.answer_offset(ErrorCode.NONE, 70)
    world.answer_fetch(ErrorCode.NONE, 1)
    assert (fetched, found) == ([], [])
