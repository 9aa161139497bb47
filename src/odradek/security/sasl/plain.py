"""PLAIN (RFC 4616): name and password in one message, as they are."""

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

from odradek.security.sasl.mechanism import SaslAuthenticationError

_TOKENS: Final = 3
_ABSENT: Final = "\0"  # no password has it: it separates the tokens

PasswordOf = Callable[[str], str | None]


class PlainServer:
    """Compares with the password that the broker has for a user.

    An unknown user takes as long as a wrong password.
    """

    expires_wall_ms: Final = None
    is_by_token: Final = False

    def __init__(self, password_of: PasswordOf) -> None:
        self._password_of = password_of
        self.is_complete = False
        self.authorization_id = ""

    def evaluate(self, response: bytes) -> bytes:
        """Takes the one message; see `SaslServer`."""
        tokens = response.decode("utf-8", "replace").split("\0", _TOKENS)
        if len(tokens) != _TOKENS:
            raise SaslAuthenticationError(
                f"Invalid SASL/PLAIN response: expected {_TOKENS} tokens, got {len(tokens)}"
            )
        authorization_id, name, password = tokens
        if not name:
            raise SaslAuthenticationError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationError("Authentication failed: password not specified")
        if not self._is_password(name, password):
            raise SaslAuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.authorization_id = name
        self.is_complete = True
        return b""

    def _is_password(self, name: str, password: str) -> bool:
        known = self._password_of(name)
        expected = _ABSENT if known is None else known
        return hmac.compare_digest(_digest(expected), _digest(password))


def _digest(password: str) -> bytes:
    """Of the same length for every password, so the time to compare reveals nothing."""
    return hashlib.sha256(password.encode()).digest()


class PlainClient:
    """Sends name and password; the broker's answer is empty."""

    def __init__(self, name: str, password: str) -> None:
        self._message = f"\0{name}\0{password}".encode()
        self.is_complete = False

    def first(self) -> bytes:
        """The one message."""
        return self._message

    def evaluate(self, challenge: bytes) -> bytes | None:  # noqa: ARG002 - nothing is in it
        """Takes the broker's consent."""
        self.is_complete = True
        return None
