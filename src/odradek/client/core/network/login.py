"""A client's login to a broker, as steps between which answers come: no socket, no clock."""

import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from odradek.client.apis import ClientApi, VersionRanges, agree
from odradek.client.core.network.handshake import LoginSteps, LoginTerms, Question
from odradek.client.errors import AuthenticationError, raise_for
from odradek.errors import ErrorCode
from odradek.protocol import messages
from odradek.security.sasl.mechanism import (
    OAUTHBEARER,
    PLAIN,
    SaslClient,
    SaslError,
)
from odradek.security.sasl.oauthbearer import OAuthBearerClient
from odradek.security.sasl.plain import PlainClient
from odradek.security.sasl.scram_client import ScramClient

SASL_HANDSHAKE: Final = ClientApi(17, "SaslHandshake", 1, 1)
SASL_AUTHENTICATE: Final = ClientApi(36, "SaslAuthenticate", 0, 2, 2)
_NONCE_BYTES: Final = 24


class Login:
    """The logins of one client, on each of its connections and again before a session ends."""

    def __init__(
        self,
        mechanism: str,
        name: str,
        password: str,
        token: Callable[[], str] | None,
        *,
        is_token: bool = False,
        extensions: Mapping[str, str] = {},
    ) -> None:
        """`token` gives a token for each login by OAUTHBEARER, at once, which goes to the broker
        with `extensions`. With SCRAM name and password may be those of a delegation token."""
        self._mechanism = mechanism
        self._name = name
        self._password = password
        self._token = token
        self._is_token = is_token
        self._extensions = extensions
        self.limit_ms: Final = 0

    def __repr__(self) -> str:
        return f"Login({self._mechanism}, {self._name!r})"

    def at_hand(self) -> "Login":
        """See `LoginSource`."""
        return self

    def fetch(self) -> Future[LoginTerms]:
        """See `LoginSource`."""
        raise AssertionError("it is at hand, nobody is asked")

    def begin(self, versions: VersionRanges) -> LoginSteps:
        """Yields requests, is sent the answers, and returns the session's lifetime in milliseconds,
        0 being for ever.

        Raises:
            KafkaError: the broker refuses, or is not to be trusted.
        """
        answer = yield _question(SASL_HANDSHAKE, 1, mechanism=self._mechanism)
        offered = messages.decode_response(SASL_HANDSHAKE.key, 1, *answer)
        raise_for(
            ErrorCode(offered.error_code),
            f"the broker does not take {self._mechanism}, only {', '.join(offered.mechanisms)}",
        )
        client = self._new_client()
        version = agree(SASL_AUTHENTICATE, versions)
        message: bytes | None = client.first()
        lifetime_ms = 0
        while message is not None:
            answer = yield _question(SASL_AUTHENTICATE, version, auth_bytes=message)
            message = None  # A report of a failed test may show the variables of this frame.
            said = messages.decode_response(SASL_AUTHENTICATE.key, version, *answer)
            raise_for(ErrorCode(said.error_code), said.error_message or "the broker refuses")
            if version >= 1:
                lifetime_ms = messages.milliseconds(said.session_lifetime)
            try:
                message = client.evaluate(said.auth_bytes)
            except SaslError as error:
                raise AuthenticationError(str(error)) from error
        return lifetime_ms

    def _new_client(self) -> SaslClient:
        if self._mechanism == PLAIN:
            return PlainClient(self._name, self._password)
        if self._mechanism == OAUTHBEARER:
            assert self._token is not None, "it is asked for with the settings"
            return OAuthBearerClient(self._token(), self._extensions)
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return ScramClient(
            self._mechanism, self._name, self._password, nonce, is_token=self._is_token
        )


def _question(api: ClientApi, version: int, **values: object) -> Question:
    return Question(api, version, messages.encode_request(api.key, version, values))
