"""All listeners of a broker, with the buffers, quotas and memory that their connections share.

`start` returns when every listener accepts, or none does; `stop` closes every connection.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from odradek.clock import Clock
from odradek.log_limit import LimitedLog
from odradek.model import EndPoint
from odradek.network.connection import ConnectionContext
from odradek.network.connection_pace import AddressRates, CreationRates
from odradek.network.connection_quotas import UNLIMITED, ConnectionQuotas
from odradek.network.listener import (
    Listener,
    ListenerError,
    ListenerSecurity,
    SocketOptions,
)
from odradek.network.memory.receive_buffers import BufferPool
from odradek.network.memory.request_memory import RequestMemory
from odradek.network.memory.response_memory import ResponseMemory
from odradek.network.readiness import any_ready
from odradek.network.turns import Turns
from odradek.protocol.exchange import RequestHandler
from odradek.timer import Timer

logger = logging.getLogger(__name__)

LAST_ANSWERS_SECONDS: Final = 1.0  # the time for clients to take their last answers


class NetworkLimits:
    """The settings of this floor, as values; `creation_rates` are those of single listeners."""

    def __init__(
        self,
        *,
        frame_max_bytes: int = 104_857_600,
        request_memory_bytes: int = -1,
        idle_max_ms: int = 600_000,
        setup_max_ms: int = 30_000,
        max_connections: int = UNLIMITED,
        max_connections_per_ip: int = UNLIMITED,
        per_ip_overrides: Mapping[str, int] | None = None,
        creation_rate: int = UNLIMITED,
        creation_rates: Mapping[str, int] | None = None,
        rate_windows: int = 11,
        rate_window_ms: int = 1000,
        socket_options: SocketOptions | None = None,
        control_plane_listener: str | None = None,
        inter_broker_listener: str | None = None,
    ) -> None:
        self.frame_max_bytes = frame_max_bytes
        self.request_memory_bytes = request_memory_bytes
        self.idle_max_ms = idle_max_ms
        self.setup_max_ms = setup_max_ms
        self.max_connections = max_connections
        self.max_connections_per_ip = max_connections_per_ip
        self.per_ip_overrides = per_ip_overrides or {}
        self.creation_rate = creation_rate
        self.creation_rates = creation_rates or {}
        self.rate_windows = rate_windows
        self.rate_window_ms = rate_window_ms
        self.socket_options = socket_options or SocketOptions()
        self.control_plane_listener = control_plane_listener
        self.inter_broker_listener = inter_broker_listener


class SocketServer:
    """The broker's sockets. `bind` first, so that the ports are known before anything serves."""

    def __init__(
        self,
        endpoints: Sequence[EndPoint],
        handler: RequestHandler,
        clock: Clock,
        timer: Timer,
        limits: NetworkLimits,
        loop: asyncio.AbstractEventLoop,
        security: Mapping[str, ListenerSecurity] = {},
    ) -> None:
        """`security` has the security of listeners, by their names."""
        self.request_memory = RequestMemory(limits.request_memory_bytes)
        self.quotas = ConnectionQuotas()
        names = {endpoint.listener_name for endpoint in endpoints}
        self._rates = CreationRates(clock, limits.rate_windows, limits.rate_window_ms, names)
        self.address_rates = AddressRates(clock, limits.rate_windows, limits.rate_window_ms)
        self.limit(limits)
        buffers = BufferPool()
        log = LimitedLog(logger, clock)
        dropped = LimitedLog(logger, clock)
        self.answers = ResponseMemory(
            clock,
            lambda size: dropped.warning(f"Dropped a client that left {size} bytes unread"),
        )
        control_plane = limits.control_plane_listener
        turns = Turns(clock, loop.call_soon) if control_plane in names else None
        protected = {control_plane, limits.inter_broker_listener} if len(names) > 1 else set()
        self._listeners = [
            Listener(
                endpoint,
                ConnectionContext(
                    handler,
                    endpoint.listener_name,
                    clock,
                    buffers,
                    self.request_memory,
                    self.answers,
                    limits.frame_max_bytes,
                    loop.call_soon,
                    timer,
                    log,
                    None if endpoint.listener_name == control_plane else turns,
                ),
                self.quotas,
                self._rates.that_hold(
                    endpoint.listener_name, is_protected=endpoint.listener_name in protected
                ),
                self.address_rates,
                timer,
                limits.socket_options,
                limits.idle_max_ms,
                self._on_listener_empty,
                is_protected=endpoint.listener_name in protected,
                security=security.get(endpoint.listener_name),
                setup_max_ms=limits.setup_max_ms,
            )
            for endpoint in endpoints
        ]
        self._all_closed = asyncio.Event()

    @property
    def endpoints(self) -> list[EndPoint]:
        """The end points that the broker listens on; after `bind` with the real ports."""
        return [listener.endpoint for listener in self._listeners]

    def limit(self, limits: NetworkLimits) -> None:
        """Sets the limits that may change at run time: open connections, and rates of new ones."""
        self.quotas.limit(
            limits.max_connections, limits.max_connections_per_ip, limits.per_ip_overrides
        )
        self._rates.limit(limits.creation_rate, limits.creation_rates)

    def bind(self) -> None:
        """Takes every address, or none.

        Raises:
            ListenerError: one of them cannot be had.
        """
        try:
            for listener in self._listeners:
                listener.bind()
        except ListenerError:
            self.stop_accepting()
            raise

    async def start(self) -> None:
        """Accepts on every listener.

        Raises:
            ListenerError: one of them cannot; none accepts then.
        """
        try:
            for listener in self._listeners:
                await listener.start()
        except ListenerError:
            self.stop_accepting()
            raise

    def use(self, handler: RequestHandler) -> None:
        """Passes later requests to another handler."""
        for listener in self._listeners:
            listener.use(handler)

    def pause(self) -> None:
        """Accepts connections and bytes, but answers nothing until `resume`."""
        for listener in self._listeners:
            listener.pause()

    def resume(self) -> None:
        """Serves again, beginning with the requests that came meanwhile."""
        for listener in self._listeners:
            listener.resume()

    @property
    def is_paused(self) -> bool:
        """Whether nothing is answered until `resume`."""
        return any(listener.is_paused for listener in self._listeners)

    def has_open(self, connection_id: str) -> bool:
        """Whether a connection is open."""
        return any(listener.has_open(connection_id) for listener in self._listeners)

    def connection_counts(self) -> list[tuple[str, int, int]]:
        """For each listener its name, how many connections are open, and how many ever were."""
        return [
            (each.endpoint.listener_name, each.connection_count, each.accepted_count)
            for each in self._listeners
        ]

    @property
    def is_at_rest(self) -> bool:
        """Whether the loop has nothing to do on any socket: to accept, to read, or to write on."""
        return not any_ready(chain.from_iterable(each.awaited() for each in self._listeners))

    def stop_accepting(self) -> None:
        """No new connections; the open ones are served on."""
        for listener in self._listeners:
            listener.stop_accepting()

    async def stop(self) -> None:
        """Stops accepting and closes every connection, letting given answers leave."""
        self.stop_accepting()
        for listener in self._listeners:
            listener.close_connections()
        await asyncio.sleep(0)  # the listening sockets are closed after it
        self._all_closed.clear()
        if not self.quotas.total:
            return
        try:
            await asyncio.wait_for(self._all_closed.wait(), LAST_ANSWERS_SECONDS)
        except TimeoutError:
            for listener in self._listeners:
                listener.abort_connections()

    def abort(self) -> None:
        """Stops accepting and drops every connection at once, with its waiting answers."""
        self.stop_accepting()
        for listener in self._listeners:
            listener.abort_connections()

    def _on_listener_empty(self) -> None:
        if not self.quotas.total:
            self._all_closed.set()
