"""A proxy that lies: what it says in the place of answers. For tests of a client before a broker
of ours."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.streams import serving
from tools.free_port import free_port

import odradek
from odradek.client.apis import ClientApi
from odradek.errors import ErrorCode

LIES = 2
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
    """No answer comes, and the connection stays."""
    return b""


def gigabytes(frame: bytes) -> bytes:
    return struct.pack(">i", 0x7FFFFFFF) + frame[4:]


def refusal(code: ErrorCode) -> Lie:
    """The answer of a broker of ours, to a question about groups, with another error code: its
    header has no more than one byte of tags, and the code follows the throttle time."""

    def lie(frame: bytes) -> bytes:
        return frame[:13] + struct.pack(">h", code) + frame[15:]

    lie.__name__ = code.name.lower()
    return lie


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
        finally:
            questions.cancel()
            theirs_out.close()

    async def _pass_questions(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[int]
    ) -> None:
        try:
            while True:
                frame = await _frame(reader)
                asked.append(struct.unpack_from(">h", frame, 4)[0])
                await self._before_passing(asked[-1])
                writer.write(frame)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    async def _before_passing(self, api_key: int) -> None:
        """A question has come."""


class HoldingProxy(LyingProxy):
    """Says what is true, but keeps questions of one API back until it `may_pass`."""

    def __init__(self, api: ClientApi) -> None:
        super().__init__(api, broken_off, 0)
        self.came = asyncio.Event()
        self.may_pass = asyncio.Event()

    async def _before_passing(self, api_key: int) -> None:
        if api_key == self._api.key:
            self.came.set()
            await self.may_pass.wait()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(struct.unpack(">i", size)[0])


@asynccontextmanager
async def behind(proxy: LyingProxy, partitions: int = 1) -> AsyncIterator[str]:
    """A broker whose clients only ever speak to the proxy; where that listens."""
    async with serving(proxy.serve) as port:
        proxy.target = free_port()
        settings = {
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "group.min.session.timeout.ms": "100",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "1000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "100",
        }
        listeners = (f"PLAINTEXT://127.0.0.1:{proxy.target}",)
        with odradek.Broker(listeners=listeners, config=settings) as broker:
            broker.create_topic("t", partitions=partitions)
            yield f"127.0.0.1:{port}"
