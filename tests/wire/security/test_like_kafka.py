"""Logins that go wrong, frame by frame, beside a real Apache Kafka with the same listeners.

If this fails, a client's log says something else of our broker than of Kafka's, or an error that it
counts on does not come.
"""

import base64
import dataclasses
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import pytest
from tests.deadlines import deadline_s
from tests.system.cluster.polling import until
from tools import peers
from tools.free_port import free_port
from tools.kafka_node import kafka_node

import odradek
from odradek.protocol import messages
from odradek.protocol.header import (
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from odradek.security.sasl import scram
from odradek.security.sasl.claims import encode_unsigned
from odradek.security.sasl.scram_client import ScramClient

pytestmark = pytest.mark.slow

TIMEOUT_S: Final = deadline_s(30)
CLOSED: Final = "closed"
FLEXIBLE_FROM: Final = {3: 9, 17: 99, 18: 3, 36: 2, 50: 0, 51: 0, 38: 2, 39: 2, 40: 2, 41: 2}
_LINES: Final = {
    "plain": 'plain.PlainLoginModule required user_alice="secret" user_bob="geheim";',
    "scram-sha-256": "scram.ScramLoginModule required;",
    "oauthbearer": "oauthbearer.OAuthBearerLoginModule required;",
}
SETTINGS: Final = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "connection.failed.authentication.delay.ms": "10",
    "delegation.token.secret.key": "the brokers' own",
    "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "60000",
    **{
        f"listener.name.sasl_plaintext.{mechanism}.sasl.jaas.config": (
            f"org.apache.kafka.common.security.{line}"
        )
        for mechanism, line in _LINES.items()
    },
}
PROTOCOLS: Final = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
RIGHT, WRONG, BOB = b"\0alice\0secret", b"\0alice\0wrong", b"\0bob\0geheim"


class Site(NamedTuple):
    """A broker's two listeners."""

    plain: str
    sasl: str


class Talk:
    """A connection; what came back is in `heard`."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.heard: list[Any] = []

    def ask(self, key: int, version: int, **values: object) -> Any:
        """A request; its answer as plain values."""
        flexible_from = FLEXIBLE_FROM[key]
        header_version = request_header_version(key, version, flexible_from)
        frame = encode_request_header(key, version, 1, "talk", header_version)
        frame += messages.encode_request(key, version, values)
        answer = self.send(frame)
        if answer is None:
            self.heard.append((key, CLOSED))
            return None
        if key == 18:
            self.heard.append((key, answer[4:6]))
            return None
        header_version = response_header_version(key, version, flexible_from)
        _, position = decode_response_header(memoryview(answer), header_version)
        decoded = messages.decode_response(key, version, memoryview(answer), position)
        self.heard.append((key, _plain(decoded)))
        return decoded

    def token(self, token: bytes) -> None:
        """A message of the mechanism without a header."""
        answer = self.send(token)
        self.heard.append(CLOSED if answer is None else answer)

    def send(self, frame: bytes) -> bytes | None:
        try:
            self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
            size = self._exactly(4)
            return None if size is None else self._exactly(int.from_bytes(size, "big"))
        except ConnectionError:
            return None

    def end(self) -> None:
        """Whether the broker closes by itself."""
        self._socket.settimeout(1)
        try:
            self.heard.append("open" if self._socket.recv(1) else CLOSED)
        except TimeoutError:
            self.heard.append("open")
        except ConnectionError:
            self.heard.append(CLOSED)
        self._socket.close()

    def _exactly(self, count: int) -> bytes | None:
        received = b""
        while len(received) < count:
            some = self._socket.recv(count - len(received))
            if not some:
                return None
            received += some
        return received


def _plain(message: Any) -> dict[str, str]:
    fields = {each.name: getattr(message, each.name) for each in dataclasses.fields(message)}
    if "session_lifetime" in fields:  # the time that has gone by is no difference
        fields["session_lifetime"] = f"{fields['session_lifetime'].total_seconds():.2g}"
    if "results" in fields:  # in the order of a hash table
        fields["results"] = sorted(fields["results"], key=lambda each: each.user)
    return {name: repr(_told(name, value)) for name, value in fields.items()}


def _told(name: str, value: Any) -> Any:
    """Of what is a broker's own choice, what it is like."""
    if name in ("token_id", "hmac"):
        return len(value)
    if name == "tokens":
        tokens = [_plain(each) for each in value]
        return sorted(tokens, key=lambda each: sorted(each.items()))
    if name.endswith("_timestamp") and value is not None:
        if isinstance(value, int):
            value = datetime.fromtimestamp(value / 1000, UTC)
        if not value.timestamp():
            return 0
        return round((value - datetime.now(UTC)).total_seconds(), -2)
    return value


