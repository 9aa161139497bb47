"""OAUTHBEARER (RFC 7628): a token of an issuer, in one message.

A refused token is answered with a reason as JSON, which the client acknowledges with one byte
before the login fails: clients ignore an immediate refusal.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from odradek.security.sasl.mechanism import SaslAuthenticationError, SaslError

_ACKNOWLEDGED: Final = b"\x01"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]++=[\x21-\x7e \t\r\n]++\x01)*+)\x01"
)
_AUTHORIZATION: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)")


class ValidToken(NamedTuple):
    """The claims that a broker takes from a valid token."""

    principal_name: str
    expires_wall_ms: int


class TokenRefused(Exception):
    """An invalid token; the text is for the log. `scope` is the missing scope, if that is the
    reason."""

    def __init__(self, text: str, scope: str | None = None) -> None:
        super().__init__(text)
        self.scope: Final = scope


TokenValidator = Callable[[str], ValidToken]
"""Raises `TokenRefused`."""


class OAuthBearerServer:
    """Checks the token."""

    is_by_token: Final = False  # a delegation token is another kind

    def __init__(self, validate: TokenValidator, on_refused: Callable[[str], None]) -> None:
        """`on_refused` gets the reason of a refusal, which the client does not get."""
        self._validate = validate
        self._on_refused = on_refused
        self._refusal: str | None = None
        self.is_complete = False
        self.authorization_id = ""
        self.expires_wall_ms: int | None = None

    def evaluate(self, response: bytes) -> bytes:
        """Takes the token, or the acknowledgement of its refusal; see `SaslServer`."""
        if self._refusal is not None:
            if response == _ACKNOWLEDGED:
                raise SaslAuthenticationError(self._refusal)
            raise SaslError("a refusal was not acknowledged")
        authorization_id, token = parse_first(response)
        try:
            valid = self._validate(token)
        except TokenRefused as error:
            self._on_refused(str(error))
            self._refusal = _refusal(error)
            return self._refusal.encode()
        if authorization_id not in ("", valid.principal_name):
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id "
                f"({authorization_id}) that is different from the token's principal name "
                f"({valid.principal_name})"
            )
        self.authorization_id = valid.principal_name
        self.expires_wall_ms = valid.expires_wall_ms
        self.is_complete = True
        return b""


class OAuthBearerClient:
    """Shows a token."""

    def __init__(self, token: str, extensions: Mapping[str, str] = {}) -> None:
        pairs = {"auth": f"Bearer {token}", **extensions}
        text = "".join(f"{name}={value}\x01" for name, value in pairs.items())
        self._message = f"n,,\x01{text}\x01".encode()
        self._refusal: str | None = None
        self.is_complete = False

    def first(self) -> bytes:
        """The one message."""
        return self._message

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Takes the broker's consent, or acknowledges its refusal; see `SaslClient`."""
        if challenge:
            return _ACKNOWLEDGED
        self.is_complete = True
        return None


def parse_first(message: bytes) -> tuple[str, str]:
    """The authorization id, maybe empty, and the token.

    Raises:
        SaslError: the message is malformed.
    """
    match = _FIRST.fullmatch(message.decode("utf-8", "replace"))
    if match is None:
        raise SaslError("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    shown = _AUTHORIZATION.fullmatch(pairs.get("auth", ""))
    if shown is None:
        raise SaslError("Invalid OAUTHBEARER client first message: 'auth' not specified")
    if shown["scheme"].lower() != "bearer":
        scheme = shown["scheme"]
        raise SaslError(f"Invalid scheme in OAUTHBEARER client first message: {scheme}")
    authorization_id = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, shown["token"]


def _refusal(error: TokenRefused) -> str:
    if error.scope is None:
        return '{"status":"invalid_token"}'
    return json.dumps({"status": "insufficient_scope", "scope": error.scope}, separators=(",", ":"))
