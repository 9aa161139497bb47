"""Delegation tokens: names with passwords, of limited life, by which others log in as the user that
made them (KIP-48).

A token's password is the HMAC of its id under a key that all brokers share, so it is not stored.
All other facts are stored as Kafka 3.9 stores them in ZooKeeper: JSON, in which principals are
sanitized.
"""

import base64
import hmac
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote

from odradek.background import note_refusal
from odradek.clock import Clock
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ConfigResource, MetadataImage
from odradek.metadata.kept_tokens import INFORMATION, token_resource
from odradek.metadata.sanitized import sanitized
from odradek.metadata.store import OnDone
from odradek.model import USER_TYPE, ConfigResourceType, KafkaPrincipal
from odradek.security.principal import parse_principal
from odradek.security.sasl import scram

T = TypeVar("T")

SALT_BYTES: Final = 20
ID_BYTES: Final = 16
_VERSION: Final = 3
_KEPT_CREDENTIALS: Final = 1_000
_TIME_LIMIT_MS: Final = 1 << 63


class TokenInformation(NamedTuple):
    """The facts about a token, without its password."""

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    @property
    def principals(self) -> tuple[KafkaPrincipal, ...]:
        """The principals that may renew, expire and see it."""
        return (self.owner, self.requester, *self.renewers)

    def is_of(self, principal: KafkaPrincipal) -> bool:
        """Whether a principal may renew, expire and see it."""
        return principal in self.principals

    def is_expired(self, now_ms: int) -> bool:
        """Whether a login by the token is refused: it has expired."""
        return min(self.max_ms, self.expiry_ms) < now_ms


class TokenTimes(NamedTuple):
    """The longest life of tokens, and their life without a renewal, in milliseconds."""

    max_lifetime_ms: int
    renewal_ms: int


class _Decision(NamedTuple):
    """An allowed change: the token after it, None if it is deleted, and the answer."""

    token: TokenInformation
    is_kept: bool
    answer: int


Plan = Callable[[MetadataImage], Mapping[ConfigResource, Mapping[str, str | None]]]