def before_a_login(site: Site) -> Iterator[Talk]:
    talk = Talk(site.sasl)
    talk.ask(3, 1, topics=[])
    yield talk
    talk = Talk(site.sasl)
    talk.ask(36, 1, auth_bytes=b"")
    yield talk
    talk = Talk(site.sasl)
    talk.ask(18, 0)
    talk.ask(3, 1, topics=[])
    yield talk
    talk = Talk(site.sasl)
    talk.ask(18, 0)
    talk.ask(18, 0)
    yield talk
    talk = Talk(site.sasl)
    talk.ask(17, 1, mechanism="GSSAPI")
    yield talk
    talk = Talk(site.sasl)
    talk.token(b"\x60\x82\x02\x01")
    yield talk


def passwords(site: Site) -> Iterator[Talk]:
    tokens = [RIGHT, WRONG, b"", b"\0alice", b"\0\0x", b"\0alice\0", b"bob\0alice\0secret"]
    for token in tokens:
        for version in (0, 2):
            talk = Talk(site.sasl)
            talk.ask(17, 1, mechanism="PLAIN")
            talk.ask(36, version, auth_bytes=token)
            yield talk


def without_headers(site: Site) -> Iterator[Talk]:
    for token in (RIGHT, WRONG):
        talk = Talk(site.sasl)
        talk.ask(17, 0, mechanism="PLAIN")
        talk.token(token)
        yield talk


def out_of_order(site: Site) -> Iterator[Talk]:
    talk = Talk(site.sasl)
    talk.ask(17, 1, mechanism="PLAIN")
    talk.ask(17, 1, mechanism="PLAIN")
    yield talk
    talk = Talk(site.sasl)
    talk.ask(17, 1, mechanism="PLAIN")
    talk.ask(18, 0)
    yield talk


def again(site: Site) -> Iterator[Talk]:
    for mechanism, token in (("PLAIN", RIGHT), ("PLAIN", BOB), ("SCRAM-SHA-256", b"n,,n=x,r=y")):
        talk = Talk(site.sasl)
        talk.ask(17, 1, mechanism="PLAIN")
        talk.ask(36, 2, auth_bytes=RIGHT)
        talk.ask(17, 1, mechanism=mechanism)
        talk.ask(36, 2, auth_bytes=token)
        yield talk
    talk = Talk(site.sasl)
    talk.ask(17, 1, mechanism="PLAIN")
    talk.ask(36, 2, auth_bytes=RIGHT)
    talk.ask(36, 2, auth_bytes=RIGHT)
    yield talk
    talk = Talk(site.sasl)
    talk.ask(17, 1, mechanism="PLAIN")
    talk.ask(36, 2, auth_bytes=RIGHT)
    for _ in range(2):
        talk.ask(17, 1, mechanism="PLAIN")
        talk.ask(36, 2, auth_bytes=RIGHT)
    yield talk


def scram_messages(site: Site) -> Iterator[Talk]:
    for first in (
        *(b"n,,n=nobody,r=abc", b"", b"n,,n=nobody", b"y,,n=a,r=b", b"n,,n=a=2Bc,r=b"),
        *("n,,n=é,r=b".encode(), b"p=x,,n=a,r=b", b"n,a=b,n=a,r=b", b"n,,n=a,r=b,x=y"),
    ):
        talk = Talk(site.sasl)
        talk.ask(17, 1, mechanism="SCRAM-SHA-256")
        talk.ask(36, 2, auth_bytes=first)
        yield talk


