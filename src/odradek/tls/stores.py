"""Key stores and trust stores of Kafka's settings: PEM, as text or in files, and PKCS12.

Java takes a PKCS12 file for a JKS one, too, so what a file is says its content, not its type. A
true JKS file has Java's own encryption: it is refused with the command that converts it. PKCS12
needs the extra `security`.
"""

import base64
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from odradek.errors import reason_of

T = TypeVar("T")

TYPES: Final = ("JKS", "PKCS12", "PEM")
_JKS: Final = b"\xfe\xed\xfe\xed"
_JCEKS: Final = b"\xce\xce\xce\xce"
_DER_SEQUENCE: Final = 0x30
_BLOCK: Final = re.compile(r"-+BEGIN ([A-Z0-9 ]+)-+([^-]*)-+END \1-+", re.DOTALL)
_LINE: Final = 64


class TlsError(Exception):
    """A store cannot be used; the text names it, and no secret."""


class KeyStore(NamedTuple):
    """A key store: our own certificate and key, in a file, or here as PEM."""

    location: str | None = None
    password: str | None = None
    key_password: str | None = None
    key: str | None = None
    certificate_chain: str | None = None
    type: str = "JKS"

    @property
    def is_given(self) -> bool:
        """Whether there is any."""
        return self.location is not None or self.key is not None

    def __repr__(self) -> str:
        return f"KeyStore({self.location or 'inline'})"


class TrustStore(NamedTuple):
    """A trust store: the trusted certificates, in a file, or here as PEM."""

    location: str | None = None
    password: str | None = None
    certificates: str | None = None
    type: str = "JKS"

    @property
    def is_given(self) -> bool:
        """Whether there is any."""
        return self.location is not None or self.certificates is not None

    def __repr__(self) -> str:
        return f"TrustStore({self.location or 'inline'})"


class Identity(NamedTuple):
    """A certificate chain with its key, as PEM; the key may be encrypted."""

    pem: str
    key_password: str | None

    @property
    def certificate(self) -> bytes:
        """One's own certificate, the first of the chain, in DER.

        Raises:
            TlsError: there is none.
        """
        for block in _BLOCK.finditer(self.pem):
            if block[1] == "CERTIFICATE":
                return base64.b64decode("".join(block[2].split()))
        raise TlsError("the key store has no certificate")

    def __repr__(self) -> str:
        return "Identity(...)"


def read_identity(store: KeyStore) -> Identity:
    """One's own certificate and key.

    Raises:
        TlsError: there are none, or they cannot be read.
    """
    _check_type("ssl.keystore.type", store.type)
    if store.key is not None:
        if store.certificate_chain is None:
            raise TlsError("ssl.keystore.key is set without ssl.keystore.certificate.chain")
        pem = normalized_pem(store.key + "\n" + store.certificate_chain, "ssl.keystore.key")
        return _identity_of(pem, "ssl.keystore.key", store)
    if store.location is None:
        raise TlsError("there is neither ssl.keystore.location nor ssl.keystore.key")
    content = _content(store.location, "ssl.keystore.location")
    if _is_pem(content):
        text = content.decode("utf-8", "replace")
        return _identity_of(normalized_pem(text, store.location), store.location, store)
    return Identity(_pem_of_pkcs12(store.location, content, store.password), None)


def _identity_of(pem: str, where: str, store: KeyStore) -> Identity:
    for what, end in (("certificate", "CERTIFICATE-----"), ("key", "PRIVATE KEY-----")):
        if end not in pem:
            raise TlsError(f"{where} has no {what}: both the certificate and its key are needed")
    return Identity(pem, store.key_password)


def read_trusted(store: TrustStore) -> str:
    """The trusted certificates, as PEM.

    Raises:
        TlsError: they cannot be read.
    """
    _check_type("ssl.truststore.type", store.type)
    if store.certificates is not None:
        return normalized_pem(store.certificates, "ssl.truststore.certificates")
    assert store.location is not None, "asked only where there is one"
    content = _content(store.location, "ssl.truststore.location")
    if _is_pem(content):
        return normalized_pem(content.decode("utf-8", "replace"), store.location)
    return _certificates_of_pkcs12(store.location, content, store.password)


def normalized_pem(text: str, where: str) -> str:
    """PEM with line breaks where they belong: settings often have it on a single line.

    Raises:
        TlsError: there is no PEM in the text.
    """
    blocks = [_block(match) for match in _BLOCK.finditer(text)]
    if not blocks:
        raise TlsError(f"{where} has no PEM (-----BEGIN ...-----)")
    pem = "\n".join(blocks)
    if not pem.isascii():
        raise TlsError(f"{where} has PEM with characters that are not ASCII")
    return pem


def _check_type(setting: str, type: str) -> None:
    if type.upper() not in TYPES:
        raise TlsError(f"{setting}: {type} is none of {', '.join(TYPES)}")


def _block(match: re.Match[str]) -> str:
    label, body = match[1], match[2]
    if ":" in body:  # an old encrypted key, whose headers are lines
        return match[0] + "\n"
    joined = "".join(body.split())
    lines = [joined[begin : begin + _LINE] for begin in range(0, len(joined), _LINE)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))


def _content(location: str, setting: str) -> bytes:
    try:
        with open(location, "rb") as file:
            content = file.read()
    except OSError as error:
        raise TlsError(f"{setting}: {location}: {reason_of(error)}") from error
    except ValueError as error:
        raise TlsError(f"{setting}: {location!r} cannot be a path") from error
    if content.startswith((_JKS, _JCEKS)):
        raise TlsError(
            f"{setting}: {location} is a JKS store, which only Java reads. Convert it: keytool "
            f"-importkeystore -srckeystore {location} -destkeystore {location}.p12 "
            "-deststoretype PKCS12"
        )
    return content


def _is_pem(content: bytes) -> bool:
    return not content or content[0] != _DER_SEQUENCE


def _pem_of_pkcs12(location: str, content: bytes, password: str | None) -> str:
    serialization, pkcs12 = _cryptography(location)
    key, certificate, others = _opened(
        location, lambda: pkcs12.load_key_and_certificates(content, _bytes(password))
    )
    if key is None or certificate is None:
        raise TlsError(f"{location} has no private key with its certificate")
    pem = serialization.Encoding.PEM
    parts = [
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        *(each.public_bytes(pem) for each in (certificate, *others)),
    ]
    return b"".join(parts).decode()


def _certificates_of_pkcs12(location: str, content: bytes, password: str | None) -> str:
    serialization, pkcs12 = _cryptography(location)
    store = _opened(location, lambda: pkcs12.load_pkcs12(content, _bytes(password)))
    found = [each.certificate for each in (store.cert, *store.additional_certs) if each]
    if not found:
        raise TlsError(f"{location} has no certificates")
    pem = serialization.Encoding.PEM
    return b"".join(each.public_bytes(pem) for each in found).decode()


def _bytes(password: str | None) -> bytes | None:
    return None if password is None else password.encode()


def _opened(location: str, load: Callable[[], T]) -> T:
    try:
        return load()
    except ValueError as error:
        raise TlsError(f"{location} is no PKCS12 store, or the password is wrong") from error


def _cryptography(location: str) -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise TlsError(
            f"{location} is a PKCS12 store, for which the extra `security` is needed: "
            "pip install 'odradek[security]'"
        ) from error
    return serialization, pkcs12
