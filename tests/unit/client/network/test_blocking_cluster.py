"""The blocking cluster before brokers that say nothing, on a clock that jumps.

If these fail, a task of Spark waits longer than it was told to, or gives up though a broker would
answer.
"""

import socket
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.clocks import OwnClock
from tests.unit.client.network.test_blocking_connection import HELLO

from odradek.client.apis import METADATA
from odradek.client.core.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from odradek.client.errors import KafkaError, RequestTimedOut, StaleMetadata
from odradek.client.security import ClientSecurity
from odradek.client.sync import connection as connections
from odradek.client.sync import waiting
from odradek.client.sync.cluster import Cluster
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.direct.list_offsets import LeaseTerms
from odradek.protocol.framing import encode_size

LIMIT_MS = 8_000
NAMES = ("a", "b", "c", "d", "e")
SERVERS = ",".join(f"{name}:1" for name in NAMES)


class Clock(OwnClock):
    """Stands still but for what a broker costs."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_ms(self) -> int:
        return int(self.now_s * 1_000)

    wall_ms = monotonic_ms

    def pass_by(self, duration_s: float) -> None:
        self.now_s += duration_s


class Silence:
    """A socket that takes everything, and brings so much before it brings nothing any more."""

    def __init__(self, clock: Clock, data: bytes = b"") -> None:
        self._clock = clock
        self._data = data
        self._timeout_s = 0.0

    def settimeout(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def setsockopt(self, *_: int) -> None: ...

    def send(self, data: memoryview) -> int:
        return len(data)

    def recv_into(self, buffer: memoryview) -> int:
        if not self._data:
            self._clock.pass_by(self._timeout_s)
            raise TimeoutError("timed out")
        data, self._data = self._data, b""
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of everything: of sockets, of pauses, of the cluster."""
    made = Clock()
    monkeypatch.setattr(connections, "monotonic_s", lambda: made.now_s)
    monkeypatch.setattr(waiting, "time", SimpleNamespace(sleep=made.pass_by))
    return made


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of names; each name has itself, unless the test says others."""
    known: dict[str, list[str]] = {}
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *_, **__: [(0, 0, 0, "", (each, 1)) for each in known.get(host, [host])],
    )
    return known


def unreachable(clock: Clock, asked: list[str]) -> Callable[..., Any]:
    """No answer comes at all: the whole time for connecting passes."""

    def connect(at: tuple[str, int], timeout_s: float) -> Any:
        asked.append(at[0])
        clock.pass_by(timeout_s)
        raise TimeoutError("timed out")

    return connect


def accepting(clock: Clock, asked: list[str], data: bytes = b"") -> Callable[..., Any]:
    """The kernel of a hung broker accepts."""

    def connect(at: tuple[str, int], timeout_s: float) -> Any:
        del timeout_s
        asked.append(at[0])
        return Silence(clock, data)

    return connect


def in_handshake(clock: Clock, asked: list[str]) -> Callable[..., Any]:
    """They hang behind the handshake."""
    return accepting(clock, asked, encode_size(len(HELLO)) + HELLO)


KINDS = [unreachable, accepting, in_handshake]


def with_metadata(cluster: Cluster) -> Cluster:
    """A cluster that knows its brokers."""
    nodes = {number: Node(number, name, 1) for number, name in enumerate(NAMES, 1)}
    cluster.metadata = ClusterMetadata(nodes)
    return cluster


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_ends_in_its_time_however_many_brokers_are_silent(
    kind: Any, clock: Clock, addresses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had half of the whole time: three took longer than their question might."""
    asked: list[str] = []
    monkeypatch.setattr(socket, "create_connection", kind(clock, asked))
    with with_metadata(Cluster(SERVERS, request_timeout_ms=LIMIT_MS, clock=clock)) as cluster:
        with pytest.raises(KafkaError, match=r"within 8000 ms \(request_timeout_ms\)"):
            cluster.topics()
        assert clock.monotonic_ms() <= LIMIT_MS
        assert len({*asked}) > 2, "more of them than half of the time each allows"


