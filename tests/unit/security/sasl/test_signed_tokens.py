"""If one of these fails, a token of somebody else's making lets its bearer in."""

import json

import pytest

from odradek.security.sasl.claims import ClaimRules, encode_unsigned
from odradek.security.sasl.oauthbearer import TokenRefused
from odradek.security.sasl.signed_tokens import SignedTokenValidator

jwk = pytest.importorskip("joserfc.jwk", reason="the extra `security`")
jws = pytest.importorskip("joserfc.jws")

NOW_S = 1_800_000_000
GOOD = {"sub": "alice", "exp": NOW_S + 60}


@pytest.fixture(scope="module")
def keys():
    return {name: jwk.ECKey.generate_key("P-256", {"kid": name}) for name in ("one", "two")}


class Keys:
    """The keys of an issuer, with what was asked of it."""

    def __init__(self, *keys):
        self.asked = 0
        self.found = {"keys": [each.as_dict(private=False) for each in keys]} if keys else None

    def current(self):
        return self.found

    def refresh(self):
        self.asked += 1


def sign(key, claims=GOOD, **header):
    shown = {"alg": "ES256", "kid": key.kid, **header}
    return jws.serialize_compact(shown, json.dumps(claims).encode(), key)


def validator(keys_of, **rules):
    return SignedTokenValidator(keys_of, ClaimRules(**rules), lambda: NOW_S * 1000)


def test_a_signed_token_makes_its_subject_known(keys):
    issuer = Keys(keys["one"])
    assert validator(issuer)(sign(keys["one"])) == ("alice", (NOW_S + 60) * 1000)
    assert issuer.asked == 0


def test_an_unknown_key_has_the_keys_read_again(keys):
    issuer = Keys(keys["one"])
    check = validator(issuer)
    with pytest.raises(TokenRefused, match="not in the set"):
        check(sign(keys["two"]))
    assert issuer.asked == 1
    issuer.found = Keys(keys["two"]).found
    assert check(sign(keys["two"])).principal_name == "alice"
    with pytest.raises(TokenRefused):
        check(sign(keys["one"]))


def test_as_long_as_there_are_no_keys_nobody_comes_in(keys):
    issuer = Keys()
    with pytest.raises(TokenRefused, match="could not be read"):
        validator(issuer)(sign(keys["one"]))
    assert issuer.asked == 1


def test_tokens_that_nobody_of_the_set_has_signed_are_refused(keys):
    check = validator(Keys(keys["one"]))
    forged = jwk.ECKey.generate_key("P-256", {"kid": "one"})
    good = sign(keys["one"])
    shared = jwk.OctKey.import_key(json.dumps(keys["one"].as_dict(private=False)))
    secret = jws.serialize_compact(
        {"alg": "HS256", "kid": "one"}, json.dumps(GOOD).encode(), shared
    )
    for token in (
        encode_unsigned(GOOD),
        sign(forged),
        secret,
        good[:-4],
        good.rsplit(".", 1)[0] + ".",
        "",
        "a.b.c",
    ):
        with pytest.raises(TokenRefused):
            check(token)


def test_a_shared_secret_signs_nothing(keys):
    """A set of keys is public: everybody who reads it could be anybody."""
    secret = jwk.OctKey.generate_key(256, {"kid": "shared"})
    issuer = Keys(keys["one"])
    issuer.found["keys"].append(secret.as_dict(private=True))
    shown = {"alg": "HS256", "kid": "shared"}
    token = jws.serialize_compact(shown, json.dumps(GOOD).encode(), secret)
    with pytest.raises(TokenRefused):
        validator(issuer)(token)


def test_keys_for_something_else_are_passed_over(keys, caplog):
    """An issuer that also publishes a key of a kind that is new here would shut everybody out."""
    issuer = Keys(keys["one"])
    odd = [
        {"kty": "AKP", "kid": "new", "alg": "ML-DSA-65", "pub": "AA"},
        {"kty": "EC", "kid": "curve", "crv": "P-192", "x": "AA", "y": "AA"},
        {"kty": "RSA", "kid": "half", "n": "!"},
        {"kid": "kindless"},
        {"kty": ["EC"]},
        17,
    ]
    issuer.found["keys"] = [*odd, *issuer.found["keys"]]
    check = validator(issuer)
    assert check(sign(keys["one"])).principal_name == "alice"
    assert len(caplog.messages) == len(odd), "each is told once"
    check(sign(keys["one"]))
    assert len(caplog.messages) == len(odd)
    issuer.found = {"keys": odd}
    with pytest.raises(TokenRefused, match="not in the set"):
        check(sign(keys["one"]))


def test_claims_are_checked_too(keys):
    check = validator(Keys(keys["one"]), issuer="me")
    with pytest.raises(TokenRefused, match="issuer"):
        check(sign(keys["one"]))
    with pytest.raises(TokenRefused):
        check(sign(keys["one"], {**GOOD, "iss": "me", "nbf": NOW_S + 5}))
