"""If one of these fails, a request passes before its sender is known, or a login cannot be made."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

from odradek.clock import ManualClock
from odradek.errors import ErrorCode
from odradek.model import ANONYMOUS
from odradek.protocol import messages
from odradek.protocol.header import (
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from odradek.security.principal import user
from odradek.security.sasl.authenticator import (
    _FLEXIBLE_FROM,
    Authenticator,
    LoginRules,
    LoginState,
    Next,
)
from odradek.security.sasl.mechanism import PLAIN, SaslError
from odradek.security.sasl.plain import PlainServer

USERS = {"alice": "secret", "bob": "geheim"}
HANDSHAKE, VERSIONS, AUTHENTICATE, METADATA = 17, 18, 36, 3
ALICE, BOB, WRONG = b"\0alice\0secret", b"\0bob\0geheim", b"\0alice\0wrong"


class Once(PlainServer):
    """A mechanism of another name, whose proofs expire."""

    expires_wall_ms = 5_000  # type: ignore[misc]


class Broken(PlainServer):
    """A mechanism that refuses everybody for a reason of its own."""

    def evaluate(self, response: bytes) -> bytes:
        raise SaslError("a secret")


class Login:
    """A connection's login on a clock of its own."""

    def __init__(self, max_reauth_ms: int = 0) -> None:
        self.clock = ManualClock(wall_ms=0)
        servers = {PLAIN: PlainServer, "ONCE": Once, "BROKEN": Broken}
        self.authenticator = Authenticator(
            LoginRules(
                (PLAIN, "ONCE", "BROKEN"),
                lambda name: servers[name](USERS.get),
                dict.fromkeys(servers, max_reauth_ms),
                self.clock,
            )
        )

    def ask(self, key: int, version: int, **values: object) -> tuple[Next, Any]:
        flexible_from = _FLEXIBLE_FROM.get(key, 9)
        header_version = request_header_version(key, version, flexible_from)
        frame = encode_request_header(key, version, 7, "client", header_version)
        frame += messages.encode_request(key, version, values)
        step = self.authenticator.receive(memoryview(frame))
        if step.answer is None:
            return step.next, None
        header_version = response_header_version(key, version, flexible_from)
        answer = memoryview(step.answer)
        correlation_id, position = decode_response_header(answer, header_version)
        assert correlation_id == 7
        return step.next, messages.decode_response(key, version, answer, position)

    def handshake(self, mechanism: str = PLAIN, version: int = 1) -> tuple[Next, Any]:
        return self.ask(HANDSHAKE, version, mechanism=mechanism)

    def authenticate(self, token: bytes, version: int = 2) -> tuple[Next, Any]:
        return self.ask(AUTHENTICATE, version, auth_bytes=token)

    def log_in(self, token: bytes = ALICE, mechanism: str = PLAIN) -> Any:
        assert self.handshake(mechanism)[0] is Next.ANSWER
        return self.authenticate(token)[1]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_of_every_version(version: int) -> None:
    login = Login()
    assert login.ask(VERSIONS, 3, client_software_name="c", client_software_version="1") == (
        Next.HAND_ON,
        None,
    )
    next_step, offered = login.handshake()
    assert (next_step, offered.error_code, offered.mechanisms) == (
        *(Next.ANSWER, 0),
        (PLAIN, "ONCE", "BROKEN"),
    )
    assert login.authenticator.principal == ANONYMOUS
    next_step, answer = login.authenticate(ALICE, version)
    assert (next_step, answer.error_code, answer.auth_bytes) == (Next.ANSWER, 0, b"")
    assert login.authenticator.is_complete
    assert login.authenticator.principal == user("alice")
    assert not login.authenticator.is_expired()


def test_messages_without_headers_after_the_first_handshake() -> None:
    login = Login()
    assert login.handshake(version=0)[0] is Next.ANSWER
    step = login.authenticator.receive(memoryview(ALICE))
    assert (step.next, step.answer) == (Next.ANSWER, b"")
    assert login.authenticator.principal == user("alice")


def test_a_wrong_password_without_headers_is_not_answered() -> None:
    login = Login()
    login.handshake(version=0)
    step = login.authenticator.receive(memoryview(WRONG))
    assert (step.next, step.answer) == (Next.CLOSE, None)


def test_a_refused_login_is_told_and_closed() -> None:
    login = Login()
    login.handshake()
    next_step, answer = login.authenticate(WRONG)
    assert next_step is Next.CLOSE
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert login.authenticator.principal == ANONYMOUS


def test_what_only_the_log_is_to_have_is_not_told() -> None:
    login = Login()
    login.handshake("BROKEN")
    next_step, answer = login.authenticate(b"")
    assert next_step is Next.CLOSE
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism BROKEN"
    )


def test_a_mechanism_that_is_off_is_refused_with_those_that_are_on() -> None:
    next_step, answer = Login().handshake("GSSAPI")
    assert next_step is Next.CLOSE
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == (PLAIN, "ONCE", "BROKEN")


@pytest.mark.parametrize("key", [METADATA, AUTHENTICATE, 0, 1, 99, -1])
def test_no_other_request_passes_before_a_handshake(key: int) -> None:
    frame = encode_request_header(key, 0, 1, None, 1) + bytes(8)
    login = Login()
    step = login.authenticator.receive(memoryview(frame))
    assert (step.next, step.answer) == (Next.CLOSE, None)
    assert login.authenticator.receive(memoryview(frame)).next is Next.CLOSE


