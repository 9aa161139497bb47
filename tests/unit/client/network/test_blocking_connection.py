"""The blocking connection and who opens it. If these fail, one broker that hangs keeps a Spark task
from those that answer."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.network.test_login import Broker

from odradek.client.addresses import Address
from odradek.client.apis import API_VERSIONS, METADATA, ClientApi
from odradek.client.errors import NetworkError
from odradek.client.sync import cluster as clusters
from odradek.client.sync import connection as connections
from odradek.client.sync.cluster import Cluster
from odradek.client.sync.connection import BlockingConnection
from odradek.clock import ManualClock
from odradek.protocol.framing import encode_size

SILENT, ALIVE = "10.0.0.1", "10.0.0.2"
# The answer to the first request of a connection, whose header ends behind its number, 0.
HELLO = Broker().versions(bytes((0, API_VERSIONS.key, 0, 4, 0, 0, 0, 0)))


class Socket:
    """A socket to a broker that says so many bytes at once; each byte that does not come, and each
    piece that does, takes a second."""

    def __init__(self, seconds: list[float], data: bytes, piece_bytes: int) -> None:
        self._seconds = seconds
        self._data = data
        self._piece_bytes = piece_bytes
        self._timeout_s = 0.0
        self.is_closed = False

    def settimeout(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def setsockopt(self, *_: int) -> None: ...

    def send(self, data: memoryview) -> int:
        return len(data)

    def recv_into(self, buffer: memoryview) -> int:
        if not self._data:
            self._seconds[0] += self._timeout_s
            raise TimeoutError("timed out")
        self._seconds[0] += 1
        piece, self._data = self._data[: self._piece_bytes], self._data[self._piece_bytes :]
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Socket]]:
    """Makes the name `b` have these addresses, whose brokers say that."""

    def call(said: dict[str, bytes], piece_bytes: int = 10_000) -> dict[str, Socket]:
        seconds = [0.0]
        made = {host: Socket(seconds, data, piece_bytes) for host, data in said.items()}
        found = [(0, 0, 0, "", (host, 1)) for host in said]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        first = next(iter(made.values()))  # as of the name itself
        monkeypatch.setattr(socket, "create_connection", lambda at, _: made.get(at[0], first))
        monkeypatch.setattr(connections, "monotonic_s", lambda: seconds[0])
        return made

    return call


# Seconds of the clock of the sockets, which stands still but for what a broker costs.
ANSWER, SETUP = 30.0, 10.0


def connect() -> BlockingConnection:
    return BlockingConnection(
        Address("b", 1), client_id="me", timeout_s=ANSWER, setup_timeout_s=SETUP
    )


def test_the_second_address_of_a_name_is_tried_when_the_first_stays_silent(
    sockets: Callable[..., dict[str, Socket]],
) -> None:
    """It accepts, and answers nothing: whoever looks at the connecting alone begins there again."""
    made = sockets({SILENT: b"", ALIVE: encode_size(len(HELLO)) + HELLO})
    connection = connect()
    assert made[SILENT].is_closed
    assert not made[ALIVE].is_closed
    assert not connection.was_silent


def test_a_broker_that_answers_byte_by_byte_has_no_more_time_than_others(
    sockets: Callable[..., dict[str, Socket]],
) -> None:
    made = sockets({ALIVE: encode_size(1_000) + b"x" * 1_000}, piece_bytes=1)
    with pytest.raises(NetworkError, match="timed out"):
        connect()
    assert made[ALIVE].is_closed
    answer = encode_size(len(HELLO)) + HELLO
    sockets({ALIVE: answer + encode_size(1_000) + b"x" * 1_000}, piece_bytes=len(answer))
    connection = connect()
    connection._socket._piece_bytes = 1  # type: ignore[attr-defined]
    with pytest.raises(NetworkError, match="timed out"):
        connection.request(METADATA, 1, [b""])
    assert connection.was_silent


class Reached(Exception):
    """The broker that answers was asked."""


class Connection:
    """Answers by `Reached`, or not at all, in all the time that it is given."""

    in_flight_count = 0
    idle_ms = 0.0

    def __init__(self, address: Address, clock: ManualClock, asked: list[str]) -> None:
        self.address = address
        self.is_closed = self.was_silent = False
        self._clock = clock
        self._asked = asked

    def agree(self, _: ClientApi) -> int:
        return 12

    def request(self, _: ClientApi, __: int, ___: object, timeout_ms: int) -> Any:
        self._asked.append(self.address.host)
        if self.address.host == ALIVE:
            raise Reached
        self._clock.advance(timeout_ms)
        self.was_silent = self.is_closed = True
        raise NetworkError("timed out")

    def close(self, _: object = None) -> None:
        self.is_closed = True


def test_a_silent_broker_costs_a_question_half_of_its_time_and_is_asked_last_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had all of the time, and was the first to be asked again."""
    clock, asked = ManualClock(), list[str]()
    monkeypatch.setattr(
        clusters, "BlockingConnection", lambda address, **_: Connection(address, clock, asked)
    )
    with Cluster(f"{SILENT}:1,{ALIVE}:1", request_timeout_ms=1_000, clock=clock) as cluster:
        with pytest.raises(Reached):
            cluster.topics(["t"])
        assert asked == [SILENT, ALIVE]
        cluster.forget(disconnect=True)
        with pytest.raises(Reached):
            cluster.topics(["t"])
        assert asked == [SILENT, ALIVE, ALIVE]
