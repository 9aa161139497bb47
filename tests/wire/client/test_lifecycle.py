"""The life of a client, which all clients have in common. If these fail, a client is silent about
what is wrong, or cannot be used as its users are used to."""

import asyncio
import gc
import inspect
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args, get_type_hints

import pytest
from tools.free_port import free_port

import odradek
from odradek.client import (
    Admin,
    Assignor,
    Consumer,
    ConsumerInterceptor,
    Producer,
    ProducerInterceptor,
    RebalanceListener,
    ShareConsumer,
    sync,
)
from odradek.client.errors import ClientClosed, NetworkError

Run = Callable[[Any], Any]
CLIENTS = [Producer, Consumer, Admin, partial(ShareConsumer, group_id="s")]
BLOCKING = [sync.Producer, sync.Consumer, sync.Admin, partial(sync.ShareConsumer, group_id="s")]


@pytest.mark.parametrize("client", CLIENTS)
def test_start_connects_and_stop_closes(run: Run, client: Callable[..., Any]) -> None:
    async def scenario() -> None:
        with odradek.Broker() as broker:
            started = client({"bootstrap.servers": broker.bootstrap_servers, "client.id": "me"})
            await started.start()
            [measured] = [each for each in started.metrics().values() if "connection-count" in each]
            assert measured["connection-count"] == measured["connection-creation-total"] == 1
            assert measured["request-total"] == measured["response-total"] >= 1
            assert measured["outgoing-byte-total"] > 30 < measured["incoming-byte-total"]
            await started.stop()
            [measured] = [each for each in started.metrics().values() if "connection-count" in each]
            assert measured["connection-count"] == 0
            with pytest.raises(ClientClosed):
                await started.start()
            await started.close()

    run(scenario())


@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_port_is_said_at_once_and_logged_once_in_a_while(
    run: Run, client: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{free_port()}"

    async def scenario() -> None:
        async with client(address, reconnect_backoff_ms=1) as nowhere:
            for _ in range(3):
                with pytest.raises(NetworkError, match=address):
                    await nowhere.start()

    with caplog.at_level(logging.WARNING, "odradek.client"):
        run(scenario())
    assert len(caplog.messages) == 1
    assert f"a broker cannot be reached: {address}" in caplog.messages[0]


def forgotten(drop: Callable[[], None]) -> list[str]:
    """The warnings when a client is dropped; asyncio says of its sockets what it has to."""
    with pytest.warns(ResourceWarning) as caught:  # noqa: PT031 - the two are one
        drop()
        gc.collect()
    return [str(each.message) for each in caught if "unclosed client" in str(each.message)]


@pytest.mark.parametrize("client", CLIENTS)
def test_who_forgets_to_close_is_warned(client: Callable[..., Any]) -> None:
    """Connections that nobody closes are the broker's to find."""

    async def scenario(servers: str) -> None:
        held = [client(servers)]
        await held[0].start()
        connections = held[0]._cluster._connections.open
        assert len(forgotten(held.clear)) == 1
        for connection in connections:
            connection.close()
        client(servers)
        gc.collect()

    with odradek.Broker() as broker:
        asyncio.run(scenario(broker.bootstrap_servers))


def test_blocking_clients_have_the_same() -> None:
    with odradek.Broker() as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        for client in BLOCKING:
            started = client(settings)
            started.start()
            assert any("connection-count" in group for group in started.metrics().values())
            started.stop()
            with pytest.raises(ClientClosed):
                started.start()
            held = [client(settings)]
            thread = held[0]._thread
            assert len(forgotten(held.clear)) == 1
            thread.move_out()


def test_every_public_name_is_there() -> None:
    for name in odradek.client.__all__:
        assert getattr(odradek.client, name) is not None


CALLED_BY_USERS = (Admin, Consumer, Producer, ShareConsumer)
WRITTEN_BY_USERS = (Assignor, ConsumerInterceptor, ProducerInterceptor, RebalanceListener)
OF_TESTS = {"Clock", "Rng"}


def classes_in(hint: Any) -> Iterator[type]:
    """Ours of a type, its arguments among them."""
    arguments = get_args(hint)
    if isinstance(hint, type) and not arguments and hint.__module__.startswith("odradek."):
        yield hint
    for each in arguments:
        for one in each if isinstance(each, list) else [each]:
            yield from classes_in(one)


@pytest.mark.parametrize("kind", [*CALLED_BY_USERS, *WRITTEN_BY_USERS])
def test_every_class_that_users_meet_is_a_public_name(kind: type) -> None:
    """The author of an interceptor, or of an annotation, would import it from inside."""
    functions = [
        function
        for name, function in inspect.getmembers(kind, inspect.isfunction)
        if name == "__init__" or not name.startswith("_")
    ]
    hints = [hint for each in functions for hint in get_type_hints(each).values()]
    met = {each.__name__ for hint in hints for each in classes_in(hint)}
    assert met <= {*odradek.client.__all__, *OF_TESTS}
