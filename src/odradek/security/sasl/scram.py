"""SCRAM (RFC 5802, 7677): formulas, credentials, and the messages of both sides.

As in Kafka, names and passwords are taken as they are, without SASLprep, and there is no channel
binding. A broker keeps no password: `ScramCredential` is what it compares with.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final, NamedTuple

from odradek.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, SaslError

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
# A client does what its broker says, on its event loop: for half a second at most.
CLIENT_MAX_ITERATIONS: Final = 1_000_000
_HASHES: Final = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
SCRAM_MECHANISMS: Final = tuple(_HASHES)

# Whoever has not logged in may send half a MiB of it: in runs that are not gone through again.
_NAME: Final = r"(?:[^=,\0]++|=2C|=3D)++"
_EXTENSIONS: Final = r"(?:,[A-Za-z]++=[^,\0]++)*"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]++"
_BASE64: Final = r"[A-Za-z0-9+/]++={0,2}"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,"
    rf"(?P<bare>(?:m=[^,\0]++,)?n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(
    rf"(?:m=[^,\0]+,)?r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})"
    rf"{_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(
    rf"(?:e=(?P<error>[^,\0]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}"
)
NO_BINDING: Final = base64.b64encode(b"n,,").decode()


class ScramCredential(NamedTuple):
    """A broker's data of a user's password: enough to check it, too little to log in with."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({self.iterations} iterations)"


class ClientFirst(NamedTuple):
    """The client's first message; `bare` is what is signed."""

    authorization_id: str
    name: str
    nonce: str
    extensions: dict[str, str]
    bare: str


class TokenCredential(NamedTuple):
    """The facts of a delegation token for a login: its owner, and its expiry."""

    owner: str
    expiry_ms: int
    credential: ScramCredential


class ServerFirst(NamedTuple):
    """The broker's first message."""

    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """The client's last message; `without_proof` is what is signed."""

    nonce: str
    proof: bytes
    without_proof: str


# --- formulas ------------------------------------------------------------------------------------


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Salts a password; takes milliseconds, on purpose."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    return ScramCredential(
        salt,
        stored_key_of(mechanism, client_key(mechanism, salted)),
        hmac.digest(salted, b"Server Key", _HASHES[mechanism]),
        iterations,
    )


def credential(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def client_key(mechanism: str, salted: bytes) -> bytes:
    """The key that a client proves to have."""
    return hmac.digest(salted, b"Client Key", _HASHES[mechanism])


def stored_key_of(mechanism: str, key: bytes) -> bytes:
    """The stored form of a client's key."""
    return hashlib.new(_HASHES[mechanism], key).digest()


def signature(mechanism: str, key: bytes, signed: str) -> bytes:
    """Signs the messages so far with a key."""
    return hmac.digest(key, signed.encode(), _HASHES[mechanism])


def xor(one: bytes, other: bytes) -> bytes:
    """Bitwise, of the same length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


# --- credentials as text, in Kafka's own form ----------------------------------------------------


def credential_text(known: ScramCredential) -> str:
    """A credential in its stored form."""
    salt, stored, server = map(_encoded, known[:3])
    return f"salt={salt},stored_key={stored},server_key={server},iterations={known.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """Reads `credential_text` back.

    Raises:
        ValueError: it is something else.
    """
    parts = dict(part.split("=", 1) for part in text.split(","))
    try:
        keys = (base64.b64decode(parts[name]) for name in ("salt", "stored_key", "server_key"))
        salt, stored, server = keys
        return ScramCredential(salt, stored, server, int(parts["iterations"]))
    except KeyError as error:
        raise ValueError(f"a credential without {error}") from None


# --- messages ------------------------------------------------------------------------------------


def parse_client_first(message: bytes) -> ClientFirst:
    """Reads the client's first message.

    Raises:
        SaslError: it is none.
    """
    match = _matched(_CLIENT_FIRST, message, "client first")
    extensions = filter(None, match["extensions"].split(","))
    pairs = (tuple(pair.split("=", 1)) for pair in extensions)
    return ClientFirst(
        decoded_name(match["authzid"] or ""),
        decoded_name(match["name"]),
        match["nonce"],
        dict(pairs),
        match["bare"],
    )


def parse_server_first(message: bytes) -> ServerFirst:
    """Reads the broker's first message.

    Raises:
        SaslError: it is none.
    """
    match = _matched(_SERVER_FIRST, message, "server first")
    salt = _decoded(match["salt"], "server first")
    return ServerFirst(match["nonce"], salt, int(match["iterations"]))


def server_first_text(first: ServerFirst) -> str:
    """The broker's first message."""
    return f"r={first.nonce},s={_encoded(first.salt)},i={first.iterations}"


def parse_client_final(message: bytes) -> ClientFinal:
    """Reads the client's last message.

    Raises:
        SaslError: it is none.
    """
    match = _matched(_CLIENT_FINAL, message, "client final")
    proof = _decoded(match["proof"], "client final")
    return ClientFinal(match["nonce"], proof, match["without_proof"])


def client_final_text(without_proof: str, proof: bytes) -> str:
    """The client's last message."""
    return f"{without_proof},p={_encoded(proof)}"


def parse_server_final(message: bytes) -> bytes:
    """The signature in the broker's last message.

    Raises:
        SaslError: it is none, or an error.
    """
    match = _matched(_SERVER_FINAL, message, "server final")
    if match["error"]:
        raise SaslError(f"Sasl authentication using SCRAM failed: {match['error']}")
    return _decoded(match["signature"], "server final")


def server_final_text(server_signature: bytes) -> str:
    """The broker's last message."""
    return f"v={_encoded(server_signature)}"


def encoded_name(name: str) -> str:
    """A name as written in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def decoded_name(text: str) -> str:
    """The name that a message has."""
    return text.replace("=2C", ",").replace("=3D", "=")


def _matched(pattern: re.Pattern[str], message: bytes, which: str) -> re.Match[str]:
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslError(f"Invalid SCRAM {which} message format")
    return match


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decoded(text: str, which: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError(f"Invalid SCRAM {which} message format") from None