def test_requests_out_of_order_during_the_exchange() -> None:
    login = Login()
    login.handshake()
    next_step, answer = login.handshake()
    assert (next_step, answer.error_code) == (Next.CLOSE, ErrorCode.ILLEGAL_SASL_STATE)
    login = Login()
    login.handshake()
    next_step, answer = login.ask(VERSIONS, 0)
    assert (next_step, answer.error_code) == (Next.CLOSE, ErrorCode.ILLEGAL_SASL_STATE)
    login = Login()
    login.handshake()
    assert login.ask(METADATA, 1, topics=None) == (Next.CLOSE, None)


def test_versions_that_are_not_served_can_be_asked_for_again() -> None:
    login = Login()
    frame = encode_request_header(VERSIONS, 99, 1, None, 2)
    assert login.authenticator.receive(memoryview(frame)).next is Next.HAND_ON
    assert login.ask(VERSIONS, 0)[0] is Next.HAND_ON
    assert login.ask(VERSIONS, 0)[0] is Next.CLOSE


def test_versions_that_are_not_served_are_not_asked_for_without_end() -> None:
    """Clients need no login to keep a broker busy with them."""
    login = Login()
    frame = memoryview(encode_request_header(VERSIONS, 99, 1, None, 2))
    found = [login.authenticator.receive(frame).next for _ in range(10)]
    assert found == [Next.HAND_ON] * 8 + [Next.CLOSE] * 2


@pytest.mark.parametrize(
    ("mechanism", "max_reauth_ms", "lifetime_ms"),
    [
        (PLAIN, 0, 0),
        (PLAIN, 3_000, 3_000),
        (PLAIN, -5, 0),
        ("ONCE", 0, 5_000),
        ("ONCE", 3_000, 3_000),
        ("ONCE", 9_000, 5_000),
    ],
)
def test_how_long_a_session_lasts(mechanism: str, max_reauth_ms: int, lifetime_ms: int) -> None:
    login = Login(max_reauth_ms)
    answer = login.log_in(mechanism=mechanism)
    assert messages.milliseconds(answer.session_lifetime) == lifetime_ms
    login.clock.advance(lifetime_ms)
    assert not login.authenticator.is_expired()
    login.clock.advance(1)
    assert login.authenticator.is_expired() == (lifetime_ms > 0)


def test_proof_that_has_expired_before_it_came_ends_the_session_at_once() -> None:
    login = Login()
    login.clock.advance(6_000)
    assert login.log_in(mechanism="ONCE").session_lifetime.total_seconds() == 0
    login.clock.advance(1)
    assert login.authenticator.is_expired()


def test_a_session_is_renewed_by_the_same_principal() -> None:
    login = Login(3_000)
    login.log_in()
    login.clock.advance(4_000)
    assert login.authenticator.is_expired()
    assert login.authenticator.begins_again(HANDSHAKE)
    assert not login.authenticator.begins_again(METADATA)
    assert login.log_in().error_code == 0
    assert not login.authenticator.is_expired()
    assert login.authenticator.principal == user("alice")


def test_nobody_authenticates_again_within_a_second() -> None:
    login = Login(3_000)
    login.log_in()
    assert login.authenticator.begins_again(HANDSHAKE)
    login.log_in()
    login.clock.advance(999)
    assert not login.authenticator.begins_again(HANDSHAKE)
    login.clock.advance(1)
    assert login.authenticator.begins_again(HANDSHAKE)


def test_another_principal_cannot_take_the_connection_over() -> None:
    login = Login(3_000)
    login.log_in()
    login.authenticator.begins_again(HANDSHAKE)
    answer = login.log_in(BOB)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert login.authenticator.principal == user("alice")
    assert not login.authenticator.is_complete


def test_another_mechanism_is_refused_when_it_is_used() -> None:
    login = Login(3_000)
    login.log_in()
    login.authenticator.begins_again(HANDSHAKE)
    next_step, answer = login.handshake("ONCE")
    assert (next_step, answer.error_code) == (Next.ANSWER, 0)
    assert login.authenticate(ALICE) == (Next.CLOSE, None)


def test_a_session_that_lasts_for_ever_is_not_renewed() -> None:
    login = Login()
    login.log_in()
    assert not login.authenticator.begins_again(HANDSHAKE)


@settings(max_examples=rounds(400), deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=4), st.integers(0, 2))
def test_no_bytes_log_anybody_in(frames: list[bytes], begun: int) -> None:
    login = Login()
    if begun:
        login.handshake(version=begun - 1)
    for frame in frames:
        step = login.authenticator.receive(memoryview(frame))
        assert step.next is not Next.HAND_ON or login.authenticator.state is LoginState.HANDSHAKE
    assert not login.authenticator.is_complete


@settings(max_examples=rounds(400), deadline=None)
@given(st.data())
def test_no_mutation_of_a_login_ends_in_anything_but_a_step(data: st.DataObject) -> None:
    login = Login()
    login.handshake()
    body = messages.encode_request(AUTHENTICATE, 2, {"auth_bytes": WRONG})
    frame = bytearray(encode_request_header(AUTHENTICATE, 2, 1, "c", 2) + body)
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    login.authenticator.receive(memoryview(frame)[:cut])
    assert not login.authenticator.is_complete
