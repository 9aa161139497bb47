"""The claims that every token must have, signed or not; and tokens without a signature.

Times of claims are seconds since 1970, maybe with a fraction; the broker's are milliseconds.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from odradek.security.sasl.oauthbearer import TokenRefused, ValidToken

LATEST_S: Final = 1 << 43  # far beyond all calendars, and still milliseconds in 64 bits


class ClaimRules(NamedTuple):
    """The rules for a token's claims; of `audience` and `required_scope`, where there are any, one
    and all respectively."""

    subject_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    skew_ms: int = 0


def check_claims(claims: Mapping[str, Any], rules: ClaimRules, now_ms: int) -> ValidToken:
    """The principal's name and the expiry of a token with these claims.

    Raises:
        TokenRefused: it is invalid, not valid yet, or expired.
    """
    name = claims.get(rules.subject_claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenRefused(f"it has no claim {rules.subject_claim}")
    if any("\ud800" <= each <= "\udfff" for each in name):
        # Half of a surrogate pair, which JSON can have but UTF-8 cannot.
        raise TokenRefused(f"its claim {rules.subject_claim} is no text")
    expires_ms = claim_time_ms(claims, "exp")
    if expires_ms is None:
        raise TokenRefused("it has no claim exp")
    if now_ms - rules.skew_ms >= expires_ms:
        raise TokenRefused(f"it has expired {now_ms - expires_ms} ms ago")
    for claim in ("iat", "nbf"):
        begins_ms = claim_time_ms(claims, claim)
        if begins_ms is not None and begins_ms > now_ms + rules.skew_ms:
            raise TokenRefused(f"it is good only in {begins_ms - now_ms} ms, says {claim}")
        if begins_ms is not None and begins_ms > expires_ms:
            raise TokenRefused(f"it ends before it begins, says {claim}")
    _check_origin(claims, rules)
    _check_scope(claims, rules)
    return ValidToken(name, expires_ms)


def _check_origin(claims: Mapping[str, Any], rules: ClaimRules) -> None:
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused(f"its issuer is {claims.get('iss')!r}")
    if rules.audience and not set(rules.audience) & set(_words(claims.get("aud"))):
        raise TokenRefused(f"its audience is {claims.get('aud')!r}")


def _check_scope(claims: Mapping[str, Any], rules: ClaimRules) -> None:
    scope = claims.get(rules.scope_claim)
    has = set(_words(scope.split() if isinstance(scope, str) else scope))
    lacking = [each for each in rules.required_scope if each not in has]
    if lacking:
        wanted = " ".join(rules.required_scope)
        raise TokenRefused(f"it lacks the scope {' '.join(lacking)}", scope=wanted)


def _words(value: object) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [each for each in listed if isinstance(each, str)]


def claim_time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    """The time that a claim names; None where it is missing.

    Raises:
        TokenRefused: it is none.
    """
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1 < value < LATEST_S:
        raise TokenRefused(f"its claim {name} is no time")
    return int(value * 1000)


def read_claims(token: str) -> dict[str, Any]:
    """The claims of a token of three parts, without any check of its signature.

    Raises:
        TokenRefused: they are malformed.
    """
    return _json_of(token.split(".")[1])


def decode_unsigned(token: str) -> dict[str, Any]:
    """The claims of a token that declares itself unsigned.

    Raises:
        TokenRefused: it is malformed, or signed.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("it has not three parts")
    header, claims = map(_json_of, parts[:2])
    if header.get("alg") != "none":
        raise TokenRefused(f"its algorithm is {header.get('alg')!r} where only none is taken")
    if parts[2]:
        raise TokenRefused("it has a signature where none is taken")
    return claims


def encode_unsigned(claims: Mapping[str, Any]) -> str:
    """An unsigned token, for tests."""
    return f"{_base64_of({'alg': 'none'})}.{_base64_of(claims)}."


def unsigned_validator(
    rules: ClaimRules, wall_ms: Callable[[], int]
) -> Callable[[str], ValidToken]:
    """Accepts unsigned tokens, which anybody can make."""
    return lambda token: check_claims(decode_unsigned(token), rules, wall_ms())


def _json_of(part: str) -> dict[str, Any]:
    try:
        raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        value = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused("it is no JSON in base64") from None
    if not isinstance(value, dict):
        raise TokenRefused("it is no JSON object")
    return value


def _base64_of(value: Mapping[str, Any]) -> str:
    raw = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
