"""One socket to one broker on an event loop: many requests under way, answered in order.

A request that is not answered in time costs the connection: what comes later on it could not be
told from a late answer's rest. A caller who is cancelled leaves the request behind; its answer
is read and dropped.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import cast

from odradek.client.addresses import Address
from odradek.client.apis import ClientApi, VersionRanges
from odradek.client.core.connection import Answer, ConnectionCore, ConnectionState
from odradek.client.errors import KafkaError, NetworkError, RequestTimedOut
from odradek.protocol.primitives import Buffer, ProtocolError


class AsyncConnection(asyncio.BufferedProtocol):
    """A connection with the broker's API versions at hand; made by `open_connection`."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self._core = ConnectionCore(client_id)
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cause: KafkaError | None = None
        self.last_used_s = 0.0

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._core.state is ConnectionState.CLOSED

    @property
    def is_ready(self) -> bool:
        """Whether the handshake has ended well, and the connection lives."""
        return self._core.state is ConnectionState.READY

    @property
    def in_flight_count(self) -> int:
        """How many requests wait for their answers."""
        return self._core.in_flight_count

    @property
    def versions(self) -> VersionRanges:
        """The versions of every API that the broker speaks, by key."""
        return self._core.versions

    async def ready(self) -> None:
        """Waits for the end of the handshake.

        Raises:
            KafkaError: there will be none.
        """
        await asyncio.shield(self._ready)

    def agree(self, api: ClientApi) -> int:
        """The version of an API to speak on this connection.

        Raises:
            UnsupportedVersion: there is none.
        """
        return self._core.agree(api)

    def request(
        self, api: ClientApi, version: int, body: Sequence[Buffer], timeout_ms: int
    ) -> asyncio.Future[Answer]:
        """Sends a request; the future has its answer, or what kept it away: `NetworkError` if the
        connection broke, `RequestTimedOut` if none came in time, which closes the connection."""
        answered = self.send(api, version, body)
        if not answered.done():
            timer = asyncio.get_running_loop().call_later(
                timeout_ms / 1000, self._overdue, api, timeout_ms
            )
            answered.add_done_callback(lambda _: timer.cancel())
        return answered

    def _overdue(self, api: ClientApi, timeout_ms: int) -> None:
        self.close(RequestTimedOut(f"{self.address} did not answer {api.name} in {timeout_ms} ms"))

    def send(self, api: ClientApi, version: int, body: Sequence[Buffer]) -> asyncio.Future[Answer]:
        """Sends a request; the future has its answer, or the `KafkaError` that kept it away."""
        loop = asyncio.get_running_loop()
        self.last_used_s = loop.time()
        answered: asyncio.Future[Answer] = loop.create_future()
        if self.is_closed:
            answered.set_exception(self._cause or NetworkError(f"{self.address}: closed"))
            return answered
        self._core.send(api, version, body, answered)
        self._flush()
        return answered

    def send_unanswered(self, api: ClientApi, version: int, body: Sequence[Buffer]) -> None:
        """Sends a request that brokers do not answer.

        Raises:
            NetworkError: the connection is closed.
        """
        if self.is_closed:
            raise self._cause or NetworkError(f"{self.address}: closed")
        self._core.send(api, version, body, None, is_answered=False)
        self._flush()

    def close(self, cause: KafkaError | None = None) -> None:
        """Closes the connection: whoever waits gets `cause`. Harmless when it is closed."""
        if self.is_closed:
            return
        self._cause = cause if cause is not None else NetworkError(f"{self.address}: closed")
        for answered in self._core.lost():
            assert isinstance(answered, asyncio.Future), f"{answered!r} waits for an answer"
            if not answered.done():
                answered.set_exception(self._cause)
        if not self._ready.done():
            self._ready.set_exception(self._cause)
            self._ready.exception()  # nobody may be waiting for it
        if self._transport is not None:
            self._transport.abort()

    # --- what the transport calls -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._core.connected()
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the transport's to give
        """Where to receive."""
        return self._core.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        try:
            answered = self._core.buffer_updated(nbytes)
        except ProtocolError as error:
            self.close(NetworkError(f"{self.address}: {error}"))
            return
        except KafkaError as error:
            self.close(error)
            return
        for one in answered:
            assert isinstance(one.context, asyncio.Future), f"{one.context!r} asked"
            if not one.context.done():
                one.context.set_result(one.answer)
        self._flush()
        if self.is_ready and not self._ready.done():
            self._ready.set_result(None)

    def eof_received(self) -> None:
        """The broker has ended."""
        self.close(NetworkError(f"{self.address}: the broker closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        reason = "the connection was lost" if exc is None else str(exc)
        self.close(NetworkError(f"{self.address}: {reason}"))

    def _flush(self) -> None:
        outgoing = self._core.take_outgoing()
        if outgoing and self._transport is not None:
            self._transport.writelines(outgoing)


async def open_connection(
    address: Address, client_id: str, setup_timeout_ms: int
) -> AsyncConnection:
    """Connects, and waits for the end of the handshake.

    Raises:
        KafkaError: nobody answers there in time, or the broker refuses.
    """
    loop = asyncio.get_running_loop()
    connection: AsyncConnection | None = None
    try:
        async with asyncio.timeout(setup_timeout_ms / 1000):
            _, connection = await loop.create_connection(
                partial(AsyncConnection, address, client_id), address.host, address.port
            )
            await connection.ready()
            return connection
    except TimeoutError:
        raise NetworkError(f"{address}: no connection within {setup_timeout_ms} ms") from None
    except (OSError, ValueError, OverflowError) as error:
        # What a broker says of the others may be no host or port at all.
        raise NetworkError(f"{address}: {error}") from error
    finally:
        if connection is not None and not connection.is_ready:
            connection.close()
