"""One socket to one broker on an event loop: many requests under way, answered in order.

A request that is not answered in time closes the connection: later bytes could belong to the late
response. The request of a cancelled caller stays, with its time-out; its answer is read and
dropped.
"""

import asyncio
import math
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Final, NamedTuple, cast
from weakref import WeakSet

from odradek.client.addresses import Address
from odradek.client.aio.socket_watch import SocketWatch
from odradek.client.apis import ClientApi, VersionRanges
from odradek.client.core.network.connection import (
    OVER_AFTER,
    RENEWED_AFTER,
    ConnectionCore,
    ConnectionState,
)
from odradek.client.core.network.handshake import Answer, LoginSource, LoginTerms
from odradek.client.core.network.traffic import Traffic
from odradek.client.errors import (
    KafkaError,
    NetworkError,
    RequestTimedOut,
    in_words,
)
from odradek.client.security import NO_SECURITY, ClientSecurity, tls_failure
from odradek.protocol.primitives import Buffer, ProtocolError
from odradek.system_calls import not_for_children

_SETUP_TIMEOUT: Final = "socket.connection.setup.timeout.ms"
_RENEWS_ANEW_S: Final = 0.1
_connections: "Final[WeakSet[AsyncConnection]]" = WeakSet()


def _give_up_descriptors() -> list[int]:
    descriptors = [each.descriptor for each in _connections if each.descriptor >= 0]
    _connections.clear()
    return descriptors


not_for_children(_give_up_descriptors)


class _Asked(NamedTuple):
    """The future of a response, and its time-out. The time-out belongs to the request: its caller
    may be cancelled."""

    answered: asyncio.Future[Answer]
    timer: asyncio.TimerHandle | None

    def ended(self) -> bool:
        """Ends the time-out; returns whether the caller still waits."""
        if self.timer is not None:
            self.timer.cancel()
        return not self.answered.done()


