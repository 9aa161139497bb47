"""The public keys that tokens are signed with, from a file or a URL (JWKS), read again and again.

A file is read before the broker serves. A URL is asked in the background, again and again until it
answers: as long as it does not, tokens are refused and not the start.
"""

import json
import logging
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urljoin

from odradek.background import Background
from odradek.client.oauth.http import LARGEST_BYTES, BadAnswer, Patience, exchange
from odradek.client.oauth.issuer import file_of, shown_url
from odradek.clock import LONG_AGO_MS
from odradek.config import BrokerConfig, ConfigError
from odradek.server.security.names import JWKS_URL
from odradek.timer import PeriodicTask, Timer, TimerTask

logger = logging.getLogger(__name__)

FILE: Final = "file:"
HTTP: Final = "http://"
HTTPS: Final = "https://"
SCHEMES: Final = (HTTPS, HTTP, FILE)
PATIENCE: Final = Patience(connect_ms=10_000, read_ms=10_000)
MAX_REDIRECTS: Final = 5
MIN_INTERVAL_MS: Final = 5_000


class JsonWebKeys:
    """See `signed_tokens.PublicKeys`."""

    def __init__(
        self, config: BrokerConfig, url: str, timer: Timer, background: Background
    ) -> None:
        """Raises:
        ConfigError: the URL is none, or its file has no keys.
        """
        if not url.startswith(SCHEMES):
            reason = "it must begin with https:// or file:"
            raise ConfigError(JWKS_URL, url, reason)
        self._config = config
        self._url: Final = url
        self._timer = timer
        self._background = background
        self._keys: Mapping[str, Any] | None = None
        self._is_reading = False
        self._failures = 0
        self._not_before_ms = LONG_AGO_MS
        self._retry: TimerTask | None = None
        if url.startswith(FILE):
            try:
                self._keys = read_keys(url)
            except (OSError, ValueError) as error:
                raise ConfigError(JWKS_URL, url, str(error)) from error
        else:
            self.refresh()
        self._rounds = PeriodicTask(
            timer, lambda: config["sasl.oauthbearer.jwks.endpoint.refresh.ms"], self.refresh
        )

    def current(self) -> Mapping[str, Any] | None:
        """The keys as they were last read."""
        return self._keys

    def refresh(self) -> None:
        """Reads the keys again, unless a read is under way, is to be retried, or has just been
        done: anybody can make tokens that name a missing key."""
        now_ms = self._timer.now_ms
        if self._is_reading or self._retry is not None or now_ms < self._not_before_ms:
            return
        self._is_reading = True
        self._not_before_ms = now_ms + MIN_INTERVAL_MS
        self._background.submit(lambda: read_keys(self._url), self._on_read, self._on_error)

    def close(self) -> None:
        """Reads nothing more."""
        self._rounds.cancel()
        if self._retry is not None:
            self._retry.cancel()

    def _on_read(self, keys: Mapping[str, Any]) -> None:
        self._is_reading = False
        self._failures = 0
        if keys != self._keys:
            self._keys = keys

    def _on_error(self, error: BaseException) -> None:
        self._is_reading = False
        logger.warning("The keys at %s cannot be read: %s", shown_url(self._url), error)
        first_ms = self._config["sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"]
        most_ms = self._config["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"]
        delay_ms = min(most_ms, first_ms << min(self._failures, 16))
        self._failures += 1
        self._retry = TimerTask(delay_ms, self._again)
        self._timer.add(self._retry)

    def _again(self) -> None:
        self._retry = None
        self._not_before_ms = LONG_AGO_MS
        self.refresh()


def read_keys(url: str) -> dict[str, Any]:
    """The set at a URL. Blocks, for a while that nobody can stretch.

    Raises:
        OSError: nobody answers there, or it is no set of keys.
    """
    content = _in_file(url) if url.startswith(FILE) else _fetched(url)
    try:
        keys = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise OSError(f"{shown_url(url)} has no JSON") from error
    if not isinstance(keys, dict) or not isinstance(keys.get("keys"), list):
        raise OSError(f"{shown_url(url)} has no set of keys")
    return keys


def _in_file(url: str) -> bytes:
    with open(file_of(url), "rb") as file:
        return file.read(LARGEST_BYTES)


def _fetched(url: str) -> bytes:
    """The answer of a server, which may lead to another one, but from https to https alone."""
    context = ssl.create_default_context() if url.startswith(HTTPS) else None
    for _ in range(MAX_REDIRECTS + 1):
        try:
            answer = exchange("GET", url, {"Accept": "application/json"}, None, PATIENCE, context)
        except (BadAnswer, ValueError) as error:
            raise OSError(f"{shown_url(url)}: {error}") from error
        if answer.status == 200:
            return answer.body
        if answer.location is None or not 300 <= answer.status < 400:
            raise OSError(f"{shown_url(url)} answers {answer.status}")
        url = urljoin(url, answer.location)
        if not url.startswith(HTTPS if context is not None else HTTP):
            raise OSError(f"it leads to {shown_url(url)}, which is not followed")
    raise OSError(f"it leads on and on, last to {shown_url(url)}")
