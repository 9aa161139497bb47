"""If one of these fails, a token that is no good lets somebody in, or a good one does not."""

import json

import pytest

from odradek.security.sasl.claims import ClaimRules, encode_unsigned, unsigned_validator
from odradek.security.sasl.mechanism import SaslAuthenticationError, SaslError
from odradek.security.sasl.oauthbearer import (
    OAuthBearerClient,
    OAuthBearerServer,
    TokenRefused,
)

NOW_S = 1_800_000_000
GOOD = {"sub": "alice", "exp": NOW_S + 60}


def validator(**rules):
    return unsigned_validator(ClaimRules(**rules), lambda: NOW_S * 1000)


def server(**rules):
    return OAuthBearerServer(validator(**rules), lambda reason: None)


def test_a_good_token_makes_its_subject_known_until_it_expires():
    one, client = server(), OAuthBearerClient(encode_unsigned(GOOD))
    assert client.evaluate(one.evaluate(client.first())) is None
    assert client.is_complete
    assert (one.authorization_id, one.expires_wall_ms) == ("alice", (NOW_S + 60) * 1000)


def test_a_refused_token_is_answered_and_acknowledged_before_the_login_fails():
    one, client = server(), OAuthBearerClient(encode_unsigned({**GOOD, "exp": NOW_S}))
    refusal = one.evaluate(client.first())
    assert json.loads(refusal) == {"status": "invalid_token"}
    with pytest.raises(SaslAuthenticationError, match="invalid_token"):
        one.evaluate(client.evaluate(refusal))
    assert not client.is_complete


def test_what_a_token_lacks_is_told():
    one = server(required_scope=("read", "write"))
    token = encode_unsigned({**GOOD, "scope": "read"})
    answer = json.loads(one.evaluate(OAuthBearerClient(token).first()))
    assert answer == {"status": "insufficient_scope", "scope": "read write"}


@pytest.mark.parametrize(
    ("claims", "rules"),
    [
        ({"exp": NOW_S + 60}, {}),
        ({"sub": "alice"}, {}),
        ({**GOOD, "sub": " "}, {}),
        ({**GOOD, "sub": 7}, {}),
        ({**GOOD, "sub": "al\ud800ice"}, {}),
        ({**GOOD, "exp": NOW_S}, {}),
        ({**GOOD, "exp": "soon"}, {}),
        ({**GOOD, "exp": float("inf")}, {}),
        ({**GOOD, "exp": -1}, {}),
        ({**GOOD, "exp": True}, {}),
        ({**GOOD, "nbf": NOW_S + 1}, {}),
        ({**GOOD, "iat": NOW_S + 1}, {}),
        ({**GOOD, "exp": NOW_S - 10, "iat": NOW_S - 5}, {"skew_ms": 30_000}),
        ({**GOOD, "exp": NOW_S - 10, "nbf": NOW_S + 5}, {"skew_ms": 30_000}),
        ({**GOOD, "exp": NOW_S - 31}, {"skew_ms": 30_000}),
        (GOOD, {"issuer": "me"}),
        ({**GOOD, "iss": "you"}, {"issuer": "me"}),
        (GOOD, {"audience": ("kafka",)}),
        ({**GOOD, "aud": ["others"]}, {"audience": ("kafka",)}),
        ({**GOOD, "scope": ["read"]}, {"required_scope": ("write",)}),
        ({**GOOD, "scope": {"write": 1}}, {"required_scope": ("write",)}),
    ],
)
def test_a_token_that_claims_too_little_is_refused(claims, rules):
    with pytest.raises(TokenRefused):
        validator(**rules)(encode_unsigned(claims))


@pytest.mark.parametrize(
    ("claims", "rules"),
    [
        ({**GOOD, "exp": NOW_S - 29}, {"skew_ms": 30_000}),
        ({**GOOD, "nbf": NOW_S + 29}, {"skew_ms": 30_000}),
        ({**GOOD, "iss": "me", "aud": "kafka"}, {"issuer": "me", "audience": ("a", "kafka")}),
        ({**GOOD, "aud": ["x", "kafka"]}, {"audience": ("kafka",)}),
        ({**GOOD, "scope": "read write"}, {"required_scope": ("write",)}),
        ({"exp": NOW_S + 0.5, "user": "alice"}, {"subject_claim": "user"}),
    ],
)
def test_a_token_that_claims_enough_is_taken(claims, rules):
    assert validator(**rules)(encode_unsigned(claims)).principal_name == "alice"


@pytest.mark.parametrize(
    "token",
    [
        "a.b",
        "a.b.c",
        "....",
        "e30.e30.",
        encode_unsigned(GOOD) + "AAAA",
        encode_unsigned(GOOD).replace(encode_unsigned(GOOD).split(".")[0], "eyJhbGciOiJIUzI1NiJ9"),
        "eyJhbGciOiJub25lIn0.W10.",
        "eyJhbGciOiJub25lIn0." + "W" * 100_000 + ".",
    ],
)
def test_what_is_no_unsigned_token_is_refused(token):
    with pytest.raises(TokenRefused):
        validator()(token)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01auth=Bearer a",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_a_message_that_is_none_is_refused(message):
    with pytest.raises(SaslError):
        server().evaluate(message)


def test_another_authorization_id_is_refused():
    message = OAuthBearerClient(encode_unsigned(GOOD)).first().replace(b"n,,", b"n,a=bob,")
    with pytest.raises(SaslAuthenticationError, match="bob"):
        server().evaluate(message)


def test_a_refusal_that_is_not_acknowledged_ends_the_login():
    one = server()
    one.evaluate(OAuthBearerClient(encode_unsigned({})).first())
    with pytest.raises(SaslError):
        one.evaluate(OAuthBearerClient(encode_unsigned(GOOD)).first())