class AsyncConnection(asyncio.BufferedProtocol):
    """A connection with the broker's API versions at hand; made by `open_connection`."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        *,
        traffic: Traffic | None = None,
        security: ClientSecurity = NO_SECURITY,
        terms: LoginTerms | None = None,
    ) -> None:
        """`terms` are those of the first login; see `login_terms`."""
        self.address = address
        self.tls = security.tls
        self._login = security.login
        self._core = ConnectionCore(client_id, traffic=traffic, login=terms)
        self._renew_at_s = math.inf
        self._over_at_s = math.inf
        self._renewal: asyncio.Task[LoginTerms] | None = None
        self._transport: asyncio.Transport | None = None
        self.descriptor = -1
        _connections.add(self)
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cause: KafkaError | None = None
        # Set while the transport has nothing that the socket did not take yet, and no login holds
        # anything back.
        self._socket_watch: SocketWatch | None = None
        self._is_paused = False
        self._drained = asyncio.Event()
        self._drained.set()
        self._last_used_s = 0.0

    @property
    def is_closed(self) -> bool:
        """Whether no request can be sent any more."""
        return self._core.state is ConnectionState.CLOSED

    @property
    def is_ready(self) -> bool:
        """Whether the handshake has succeeded, and the connection is open."""
        return self._core.state is ConnectionState.READY

    @property
    def was_silent(self) -> bool:
        """Whether the connection was given up because a request timed out."""
        return isinstance(self._cause, RequestTimedOut)

    @property
    def idle_ms(self) -> float:
        """The time since it was last used."""
        return (asyncio.get_running_loop().time() - self._last_used_s) * 1000

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
        """Sends a request; the future has its answer, or the error: `NetworkError` if the
        connection broke, `RequestTimedOut` if none came in time, which closes the connection."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(timeout_ms / 1000, self._overdue, api, timeout_ms)
        return self._send(api, version, body, timer)

    def send(self, api: ClientApi, version: int, body: Sequence[Buffer]) -> asyncio.Future[Answer]:
        """Like `request`, for callers that have their own time-out."""
        return self._send(api, version, body, None)

    def _send(
        self,
        api: ClientApi,
        version: int,
        body: Sequence[Buffer],
        timer: asyncio.TimerHandle | None,
    ) -> asyncio.Future[Answer]:
        self._is_used()
        asked = _Asked(asyncio.get_running_loop().create_future(), timer)
        if self.is_closed:
            asked.ended()
            asked.answered.set_exception(self._cause or NetworkError(f"{self.address}: closed"))
        else:
            self._core.send(api, version, body, asked)
            self._flush()
        return asked.answered

    def _is_used(self) -> None:
        """Marks the connection as used, and renews the login if that is due."""
        self._last_used_s = asyncio.get_running_loop().time()
        self._renew_if_due()
        if self._renewal is not None and self._last_used_s >= self._over_at_s:
            self._core.hold()

    def _renew_if_due(self) -> None:
        if asyncio.get_running_loop().time() >= self._renew_at_s:
            self._renew_login()

    def _renew_login(self) -> None:
        """Before the session ends, and with the next request: an unused one may end."""
        self._renew_at_s = math.inf
        if self.is_closed or self._login is None:
            return
        terms = self._login.at_hand()
        if terms is not None:
            self._core.renew_login(terms)
        else:
            # Requests meanwhile use the current session, if it is not over.
            task = asyncio.ensure_future(login_terms(self._login))
            task.add_done_callback(self._on_terms)
            self._renewal = task

    def _on_terms(self, task: "asyncio.Task[LoginTerms]") -> None:
        self._renewal = None
        if self.is_closed:
            return
        if task.cancelled():
            # By a program that cancels all tasks. If its loop goes on, so does the login.
            self._renew_at_s = asyncio.get_running_loop().time()
            asyncio.get_running_loop().call_later(_RENEWS_ANEW_S, self._renew_anew)
            return
        error = task.exception()
        if error is not None:
            self.close(error if isinstance(error, KafkaError) else NetworkError(repr(error)))
        else:
            self._core.renew_login(task.result())
            self._flush()

    def _renew_anew(self) -> None:
        self._renew_if_due()
        self._flush()  # the terms may be at hand by now

    def _note_session(self) -> None:
        lifetime_ms = self._core.take_session_lifetime_ms()
        if lifetime_ms:
            now_s = asyncio.get_running_loop().time()
            self._renew_at_s = now_s + lifetime_ms * RENEWED_AFTER / 1000
            self._over_at_s = now_s + lifetime_ms * OVER_AFTER / 1000

    def _overdue(self, api: ClientApi, timeout_ms: int) -> None:
        limit = f"{timeout_ms} ms ({api.limited_by})"
        self.close(RequestTimedOut(f"{self.address} did not answer {api.name} in {limit}"))

    async def send_unanswered(
        self, api: ClientApi, version: int, body: Sequence[Buffer], timeout_ms: int
    ) -> None:
        """Sends a request that brokers do not answer, and waits until the socket has all of it.

        Raises:
            NetworkError: the connection is closed.
            RequestTimedOut: the socket did not take it in time; the connection is closed then.
        """
        loop = asyncio.get_running_loop()
        self._is_used()
        if self._transport is not None and not self.is_closed:
            self._notice_every_byte(self._transport)
            self._core.send(api, version, body, None, is_answered=False)
            self._flush()
            timer = loop.call_later(timeout_ms / 1000, self._overdue, api, timeout_ms)
            if not self._is_drained:
                self._drained.clear()
            try:
                await self._drained.wait()
            finally:
                timer.cancel()
        if self.is_closed:
            raise self._cause or NetworkError(f"{self.address}: closed")

    def _notice_every_byte(self, transport: asyncio.Transport) -> None:
        """Makes the transport pause as soon as any byte waits for the socket."""
        if self._socket_watch is None:
            transport.set_write_buffer_limits(0)
        else:
            self._socket_watch.begin()
            # TLS pauses at its limit, not beyond it: by 0 it would with nothing written.
            transport.set_write_buffer_limits(1, 0)

    def close(self, cause: KafkaError | None = None) -> None:
        """Closes the connection; waiting callers get `cause`. A second call does nothing."""
        if self.is_closed:
            return
        self._cause = cause if cause is not None else NetworkError(f"{self.address}: closed")
        for asked in self._core.lost():
            assert isinstance(asked, _Asked), f"{asked!r} waits for an answer"
            if asked.ended():
                asked.answered.set_exception(self._cause)
        self._drained.set()
        if self._renewal is not None:
            self._renewal.cancel()
        if not self._ready.done():
            self._ready.set_exception(self._cause)
            self._ready.exception()  # it may have no waiter
        if self._transport is not None:
            self._transport.abort()

    # --- what the transport calls -----------------------------------------------------------

    def secured(self, transport: asyncio.BaseTransport, below: asyncio.Transport) -> None:
        """The socket is connected, with TLS on it, by `below`."""
        self._socket_watch = SocketWatch(below, self._note_drained)
        self.connection_made(transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        socket_ = transport.get_extra_info("socket")
        self.descriptor = -1 if socket_ is None else socket_.fileno()
        if self.is_closed:
            self._transport.abort()  # its caller was cancelled while it was being set up
            return
        self._core.connected()
        self._flush()

    def pause_writing(self) -> None:
        """The transport has more than the socket takes."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """The transport has handed on all of it."""
        self._is_paused = False
        self._note_drained()

    @property
    def _is_drained(self) -> bool:
        is_full = self._socket_watch is not None and self._socket_watch.is_full
        return not (self._is_paused or is_full or self._core.has_held)

    def _note_drained(self) -> None:
        if self._is_drained:
            self._drained.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the transport's to give
        """Returns the buffer to receive into."""
        return self._core.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Takes received bytes."""
        try:
            answered = self._core.buffer_updated(nbytes)
        except ProtocolError as error:
            self.close(NetworkError(f"{self.address}: {error}"))
            return
        except KafkaError as error:
            self.close(error)
            return
        for one in answered:
            assert isinstance(one.context, _Asked), f"{one.context!r} asked"
            if one.context.ended():
                one.context.answered.set_result(one.answer)
        self._flush()
        self._note_drained()
        self._note_session()
        if self.is_ready and not self._ready.done():
            self._ready.set_result(None)

    def eof_received(self) -> None:
        """The broker has closed its side."""
        self.close(NetworkError(f"{self.address}: the broker closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self.descriptor = -1
        reason = "the connection was lost" if exc is None else in_words(exc)
        self.close(NetworkError(f"{self.address}: {reason}"))

    def _flush(self) -> None:
        outgoing = self._core.take_outgoing()
        if outgoing and self._transport is not None:
            self._transport.writelines(outgoing)


async def open_connection(
    address: Address,
    client_id: str,
    setup_timeout_ms: int,
    *,
    traffic: Traffic | None = None,
    security: ClientSecurity = NO_SECURITY,
) -> AsyncConnection:
    """Connects to the first address of a name that answers, each with its own time-out, and waits
    for the end of the handshake. `traffic` counts its bytes and requests. A token for the login is
    requested first, with a separate time-out.

    Raises:
        KafkaError: nobody answers there in time, or the broker refuses.
    """
    failure: KafkaError = NetworkError(f"{address}: the name has no address")
    terms = None if security.login is None else await login_terms(security.login)
    for host in await _resolved(address, setup_timeout_ms):
        try:
            connection = AsyncConnection(
                address, client_id, traffic=traffic, security=security, terms=terms
            )
            return await _open_one(connection, host, setup_timeout_ms)
        except NetworkError as error:
            failure = error
    raise failure


async def login_terms(login: LoginSource) -> LoginTerms:
    """The terms of a login; waits for a request of a token.

    Raises:
        KafkaError: there are none.
    """
    terms = login.at_hand()
    if terms is not None:
        return terms
    try:
        async with asyncio.timeout(login.limit_ms / 1000):
            return await asyncio.wrap_future(login.fetch())
    except TimeoutError:
        raise NetworkError(f"no token was given within {login.limit_ms} ms") from None


async def _resolved(address: Address, timeout_ms: int) -> list[str]:
    """The addresses of a name, in the order in which they are to be tried."""
    with suppress(ValueError):
        return [str(ip_address(address.host))]  # no request is needed
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            found = await asyncio.get_running_loop().getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM
            )
    except TimeoutError:
        text = f"{address}: no address within {timeout_ms} ms ({_SETUP_TIMEOUT})"
        raise NetworkError(text) from None
    except (OSError, ValueError, OverflowError) as error:
        # A broker's metadata about the others may contain no valid host or port.
        raise NetworkError(f"{address}: {in_words(error)}") from error
    return list(dict.fromkeys(str(each[4][0]) for each in found))


async def _open_one(
    connection: AsyncConnection, host: str, setup_timeout_ms: int
) -> AsyncConnection:
    address = connection.address
    try:
        async with asyncio.timeout(setup_timeout_ms / 1000):
            await _connect(connection, host)
            await connection.ready()
    except BaseException as error:
        # Also if the caller is cancelled just after success: nothing else would close it.
        connection.close()
        if isinstance(error, TimeoutError):
            text = f"{address}: no connection within {setup_timeout_ms} ms ({_SETUP_TIMEOUT})"
            raise NetworkError(text) from None
        if isinstance(error, ssl.SSLError):
            raise tls_failure(address, error) from error
        if isinstance(error, OSError | ValueError | OverflowError):
            raise NetworkError(f"{address}: {in_words(error)}") from error
        raise
    return connection


async def _connect(connection: AsyncConnection, host: str) -> None:
    loop = asyncio.get_running_loop()
    address = connection.address
    if connection.tls is None:
        await loop.create_connection(lambda: connection, host, address.port)
        return
    below, _ = await loop.create_connection(asyncio.Protocol, host, address.port)
    if below.is_closing():
        # uvloop's TLS would write to it, and the loop log a traceback.
        raise NetworkError(f"{address}: the broker closed the connection")
    transport = await loop.start_tls(
        below, connection, connection.tls, server_hostname=address.host
    )
    if transport is None:
        raise NetworkError(f"{address}: the connection was lost")
    connection.secured(transport, below)
