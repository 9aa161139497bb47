"""A token for its bearer: its end, and the time to request the next one.

The broker checks its signature; the client only needs to know whether it is worth sending.
"""

import re
from typing import Any, Final, NamedTuple

from odradek.security.sasl.claims import claim_time_ms, read_claims
from odradek.security.sasl.oauthbearer import TokenRefused

_SIGNS: Final = re.compile(r"[-_.a-zA-Z0-9]+")


class Token(NamedTuple):
    """A token, which must not be shown, with its claims `iat` and `exp`."""

    text: str
    begins_wall_ms: int | None
    expires_wall_ms: int

    def __repr__(self) -> str:
        return f"Token(..., expires_wall_ms={self.expires_wall_ms})"


def parse_token(text: str, subject_claim: str, now_ms: int) -> Token:
    """Reads a token that has just been given.

    Raises:
        TokenRefused: no broker would accept it; the text does not have the token.
    """
    text = text.strip()
    if not _SIGNS.fullmatch(text) or text.count(".") != 2:
        raise TokenRefused("it is no JWT, which has three parts with dots between them")
    claims = read_claims(text)
    subject: Any = claims.get(subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise TokenRefused(f"it has no claim {subject_claim}")
    expires_ms = claim_time_ms(claims, "exp")
    if expires_ms is None:
        raise TokenRefused("it has no claim exp, which says when it expires")
    if expires_ms <= now_ms:
        late_s = (now_ms - expires_ms) // 1000
        raise TokenRefused(f"it has expired {late_s} s ago by the clock of this machine")
    return Token(text, claim_time_ms(claims, "iat"), expires_ms)


class RefreshRules(NamedTuple):
    """Kafka's `sasl.login.refresh.*`: the part of a token's lifetime after which it is renewed."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_ms: int = 60_000
    buffer_ms: int = 300_000

    def refresh_at_ms(self, token: Token, now_ms: int, chance: float) -> int:
        """When to ask for the next one. A token that lives too short for the least period and the
        buffer is judged by the part of its life alone; `chance`, of 0 to 1, is the jitter's."""
        part = self.window_factor + self.window_jitter * chance
        expires_ms = token.expires_wall_ms
        if now_ms + self.min_period_ms + self.buffer_ms > expires_ms:
            return now_ms + int((expires_ms - now_ms) * part)
        begins_ms = now_ms if token.begins_wall_ms is None else token.begins_wall_ms
        wanted_ms = begins_ms + int((expires_ms - begins_ms) * part)
        return max(now_ms + self.min_period_ms, min(wanted_ms, expires_ms - self.buffer_ms))
