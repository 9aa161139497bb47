"""Brokers that lie: garbage, cut answers, wrong correlation ids, silence, sizes of gigabytes.

A proxy stands before an honest broker and lies a few times about one kind of request. Whatever it
says, the client goes on when the truth comes: every record is written once, and read once.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tools.free_port import free_port

import odradek
from odradek.client import Consumer, Producer
from odradek.client.apis import (
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    JOIN_GROUP,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
    SYNC_GROUP,
    ClientApi,
)
from odradek.client.errors import BadRecord, KafkaError
from odradek.model import TopicPartition

RECORDS = 12
LIES = 2
Run = Callable[[Coroutine[Any, Any, None]], None]
# A frame as it would have come; what comes in its place, None for the end of the connection.
Lie = Callable[[bytes], bytes | None]


def garbage(frame: bytes) -> bytes:
    """The right answer's size and correlation id, and nonsense."""
    return frame[:8] + b"\xfb" * (len(frame) - 8)


def cut_short(frame: bytes) -> bytes:
    """Half of it, as if that were all."""
    half = frame[4 : 4 + (len(frame) - 4) // 2]
    return struct.pack(">i", len(half)) + half


def broken_off(frame: bytes) -> None:
    """The connection ends instead."""


def of_another_question(frame: bytes) -> bytes:
    (correlation_id,) = struct.unpack_from(">i", frame, 4)
    return frame[:4] + struct.pack(">i", correlation_id + 1) + frame[8:]


def silence(frame: bytes) -> bytes:
    """Nothing comes, and the connection stays."""
    return b""


def gigabytes(frame: bytes) -> bytes:
    return struct.pack(">i", 0x7FFFFFFF) + frame[4:]


class LyingProxy:
    """Passes everything on, but lies about the first answers to requests of one API."""

    def __init__(self, api: ClientApi, lie: Lie, lies: int = LIES) -> None:
        self._api = api
        self._lie = lie
        self.left = lies
        self.target = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        theirs_in, theirs_out = await asyncio.open_connection("127.0.0.1", self.target)
        asked: list[int] = []
        questions = asyncio.create_task(self._pass_questions(reader, theirs_out, asked))
        try:
            while True:
                frame = await _frame(theirs_in)
                if asked.pop(0) == self._api.key and self.left:
                    self.left -= 1
                    lie = self._lie(frame)
                    if lie is None:
                        return
                    frame = lie
                writer.write(frame)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return  # a server's task that is cancelled would be told of as an error
        finally:
            questions.cancel()
            writer.close()
            theirs_out.close()

    async def _pass_questions(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[int]
    ) -> None:
        try:
            while True:
                frame = await _frame(reader)
                asked.append(struct.unpack_from(">h", frame, 4)[0])
                writer.write(frame)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(struct.unpack(">i", size)[0])


@asynccontextmanager
async def behind(proxy: LyingProxy) -> AsyncIterator[str]:
    """A broker whose clients only ever speak to the proxy; where that listens."""
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy.target = free_port()
    listeners = (f"PLAINTEXT://127.0.0.1:{proxy.target}",)
    settings = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "group.min.session.timeout.ms": "100",
    }
    async with server:
        with odradek.Broker(listeners=listeners, config=settings) as broker:
            broker.create_topic("t")
            yield f"127.0.0.1:{port}"


async def in_time(scenario: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(60):
        await scenario


SLOW = pytest.mark.slow
SETTINGS: dict[str, object] = {
    "request_timeout_ms": 1000,
    "retry_backoff_ms": 10,
    "socket_connection_setup_timeout_ms": 1000,
}


LIES_TOLD = (garbage, cut_short, broken_off, of_another_question, silence, gigabytes)
APIS = (API_VERSIONS, METADATA, PRODUCE, FETCH, FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP)
CASES = [
    pytest.param(api, lie, id=f"{api.name}-{lie.__name__}", marks=() if lie is garbage else SLOW)
    for api in APIS
    for lie in LIES_TOLD
    # Whoever joins is patient: others may take as long as max.poll.interval.ms.
    if lie is not silence or api not in (JOIN_GROUP, SYNC_GROUP)
]


@pytest.mark.parametrize(("api", "lie"), CASES)
def test_the_client_goes_on_when_the_truth_comes(run: Run, api: ClientApi, lie: Lie) -> None:
    async def scenario() -> None:
        proxy = LyingProxy(api, lie)
        async with behind(proxy) as servers:
            async with Producer(servers, linger_ms=0, **SETTINGS) as producer:
                for number in range(RECORDS):
                    await producer.send(topic="t", value=b"%d" % number)
                await producer.flush()
            more = {
                "group_id": "g",
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 100,
                # Who joined, and was lied to about it, is a member that nobody hears of again.
                "session_timeout_ms": 1000,
            }
            async with Consumer(servers, **SETTINGS, **more) as consumer:
                consumer.subscribe(["t"])
                seen: list[int] = []
                while len(seen) < RECORDS:
                    for records in (await consumer.getmany(timeout_ms=1000)).values():
                        seen += [int(each.value) for each in records]
                await consumer.commit()
            assert seen == list(range(RECORDS))
            assert proxy.left == 0, "it has lied"

    run(in_time(scenario()))


def test_a_commit_whose_answer_is_lost_is_made_again(run: Run) -> None:
    async def scenario() -> None:
        proxy = LyingProxy(OFFSET_COMMIT, broken_off)
        one = TopicPartition("t", 0)
        async with (
            behind(proxy) as servers,
            Consumer(servers, group_id="g", **SETTINGS) as consumer,
        ):
            await consumer.commit({one: 7})
            committed = (await consumer.committed([one]))[one]
            assert committed is not None
            assert committed.offset == 7

    run(in_time(scenario()))


def test_a_batch_whose_checksum_is_wrong_is_told_and_can_be_passed(run: Run) -> None:
    def flip_the_last_bit(frame: bytes) -> bytes:
        return frame[:-12] + bytes([frame[-12] ^ 1]) + frame[-11:]

    async def scenario() -> None:
        proxy = LyingProxy(FETCH, flip_the_last_bit, 1)
        async with behind(proxy) as servers:
            async with Producer(servers) as producer:
                for _ in range(2):
                    await producer.send_and_wait("t", b"a value that is long enough")
            async with Consumer(servers, auto_offset_reset="earliest") as consumer:
                one = TopicPartition("t", 0)
                consumer.assign([one])
                found = []

                async def read() -> None:
                    while True:
                        found.extend((await consumer.getmany(timeout_ms=5000)).get(one, []))

                with pytest.raises(BadRecord) as caught:
                    await read()
                assert (caught.value.partition, caught.value.offset) == (one, len(found))
                consumer.seek(one, caught.value.offset)
                while len(found) < 2:
                    found += (await consumer.getmany(timeout_ms=5000)).get(one, [])
                assert [each.offset for each in found] == [0, 1]

    run(in_time(scenario()))


def test_a_broker_that_only_lies_is_an_error_in_time(run: Run) -> None:
    async def scenario() -> None:
        proxy = LyingProxy(METADATA, garbage, 1_000_000)
        async with (
            behind(proxy) as servers,
            Producer(servers, max_block_ms=500, **SETTINGS) as producer,
        ):
            with pytest.raises(KafkaError):
                await producer.send("t", b"v")

    run(in_time(scenario()))
