"""The gate of a listener with SASL, in front of a connection. If one of these fails, a request is
served before its client is known, or as somebody else's."""

import logging

import pytest
from tests.unit.network.fakes import Harness, framed

from odradek.log_limit import LimitedLog
from odradek.model import ANONYMOUS
from odradek.network.authentication import LoginGates
from odradek.network.memory.receive_buffers import READ_BUFFER_BYTES, SETUP_BUFFER_BYTES
from odradek.protocol import messages
from odradek.protocol.header import encode_request_header, request_header_version
from odradek.security.principal import user
from odradek.security.sasl.authenticator import LoginRules
from odradek.security.sasl.mechanism import PLAIN
from odradek.security.sasl.plain import PlainServer

USERS = {"alice": "secret", "bob": "geheim"}
HANDSHAKE, VERSIONS, AUTHENTICATE, METADATA = 17, 18, 36, 3
DELAY_MS = 100
LOGIN_MAX_BYTES = 1 << 19
ALL_KEYS = range(-1, 100)


def request(key: int, version: int = 1, **values: object) -> bytes:
    header_version = request_header_version(key, version, 9)
    header = encode_request_header(key, version, 7, "client", header_version)
    return bytes(header) + bytes(messages.encode_request(key, version, values))


def login(name: str, password: str) -> tuple[bytes, bytes]:
    token = f"\0{name}\0{password}".encode()
    return (
        request(HANDSHAKE, mechanism=PLAIN),
        request(AUTHENTICATE, auth_bytes=token),
    )


ASK = request(METADATA, topics=None)
ALICE, BOB, WRONG = login("alice", "secret"), login("bob", "geheim"), login("alice", "wrong")


class Door:
    """A connection behind a gate, and what of its frames the broker was handed."""

    def __init__(self, max_reauth_ms: int = 0, request_memory_bytes: int = -1) -> None:
        self.harness = Harness(request_memory_bytes=request_memory_bytes)
        rules = LoginRules(
            (PLAIN,),
            lambda _: PlainServer(USERS.get),
            {PLAIN: max_reauth_ms},
            self.harness.clock,
        )
        log = LimitedLog(logging.getLogger("test"), self.harness.clock)
        self.connection = self.harness.connection
        self.connection.is_established = False
        LoginGates(rules, log, LOGIN_MAX_BYTES, DELAY_MS).guard(self.connection)

    def receive(self, *frames: bytes) -> None:
        self.harness.receive(framed(*frames))
        self.harness.turn()

    def advance(self, ms: int) -> None:
        self.harness.timer.advance_clock(ms)
        self.harness.turn()

    @property
    def served(self) -> list[bytes]:
        return self.harness.handler.handled

    def is_closed(self) -> bool:
        return self.harness.transport.closed


@pytest.mark.parametrize("key", sorted({*ALL_KEYS} - {HANDSHAKE, VERSIONS}))
def test_no_api_is_served_before_a_login(key: int) -> None:
    """Of all keys there are and some there are not, before a handshake and behind one."""
    for before in ((), ALICE[:1]):
        door = Door()
        frame = bytes(encode_request_header(key, 0, 7, "client", 1)) + bytes(16)
        door.receive(*before, frame, ASK)
        door.advance(DELAY_MS)
        assert door.served == []
        assert door.is_closed()
        assert door.connection.principal == ANONYMOUS
        assert not door.connection.is_established


def test_requests_behind_a_login_in_one_read_are_its_own() -> None:
    """A client that does not wait for its answers would be dropped, or be nobody."""
    door = Door()
    door.receive(*ALICE, ASK)
    assert door.served == [ASK]
    assert door.connection.principal == user("alice")


def test_requests_behind_a_refused_login_in_one_read_are_not_served() -> None:
    """A password would not have to be right for those that came with it; each of them would wait
    on a timer of its own."""
    door = Door()
    door.receive(*WRONG, *ALICE, *[ASK] * 100)
    assert door.harness.timer.size == 1
    assert not door.is_closed(), "its refusal comes late"
    door.advance(DELAY_MS)
    assert door.is_closed()
    assert door.served == []
    assert door.connection.principal == ANONYMOUS


