"""Requests that brokers do not answer: acks=0. If these fail, records are told to be delivered that
are still in memory, and that closing throws away."""

import asyncio
from typing import Any

from tests.unit.client.network.test_login import Broker

from odradek.client.addresses import Address
from odradek.client.aio.connection import AsyncConnection
from odradek.client.apis import PRODUCE
from odradek.client.core.network.login import Login
from odradek.protocol.framing import encode_size
from odradek.security.sasl.mechanism import PLAIN


class Wire:
    """A transport whose socket takes all, and the broker behind it."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection
        self.broker = Broker(max_reauth_ms=60_000)
        self.unread: list[bytes] = []

    def writelines(self, buffers: list[bytes]) -> None:
        self.unread.append(b"".join(buffers))

    def set_write_buffer_limits(self, _: int) -> None: ...

    def get_extra_info(self, _: str) -> None: ...

    def abort(self) -> None: ...

    def carry(self) -> None:
        """Takes to the broker what was written, and what it answers back."""
        while self.unread:
            data = self.unread.pop(0)
            while data:
                end = 4 + int.from_bytes(data[:4], "big")
                frame, data = data[4:end], data[end:]
                answer = self.broker.answer(frame)
                if int.from_bytes(frame[:2], "big") != PRODUCE.key:
                    self._receive(encode_size(len(answer)) + answer)

    def _receive(self, back: bytes) -> None:
        self.connection.get_buffer(-1)[: len(back)] = back
        self.connection.buffer_updated(len(back))


def test_what_a_login_holds_back_is_not_said_to_be_sent() -> None:
    """It would have no other bound either."""

    async def scenario() -> None:
        login = Login(PLAIN, "alice", "secret", None)
        connection = AsyncConnection(Address("b", 1), "me", terms=login)
        wire: Any = Wire(connection)
        connection.connection_made(wire)
        wire.carry()
        await connection.ready()
        connection._core.renew_login()
        connection._flush()
        sending = asyncio.create_task(connection.send_unanswered(PRODUCE, 9, [b"x"], 60_000))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not sending.done()
        assert wire.broker.handled == []
        wire.carry()
        await sending
        wire.carry()
        assert wire.broker.handled == [PRODUCE.key]
        connection.close()

    asyncio.run(scenario())


class FullSocket(Wire):
    """A transport whose socket takes nothing: it tells when it has more than its limit."""

    def __init__(self, connection: AsyncConnection) -> None:
        super().__init__(connection)
        self.high = 65_536

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def writelines(self, buffers: list[bytes]) -> None:
        super().writelines(buffers)
        if sum(map(len, self.unread)) > self.high:
            self.connection.pause_writing()

    def carry(self) -> None:
        super().carry()
        self.connection.resume_writing()


def test_what_the_socket_has_not_taken_is_not_said_to_be_sent() -> None:
    """However little it is: what the transport has is dropped when the client is closed."""

    async def scenario() -> None:
        connection = AsyncConnection(Address("b", 1), "me")
        wire: Any = FullSocket(connection)
        connection.connection_made(wire)
        wire.carry()
        await connection.ready()
        sending = asyncio.create_task(connection.send_unanswered(PRODUCE, 9, [b"x"], 60_000))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not sending.done()
        wire.carry()
        await sending
        connection.close()

    asyncio.run(scenario())
