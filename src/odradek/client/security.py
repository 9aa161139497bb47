"""The TLS and SASL settings of a client, under Kafka's names.

Credentials come as Kafka's `sasl.jaas.config`, or as `sasl.username` and `sasl.password`. A client
without them imports nothing of it.
"""

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client.errors import AuthenticationError
from odradek.client.settings import TOKEN_PROVIDER, ClientSettings
from odradek.clock import SystemClock
from odradek.config.definition import ConfigError

if TYPE_CHECKING:
    from odradek.client.core.network.handshake import LoginSource

_WHO_SIGNED: Final = "name who signed it in ssl.truststore.location or ssl.truststore.certificates"
_OTHER_NAME: Final = (
    "reach the broker by a name that the certificate has, or leave "
    "ssl.endpoint.identification.algorithm empty"
)
# By OpenSSL's numbers of errors: signed by nobody who is trusted, and for another name or address.
_HELP: Final = {
    **dict.fromkeys((18, 19, 20, 21), _WHO_SIGNED),
    **dict.fromkeys((62, 64), _OTHER_NAME),
}


class ClientSecurity(NamedTuple):
    """The TLS and the login of connections."""

    tls: ssl.SSLContext | None = None
    login: "LoginSource | None" = None


NO_SECURITY: Final = ClientSecurity()


def client_security(
    settings: ClientSettings, shared_login: "Callable[[], LoginSource] | None" = None
) -> ClientSecurity:
    """Makes the security by the settings; `shared_login` gives the login of several clients with
    the same settings.

    Raises:
        ConfigError: they do not go together, or a store cannot be used.
    """
    protocol = settings.text("security.protocol").upper()
    if protocol == "PLAINTEXT":
        return NO_SECURITY
    tls = _tls(settings) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return ClientSecurity(tls)
    return ClientSecurity(tls, client_login(settings) if shared_login is None else shared_login())


def _tls(settings: ClientSettings) -> ssl.SSLContext:
    from odradek.tls import KeyStore, TlsError, TlsSettings, TrustStore, client_context

    def of(name: str) -> str | None:
        return settings.text(name) or None

    key_store = KeyStore(
        of("ssl.keystore.location"),
        of("ssl.keystore.password"),
        of("ssl.key.password"),
        of("ssl.keystore.key"),
        of("ssl.keystore.certificate.chain"),
        settings.text("ssl.keystore.type"),
    )
    trust_store = TrustStore(
        of("ssl.truststore.location"),
        of("ssl.truststore.password"),
        of("ssl.truststore.certificates"),
        settings.text("ssl.truststore.type"),
    )
    try:
        return client_context(
            TlsSettings(
                key_store,
                trust_store,
                settings.items("ssl.enabled.protocols"),
                settings.items("ssl.cipher.suites"),
                checks_host_name=bool(of("ssl.endpoint.identification.algorithm")),
            )
        )
    except TlsError as error:
        raise ConfigError("security.protocol", None, str(error), f"TLS: {error}") from error


def client_login(settings: ClientSettings) -> "LoginSource":
    """Makes the login by the settings; raises as `client_security`."""
    from odradek.client.core.network.login import Login
    from odradek.security.sasl.mechanism import MECHANISMS, OAUTHBEARER

    mechanism = settings.text("sasl.mechanism")
    if mechanism not in MECHANISMS:
        raise ConfigError("sasl.mechanism", mechanism, f"it must be one of {', '.join(MECHANISMS)}")
    options = _jaas_options(settings)
    if mechanism == OAUTHBEARER:
        return _token_login(settings, options)
    name = options.get("username") or settings.text("sasl.username")
    password = options.get("password") or settings.text("sasl.password")
    if not name or not password:
        reason = "neither it nor sasl.username and sasl.password say who logs in"
        raise ConfigError("sasl.jaas.config", None, reason, f"sasl.jaas.config: {reason}")
    is_token = options.get("tokenauth", "").lower() == "true"
    return Login(mechanism, name, password, None, is_token=is_token)


def _jaas_options(settings: ClientSettings) -> Mapping[str, str]:
    from odradek.security.jaas import parse_jaas

    text = settings.text("sasl.jaas.config")
    if not text:
        return {}
    try:
        return parse_jaas(text).options
    except ValueError as error:
        text = f"sasl.jaas.config: {error}"
        raise ConfigError("sasl.jaas.config", None, str(error), text) from error


def _token_login(settings: ClientSettings, options: Mapping[str, str]) -> "LoginSource":
    from odradek.client.oauth.settings import ENDPOINT, token_login
    from odradek.security.jaas import UNSIGNED_SUBJECT

    login = token_login(
        settings.value,
        options,
        settings.function(TOKEN_PROVIDER),
        lambda: _tls(settings),
        # A token's times are wall-clock times.
        SystemClock().wall_ms,
    )
    if login is None:
        reason = (
            f"neither {ENDPOINT} nor {TOKEN_PROVIDER} nor {UNSIGNED_SUBJECT} in sasl.jaas.config "
            "says which token"
        )
        raise ConfigError(ENDPOINT, None, reason, reason)
    return login


def tls_failure(address: object, error: ssl.SSLError) -> AuthenticationError:
    """The error for a failed TLS handshake with a broker."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationError(f"{address}: TLS: {error.reason or error}")
    help_text = _HELP.get(error.verify_code)
    text = error.verify_message.rstrip(".")
    ending = "" if help_text is None else f": {help_text}"
    return AuthenticationError(f"{address}: TLS: the broker's certificate: {text}{ending}")
