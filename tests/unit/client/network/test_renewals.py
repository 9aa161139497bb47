"""Logins that are renewed on an open connection, by terms for which somebody has to be asked. If
these fail, what is sent behind the end of a session is not answered."""

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest
from tests.simulation.virtual import VirtualLoop
from tests.unit.client.network.test_unanswered import Wire

from odradek.client.addresses import Address
from odradek.client.aio.connection import AsyncConnection
from odradek.client.apis import METADATA
from odradek.client.core.network.handshake import LoginTerms
from odradek.client.core.network.login import Login
from odradek.client.security import ClientSecurity
from odradek.security.sasl.mechanism import PLAIN


class SlowSource:
    """Gives its terms when the test says so."""

    limit_ms = 60_000

    def __init__(self) -> None:
        self.asked: list[Future[LoginTerms]] = []
        self.held: LoginTerms | None = None

    def at_hand(self) -> LoginTerms | None:
        return self.held

    def fetch(self) -> Future[LoginTerms]:
        self.asked.append(Future())
        return self.asked[-1]


@pytest.mark.parametrize("comes_meanwhile", [False, True])
def test_a_renewal_that_is_cancelled_begins_anew(comes_meanwhile: bool) -> None:
    """By a program that cancels all tasks of its loop, and goes on. Requests wait for it, also if
    another connection has brought the terms meanwhile."""

    async def scenario() -> None:
        login, source = Login(PLAIN, "alice", "secret", None), SlowSource()
        security = ClientSecurity(login=source)
        connection = AsyncConnection(Address("b", 1), "me", security=security, terms=login)
        wire: Any = Wire(connection)
        connection.connection_made(wire)
        wire.carry()
        await connection.ready()
        await asyncio.sleep(60)
        answered = connection.send(METADATA, 1, [b""])
        await asyncio.sleep(0)
        assert connection._renewal is not None
        connection._renewal.cancel()
        source.held = login if comes_meanwhile else None
        await asyncio.sleep(1)
        if not comes_meanwhile:
            assert len(source.asked) == 2
            source.asked[1].set_result(login)
            await asyncio.sleep(1)
        wire.carry()
        await answered
        connection.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario())
