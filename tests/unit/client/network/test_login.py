"""If one of these fails, our client cannot log in, or loses what it asked while it did so again."""

import pytest

from odradek.client.apis import API_VERSIONS, METADATA
from odradek.client.core.network.connection import ConnectionCore, ConnectionState
from odradek.client.core.network.login import Login
from odradek.client.errors import AuthenticationError
from odradek.clock import ManualClock
from odradek.protocol import messages
from odradek.protocol.framing import encode_size
from odradek.protocol.header import encode_response_header
from odradek.security.sasl import scram
from odradek.security.sasl.authenticator import Authenticator, LoginRules, Next
from odradek.security.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN
from odradek.security.sasl.oauthbearer import OAuthBearerServer, TokenRefused, ValidToken
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram_server import ScramServer

SERVED = {17: (0, 1), 18: (0, 4), 36: (0, 2), 3: (0, 13)}


def new_server(mechanism):
    if mechanism == PLAIN:
        return PlainServer({"alice": "secret"}.get)
    if mechanism == OAUTHBEARER:

        def validate(token):
            if token != "good":
                raise TokenRefused("bad")
            return ValidToken("alice", 60_000)

        return OAuthBearerServer(validate, lambda reason: None)
    known = scram.credential(mechanism, "secret", b"salt", 4096)
    return ScramServer(mechanism, {"alice": known}.get, "nonce")


class Broker:
    """A broker's side in memory; it echoes what comes after a login."""

    def __init__(self, mechanisms=MECHANISMS, max_reauth_ms=0):
        self.clock = ManualClock(wall_ms=0)
        reauth = dict.fromkeys(mechanisms, max_reauth_ms)
        rules = LoginRules(mechanisms, new_server, reauth, self.clock)
        self.authenticator = Authenticator(rules)
        self.handled = []

    def answer(self, frame):
        login = self.authenticator
        api_key = int.from_bytes(frame[:2], "big")
        if login.is_complete and not login.begins_again(api_key):
            self.handled.append(api_key)
            return frame[4:8] + b"done"
        step = login.receive(memoryview(frame))
        return self.versions(frame) if step.next is Next.HAND_ON else step.answer

    def versions(self, frame):
        keys = [
            {"api_key": key, "min_version": low, "max_version": high}
            for key, (low, high) in SERVED.items()
        ]
        body = messages.encode_response(API_VERSIONS.key, 4, {"api_keys": keys})
        return bytes(encode_response_header(int.from_bytes(frame[4:8], "big"), 0)) + body


def carry(core, broker, *, at_once=False):
    """Takes frames to the broker and answers back until both are silent; returns the answers."""
    answered = []
    while data := b"".join(core.take_outgoing()):
        back = b""
        while data:
            size = int.from_bytes(data[:4], "big")
            answer = broker.answer(data[4 : 4 + size])
            back += encode_size(len(answer)) + answer
            data = data[4 + size :]
        if at_once:
            core.get_buffer()[: len(back)] = back
            answered += core.buffer_updated(len(back))
            continue
        for byte in back:
            core.get_buffer()[:1] = bytes([byte])
            answered += core.buffer_updated(1)
    return [one.context for one in answered]


def core_of(mechanism, password="secret", token="good"):
    core = ConnectionCore("me", login=Login(mechanism, "alice", password, lambda: token))
    core.connected()
    return core


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_by_every_mechanism(mechanism):
    core, broker = core_of(mechanism), Broker()
    assert carry(core, broker) == []
    assert core.state is ConnectionState.READY
    assert str(broker.authenticator.principal) == "User:alice"
    expected_ms = 60_000 if mechanism == OAUTHBEARER else 0
    assert core.take_session_lifetime_ms() == expected_ms
    assert core.take_session_lifetime_ms() is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_refused_login_is_an_error_of_its_own(mechanism):
    with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED"):
        carry(core_of(mechanism, "wrong", "bad"), Broker())


def test_a_mechanism_that_is_off_is_an_error_that_names_those_that_are_on():
    with pytest.raises(AuthenticationError, match="does not take PLAIN, only OAUTHBEARER"):
        carry(core_of(PLAIN), Broker((OAUTHBEARER,)))


@pytest.mark.parametrize("at_once", [False, True])
def test_requests_wait_while_a_login_is_renewed_and_none_is_lost(at_once):
    core, broker = core_of(scram.SCRAM_MECHANISMS[0]), Broker(max_reauth_ms=5_000)
    carry(core, broker)
    assert core.take_session_lifetime_ms() == 5_000
    broker.clock.advance(6_000)
    core.send(METADATA, 1, [b""], "before")
    core.renew_login()
    core.renew_login()
    core.send(METADATA, 1, [b""], "during")
    assert core.in_flight_count == 3
    assert carry(core, broker, at_once=at_once) == ["before", "during"]
    assert broker.handled == [3, 3]
    assert core.take_session_lifetime_ms() == 5_000
    assert not broker.authenticator.is_expired()


def test_who_waits_for_a_renewal_hears_of_a_lost_connection():
    core, broker = core_of(PLAIN), Broker()
    carry(core, broker)
    core.send(METADATA, 1, [b""], "before")
    core.renew_login()
    core.send(METADATA, 1, [b""], "during")
    assert core.lost() == ["before", "during"]


def test_requests_are_held_until_a_session_that_is_over_has_been_renewed():
    """The broker closes a connection on which a request comes after its session."""
    core, broker = core_of(PLAIN), Broker(max_reauth_ms=5_000)
    carry(core, broker)
    broker.clock.advance(6_000)
    core.hold()
    core.send(METADATA, 1, [b""], "held")
    assert core.take_outgoing() == []
    assert core.in_flight_count == 1
    core.renew_login(Login(PLAIN, "alice", "secret", None))
    assert carry(core, broker) == ["held"]
    core.send(METADATA, 1, [b""], "later")
    assert carry(core, broker) == ["later"]
    assert broker.handled == [3, 3]


def test_a_client_without_a_login_has_nothing_to_renew():
    core = ConnectionCore("me")
    core.connected()
    core.take_outgoing()
    core.renew_login()
    assert core.take_outgoing() == []


def test_a_login_does_not_show_its_password():
    assert "secret" not in repr(Login(PLAIN, "alice", "secret", None))