def test_another_principal_does_not_take_a_connection_over() -> None:
    """Requests behind its login in the same read would be done in the name of either."""
    door = Door(max_reauth_ms=10_000)
    door.receive(*ALICE, ASK)
    door.advance(5_000)
    door.receive(*BOB, ASK)
    door.advance(DELAY_MS)
    assert door.served == [ASK]
    assert door.is_closed()
    assert door.connection.principal == user("alice")


def test_nothing_is_served_while_somebody_authenticates_again() -> None:
    """An expired session would go on behind a handshake that nobody finishes."""
    door = Door(max_reauth_ms=10_000)
    door.receive(*ALICE, ASK)
    door.advance(20_000)
    door.receive(ALICE[0], ASK)
    door.advance(DELAY_MS)
    assert door.served == [ASK]
    assert door.is_closed()


def test_a_session_that_has_expired_is_served_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A token, or a user that was removed, would be good for as long as its connection."""
    caplog.set_level(logging.INFO)
    door = Door(max_reauth_ms=10_000)
    door.receive(*ALICE, ASK)
    door.advance(10_000)
    door.receive(ASK)
    assert door.served == [ASK, ASK]
    door.advance(1)
    door.receive(ASK, ASK)
    assert door.served == [ASK, ASK]
    assert door.is_closed()
    assert "its session has expired" in caplog.text


def test_a_frame_is_small_until_its_client_is_known() -> None:
    """An unknown client could have the broker receive a hundred megabytes."""
    large = (LOGIN_MAX_BYTES + 1).to_bytes(4, "big")
    door = Door()
    door.harness.receive(large)
    assert door.is_closed()
    door = Door()
    door.receive(*ALICE)
    door.harness.receive(large)
    assert not door.is_closed()


def test_a_refused_login_holds_no_memory_until_it_is_answered() -> None:
    """A thousand wrong passwords of half a megabyte would hold all that there is."""
    door = Door()
    door.receive(ALICE[0], login("alice", "x" * 100_000)[1])
    assert not door.is_closed()
    assert door.connection.buffer_bytes == 0


def test_who_has_not_logged_in_has_memory_for_what_has_come_and_little_beyond() -> None:
    """A thousand clients that send a byte, or the beginning of a large login, would use up all."""
    door = Door()
    door.harness.receive(b"\0")
    assert door.connection.buffer_bytes == SETUP_BUFFER_BYTES
    large = framed(login("alice", "secret" * 50_000)[1])
    door.harness.receive(large[1:3000])
    assert door.connection.buffer_bytes == 2 * SETUP_BUFFER_BYTES
    door.harness.receive(large[3000:50_000])
    assert door.connection.buffer_bytes <= 128 * 1024


@pytest.mark.parametrize("piece_bytes", [1, 3, 4095, 4096, 4097, 100_000])
def test_logins_come_in_pieces_of_any_size(piece_bytes: int) -> None:
    """And what comes behind them has a buffer as large as ever."""
    versions = request(VERSIONS, version=0)
    long = request(AUTHENTICATE, auth_bytes=b"\0alice\0" + b"x" * 5_000)
    for frames, served in (((*ALICE, ASK, ASK), [ASK, ASK]), ((ALICE[0], long, ASK), [])):
        door = Door()
        content = framed(versions, *frames)
        for begin in range(0, len(content), piece_bytes):
            door.harness.receive(content[begin : begin + piece_bytes])
            door.harness.turn()
        assert door.served == [versions, *served]
        if served:
            door.harness.receive(b"\0")
            assert door.connection.buffer_bytes == READ_BUFFER_BYTES


def test_who_has_not_logged_in_uses_up_none_of_what_the_requests_of_others_may_have() -> None:
    """With `queued.max.request.bytes` anybody could have the broker read nothing any more."""
    door = Door(request_memory_bytes=10_000)
    door.harness.receive((400_000).to_bytes(4, "big") + b"x" * 20_000)
    assert door.harness.memory.used_bytes == 0
    door = Door(request_memory_bytes=10_000)
    door.receive(*ALICE)
    door.harness.receive((400_000).to_bytes(4, "big"))
    assert door.harness.memory.used_bytes == 400_004
