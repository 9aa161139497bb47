"""Tokens with a signature, checked against a set of public keys (JWKS).

Needs the extra `security`, and imports what that brings when the first validator is made. It does
not know where the keys come from.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from odradek.security.sasl.claims import ClaimRules, check_claims
from odradek.security.sasl.oauthbearer import TokenRefused, ValidToken

logger = logging.getLogger(__name__)

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""All algorithms with a public key; none with a shared secret, which a broker would have to
keep."""


class PublicKeys(Protocol):
    """The issuer's keys."""

    def current(self) -> Mapping[str, Any] | None:
        """The set as it was last read, always the same object until it is read again; None as
        long as it could not be."""
        ...

    def refresh(self) -> None:
        """Reads the set again soon: a token names a key that is not in it."""
        ...


class SignedTokenValidator:
    """Checks signature and claims."""

    def __init__(self, keys: PublicKeys, rules: ClaimRules, wall_ms: Callable[[], int]) -> None:
        """Raises:
        ImportError: the extra `security` is not installed.
        """
        from joserfc import errors, jwk, jws

        self._errors, self._jwk, self._jws = errors, jwk, jws
        self._unusable = (errors.JoseError, ValueError, TypeError, KeyError, AttributeError)
        self._registry = jws.JWSRegistry(algorithms=list(ALGORITHMS))
        self._keys = keys
        self._rules = rules
        self._wall_ms = wall_ms
        self._read: Mapping[str, Any] | None = None
        self._key_set: Any = None

    def __call__(self, token: str) -> ValidToken:
        """The principal's name and the expiry of a token.

        Raises:
            TokenRefused: it is no good.
        """
        return check_claims(self._claims(token), self._rules, self._wall_ms())

    def _claims(self, token: str) -> dict[str, Any]:
        found = self._keys.current()
        if found is None:
            self._keys.refresh()
            raise TokenRefused("the keys that tokens are signed with could not be read yet")
        try:
            if found is not self._read:
                self._key_set = self._jwk.KeySet([*self._keys_in(found)])
                self._read = found
            checked = self._jws.deserialize_compact(
                token.encode(), self._key_set, registry=self._registry
            )
            claims = json.loads(checked.payload)
        except self._errors.InvalidKeyIdError:
            self._keys.refresh()
            raise TokenRefused("it names a key that is not in the set") from None
        except (self._errors.JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise TokenRefused(f"its signature is no good: {error}") from None
        if not isinstance(claims, dict):
            raise TokenRefused("it has no claims")
        return claims

    def _keys_in(self, found: Mapping[str, Any]) -> Iterator[Any]:
        """The keys of a set, without those that are unusable here: issuers also publish keys for
        other purposes."""
        for each in found["keys"]:
            try:
                yield self._jwk.JWKRegistry.import_key(each)
            except self._unusable as error:
                logger.warning("A key of the set is ignored: %s", error)
