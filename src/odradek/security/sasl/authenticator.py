"""The login of one connection, frame by frame, as a Kafka broker carries it out.

    INITIAL --ApiVersions--> HANDSHAKE --SaslHandshake--> AUTHENTICATE --complete--> COMPLETE
    COMPLETE --SaslHandshake, at most once a second--> AUTHENTICATE (where sessions end)

After SaslHandshake 0 the mechanism's messages are separate frames, without Kafka's headers; after
SaslHandshake 1 they are in SaslAuthenticate requests. A re-authentication must be by the same
mechanism and for the same principal.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.model import ANONYMOUS, USER_TYPE, KafkaPrincipal
from odradek.protocol import messages
from odradek.protocol.header import (
    API_VERSIONS_KEY,
    NEVER_FLEXIBLE,
    RequestHeader,
    decode_request_header,
    encode_response_header,
    response_header_version,
)
from odradek.protocol.primitives import ProtocolError
from odradek.security.principal import TokenPrincipal
from odradek.security.sasl.mechanism import SaslAuthenticationError, SaslError, SaslServer

SASL_HANDSHAKE_KEY: Final = 17
SASL_AUTHENTICATE_KEY: Final = 36
HANDSHAKE_MAX_VERSION: Final = 1
AUTHENTICATE_MAX_VERSION: Final = 2
API_VERSIONS_MAX_VERSION: Final = 4
_FLEXIBLE_FROM: Final = {
    SASL_HANDSHAKE_KEY: NEVER_FLEXIBLE,
    API_VERSIONS_KEY: 3,
    SASL_AUTHENTICATE_KEY: 2,
}
# The unexpected requests that are answered, up to which version.
_ANSWERED_VERSIONS: Final = {
    SASL_HANDSHAKE_KEY: HANDSHAKE_MAX_VERSION,
    API_VERSIONS_KEY: API_VERSIONS_MAX_VERSION,
}
MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1_000
# Clients ask once more; without a bound a client could keep the broker busy before its login.
MAX_UNSERVED_VERSIONS: Final = 8


class LoginState(Enum):
    """The states of a login; see the module's picture."""

    INITIAL = "initial"
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    COMPLETE = "complete"
    REFUSED = "refused"


class Next(Enum):
    """The handling of a frame: its answer is sent, the broker answers it as usual, or the answer,
    if there is any, is the last one."""

    ANSWER = "answer"
    HAND_ON = "hand on"
    CLOSE = "close"


class Step(NamedTuple):
    """The consequence of a frame. `reason` is for the log, if the connection is closed."""

    next: Next
    answer: bytes | None = None
    reason: str = ""


class LoginRules(NamedTuple):
    """The rules that the logins of a listener share. `max_reauth_ms` says for every mechanism how
    long a session lasts at most, 0 being for ever."""

    mechanisms: tuple[str, ...]
    new_server: Callable[[str], SaslServer]
    max_reauth_ms: Mapping[str, int]
    clock: Clock


_HAND_ON: Final = Step(Next.HAND_ON)


