"""Listeners over real sockets: addresses, limits, idle connections, the end."""

import asyncio
import contextlib
import gc
import socket
import struct
import warnings
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from tests.unit.network.fakes import FakeHandler, FakeTransport, framed

from odradek.clock import ManualClock
from odradek.model import EndPoint
from odradek.network import ListenerError, NetworkLimits, SocketServer
from odradek.timer import SystemTimer

LOCAL = EndPoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0)
LOOPS = [uvloop.new_event_loop, asyncio.new_event_loop]


class Site:
    """A socket server with a fake handler, on a clock that the test moves."""

    def __init__(self, limits: NetworkLimits, endpoints: list[EndPoint]) -> None:
        self.clock = ManualClock()
        self.timer = SystemTimer(self.clock)
        self.handler = FakeHandler()
        self.server = SocketServer(
            endpoints, self.handler, self.clock, self.timer, limits, asyncio.get_running_loop()
        )

    async def connect(self, index: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        _, _, host, port = self.server.endpoints[index]
        return await asyncio.open_connection(host or "127.0.0.1", port)


def run_site(
    test: Callable[[Site], Awaitable[None]],
    limits: NetworkLimits | None = None,
    endpoints: list[EndPoint] | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> None:
    async def main() -> None:
        site = Site(limits or NetworkLimits(), endpoints or [LOCAL])
        site.server.bind()
        await site.server.start()
        try:
            await test(site)
        finally:
            await site.server.stop()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("loop_factory", LOOPS, ids=["uvloop", "asyncio"])
def test_large_and_small_frames_are_echoed(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Goal: both loops drive the connection alike, under real fragmentation and back-pressure."""
    bodies = [b"e" * size for size in (1, 5_000_000, 70_000, 0x20000, 3, 200_000)] * 2

    async def test(site: Site) -> None:
        reader, writer = await site.connect()
        writer.write(framed(*bodies))
        assert [await answer(reader) for _ in bodies] == bodies
        await close(writer)

    run_site(test, loop_factory=loop_factory)


@pytest.mark.parametrize("loop_factory", LOOPS, ids=["uvloop", "asyncio"])
def test_an_idle_client_of_large_requests_costs_no_buffer(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def test(site: Site) -> None:
        reader, writer = await site.connect()
        writer.write(framed(b"p"))
        while not site.handler.parked:
            await asyncio.sleep(0)
        (exchange,) = site.handler.parked
        exchange.send([b"p"])
        writer.write(framed(b"e" * 1_000_000))
        assert await answer(reader) == b"p"
        assert await answer(reader) == b"e" * 1_000_000
        await asyncio.sleep(0)
        assert not exchange.connection.buffer_bytes
        await close(writer)

    run_site(test, loop_factory=loop_factory)


def test_listeners_on_both_families_and_all_addresses() -> None:
    """Goal: R27: IPv6 in brackets, an empty host is every address of both families."""
    endpoints = [
        LOCAL,
        EndPoint("SIX", "PLAINTEXT", "::1", 0),
        EndPoint("ALL", "PLAINTEXT", "", 0),
    ]

    async def test(site: Site) -> None:
        ports = [endpoint.port for endpoint in site.server.endpoints]
        for host, port in [
            ("127.0.0.1", ports[0]),
            ("::1", ports[1]),
            ("127.0.0.1", ports[2]),
            ("::1", ports[2]),
        ]:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(framed(b"p"))
            while not site.handler.parked:
                await asyncio.sleep(0)
            exchange = site.handler.parked.pop()
            assert exchange.client_host == host
            exchange.send([b"ok"])
            assert await answer(reader) == b"ok"
            await close(writer)

    run_site(test, endpoints=endpoints)


def test_connections_over_the_limit_are_closed() -> None:
    """Goal: max.connections.per.ip; whoever leaves makes room."""

    async def test(site: Site) -> None:
        _, first = await site.connect()
        second_reader, second = await site.connect()
        refused, third = await site.connect()
        assert await refused.read() == b""
        second.write(framed(b"still served"))
        assert await answer(second_reader) == b"still served"
        await close(first)
        while site.server.quotas.total > 1:
            await asyncio.sleep(0)
        reader, fourth = await site.connect()
        fourth.write(framed(b"hello"))
        assert await answer(reader) == b"hello"
        for writer in (second, third, fourth):
            await close(writer)

    run_site(test, NetworkLimits(max_connections_per_ip=2))


def test_connections_come_in_no_faster_than_they_may() -> None:
    """`max.connection.creation.rate`: a flood of reconnects would take the broker from those who
    are there, and clients that are turned away would only come again."""

    async def test(site: Site) -> None:
        clients = [await site.connect() for _ in range(4)]
        for number, (_, writer) in reversed(list(enumerate(clients))):
            writer.write(framed(b"%d" % number))
        assert [await answer(reader) for reader, _ in clients[:2]] == [b"0", b"1"]
        for number, (reader, _) in enumerate(clients[2:], 2):
            assert len(site.handler.handled) == number
            site.clock.advance(499)
            site.timer.advance_clock(0)
            assert len(site.handler.handled) == number
            site.clock.advance(1)
            site.timer.advance_clock(0)
            assert await answer(reader) == b"%d" % number
        for _, writer in clients:
            await close(writer)

    run_site(test, NetworkLimits(creation_rate=2, rate_windows=2))


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    """Goal: connections.max.idle.ms on the broker's own clock; a parked request is no idling."""

    async def test(site: Site) -> None:
        idle, idle_writer = await site.connect()
        parked, parked_writer = await site.connect()
        active, active_writer = await site.connect()
        parked_writer.write(framed(b"park"))
        while not site.handler.parked:
            await asyncio.sleep(0)
        site.clock.advance(600)
        active_writer.write(framed(b"alive"))
        assert await answer(active) == b"alive"
        site.clock.advance(400)
        site.timer.advance_clock(0)
        assert await idle.read() == b""
        active_writer.write(framed(b"again"))
        assert await answer(active) == b"again"
        site.handler.parked[0].send([b"late"])
        assert await answer(parked) == b"late"
        for _ in range(4):
            site.clock.advance(1000)
            site.timer.advance_clock(0)
        assert await active.read() == b""
        assert await parked.read() == b""
        for writer in (idle_writer, parked_writer, active_writer):
            await close(writer)

    run_site(test, NetworkLimits(idle_max_ms=1000))


def test_a_port_in_use_is_named() -> None:
    """Goal: one clear line for the commonest mistake."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        async def test(site: Site) -> None:
            raise AssertionError("must not start")

        with pytest.raises(ListenerError, match=rf"127\.0\.0\.1:{port}: Address already in use"):
            run_site(test, endpoints=[LOCAL, LOCAL._replace(port=port)])


def test_two_listeners_on_one_port() -> None:
    """Goal: the second is refused, and the first does not stay behind."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    endpoint = LOCAL._replace(port=port)

    async def test(site: Site) -> None:
        raise AssertionError("must not start")

    with pytest.raises(ListenerError):
        run_site(test, endpoints=[endpoint, endpoint])
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_stop_lets_given_answers_leave() -> None:
    """Goal: a controlled shutdown loses no acknowledgement that was given."""
    large = b"e" * 3_000_000

    async def test(site: Site) -> None:
        reader, writer = await site.connect()
        writer.write(framed(large))
        while not site.handler.handled:
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(site.server.stop())
        assert await answer(reader) == large
        await stopping
        assert await reader.read() == b""
        await close(writer)

    run_site(test)


class _LateTransport(FakeTransport):
    """Of a connection that the loop had taken before the end, and makes only now."""

    def get_extra_info(self, name: str) -> object:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name)


def test_a_connection_that_is_made_after_the_end_is_dropped() -> None:
    """Its client would stay connected to a broker that serves nobody, and wait."""

    async def test(site: Site) -> None:
        [listener] = site.server._listeners
        protocol = listener._make_protocol()
        site.server.stop_accepting()
        transport = _LateTransport()
        protocol.connection_made(transport)
        assert transport.aborted
        assert listener.connection_count == 0

    run_site(test)


@pytest.mark.parametrize("loop_factory", LOOPS, ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("turns", range(5))
def test_the_end_leaves_no_socket_open(
    turns: int, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Fails when a connection that comes in the turns in which the server ends is neither served
    nor closed: its client would wait, and the garbage collector would complain in another place."""

    client = socket.socket()
    client.settimeout(5)

    async def test(site: Site) -> None:
        _, _, host, port = site.server.endpoints[0]
        client.connect((host, port))
        for _ in range(turns):
            await asyncio.sleep(0)
        site.server.abort()

    with client, warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        run_site(test, loop_factory=loop_factory)
        gc.collect()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert [str(each.message) for each in complaints] == []
