"""A clock that was moved leaves nothing half done: what was sent is handled, what is due done."""

import asyncio
import socket
import struct
import threading

import pytest
from tests.deadlines import deadline_s

import odradek
from odradek.clock import ManualClock
from odradek.model import TopicPartition
from odradek.server.broker import BrokerServer
from odradek.timer import TimerTask

PATIENCE_S = deadline_s(300)


def api_versions() -> bytes:
    """The smallest request that there is."""
    body = struct.pack(">hhih", 18, 0, 1, -1)
    return struct.pack(">i", len(body)) + body


def connect(broker: odradek.Broker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)))


def held(client: socket.socket) -> int:
    """How many bytes the kernel holds for a client, without waiting for more."""
    client.setblocking(False)
    try:
        return len(client.recv(1 << 20, socket.MSG_PEEK))
    except BlockingIOError:
        return 0


def test_what_was_sent_before_the_clock_moves_is_answered_when_it_has_moved() -> None:
    """Goal: no sleep between a client's last word and the move."""
    clock = ManualClock()
    with odradek.Broker(clock=clock) as broker:
        for _ in range(10):
            with connect(broker) as client:
                client.sendall(api_versions())
                clock.advance(1)
                assert held(client)


def test_a_client_that_has_just_connected_is_answered() -> None:
    """Goal: rest is when the sockets hold nothing, not when the loop has looked at them once."""

    async def story() -> None:
        async with odradek.Broker(clock=ManualClock()) as broker:
            with connect(broker) as client:
                client.sendall(api_versions())
                await broker.settle_async()  # accepts, and reads a turn or two later
                assert held(client)

    asyncio.run(story())


def test_it_is_handled_at_the_time_at_which_it_was_sent() -> None:
    """Goal: a request that came before the jump does not find itself after it."""
    clock = ManualClock()
    seen: list[int] = []
    with odradek.Broker(clock=clock) as broker:
        server = broker._running()
        with connect(broker) as client:
            client.sendall(api_versions())
            clock.advance(5_000)
            [connection] = server.sockets._listeners[0]._connections
            seen.append(connection.received_ms)
    assert seen == [0]


@pytest.mark.parametrize("make", [odradek.Broker, odradek.Cluster])
def test_work_in_the_background_is_done_when_the_clock_has_moved(
    make: type[odradek.Broker] | type[odradek.Cluster],
) -> None:
    """Goal: files that became due for deletion are gone, whatever thread removes them."""
    clock = ManualClock()
    done: list[str] = []
    slow = threading.Event()
    with make(clock=clock) as running:
        server = running._servers[-1]

        def work() -> str:
            assert slow.wait(PATIENCE_S)
            return "removed"

        def due() -> None:
            server.background.submit(work, done.append, lambda error: pytest.fail(str(error)))
            threading.Timer(0.05, slow.set).start()

        running._now(lambda: server.timer.add(TimerTask(60_000, due)))
        clock.advance(60_000)
        assert done == ["removed"]


def test_a_client_that_does_not_read_keeps_nobody() -> None:
    """Goal: `advance` returns although an answer cannot be written."""
    clock = ManualClock()
    with odradek.Broker(clock=clock) as broker, connect(broker) as client:
        client.setblocking(False)
        sent = 0
        try:
            for _ in range(10_000):
                sent += client.send(api_versions() * 1000)
        except BlockingIOError:
            pass
        clock.advance(1)
        assert sent > 0


def test_half_a_request_and_a_client_that_is_gone_keep_nobody() -> None:
    """Goal: `advance` returns although a request will never be complete."""
    clock = ManualClock()
    with odradek.Broker(clock=clock) as broker:
        with connect(broker) as client:
            client.sendall(api_versions()[:-3])
            clock.advance(1)
        clock.advance(1)
        assert not broker._running().sockets._listeners[0].connection_count


def test_a_paused_broker_keeps_nobody() -> None:
    """Goal: a test may move the clock while the broker stands still."""
    clock = ManualClock()
    with odradek.Broker(clock=clock) as broker, connect(broker) as client:
        with broker.pause():
            client.sendall(api_versions())
            clock.advance(1)
            assert not held(client)
        broker.settle()
        assert held(client)


def test_on_a_loop_of_its_own_a_test_settles_by_hand() -> None:
    """Goal: `async with` has a way to await what the move made due."""

    async def story() -> None:
        clock = ManualClock()
        ran: list[int] = []
        async with odradek.Broker(clock=clock) as broker:
            timer = broker._running().timer
            timer.add(TimerTask(1_000, lambda: ran.append(clock.monotonic_ms())))
            clock.advance(1_000)
            await broker.settle_async()
            assert ran == [1_000]
            with pytest.raises(RuntimeError, match="settle_async"):
                broker.settle()

    asyncio.run(story())


def test_followers_have_caught_up_when_the_clock_of_a_cluster_has_moved() -> None:
    """Goal: a cluster is at rest as a broker is: replicated, in sync, and still connected."""
    clock = ManualClock()
    with odradek.Cluster(brokers=3, clock=clock) as cluster:
        cluster.create_topic("orders", replication_factor=3)
        cluster.settle()
        for jump_ms in (1, 500, 60_000, 3_600_000):
            cluster.produce("orders", "spool")
            clock.advance(jump_ms)
            assert len(cluster.partition_state("orders", 0).isr) == 3
            assert len({end_of_log(server) for server in cluster._servers}) == 1


def end_of_log(server: BrokerServer) -> int:
    log = server.replicas.partition(TopicPartition("orders", 0)).log
    assert log is not None
    return log.log_end_offset