class DelegationTokens:
    """The tokens of a cluster. `alter` commits the change of a plan, one plan after the other."""

    def __init__(
        self,
        secret_key: str,
        times: TokenTimes,
        clock: Clock,
        image: Callable[[], MetadataImage],
        alter: Callable[[Plan, OnDone[None]], None],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._key: Final = secret_key.encode()
        self._times: Final = times
        self._clock: Final = clock
        self._image: Final = image
        self._alter: Final = alter
        self._random_bytes: Final = random_bytes
        # Making one takes milliseconds.
        self._made_credential: Final = lru_cache(_KEPT_CREDENTIALS)(self._make_credential)

    # --- what there is --------------------------------------------------------------------------

    def all(self) -> list[TokenInformation]:
        """Every token, including expired ones that are not removed yet."""
        return list(_tokens(self._image()))

    def hmac_of(self, token_id: str) -> bytes:
        """The password of a token, as bytes."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def credential(self, mechanism: str, token_id: str) -> scram.TokenCredential | None:
        """The credential for a login by a token."""
        token = _token(self._image(), token_id)
        if token is None or token.is_expired(self._clock.wall_ms()):
            return None
        known = self._made_credential(mechanism, token_id)
        return scram.TokenCredential(token.owner.name, token.expiry_ms, known)

    def _make_credential(self, mechanism: str, token_id: str) -> scram.ScramCredential:
        password = base64.b64encode(self.hmac_of(token_id)).decode()
        salt = self._random_bytes(SALT_BYTES)
        return scram.credential(mechanism, password, salt, scram.MIN_ITERATIONS)

    # --- changes --------------------------------------------------------------------------------

    def create(
        self,
        owner: KafkaPrincipal,
        requester: KafkaPrincipal,
        renewers: Sequence[KafkaPrincipal],
        max_lifetime_ms: int,
        on_done: OnDone[TokenInformation],
    ) -> None:
        """Makes a token, which lives no longer than the broker allows."""
        if any(each.principal_type != USER_TYPE for each in renewers):
            on_done(BrokerError(ErrorCode.INVALID_PRINCIPAL_TYPE))
            return
        now_ms = self._clock.wall_ms()
        longest_ms = self._times.max_lifetime_ms
        if max_lifetime_ms > 0:
            longest_ms = min(longest_ms, max_lifetime_ms)
        max_ms = now_ms + longest_ms
        expiry_ms = min(max_ms, now_ms + self._times.renewal_ms)
        token_id = base64.urlsafe_b64encode(self._random_bytes(ID_BYTES)).decode().rstrip("=")
        people = (owner, requester, tuple(renewers))
        token = TokenInformation(token_id, *people, now_ms, max_ms, expiry_ms)

        def on_stored(outcome: int | BrokerError) -> None:
            on_done(outcome if isinstance(outcome, BrokerError) else token)

        self._carry_out(lambda _: _Decision(token, True, 0), on_stored)

    def renew(
        self, password: bytes, caller: KafkaPrincipal, period_ms: int, on_done: OnDone[int]
    ) -> None:
        """Renews a token for a period, at most the broker's, which is the default; answers with the
        new expiry."""

        def decide(image: MetadataImage) -> _Decision | BrokerError:
            now_ms = self._clock.wall_ms()
            token = self._found(image, password)
            if token is None:
                return BrokerError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            if token.is_expired(now_ms):
                return BrokerError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            if not token.is_of(caller):
                return BrokerError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
            longest_ms = self._times.renewal_ms
            lifetime_ms = min(period_ms, longest_ms) if period_ms > 0 else longest_ms
            return _until(token, now_ms + lifetime_ms)

        self._carry_out(decide, on_done)

    def expire(
        self, password: bytes, caller: KafkaPrincipal, period_ms: int, on_done: OnDone[int]
    ) -> None:
        """Ends a token after a period, at once if that is negative; answers with the new expiry."""

        def decide(image: MetadataImage) -> _Decision | BrokerError:
            now_ms = self._clock.wall_ms()
            token = self._found(image, password)
            if token is None:
                return BrokerError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            if not token.is_of(caller):
                return BrokerError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
            if period_ms < 0:
                return _Decision(token, False, now_ms)
            if token.is_expired(now_ms):
                return BrokerError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            return _until(token, now_ms + period_ms)

        self._carry_out(decide, on_done)

    def remove_expired(self) -> None:
        """Removes expired tokens."""
        now_ms = self._clock.wall_ms()

        def plan(image: MetadataImage) -> dict[ConfigResource, dict[str, str | None]]:
            gone = [each for each in _tokens(image) if each.is_expired(now_ms)]
            return {token_resource(each.token_id): {INFORMATION: None} for each in gone}

        self._alter(plan, partial(note_refusal, "expired tokens are removed later"))

    def _found(self, image: MetadataImage, password: bytes) -> TokenInformation | None:
        for token in _tokens(image):
            if hmac.compare_digest(self.hmac_of(token.token_id), password):
                return token
        return None

    def _carry_out(
        self, decide: Callable[[MetadataImage], _Decision | BrokerError], on_done: OnDone[int]
    ) -> None:
        decided: list[_Decision | BrokerError] = []

        def plan(image: MetadataImage) -> dict[ConfigResource, dict[str, str | None]]:
            decision = decide(image)
            decided.append(decision)
            if isinstance(decision, BrokerError):
                return {}
            token = decision.token
            text = token_text(token) if decision.is_kept else None
            return {token_resource(token.token_id): {INFORMATION: text}}

        def on_stored(outcome: BrokerError | None) -> None:
            decision = decided[0]
            if isinstance(decision, BrokerError):
                on_done(decision)
            else:
                on_done(decision.answer if outcome is None else outcome)

        self._alter(plan, on_stored)


def token_text(token: TokenInformation) -> str:
    """A token in its stored form."""
    return json.dumps(
        {
            "version": _VERSION,
            "owner": sanitized(str(token.owner)),
            "tokenRequester": sanitized(str(token.requester)),
            "renewers": [sanitized(str(each)) for each in token.renewers],
            "issueTimestamp": token.issue_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expiry_ms,
            "tokenId": token.token_id,
        },
        separators=(",", ":"),
    )


def parse_token(text: str) -> TokenInformation:
    """Reads `token_text` back. Before version 3 there is no requester: it is the owner.

    Raises:
        ValueError: it is something else.
    """
    try:
        value = json.loads(text)
        owner = _principal(value["owner"])
        return TokenInformation(
            str(value["tokenId"]),
            owner,
            _principal(value["tokenRequester"]) if "tokenRequester" in value else owner,
            tuple(_principal(each) for each in value["renewers"]),
            *(_time_ms(value[f"{name}Timestamp"]) for name in ("issue", "max", "expiry")),
        )
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"no delegation token: {error}") from None


def _principal(text: str) -> KafkaPrincipal:
    name = unquote(text)
    name.encode()  # JSON may have half of a character, which no response can have
    return parse_principal(name)


def _time_ms(value: float | str) -> int:
    time_ms = int(value)
    if not -_TIME_LIMIT_MS < time_ms < _TIME_LIMIT_MS:
        raise ValueError(f"no delegation token: {value} is no time")
    return time_ms


def _until(token: TokenInformation, until_ms: int) -> _Decision:
    expiry_ms = min(token.max_ms, until_ms)
    return _Decision(token._replace(expiry_ms=expiry_ms), True, expiry_ms)


def _token(image: MetadataImage, token_id: str) -> TokenInformation | None:
    text = image.config(token_resource(token_id)).get(INFORMATION)
    try:
        token = None if text is None else parse_token(text)
    except ValueError:
        return None  # an unreadable token is not accepted
    # Neither is one under the id of another: nobody could end it.
    return token if token is not None and token.token_id == token_id else None


def _tokens(image: MetadataImage) -> Iterator[TokenInformation]:
    for resource in image.configs:
        if resource.type is ConfigResourceType.DELEGATION_TOKEN:
            token = _token(image, resource.name)
            if token is not None:
                yield token