class Authenticator:
    """One connection's login, and all that follow on it.

    `principal` and `expires_ms`, in monotonic time, are of the last one that was completed.
    """

    def __init__(self, rules: LoginRules) -> None:
        self._rules = rules
        self._server: SaslServer | None = None
        self._has_headers = False
        self._unserved_versions = 0
        self._reauthenticated_ms: int | None = None
        self._mechanism = ""
        self._before: tuple[str, KafkaPrincipal] | None = None  # of a re-authentication
        self.state = LoginState.INITIAL
        self.principal = ANONYMOUS
        self.expires_ms: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the client is logged in, and no re-authentication is under way."""
        return self.state is LoginState.COMPLETE

    def is_expired(self) -> bool:
        """Whether the session has ended, so that only a re-authentication is served."""
        return self.expires_ms is not None and (self._rules.clock.monotonic_ms() > self.expires_ms)

    def begins_again(self, api_key: int) -> bool:
        """Whether a request to a completed login is the first of a re-authentication. Sessions
        that last for ever are not renewed."""
        if api_key != SASL_HANDSHAKE_KEY or self.expires_ms is None:
            return False
        now_ms = self._rules.clock.monotonic_ms()
        last_ms = self._reauthenticated_ms
        if last_ms is not None and now_ms - last_ms < MIN_REAUTHENTICATION_INTERVAL_MS:
            return False
        self._reauthenticated_ms = now_ms
        self._before = self._mechanism, self.principal
        self._has_headers = False
        self.state = LoginState.HANDSHAKE
        return True

    def receive(self, frame: memoryview) -> Step:
        """Takes a frame of a login that is not complete."""
        try:
            return self._receive(frame)
        except ProtocolError as error:
            return self._refused(f"a malformed request during authentication: {error}")

    def _receive(self, frame: memoryview) -> Step:
        if self.state is LoginState.REFUSED:
            return self._refused("a request after its login was refused")
        if self.state is not LoginState.AUTHENTICATE:
            return self._before_mechanism(frame, decode_request_header(frame, _FLEXIBLE_FROM))
        if not self._has_headers:
            return self._on_token(bytes(frame), None)
        return self._on_authenticate(frame, decode_request_header(frame, _FLEXIBLE_FROM))

    # --- versions and mechanism -----------------------------------------------------------------

    def _before_mechanism(self, frame: memoryview, header: RequestHeader) -> Step:
        if header.api_key == SASL_HANDSHAKE_KEY:
            return self._on_handshake(frame, header)
        if header.api_key != API_VERSIONS_KEY:
            name = messages.name_of(header.api_key) or str(header.api_key)
            return self._refused(f"Unexpected Kafka request of type {name} during SASL handshake.")
        if self.state is not LoginState.INITIAL:
            return self._refused("Unexpected ApiVersions request during SASL authentication")
        # The answer to versions that are not served says so, and the client asks again.
        if 0 <= header.api_version <= API_VERSIONS_MAX_VERSION:
            self.state = LoginState.HANDSHAKE
            return _HAND_ON
        self._unserved_versions += 1
        if self._unserved_versions > MAX_UNSERVED_VERSIONS:
            return self._refused("ApiVersions again and again, in versions that are not served")
        return _HAND_ON

    def _on_handshake(self, frame: memoryview, header: RequestHeader) -> Step:
        if not 0 <= header.api_version <= HANDSHAKE_MAX_VERSION:
            return self._refused(f"SaslHandshake version {header.api_version} is not served")
        request = messages.decode_request(
            SASL_HANDSHAKE_KEY, header.api_version, frame, header.body_position
        )
        mechanism: str = request.mechanism
        offered = self._rules.mechanisms
        if mechanism not in offered:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            answer = _answer(header, error_code=code, mechanisms=list(offered))
            self.state = LoginState.REFUSED
            return Step(
                Next.CLOSE,
                answer,
                f"SASL mechanism {mechanism!r} is not enabled, only {', '.join(offered)} "
                "(sasl.enabled.mechanisms)",
            )
        answer = _answer(header, error_code=ErrorCode.NONE, mechanisms=list(offered))
        if self._before is not None and self._before[0] != mechanism:
            self.state = LoginState.REFUSED
            return Step(Next.ANSWER, answer)
        self._mechanism = mechanism
        self._server = self._rules.new_server(mechanism)
        self._has_headers = header.api_version >= 1
        self.state = LoginState.AUTHENTICATE
        return Step(Next.ANSWER, answer)

    # --- the mechanism's own messages --------------------------------------------------------

    def _on_authenticate(self, frame: memoryview, header: RequestHeader) -> Step:
        if header.api_key != SASL_AUTHENTICATE_KEY:
            return self._out_of_order(header)
        if not 0 <= header.api_version <= AUTHENTICATE_MAX_VERSION:
            return self._refused(f"SaslAuthenticate version {header.api_version} is not served")
        request = messages.decode_request(
            SASL_AUTHENTICATE_KEY, header.api_version, frame, header.body_position
        )
        return self._on_token(request.auth_bytes, header)

    def _on_token(self, token: bytes, header: RequestHeader | None) -> Step:
        server = self._server
        assert server is not None, "a handshake comes before a token"
        try:
            challenge = server.evaluate(token)
            lifetime_ms = self._complete(server) if server.is_complete else 0
        except SaslError as error:
            return self._failed(error, header)
        if header is None:
            return Step(Next.ANSWER, challenge)
        answer = _answer(
            header,
            error_code=ErrorCode.NONE,
            error_message="",
            auth_bytes=challenge,
            session_lifetime_ms=lifetime_ms,
        )
        return Step(Next.ANSWER, answer)

    def _complete(self, server: SaslServer) -> int:
        """Completes a login; returns the session's lifetime in milliseconds, 0 being for ever.

        Raises:
            SaslAuthenticationError: the principal is another than before.
        """
        kind = TokenPrincipal if server.is_by_token else KafkaPrincipal
        principal = kind(USER_TYPE, server.authorization_id)
        if self._before is not None and principal != self._before[1]:
            raise SaslAuthenticationError(
                "Cannot change principals during re-authentication from "
                f"{'.'.join(self._before[1])}: {'.'.join(principal)}"
            )
        self.principal = principal
        self._before = None
        self._server = None
        self.state = LoginState.COMPLETE
        lifetime_ms = self._lifetime_ms(server.expires_wall_ms)
        self.expires_ms = None
        if lifetime_ms is None:
            return 0
        self.expires_ms = self._rules.clock.monotonic_ms() + lifetime_ms
        return lifetime_ms

    def _lifetime_ms(self, expires_wall_ms: int | None) -> int | None:
        max_reauth_ms = self._rules.max_reauth_ms.get(self._mechanism, 0)
        bounds = [max_reauth_ms] if max_reauth_ms > 0 else []
        if expires_wall_ms is not None:
            bounds.append(expires_wall_ms - self._rules.clock.wall_ms())
        return max(0, min(bounds)) if bounds else None

    # --- ends ----------------------------------------------------------------------------------

    def _failed(self, error: SaslError, header: RequestHeader | None) -> Step:
        again = "re-authentication" if self._before is not None else "authentication"
        self.state = LoginState.REFUSED
        told = str(error)
        if not isinstance(error, SaslAuthenticationError):
            told = (
                f"Authentication failed during {again} due to invalid credentials with SASL "
                f"mechanism {self._mechanism}"
            )
        reason = f"failed {again} with {self._mechanism}: {error}"
        if header is None:
            return Step(Next.CLOSE, None, reason)
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        answer = _answer(header, error_code=code, error_message=told, auth_bytes=b"")
        return Step(Next.CLOSE, answer, reason)

    def _out_of_order(self, header: RequestHeader) -> Step:
        self.state = LoginState.REFUSED
        name = messages.name_of(header.api_key) or str(header.api_key)
        reason = f"Unexpected Kafka request of type {name} during SASL authentication."
        answer = None
        if 0 <= header.api_version <= _ANSWERED_VERSIONS.get(header.api_key, -1):
            field = "mechanisms" if header.api_key == SASL_HANDSHAKE_KEY else "api_keys"
            answer = _answer(header, error_code=ErrorCode.ILLEGAL_SASL_STATE, **{field: []})
        return Step(Next.CLOSE, answer, reason)

    def _refused(self, reason: str) -> Step:
        self.state = LoginState.REFUSED
        return Step(Next.CLOSE, None, reason)


def _answer(header: RequestHeader, **fields: object) -> bytes:
    key, version = header.api_key, header.api_version
    header_version = response_header_version(key, version, _FLEXIBLE_FROM[key])
    head = encode_response_header(header.correlation_id, header_version)
    return bytes(head) + bytes(messages.encode_response(key, version, fields))
