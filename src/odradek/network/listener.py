"""One listening socket and the connections that came through it (Kafka's `Acceptor`).

Accepting, admission and the end of idle connections. There are no processors to hand a
connection to: the loop that accepts is the loop that serves.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, cast
from weakref import WeakSet

from odradek.errors import reason_of
from odradek.log_limit import LimitedLog
from odradek.model import EndPoint
from odradek.network.addresses import as_asked, format_host_port, plain_address
from odradek.network.connection import Connection, ConnectionContext
from odradek.network.connection_pace import AddressRates, ConnectionPace, CreationRate
from odradek.network.connection_quotas import ConnectionQuotas
from odradek.network.readiness import READ, WRITE
from odradek.network.socket_protocol import SocketProtocol
from odradek.network.transport import Transport
from odradek.protocol.exchange import RequestHandler
from odradek.system_calls import not_for_children
from odradek.timer import Timer, TimerTask

logger = logging.getLogger(__name__)

OS_DEFAULT: Final = -1


class ListenerError(Exception):
    """A listener cannot be opened; the text names it and the reason."""


def cannot_listen(address: str, error: OSError) -> ListenerError:
    """Returns the error of an address that cannot be had, with what to do where another program
    has it."""
    is_taken = error.errno == errno.EADDRINUSE
    advice = "; give another port, or port 0 for a free one" if is_taken else ""
    return ListenerError(f"Cannot listen on {address}: {reason_of(error)}{advice}")


class ListenerSecurity(Protocol):
    """The protection of a listener that is not PLAINTEXT."""

    def protocol(
        self,
        admit: Callable[[Any], Connection | None],
        on_lost: Callable[[Connection], None],
    ) -> asyncio.BaseProtocol:
        """The asyncio protocol of an accepted socket."""
        ...

    def guard(self, connection: Connection) -> None:
        """Passes on no frame of a connection before its client is authenticated; sets
        `is_established` then."""
        ...


class SocketOptions:
    """How the sockets of a listener are set up; -1 leaves a buffer to the operating system."""

    def __init__(
        self,
        backlog: int = 50,
        send_buffer_bytes: int = OS_DEFAULT,
        receive_buffer_bytes: int = OS_DEFAULT,
    ) -> None:
        self.backlog = backlog
        self.send_buffer_bytes = send_buffer_bytes
        self.receive_buffer_bytes = receive_buffer_bytes


_listeners: "Final[WeakSet[Listener]]" = WeakSet()


def _give_up_descriptors() -> list[int]:
    descriptors = [descriptor for each in _listeners for descriptor, _ in each.awaited()]
    _listeners.clear()
    return descriptors


not_for_children(_give_up_descriptors)


class Listener:
    """Accepts on one end point. `start`, then any number of connections, then `stop`."""

    def __init__(
        self,
        endpoint: EndPoint,
        context: ConnectionContext,
        quotas: ConnectionQuotas,
        rates: Sequence[CreationRate],
        addresses: AddressRates,
        timer: Timer,
        options: SocketOptions,
        idle_max_ms: int,
        on_empty: Callable[[], None],
        *,
        is_protected: bool = False,
        security: ListenerSecurity | None = None,
        setup_max_ms: int = -1,
    ) -> None:
        """A listener that `is_protected` is for brokers: clients cannot use up its connections.
        With `security`, connections that are not authenticated within `setup_max_ms` are dropped.
        """
        self.endpoint = endpoint
        self._context = context
        self._quotas = quotas
        self._pace = ConnectionPace(timer, rates)
        self._addresses = addresses
        self._timer = timer
        self._options = options
        self._idle_max_ms = idle_max_ms
        self._on_empty = on_empty
        self._is_protected = is_protected
        self._security = security
        self._setup_max_ms = setup_max_ms
        self._refusals = LimitedLog(logger, context.clock)
        self._connections: dict[Connection, _Accepted] = {}
        self._socket: socket.socket | None = None
        _listeners.add(self)
        self._server: asyncio.Server | None = None
        self._accepted = 0
        self.is_paused = False
        self._accepts = True

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    @property
    def accepted_count(self) -> int:
        """The number of connections so far."""
        return self._accepted

    def has_open(self, connection_id: str) -> bool:
        """Whether a connection is open; a look at all of them."""
        return any(each.connection_id == connection_id for each in self._connections)

    def bind(self) -> None:
        """Takes the address; from here on `endpoint` has the real port.

        Raises:
            ListenerError: the address cannot be had.
        """
        endpoint = self.endpoint
        is_plain = endpoint.security_protocol == "PLAINTEXT"
        assert is_plain or self._security is not None, f"{endpoint} is to be protected"
        try:
            self._socket = bind_socket(endpoint.host, endpoint.port, self._options)
        except OSError as error:
            raise self._unavailable(error) from error
        self.endpoint = endpoint._replace(port=self._socket.getsockname()[1])

    async def start(self) -> None:
        """Accepts connections on the address that `bind` took.

        Raises:
            ListenerError: another process took the address at the same moment.
        """
        assert self._socket is not None, "bind comes before start"
        loop = asyncio.get_running_loop()
        try:
            # Before the loop does it again: uvloop keeps a failure of `listen` to itself.
            self._socket.listen(self._options.backlog)
            self._server = await loop.create_server(
                self._make_protocol, sock=self._socket, backlog=self._options.backlog
            )
        except OSError as error:
            raise self._unavailable(error) from error

    def stop_accepting(self) -> None:
        """Closes the listening socket, in the loop's next turn at the latest; open connections
        continue."""
        self._accepts = False
        if self._server is not None:
            _close(self._server)
        elif self._socket is not None:
            self._socket.close()

    def use(self, handler: RequestHandler) -> None:
        """Passes later requests to another handler."""
        self._context.handler = handler

    def pause(self) -> None:
        """Keeps accepting, but serves no connection until `resume`."""
        self.is_paused = True
        for connection in self._connections:
            connection.pause()

    def resume(self) -> None:
        """Serves the requests that came meanwhile."""
        self.is_paused = False
        for connection in tuple(self._connections):
            connection.resume()

    def awaited(self) -> Iterator[tuple[int, int]]:
        """The descriptors of the sockets, and the events that the loop awaits on each
        (`readiness`)."""
        listening = self._socket
        if listening is not None and listening.fileno() >= 0:
            yield listening.fileno(), READ
        for connection, accepted in self._connections.items():
            if accepted.descriptor >= 0:
                reads = READ if connection.reads else 0
                writes = WRITE if accepted.transport.get_write_buffer_size() else 0
                yield accepted.descriptor, reads | writes

    def close_connections(self) -> None:
        """Closes every connection, after the answers that were given."""
        for connection in tuple(self._connections):
            connection.close()

    def abort_connections(self) -> None:
        """Drops the connections that would not close: their clients do not read."""
        for accepted in tuple(self._connections.values()):
            accepted.transport.abort()

    def _unavailable(self, error: OSError) -> ListenerError:
        name, _, host, port = self.endpoint
        return cannot_listen(f"{name}://{format_host_port(host, port)}", error)

    # --- the life of a connection ----------------------------------------------------------

    def _make_protocol(self) -> asyncio.BaseProtocol:
        if self._security is not None:
            return self._security.protocol(self._admit, self._on_lost)
        return SocketProtocol(self._admit, self._on_lost)

    def _admit(self, transport: asyncio.BaseTransport) -> Connection | None:
        peer = transport.get_extra_info("peername")
        local = transport.get_extra_info("sockname")
        if not peer or not local:
            return None  # the client was gone before it was accepted
        if not self._accepts:
            return None  # taken from the kernel before, and made in a later turn of the loop
        client_host = plain_address(peer[0])
        refusal = self._quotas.admit(client_host, is_protected=self._is_protected)
        if refusal is not None:
            self._refusals.warning(f"Refused a connection of {client_host}: {refusal}")
            return None
        self._accepted += 1
        local_host = plain_address(local[0])
        client = format_host_port(client_host, peer[1])
        connection_id = f"{format_host_port(local_host, local[1])}-{client}-{self._accepted}"
        connection = Connection(
            self._context,
            cast(Transport, transport),
            connection_id,
            client_host,
            peer[1],
            local_host,
            local[1],
        )
        if self.is_paused:
            connection.pause()
        if self._security is not None:
            self._security.guard(connection)
        self._connections[connection] = accepted = _Accepted(transport)
        wait_ms = self._addresses.count(client_host)
        if wait_ms:
            self._turn_away(connection, accepted, wait_ms)
            return connection
        self._pace.enter(connection)
        if self._idle_max_ms > 0:
            self._watch_idle(connection, accepted)
        if not connection.is_established and self._setup_max_ms > 0:
            self._watch_setup(connection, accepted)
        return connection

    def _on_lost(self, connection: Connection) -> None:
        accepted = self._connections.pop(connection)
        for task in (accepted.idle_task, accepted.setup_task):
            if task is not None:
                task.cancel()
        self._pace.leave(connection)
        self._quotas.leave(connection.client_host)
        if not self._connections:
            self._on_empty()

    def _turn_away(self, connection: Connection, accepted: "_Accepted", wait_ms: int) -> None:
        """Ignores a connection, and closes it when its address could connect again."""
        host = connection.client_host
        self._refusals.warning(f"{host} connects too often (connection_creation_rate)")
        connection.hold()
        accepted.setup_task = TimerTask(wait_ms, accepted.transport.abort)
        self._timer.add(accepted.setup_task)

    def _watch_setup(self, connection: Connection, accepted: "_Accepted") -> None:
        def drop() -> None:
            if not connection.is_established:
                name = connection.connection_id
                waited_ms = self._setup_max_ms
                self._refusals.warning(f"Closing {name}: nobody logged in within {waited_ms} ms")
                accepted.transport.abort()

        accepted.setup_task = TimerTask(self._setup_max_ms, drop)
        self._timer.add(accepted.setup_task)

    def _watch_idle(self, connection: Connection, accepted: "_Accepted") -> None:
        """Reads do not touch the timer, which keeps them cheap: the task looks and waits again."""
        task = TimerTask(self._idle_max_ms, lambda: self._check_idle(connection))
        accepted.idle_task = task
        self._timer.add(task)

    def _check_idle(self, connection: Connection) -> None:
        accepted = self._connections.get(connection)
        if accepted is None or accepted.idle_task is None:
            return
        idle_ms = self._context.clock.monotonic_ms() - connection.received_ms
        if idle_ms < self._idle_max_ms or not connection.idle:
            accepted.idle_task.delay_ms = max(1, self._idle_max_ms - idle_ms)
            self._timer.add(accepted.idle_task)
            return
        logger.info("Closing %s: idle for %d ms", connection.connection_id, idle_ms)
        # Not `close`: a client that has stopped reading would keep it open for ever.
        accepted.transport.abort()


class _Accepted:
    """The listener's state for a connection."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(Transport, transport)
        self.descriptor: Final[int] = transport.get_extra_info("socket").fileno()
        self.idle_task: TimerTask | None = None
        self.setup_task: TimerTask | None = None


