"""A broker's side of SCRAM.

FIRST --client first--> FINAL --client final, proof good--> COMPLETE
"""

import hmac
from collections.abc import Callable
from typing import Final

from odradek.security.sasl import scram
from odradek.security.sasl.mechanism import SaslAuthenticationError, SaslError

CredentialOf = Callable[[str], scram.ScramCredential | None]
TokenOf = Callable[[str], scram.TokenCredential | None]
_TOKEN_EXTENSION: Final = "tokenauth"


class ScramServer:
    """Checks the client's proof, and returns the server's."""

    def __init__(
        self,
        mechanism: str,
        credential_of: CredentialOf,
        nonce: str,
        token_of: TokenOf = lambda _: None,  # there are no tokens
    ) -> None:
        """The nonce is this side's, new for every login. `token_of` finds delegation tokens."""
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._token_of = token_of
        self._nonce = nonce
        self._credential: scram.ScramCredential | None = None
        self._signed = ""
        self.is_complete = False
        self.is_by_token = False
        self.authorization_id = ""
        self.expires_wall_ms: int | None = None

    def evaluate(self, response: bytes) -> bytes:
        """Takes the first message, then the last; see `SaslServer`."""
        if self.is_complete:
            raise SaslError("Unexpected challenge in Sasl server state COMPLETE")
        if self._credential is None:
            return self._on_first(scram.parse_client_first(response)).encode()
        return self._on_final(scram.parse_client_final(response), self._credential).encode()

    def _on_first(self, first: scram.ClientFirst) -> str:
        known = self._known(first)
        if first.authorization_id not in ("", first.name):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        if known.iterations < scram.MIN_ITERATIONS:
            raise SaslError(
                f"Iterations {known.iterations} is less than the minimum {scram.MIN_ITERATIONS} "
                f"for {self._mechanism}"
            )
        self._nonce = first.nonce + self._nonce
        answer = scram.server_first_text(
            scram.ServerFirst(self._nonce, known.salt, known.iterations)
        )
        self._credential = known
        self._signed = f"{first.bare},{answer}"
        return answer

    def _known(self, first: scram.ClientFirst) -> scram.ScramCredential:
        """Finds the credential of a user, or of a token, which logs in as its owner."""
        if first.extensions.get(_TOKEN_EXTENSION, "").lower() == "true":
            token = self._token_of(first.name)
            if token is None:
                raise SaslError(f"Token Authentication failed: Invalid tokenId : {first.name}")
            self.is_by_token = True
            self.authorization_id = token.owner
            self.expires_wall_ms = token.expiry_ms
            return token.credential
        known = self._credential_of(first.name)
        if known is None:
            raise SaslError("Authentication failed: Invalid user credentials")
        self.authorization_id = first.name
        return known

    def _on_final(self, final: scram.ClientFinal, known: scram.ScramCredential) -> str:
        # As in Kafka the end counts: librdkafka before 2.6.1 repeats its own part before it.
        if not final.nonce.endswith(self._nonce):
            raise SaslError("Invalid client nonce in the final client message.")
        signed = f"{self._signed},{final.without_proof}"
        if not self._is_proof(final.proof, signed, known):
            raise SaslError("Invalid client credentials")
        self.is_complete = True
        return scram.server_final_text(scram.signature(self._mechanism, known.server_key, signed))

    def _is_proof(self, proof: bytes, signed: str, known: scram.ScramCredential) -> bool:
        signature = scram.signature(self._mechanism, known.stored_key, signed)
        if len(proof) != len(signature):
            return False
        key = scram.xor(proof, signature)
        return hmac.compare_digest(scram.stored_key_of(self._mechanism, key), known.stored_key)