def tokens(site: Site) -> Iterator[Talk]:
    good = {"sub": "alice", "iat": 1_000_000_000, "exp": 9_000_000_000}
    for claims in (good, {**good, "exp": 1_100_000_000}, {"exp": 9_000_000_000}, {"sub": "alice"}):
        talk = Talk(site.sasl)
        talk.ask(17, 1, mechanism="OAUTHBEARER")
        message = f"n,,\x01auth=Bearer {encode_unsigned(claims)}\x01\x01".encode()
        talk.ask(36, 2, auth_bytes=message)
        if claims is not good:
            talk.ask(36, 2, auth_bytes=b"\x01")
        yield talk
    for message in (b"", b"n,,\x01\x01"):  # of another scheme Kafka stumbles, and only closes
        talk = Talk(site.sasl)
        talk.ask(17, 1, mechanism="OAUTHBEARER")
        talk.ask(36, 2, auth_bytes=message)
        yield talk


def without_sasl(site: Site) -> Iterator[Talk]:
    talk = Talk(site.plain)
    talk.ask(17, 1, mechanism="PLAIN")
    yield talk
    talk = Talk(site.plain)
    talk.ask(36, 2, auth_bytes=RIGHT)
    yield talk


def users_of_scram(site: Site) -> Iterator[Talk]:
    salted = scram.salted_password("SCRAM-SHA-256", "secret", b"salt", 4096)

    def upsertion(name: str, iterations: int = 4096, mechanism: int = 1) -> dict[str, object]:
        return {
            "name": name,
            "mechanism": mechanism,
            "iterations": iterations,
            "salt": b"salt",
            "salted_password": salted,
        }

    talk = Talk(site.plain)
    for upsertions, deletions in (
        ([upsertion("dora")], []),
        ([upsertion("dora", 1), upsertion("emil")], []),
        ([upsertion("x", 16_385), upsertion("y", 4096, 0), upsertion("z", 4096, 9)], []),
        ([upsertion("")], []),
        ([upsertion("f"), upsertion("f")], []),
        ([upsertion("g"), upsertion("g", mechanism=2)], []),
        ([upsertion("g")], [{"name": "g", "mechanism": 1}]),
        ([], [{"name": "nobody", "mechanism": 1}, {"name": "dora", "mechanism": 2}]),
        ([], [{"name": "nobody", "mechanism": 0}, {"name": "", "mechanism": 1}]),
        ([], []),
    ):
        talk.ask(51, 0, upsertions=upsertions, deletions=deletions)
    yield talk
    talk = Talk(site.plain)
    for names in (["dora"], ["nobody", "dora"], ["dora", "dora"], [""]):
        talk.ask(50, 0, users=[{"name": name} for name in names])
    yield talk


def logged_in(site: Site, message: bytes) -> Talk:
    talk = Talk(site.sasl)
    talk.ask(17, 1, mechanism="PLAIN")
    talk.ask(36, 2, auth_bytes=message)
    talk.heard.clear()
    return talk


def by_token(site: Site, token_id: str, password: str) -> Talk:
    """The first answer tells whether the token is taken."""
    talk = Talk(site.sasl)
    talk.ask(17, 1, mechanism="SCRAM-SHA-256")
    client = ScramClient("SCRAM-SHA-256", token_id, password, "nonce", is_token=True)
    answer = talk.ask(36, 2, auth_bytes=client.first())
    if answer.error_code == 0:
        answer = talk.ask(36, 2, auth_bytes=client.evaluate(answer.auth_bytes))
    talk.heard[:] = [(int(answer.error_code), answer.session_lifetime.total_seconds() > 0)]
    return talk


def await_tokens(talk: Talk, count: int) -> None:
    """Kafka answers before its broker knows of what it has made."""
    heard = list(talk.heard)
    until(lambda: len(talk.ask(41, 3, owners=None).tokens) == count, f"{count} tokens are known")
    talk.heard[:] = heard


def creation(owner: str | None = None, renewer: str = "User", lifetime_ms: int = -1) -> Any:
    return {
        "owner_principal_type": None if owner is None else "User",
        "owner_principal_name": owner,
        "renewers": [{"principal_type": renewer, "principal_name": "bob"}],
        "max_lifetime_ms": lifetime_ms,
    }


