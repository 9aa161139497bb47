"""The sources of tokens: an issuer, asked with a client's id and secret (RFC 6749, 4.4), or a file.

An issuer that does not answer, or is temporarily unable, is asked again until
`sasl.login.retry.backoff.max.ms` have passed; after a refusal it is not. Errors name the URL
without its query, and never the secret. All of it blocks: for threads.
"""

import base64
import json
import ssl
import time
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote_plus, unquote, urlsplit

from odradek.client.errors import AuthenticationError, KafkaError, NetworkError, in_words
from odradek.client.oauth.http import LARGEST_BYTES, BadAnswer, HttpAnswer, Patience, exchange
from odradek.clock import monotonic_s
from odradek.errors import ErrorCode

_SHOWN_CHARACTERS: Final = 200
# Kafka's list of errors that are not retried.
_FINAL_STATUSES: Final = frozenset({*range(400, 408), *range(409, 416), 501, 505})
_TOKENS: Final = ("access_token", "id_token")


class Credentials(NamedTuple):
    """The identity that a client shows to an issuer; `urlencodes` as RFC 6749 wants it, which many
    issuers do not."""

    client_id: str
    client_secret: str
    scope: str | None = None
    urlencodes: bool = False

    def __repr__(self) -> str:
        return f"Credentials({self.client_id!r}, ...)"

    @property
    def authorization(self) -> str:
        """The header of that name."""
        pair = (self.client_id, self.client_secret)
        encoded = ":".join(quote_plus(each, safe="*") if self.urlencodes else each for each in pair)
        return f"Basic {base64.b64encode(encoded.encode()).decode()}"

    def without_secret(self, text: str) -> str:
        """Hides the secret in a text, in which an issuer may have repeated it."""
        basic = self.authorization.removeprefix("Basic ")
        for secret in (self.client_secret, quote_plus(self.client_secret, safe="*"), basic):
            text = text.replace(secret, "[hidden]")
        return text


class Retries(NamedTuple):
    """The first wait between attempts, and the time for all."""

    backoff_ms: int = 100
    backoff_max_ms: int = 10_000


class Issuer:
    """Requests tokens with a client id and its secret."""

    def __init__(
        self,
        url: str,
        credentials: Credentials,
        patience: Patience,
        retries: Retries,
        context: ssl.SSLContext | None = None,
        *,
        monotonic_s: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        self._credentials = credentials
        self._patience = patience
        self._retries = retries
        self._context = context
        self._monotonic_s = monotonic_s
        self._sleep = sleep

    def __repr__(self) -> str:
        return f"Issuer({shown_url(self._url)!r}, {self._credentials!r})"

    @property
    def limit_ms(self) -> int:
        """How long a question takes at most, but for looking up the name of the host."""
        return self._retries.backoff_max_ms + self._patience.connect_ms + self._patience.read_ms

    def ask(self) -> str:
        """Asks for a token, again where that may help.

        Raises:
            NetworkError: no answer came in time.
            AuthenticationError: the issuer refuses, or answers no token.
        """
        end_s = self._monotonic_s() + self._retries.backoff_max_ms / 1000
        wait_ms = self._retries.backoff_ms
        while True:
            try:
                return self._ask_once()
            except NetworkError:
                left_s = end_s - self._monotonic_s()
                if left_s <= 0:
                    raise
                self._sleep(min(wait_ms / 1000, left_s))
                wait_ms = max(1, wait_ms) * 2

    def _ask_once(self) -> str:
        form = "grant_type=client_credentials"
        if self._credentials.scope:
            form += f"&scope={quote_plus(self._credentials.scope)}"
        headers = {
            "Accept": "application/json",
            "Authorization": self._credentials.authorization,
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        try:
            answer = exchange(
                "POST", self._url, headers, form.encode(), self._patience, self._context
            )
        except ssl.SSLCertVerificationError as error:
            raise self._refused(f"TLS: {error.verify_message}") from error
        except OSError as error:
            raise NetworkError(f"{self._name}: {in_words(error)}") from error
        except BadAnswer as error:
            raise self._refused(str(error)) from error
        return self._token_of(answer)

    def _token_of(self, answer: HttpAnswer) -> str:
        status = answer.status
        if status not in (200, 201):
            reason = f"it answers {status}{self._reason_in(answer.body)}"
            if 300 <= status < 400:
                raise self._refused(f"{reason}, a redirect, which is not followed")
            if status in _FINAL_STATUSES:
                raise self._refused(reason)
            raise NetworkError(f"{self._name}: {reason}")
        found = _object_in(answer.body)
        if found is None:
            raise self._refused(f"it answers {status} with something else than a JSON object")
        token = next((found[each] for each in _TOKENS if found.get(each)), None)
        if not isinstance(token, str):
            raise self._refused(f"its answer has no {_TOKENS[0]}")
        return token

    def _reason_in(self, body: bytes) -> str:
        """The text of an issuer's refusal, in parentheses, if there is one."""
        found = _object_in(body) or {}
        words = [found.get(each) for each in ("error", "error_description")]
        said = ": ".join(each for each in words if isinstance(each, str) and each)
        if not said:
            return ""
        shown = self._credentials.without_secret(said)[:_SHOWN_CHARACTERS]
        # Line breaks could make a log say something else.
        return f" ({''.join(each if each.isprintable() else ' ' for each in shown)})"

    @property
    def _name(self) -> str:
        return f"the token endpoint {shown_url(self._url)}"

    def _refused(self, reason: str) -> KafkaError:
        return AuthenticationError(f"{self._name}: {reason}", ErrorCode.SASL_AUTHENTICATION_FAILED)


def token_in_file(url: str) -> str:
    """The token in the file of a URL, which may be replaced at any time.

    Raises:
        NetworkError: it cannot be read now.
        AuthenticationError: it has no token.
    """
    path = file_of(url)
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise NetworkError(f"the token file {path}: {in_words(error)}") from error
    try:
        text = content.decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(content) > LARGEST_BYTES:
        raise AuthenticationError(
            f"the token file {path} has no token", ErrorCode.SASL_AUTHENTICATION_FAILED
        )
    return text


def file_of(url: str) -> str:
    """The path of a `file:` URL."""
    return unquote(urlsplit(url).path)


def shown_url(url: str) -> str:
    """A URL without what may be secret in it: user, password, query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL that cannot be read"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def _object_in(body: bytes) -> dict[str, object] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