@pytest.mark.parametrize("kind", KINDS)
def test_the_addresses_of_a_name_take_no_more_than_the_question(
    kind: Any, clock: Clock, addresses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses["a"] = [*NAMES]
    asked: list[str] = []
    monkeypatch.setattr(socket, "create_connection", kind(clock, asked))
    with Cluster("a:1", request_timeout_ms=LIMIT_MS, clock=clock) as cluster:
        with pytest.raises(KafkaError, match="within 8000 ms"):
            cluster.topics()
        assert clock.monotonic_ms() <= LIMIT_MS


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_without_retries_ends_in_its_time(
    kind: Any, clock: Clock, addresses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "create_connection", kind(clock, []))
    cluster = Cluster(SERVERS, request_timeout_ms=1_000, api_timeout_ms=LIMIT_MS, clock=clock)
    with cluster, pytest.raises(KafkaError):
        cluster.topic("t")
    assert clock.monotonic_ms() <= LIMIT_MS


@pytest.mark.parametrize("kind", KINDS)
def test_leases_are_asked_of_all_replicas_in_the_time_of_one_question(
    kind: Any, clock: Clock, addresses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that is asked is one that keeps the records, though others are silent."""
    asked: list[str] = []
    monkeypatch.setattr(socket, "create_connection", kind(clock, asked))
    with with_metadata(Cluster(SERVERS, request_timeout_ms=LIMIT_MS, clock=clock)) as cluster:
        replicas = tuple(cluster.metadata.nodes)
        part = PartitionMetadata(1, 0, replicas, replicas)
        topic = TopicMetadata("t", None, False, {0: part})
        cluster.metadata = replace(cluster.metadata, topics={"t": topic})
        with pytest.raises(KafkaError):
            cluster.hold(LeaseTerms("lease", "reader", 60_000), {TopicPartition("t", 0): 0})
    assert {*asked} == {*NAMES}
    assert clock.monotonic_ms() <= LIMIT_MS


def test_the_error_of_the_last_attempt_that_had_one_is_told(
    clock: Clock, addresses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that answers is worth more than the silence behind it."""
    monkeypatch.setattr(socket, "create_connection", in_handshake(clock, []))
    with Cluster(SERVERS, request_timeout_ms=LIMIT_MS, clock=clock) as cluster:

        def attempt() -> None:
            clock.pass_by(3)
            raise StaleMetadata("no leader", ErrorCode.LEADER_NOT_AVAILABLE)

        with pytest.raises(StaleMetadata, match="no leader; no other outcome within 8000 ms"):
            cluster.retrying(attempt)


def test_a_broker_that_throttles_is_not_waited_for_longer_than_the_question_may_take(
    clock: Clock, addresses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "create_connection", in_handshake(clock, []))
    with Cluster("a:1", request_timeout_ms=LIMIT_MS, clock=clock) as cluster:
        throttled = cluster.connection(None)
        cluster._connections.throttle(throttled.address, 10 * LIMIT_MS)
        begun_ms = clock.monotonic_ms()
        with pytest.raises(RequestTimedOut, match="within 8000 ms"):
            cluster.connection(None)
        assert clock.monotonic_ms() == begun_ms + LIMIT_MS


def test_an_answer_that_comes_too_late_is_not_the_next_ones(
    clock: Clock, addresses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something was asked for when the time ended: its answer may come on that connection yet."""
    monkeypatch.setattr(socket, "create_connection", in_handshake(clock, []))
    with Cluster("a:1", request_timeout_ms=LIMIT_MS, clock=clock) as cluster:

        def attempt() -> None:
            connection = cluster.connection(None)
            connection.send(METADATA, 12, [b""])
            clock.pass_by(LIMIT_MS / 1_000)
            cluster.topic("t")

        with pytest.raises(RequestTimedOut):
            cluster.retrying(attempt)
        assert cluster._connections.least_loaded() is None


class NoToken:
    """A login whose token nobody gives."""

    limit_ms = 60_000

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def at_hand(self) -> None: ...

    def fetch(self) -> Any:
        return self

    def result(self, timeout_s: float) -> Any:
        self._clock.pass_by(timeout_s)
        raise TimeoutError


def test_a_token_takes_no_longer_than_the_question(clock: Clock, addresses: Any) -> None:
    security = ClientSecurity(tls=None, login=NoToken(clock))
    cluster = Cluster(SERVERS, request_timeout_ms=LIMIT_MS, clock=clock, security=security)
    with cluster, pytest.raises(KafkaError, match=r"no token was given within \d+ ms"):
        cluster.topics()
    assert clock.monotonic_ms() <= LIMIT_MS


def test_a_brokers_words_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A broker could forge lines of a client's log, and clear the screen that shows it."""
    cluster = Cluster(SERVERS, client_id="c", clock=Clock())
    cluster.warn("not written: NONE\n\x1b[2J" + "x" * 2_000)
    (told,) = caplog.messages
    assert told.startswith("c: not written: NONE\\n\\x1b[2Jxxx")
    assert told.endswith("xxx...")
    assert len(told) < 1_100