def delegation_tokens(site: Site) -> Iterator[Talk]:
    alice, bob = logged_in(site, RIGHT), logged_in(site, BOB)
    made = alice.ask(38, 3, **creation())
    alice.ask(38, 1, **creation(lifetime_ms=3_600_000))
    alice.ask(38, 3, **creation("bob"))
    alice.ask(38, 3, **creation(renewer="Group"))
    alice.ask(38, 3, **creation(lifetime_ms=(1 << 63) - 1))
    await_tokens(alice, 4)
    for talk in (alice, bob):
        for owners in (None, [], ["alice"], ["bob"], ["nobody"]):
            wanted = owners and [{"principal_type": "User", "principal_name": x} for x in owners]
            talk.ask(41, 3, owners=wanted)
    other = bob.ask(38, 3, **creation("alice"))
    other = bob.ask(38, 3, **{**creation(), "renewers": []})
    await_tokens(bob, 6)
    for key, field in ((39, "renew_period_ms"), (40, "expiry_time_period_ms")):
        bob.ask(key, 2, hmac=b"none", **{field: 1})
        alice.ask(key, 2, hmac=other.hmac, **{field: 1_000_000})
        for period_ms in (3_600_000, 999_999_999_999, (1 << 63) - 1, 0):
            bob.ask(key, 2, hmac=made.hmac, **{field: period_ms})
        made = alice.ask(38, 2, **creation())
        await_tokens(alice, 7 if key == 39 else 8)
    password = base64.b64encode(made.hmac).decode()
    token = by_token(site, made.token_id, password)
    token.ask(38, 3, **creation())
    token.ask(39, 2, hmac=made.hmac, renew_period_ms=1)
    token.ask(40, 2, hmac=made.hmac, expiry_time_period_ms=1)
    token.ask(41, 3, owners=None)
    yield token
    yield by_token(site, made.token_id, "wrong")
    yield by_token(site, "nobody's", password)
    for _ in range(2):
        alice.ask(40, 2, hmac=made.hmac, expiry_time_period_ms=-1)
    await_tokens(alice, 7)
    yield by_token(site, made.token_id, password)
    yield alice
    yield bob
    talk = Talk(site.plain)
    talk.ask(38, 3, **creation())
    talk.ask(39, 2, hmac=b"", renew_period_ms=1)
    talk.ask(40, 2, hmac=b"", expiry_time_period_ms=1)
    talk.ask(41, 3, owners=None)
    yield talk


CONVERSATIONS: Final = (
    *(before_a_login, passwords, without_headers, out_of_order, again, scram_messages, tokens),
    *(without_sasl, users_of_scram, delegation_tokens),
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Site]:
    port = free_port()
    try:
        listener = f"SASL_PLAINTEXT://127.0.0.1:{port}"
        settings = {**SETTINGS, "listener.security.protocol.map": PROTOCOLS}
        with kafka_node("512m", settings=settings, listeners=[listener]) as node:
            yield Site(node.bootstrap_servers, f"127.0.0.1:{port}")
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


@pytest.fixture(scope="module")
def ours() -> Iterator[Site]:
    listeners = ["PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"]
    with odradek.Broker(listeners=listeners, config=SETTINGS) as broker:
        plain, sasl = (f"{each.host}:{each.port}" for each in broker._running().sockets.endpoints)
        yield Site(plain, sasl)


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda each: each.__name__)
def test_a_login_goes_as_with_kafka(
    kafka: Site, ours: Site, conversation: Callable[[Site], Iterator[Talk]]
) -> None:
    heard = []
    for site in (kafka, ours):
        talks = list(conversation(site))
        for talk in talks:
            talk.end()
        heard.append([talk.heard for talk in talks])
    different = [
        f"{number}: Kafka {theirs}, ours {own}"
        for number, pair in enumerate(zip(*heard, strict=True))
        for theirs, own in zip_longest(*pair)
        if theirs != own
    ]
    assert not different, "\n".join(different)