def _close(server: asyncio.Server) -> None:
    """Closes a listening server, and no connection that it has just accepted is forgotten.

    asyncio's own loop accepts in one turn and makes the transport in the next. It cannot once the
    server is closed, and leaves the open socket to the garbage collector.
    """
    loop = server.get_loop()
    if not isinstance(loop, asyncio.SelectorEventLoop):
        server.close()
        return
    for each in server.sockets:
        loop.remove_reader(each.fileno())
    loop.call_soon(server.close)


def bind_socket(host: str, port: int, options: SocketOptions) -> socket.socket:
    """A bound TCP socket; an empty host takes every address, IPv6 and IPv4 on one socket.

    Raises:
        OSError: the host is unknown or the address is in use.
    """
    family, address = _resolve(host, port)
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # on Windows it would let others take the address away
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not host else 1)
        # Accepted sockets inherit both, and the window is agreed on before `accept`.
        if options.receive_buffer_bytes != OS_DEFAULT:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
        if options.send_buffer_bytes != OS_DEFAULT:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """The one address to bind: IPv4 first, as clients that say `localhost` expect."""
    if not host:
        if _ipv6_works():
            return socket.AF_INET6, ("::", port)
        return socket.AF_INET, ("0.0.0.0", port)
    found = socket.getaddrinfo(as_asked(host), port, type=socket.SOCK_STREAM)
    family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    return family, address


def _ipv6_works() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
