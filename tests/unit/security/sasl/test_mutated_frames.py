"""Forty thousand logins that a stranger has spoilt: each ends in a step, and none lets anybody in
as somebody else."""

import random
import unicodedata
from collections.abc import Iterator
from typing import Final

import pytest

from odradek.clock import ManualClock
from odradek.protocol import messages
from odradek.protocol.header import encode_request_header, request_header_version
from odradek.security.sasl import scram
from odradek.security.sasl.authenticator import _FLEXIBLE_FROM, Authenticator, LoginRules, Next
from odradek.security.sasl.claims import ClaimRules, encode_unsigned, unsigned_validator
from odradek.security.sasl.mechanism import (
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SaslClient,
    SaslServer,
)
from odradek.security.sasl.oauthbearer import OAuthBearerServer
from odradek.security.sasl.plain import PlainClient, PlainServer
from odradek.security.sasl.scram_client import ScramClient
from odradek.security.sasl.scram_server import ScramServer

ROUNDS: Final = 10_000  # for each of four mechanisms
SALT: Final = b"salt"
KNOWN: Final = {
    mechanism: scram.credential(mechanism, "secret", SALT, 4096)
    for mechanism in scram.SCRAM_MECHANISMS
}
CLOCK: Final = ManualClock(wall_ms=1_000_000)
CLAIMS: Final = {"sub": "alice", "iat": 900, "exp": 9_000}
FIRST: Final = {
    PLAIN: b"\0alice\0wrong",
    "SCRAM-SHA-256": b"n,,n=alice,r=abc,tokenauth=true",
    "SCRAM-SHA-512": b"n,,n=alice,r=abc",
    OAUTHBEARER: f"n,,\x01auth=Bearer {encode_unsigned(CLAIMS)}\x01\x01".encode(),
}


def server(mechanism: str) -> SaslServer:
    if mechanism == PLAIN:
        return PlainServer({"alice": "secret"}.get)
    if mechanism == OAUTHBEARER:
        rules = ClaimRules("sub", "scope")
        return OAuthBearerServer(unsigned_validator(rules, CLOCK.wall_ms), lambda _reason: None)
    return ScramServer(mechanism, {"alice": KNOWN[mechanism]}.get, "server")


def login() -> Authenticator:
    return Authenticator(LoginRules(MECHANISMS, server, {}, CLOCK))


def frame_of(key: int, version: int, **values: object) -> bytes:
    header_version = request_header_version(key, version, _FLEXIBLE_FROM[key])
    header = encode_request_header(key, version, 1, "c", header_version)
    return bytes(header) + messages.encode_request(key, version, values)


def spoilt(frame: bytes, rng: random.Random) -> bytes:
    kept = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(kept))
        match rng.randrange(4):
            case 0:
                kept[place] = rng.randrange(256)
            case 1:
                kept[place:place] = rng.randbytes(rng.randint(1, 9))
            case 2:
                del kept[place : place + rng.randint(1, 9)]
            case _:
                kept[place] ^= 1 << rng.randrange(8)
        if not kept:
            return b""
    return bytes(kept)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_spoilt_messages_are_refused_and_nothing_raises(mechanism: str) -> None:
    """One frame of a stranger could end a connection with a trace in the log, or let them in."""
    rng = random.Random(mechanism)
    handshake = frame_of(17, 1, mechanism=mechanism)
    for _ in range(ROUNDS):
        one = login()
        assert one.receive(memoryview(handshake)).next is Next.ANSWER
        message = spoilt(FIRST[mechanism], rng) if rng.random() < 0.5 else FIRST[mechanism]
        frame = frame_of(36, rng.randrange(3), auth_bytes=message)
        if rng.random() < 0.5:
            frame = spoilt(frame, rng)
        one.receive(memoryview(frame))
        # A token that nobody has signed may be made to say anything.
        assert not one.is_complete or mechanism == OAUTHBEARER


def names_of_every_class() -> Iterator[str]:
    """A name with a sign of each of Unicode's classes, but those that no UTF-8 has."""
    classes: dict[str, str] = {}
    for code in range(1, 0x110000):
        classes.setdefault(unicodedata.category(chr(code)), chr(code))
    del classes["Cs"]
    yield from (f"a{sign}b" for sign in classes.values())
    yield from ("=2C", "=", ",", "a,b=c", " ", "\u202e", "é", "e\u0301", "x" * 100_000)


def test_a_name_of_any_sign_logs_in_and_is_told_from_others() -> None:
    """Somebody could not come in, or as somebody whose name is alike."""
    names = list(names_of_every_class())
    assert len(names) > 35
    for name in names:
        assert logged_in(PlainServer({name: "secret"}.get), PlainClient(name, "secret")) == name
        known = {name: KNOWN[SCRAM_SHA_256]}
        client = ScramClient(SCRAM_SHA_256, name, "secret", "nonce")
        assert logged_in(ScramServer(SCRAM_SHA_256, known.get, "server"), client) == name


def logged_in(made: SaslServer, client: SaslClient) -> str:
    """The user who has come in, after the messages of both sides."""
    one = Authenticator(LoginRules(MECHANISMS, lambda _: made, {}, CLOCK))
    one.receive(memoryview(frame_of(17, 0, mechanism=PLAIN)))
    message: bytes | None = client.first()
    while message is not None:
        step = one.receive(memoryview(message))
        assert step.next is Next.ANSWER, step.reason
        message = client.evaluate(step.answer or b"")
    assert one.is_complete
    return one.principal.name
