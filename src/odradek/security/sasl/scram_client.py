"""A client's side of SCRAM: proves to have the password, and asks the same of the broker."""

import hmac

from odradek.security.sasl import scram
from odradek.security.sasl.mechanism import SaslError


class ScramClient:
    """One login. The nonce is this side's, new for every login."""

    def __init__(
        self, mechanism: str, name: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        """`is_token` says that name and password are those of a delegation token."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        extension = ",tokenauth=true" if is_token else ""
        self._bare = f"n={scram.encoded_name(name)},r={nonce}{extension}"
        self._expected: bytes | None = None  # what the broker has to sign with
        self.is_complete = False

    def first(self) -> bytes:
        """The message that begins."""
        return f"n,,{self._bare}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Takes the broker's first message, then its last; see `SaslClient`."""
        if self._expected is None:
            return self._on_first(challenge)
        if not hmac.compare_digest(scram.parse_server_final(challenge), self._expected):
            raise SaslError("the broker does not know this user's password either")
        self.is_complete = True
        return None

    def _on_first(self, challenge: bytes) -> bytes:
        first = scram.parse_server_first(challenge)
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise SaslError("the broker answers with a nonce that is not of this login")
        if first.iterations < scram.MIN_ITERATIONS:
            raise SaslError(f"the broker asks for no more than {first.iterations} iterations")
        if first.iterations > scram.CLIENT_MAX_ITERATIONS:
            raise SaslError(f"the broker asks for {first.iterations} iterations, which takes long")
        without_proof = f"c={scram.NO_BINDING},r={first.nonce}"
        signed = f"{self._bare},{challenge.decode()},{without_proof}"
        salted = scram.salted_password(
            self._mechanism, self._password, first.salt, first.iterations
        )
        known = scram.credential_of(self._mechanism, salted, first.salt, first.iterations)
        key = scram.client_key(self._mechanism, salted)
        proof = scram.xor(key, scram.signature(self._mechanism, known.stored_key, signed))
        self._expected = scram.signature(self._mechanism, known.server_key, signed)
        return scram.client_final_text(without_proof, proof).encode()
