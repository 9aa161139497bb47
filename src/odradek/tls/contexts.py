"""Contexts of Python's `ssl` by Kafka's settings."""

import re
import ssl
from typing import Final, NamedTuple

from odradek.system_calls import unshared_file
from odradek.tls.stores import Identity, KeyStore, TlsError, TrustStore, read_identity, read_trusted

CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITES_OF_1_3: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)


class TlsSettings(NamedTuple):
    """The TLS settings under Kafka's names; empty lists leave the choice to the library."""

    key_store: KeyStore = KeyStore()
    trust_store: TrustStore = TrustStore()
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    client_auth: str = "none"
    checks_host_name: bool = True


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """A broker's side.

    Raises:
        TlsError: a store, a protocol or a cipher suite cannot be had.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Handshakes are dear, and a client could ask for one after another: OpenSSL 3 refuses anyway.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    _configure(context, settings)
    _load_identity(context, read_identity(settings.key_store))
    if settings.client_auth != "none":
        _load_trusted(context, settings.trust_store, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """A client's side, with its own certificate if there is a key store.

    Raises:
        TlsError: a store, a protocol or a cipher suite cannot be had.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host_name
    _configure(context, settings)
    _load_trusted(context, settings.trust_store, ssl.Purpose.SERVER_AUTH)
    if settings.key_store.is_given:
        _load_identity(context, read_identity(settings.key_store))
    return context


def _configure(context: ssl.SSLContext, settings: TlsSettings) -> None:
    suites = settings.cipher_suites
    versions = [_VERSIONS[each] for each in settings.enabled_protocols if each in _VERSIONS]
    if suites and not _SUITES_OF_1_3 & set(suites):
        versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_3]
    if not versions:
        wanted = ", ".join(settings.enabled_protocols)
        raise TlsError(f"ssl.enabled.protocols: of {wanted} none is served here, or has a suite")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if suites:
        _choose(context, suites, versions)


def _choose(
    context: ssl.SSLContext, suites: tuple[str, ...], versions: list[ssl.TLSVersion]
) -> None:
    chosen = _SUITES_OF_1_3 & set(suites)
    if ssl.TLSVersion.TLSv1_3 in versions and chosen != _SUITES_OF_1_3:
        lacking = ", ".join(sorted(_SUITES_OF_1_3 - chosen))
        raise TlsError(
            f"ssl.cipher.suites: Python cannot leave out single suites of TLS 1.3 ({lacking}): "
            "name all of them, or none"
        )
    older = [openssl_name(each) for each in suites if each not in _SUITES_OF_1_3]
    if not older and ssl.TLSVersion.TLSv1_2 in versions:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    elif older:
        try:
            context.set_ciphers(":".join(older))
        except (ssl.SSLError, ValueError):
            raise TlsError(
                f"ssl.cipher.suites: none of {', '.join(suites)} is served here"
            ) from None


def openssl_name(suite: str) -> str:
    """The name that OpenSSL has for a cipher suite of a standard name."""
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_")
    name = re.sub(r"AES_(128|256)", r"AES\1", name).replace("_CBC_", "_")
    if "CHACHA20" in name:
        name = name.removesuffix("_SHA256")
    return name.replace("_", "-")


def _load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    password = identity.key_password
    # OpenSSL takes keys from files alone.
    with unshared_file(identity.pem.encode()) as path:
        try:
            # Without a password OpenSSL would ask at the terminal.
            context.load_cert_chain(path, password=password or "")
        except ssl.SSLError as error:
            reason = str(error.reason or error).replace("_", " ").lower()
            raise TlsError(
                f"the key store's certificate and key cannot be used ({reason}); is "
                "ssl.key.password right?"
            ) from error


def _load_trusted(context: ssl.SSLContext, store: TrustStore, purpose: ssl.Purpose) -> None:
    if not store.is_given:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(cadata=read_trusted(store))
    except ssl.SSLError as error:
        reason = str(error.reason or error).replace("_", " ").lower()
        raise TlsError(f"the trust store's certificates cannot be used ({reason})") from error
