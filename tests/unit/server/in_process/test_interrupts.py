"""Ctrl-C in a call that waits for a broker: nothing of the call stays behind in the broker."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from tests.deadlines import deadline_s

from odradek import Broker
from odradek.event_loop import LoopThread
from odradek.server.broker import BrokerServer
from odradek.server.in_process.calls.changes import Changes

Call = Callable[[Any], object]
HOUR_S = 3600

WAITS: dict[str, Call] = {
    "wait_for": lambda broker: broker.wait_for("orders", 1, timeout=HOUR_S),
    "wait_for_group": lambda broker: broker.wait_for_group("readers", timeout=HOUR_S),
    "wait_for_lag": lambda broker: broker.wait_for_lag("committed", 0, timeout=HOUR_S),
}


def interrupt(monkeypatch: pytest.MonkeyPatch, begun: threading.Event) -> None:
    """Lets Ctrl-C reach the next blocking call when the loop's thread is as far as `begun`."""
    submit = LoopThread.submit

    def submit_once(thread: LoopThread, work: Any) -> "Future[Any]":
        monkeypatch.setattr(LoopThread, "submit", submit)
        future = submit(thread, work)

        def result(timeout: float | None = None) -> None:
            assert begun.wait(deadline_s(30))
            raise KeyboardInterrupt

        future.result = result  # type: ignore[method-assign,assignment]
        return future

    monkeypatch.setattr(LoopThread, "submit", submit_once)


def note_parked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a wait has looked, found nothing and parked its fetches."""
    parked = threading.Event()
    look_until = Changes.look_until

    async def noting(changes: Changes, look: Any, park: Any) -> Any:
        def note(wake: Any) -> Any:
            fetches = park(wake)
            asyncio.get_running_loop().call_soon(parked.set)
            return fetches

        return await look_until(changes, look, note)

    monkeypatch.setattr(Changes, "look_until", noting)
    return parked


def fill(broker: Broker) -> None:
    """A topic without records, and a group that is behind in another."""
    broker.create_topic("orders", 2)
    broker.create_topic("read", 1)
    broker.produce("read", b"one")
    broker.reset("committed", "earliest", "read")


@pytest.mark.parametrize("call", WAITS)
def test_an_interrupted_wait_parks_nothing(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Every Ctrl-C in a notebook would leave a fetch in the purgatory, until the time-out."""
    with Broker() as broker:
        fill(broker)
        interrupt(monkeypatch, note_parked(monkeypatch))
        with pytest.raises(KeyboardInterrupt):
            WAITS[call](broker)
        assert broker.waiting() == []


def test_an_interrupted_restart_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker would be stopped, and `start` would refuse, since its thread runs."""
    stopping, restarted = threading.Event(), threading.Event()
    stop, go_on = BrokerServer.stop, asyncio.Event()

    async def slow_stop(server: BrokerServer) -> None:
        stopping.set()
        await go_on.wait()
        await stop(server)

    with Broker() as broker:
        broker.create_topic("orders")
        on_started = broker._helpers.on_started

        def note(server: BrokerServer) -> None:
            on_started(server)
            restarted.set()

        monkeypatch.setattr(broker._helpers, "on_started", note)
        monkeypatch.setattr(BrokerServer, "stop", slow_stop)
        interrupt(monkeypatch, stopping)
        with pytest.raises(KeyboardInterrupt):
            broker.restart()
        broker._now(go_on.set)
        assert restarted.wait(deadline_s(30))
        assert broker.topics() == {"orders": 1}


def test_a_broker_whose_stop_is_cancelled_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port would be taken for as long as the process lives."""
    asyncio.run(cancel_stop(monkeypatch))


async def cancel_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancels it while it hands over its partitions."""
    handing_over = asyncio.Event()

    async def never(_server: BrokerServer) -> None:
        handing_over.set()
        await asyncio.get_running_loop().create_future()

    broker = await Broker().start_async()
    host, port = broker.bootstrap_servers.split(":")
    monkeypatch.setattr(BrokerServer, "_hand_over", never)
    stopping = asyncio.ensure_future(broker.stop_async())
    await handing_over.wait()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))
