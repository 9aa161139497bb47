"""An event loop in which time jumps, and whose sockets lead into a simulated network.

Nothing waits: when all tasks do, the clock goes on to the next timer. Connections are made to
whoever `serves`; what is sent on them takes its time, is lost, or comes when nobody waits for it
any more, as `Network` says. Everything follows from the seed.
"""

import asyncio
import math
import random
import selectors
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.clocks import OwnClock

LATENCY_MS = 20
LATE_MS = 6_000


class _JumpingSelector(selectors.SelectSelector):
    """Selects nothing, and moves the clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everything waits, and nothing will come"
        self.now_s += max(timeout, 0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own, and `network` where its connections lead."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        self.network: Network | None = None
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def pass_by(self, seconds: float) -> None:
        """Somebody works for so long, and nothing else runs meanwhile."""
        self._jumping.now_s += seconds

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        """A name is its only address, unless the network knows better."""
        assert self.network is not None, "there is one"
        return [(0, 0, 0, "", (each, port)) for each in self.network.names.get(host, [host])]

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        host: str,
        port: int,
        **_: Any,
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        assert self.network is not None, "there is one"
        protocol = protocol_factory()
        transport = await self.network.connect(host, port, protocol)
        return transport, protocol


class LoopClock(OwnClock):
    """The loop's time as a `Clock`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()


# Takes a request's frame and whom to call with the answer's, once, now or later or never. Nothing
# of a request that is not answered is an empty one.
Serve = Callable[["Connection", bytes, Callable[[bytes], None]], None]


class Connection(asyncio.Transport):
    """A client's end of a connection, and what the network does to it."""

    def __init__(
        self, network: "Network", host: str, port: int, protocol: asyncio.BufferedProtocol
    ) -> None:
        super().__init__()
        self.network = network
        self.host = host
        self.port = port
        self._protocol = protocol
        self._received = bytearray()
        self._waiting: deque[bytes] = deque()
        self._is_busy = False
        self._at_s = 0.0
        self.is_open = True
        self.is_silent = False

    # --- what the client calls --------------------------------------------------------------

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self._received += data
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4], "big")
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            self._send(frame)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Its network takes all at once."""

    def abort(self) -> None:
        self.is_open = False
        self.network.connections.pop(self, None)

    close = abort

    def is_closing(self) -> bool:
        return not self.is_open

    # --- what the network does --------------------------------------------------------------

    def _send(self, frame: bytes) -> None:
        """A request: it arrives, or its connection breaks before or after it, or goes silent."""
        network = self.network
        if network.is_cut(self.host):
            return
        chance = network.rng.random() / network.trouble if network.trouble else 1.0
        if chance < 0.25:
            self._later(self.break_off)  # lost
            return
        if chance < 0.4:
            self.is_silent = True  # half-open: it may arrive, but nothing comes back
            if chance < 0.3:
                return
        self._later(lambda: self._arrive(frame), is_late=chance < 0.55)
        if 0.55 < chance < 0.8:
            self._later(self.break_off)  # its answer is lost, unless it is faster

    def _arrive(self, frame: bytes) -> None:
        """At the broker, whatever has become of the client: it handles one after the other."""
        if self.network.is_cut(self.host):
            return
        self._waiting.append(frame)
        self._handle()

    def _handle(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        self.network.serve(self, self._waiting.popleft(), self._answer)

    def _answer(self, frame: bytes) -> None:
        self._is_busy = False
        if frame and not self.is_silent:
            self._later(lambda: self._receive(frame))
        # As a broker does: what handles one request is not called for the next in its middle.
        asyncio.get_running_loop().call_soon(self._handle)

    def _receive(self, frame: bytes) -> None:
        if not self.is_open or self.network.is_cut(self.host):
            return
        data = len(frame).to_bytes(4, "big") + frame
        while data and self.is_open:
            room = self._protocol.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._protocol.buffer_updated(count)

    def break_off(self) -> None:
        """The client is told that the connection is no more."""
        if self.is_open:
            self.abort()
            self._protocol.connection_lost(ConnectionResetError("broken off"))

    def _later(self, work: Callable[[], None], *, is_late: bool = False) -> None:
        """In its order: what was sent before comes before."""
        rng = self.network.rng
        delay_ms = rng.randrange(LATE_MS) if is_late else rng.randrange(1, LATENCY_MS)
        loop = asyncio.get_running_loop()
        # A loop calls what is due at one moment in any order.
        behind_s = math.nextafter(self._at_s, math.inf)
        self._at_s = max(behind_s, loop.time() + delay_ms / 1000)
        loop.call_at(self._at_s, work)


class Network:
    """The connections there are, and how much trouble. `trouble` is the chance of it a request."""

    def __init__(self, rng: random.Random, serve: Serve) -> None:
        self.rng = rng
        self.serve = serve
        self.trouble = 0.0
        self.connections: dict[Connection, None] = {}  # in the order in which they were made
        self.dead_brokers: set[int] = set()
        self.names: dict[str, list[str]] = {}
        self.unreachable: set[str] = set()
        self._cut: set[str] = set()

    def cut(self, host: str) -> None:
        """Cuts off the clients that call its brokers by this host: they are gone without a word."""
        self._cut.add(host)

    def is_cut(self, host: str) -> bool:
        return host in self._cut

    def kill_broker(self, port: int) -> None:
        """Its connections break; nobody listens there until it is back."""
        self.dead_brokers.add(port)
        for connection in sorted(self.connections, key=lambda each: (each.host, each.port)):
            if connection.port == port:
                connection.break_off()

    async def connect(self, host: str, port: int, protocol: asyncio.BufferedProtocol) -> Connection:
        await asyncio.sleep(self.rng.randrange(1, LATENCY_MS) / 1000)
        if host in self.unreachable:
            await asyncio.get_running_loop().create_future()
        if port in self.dead_brokers or self.is_cut(host):
            raise ConnectionRefusedError(f"{host}:{port}")
        connection = Connection(self, host, port, protocol)
        self.connections[connection] = None
        protocol.connection_made(connection)
        return connection
