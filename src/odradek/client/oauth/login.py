"""Logins by tokens that have to be requested.

A thread requests them, and all connections of a client share the result. A connection takes the
present token, or waits for the thread without stopping the event loop.
"""

import logging
import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from odradek.client.core.network.handshake import LoginTerms
from odradek.client.core.network.login import Login
from odradek.client.errors import AuthenticationError, KafkaError, NetworkError
from odradek.client.oauth.token import RefreshRules, Token, parse_token
from odradek.errors import ErrorCode
from odradek.security.sasl.mechanism import OAUTHBEARER
from odradek.security.sasl.oauthbearer import TokenRefused

logger = logging.getLogger(__name__)

# A user's function may ask people.
FUNCTION_LIMIT_MS: Final = 60_000
# As Kafka's clients do when a token that is still good cannot be replaced.
_AGAIN_AFTER_MS: Final = 10_000
# Brokers are tried one after another: each attempt would wait as long as the one before it.
_FAILURE_KEPT_MS: Final = 1_000


class TokenLogin:
    """Asks for a token with every login, one question at a time."""

    def __init__(
        self, ask: Callable[[], str], limit_ms: int, extensions: Mapping[str, str] = {}
    ) -> None:
        """`ask` blocks; callers wait for it at most `limit_ms`."""
        self._ask = ask
        self._extensions = dict(extensions)
        self._lock = threading.Lock()
        self._under_way: Future[LoginTerms] | None = None
        self.limit_ms: Final = limit_ms

    def __repr__(self) -> str:
        return f"<login by {OAUTHBEARER}>"

    def at_hand(self) -> Login | None:
        """See `LoginSource`."""
        return None

    def fetch(self) -> Future[LoginTerms]:
        """See `LoginSource`."""
        with self._lock:
            if self._under_way is None:
                future: Future[LoginTerms] = Future()
                future.set_running_or_notify_cancel()  # others wait, even if one stops waiting
                thread = threading.Thread(
                    target=self._run, args=(future,), name="odradek-token", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:  # as many as there can be, or the program ends
                    future.set_exception(NetworkError(f"nobody can ask for a token: {error}"))
                    return future
                self._under_way = future
            return self._under_way

    def _run(self, future: Future[LoginTerms]) -> None:
        login: Login | None = None
        failure: BaseException | None = None
        try:
            login = self._next()
        except KafkaError as error:
            failure = error
        except BaseException as error:  # noqa: BLE001 - a user's function; its failure is a login's
            failure = NetworkError(f"the token provider failed: {error!r}")
            failure.__cause__ = error
        with self._lock:
            self._under_way = None
        if login is not None:
            future.set_result(login)
        else:
            future.set_exception(failure)

    def _next(self) -> Login:
        """Requests the next token, on the thread; returns its login."""
        return self._with(self._ask())

    def _with(self, token: str) -> Login:
        return Login(OAUTHBEARER, "", "", lambda: token, extensions=self._extensions)


class _Held(NamedTuple):
    """The newest token, and the time to request the next one."""

    login: Login
    token: Token
    refresh_at_ms: int


class KeptTokenLogin(TokenLogin):
    """Keeps a token until it is time for the next one. While the kept one is valid, only the log
    shows that an issuer is unreachable."""

    def __init__(
        self,
        ask: Callable[[], str],
        limit_ms: int,
        extensions: Mapping[str, str],
        rules: RefreshRules,
        subject_claim: str,
        wall_ms: Callable[[], float],
        rng: random.Random,
    ) -> None:
        super().__init__(ask, limit_ms, extensions)
        self._rules = rules
        self._subject_claim = subject_claim
        self._wall_ms = wall_ms
        self._rng = rng
        self._held: _Held | None = None
        self._failed: tuple[KafkaError, int] | None = None

    def at_hand(self) -> Login | None:
        """See `LoginSource`."""
        held = self._held
        return held.login if held is not None and self._now_ms() < held.refresh_at_ms else None

    def _now_ms(self) -> int:
        return int(self._wall_ms())

    def _next(self) -> Login:
        known = self.at_hand()
        if known is not None:
            return known  # it came while the caller looked
        if self._failed is not None:
            failure, at_ms = self._failed
            if 0 <= self._now_ms() - at_ms < _FAILURE_KEPT_MS:
                raise failure
        try:
            token = self._parsed(self._ask())
        except KafkaError as error:
            return self._kept(error)
        now_ms = self._now_ms()
        refresh_at_ms = self._rules.refresh_at_ms(token, now_ms, self._rng.random())
        self._held = _Held(self._with(token.text), token, refresh_at_ms)
        self._failed = None
        return self._held.login

    def _parsed(self, text: str) -> Token:
        try:
            return parse_token(text, self._subject_claim, self._now_ms())
        except TokenRefused as error:
            raise AuthenticationError(
                f"the token that was given cannot be used: {error}",
                ErrorCode.SASL_AUTHENTICATION_FAILED,
            ) from error

    def _kept(self, failure: KafkaError) -> Login:
        """The current token, for a while more.

        Raises:
            KafkaError: there is none.
        """
        now_ms = self._now_ms()
        held = self._held
        if held is None or now_ms >= held.token.expires_wall_ms:
            self._failed = failure, now_ms
            raise failure
        left_s = (held.token.expires_wall_ms - now_ms) // 1000
        logger.warning("No new token; the one in use expires in %d s: %s", left_s, failure.message)
        # Not beyond its end: a broker's refusal of it would be taken for final.
        again_at_ms = min(now_ms + _AGAIN_AFTER_MS, held.token.expires_wall_ms)
        self._held = held._replace(refresh_at_ms=again_at_ms)
        return held.login
