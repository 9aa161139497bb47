"""Logins by OAUTHBEARER from Kafka's settings, of clients and of brokers that are one."""

import random
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from odradek.client.core.network.login import Login
from odradek.client.oauth.http import PORTS, Patience
from odradek.client.oauth.issuer import (
    Credentials,
    Issuer,
    Retries,
    file_of,
    shown_url,
    token_in_file,
)
from odradek.client.oauth.login import FUNCTION_LIMIT_MS, KeptTokenLogin, TokenLogin
from odradek.client.oauth.token import RefreshRules
from odradek.config.definition import ConfigError
from odradek.security.jaas import UNSIGNED_SUBJECT
from odradek.security.sasl.claims import encode_unsigned
from odradek.security.sasl.mechanism import OAUTHBEARER
from odradek.tls import KeyStore, TlsError, TlsSettings, TrustStore, client_context

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
_LIFETIME: Final = "unsecuredLoginLifetimeSeconds"
_EXTENSIONS: Final = ("extension_", "unsecuredLoginExtension_")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
# For time-outs that Kafka leaves to the operating system.
_TIMEOUT_MS: Final = 10_000
_FILE_LIMIT_MS: Final = 10_000

Read = Callable[[str], Any]
"""Gives the parsed value of a setting."""


def token_login(
    read: Read,
    options: Mapping[str, str],
    provider: Callable[[], str] | None,
    own_context: Callable[[], ssl.SSLContext],
    wall_ms: Callable[[], float],
) -> Login | TokenLogin | None:
    """The login by the settings and the `options` of a JAAS line: by a user's function, by tokens
    of an issuer or in a file, or by unsigned tokens; None if by none of these. `own_context` is the
    TLS of this client's other connections.

    Raises:
        ConfigError: they do not go together.
    """
    extensions = _extensions(options)
    if provider is not None:
        return TokenLogin(provider, FUNCTION_LIMIT_MS, extensions)
    url: str | None = read(ENDPOINT)
    if url:
        ask, limit_ms = _source(url, read, options, own_context)
        subject_claim = read("sasl.oauthbearer.sub.claim.name")
        rules = _rules(read)
        rng = random.Random()
        return KeptTokenLogin(ask, limit_ms, extensions, rules, subject_claim, wall_ms, rng)
    if UNSIGNED_SUBJECT in options:
        tokens = _unsigned_tokens(options, wall_ms)
        return Login(OAUTHBEARER, "", "", tokens, extensions=extensions)
    return None


def _source(
    url: str, read: Read, options: Mapping[str, str], own_context: Callable[[], ssl.SSLContext]
) -> tuple[Callable[[], str], int]:
    """The source of tokens, and its longest time, in milliseconds."""
    try:
        parts = urlsplit(url)
        is_good = url.isascii() and url.isprintable() and " " not in url and parts.port != 0
    except ValueError:
        is_good = False
    if is_good and parts.scheme == "file" and file_of(url):
        return (lambda: token_in_file(url)), _FILE_LIMIT_MS
    if not is_good or parts.scheme not in PORTS or not parts.hostname:
        reason = "it must be a URL of https:, http: or file:"
        raise ConfigError(ENDPOINT, None, reason, f"{ENDPOINT}: {reason}")
    credentials = Credentials(
        _required(read, options, CLIENT_ID, "clientId"),
        _required(read, options, CLIENT_SECRET, "clientSecret"),
        read(SCOPE) or options.get("scope"),
        read("sasl.oauthbearer.header.urlencode"),
    )
    patience = Patience(
        read("sasl.login.connect.timeout.ms") or _TIMEOUT_MS,
        read("sasl.login.read.timeout.ms") or _TIMEOUT_MS,
    )
    retries = Retries(read("sasl.login.retry.backoff.ms"), read("sasl.login.retry.backoff.max.ms"))
    context = None
    if parts.scheme == "https":
        context = _context(url, options, own_context)
    issuer = Issuer(url, credentials, patience, retries, context)
    # And time for the name of the host, which has no time-out.
    return issuer.ask, issuer.limit_ms + _TIMEOUT_MS


def _required(read: Read, options: Mapping[str, str], name: str, option: str) -> str:
    value: str = read(name) or options.get(option) or ""
    if not value:
        reason = f"{ENDPOINT} needs it, or {option} in sasl.jaas.config"
        raise ConfigError(name, None, reason, f"{name}: {reason}")
    return value


def _rules(read: Read) -> RefreshRules:
    return RefreshRules(
        read("sasl.login.refresh.window.factor"),
        read("sasl.login.refresh.window.jitter"),
        read("sasl.login.refresh.min.period.seconds") * 1000,
        read("sasl.login.refresh.buffer.seconds") * 1000,
    )


def _context(
    url: str, options: Mapping[str, str], own_context: Callable[[], ssl.SSLContext]
) -> ssl.SSLContext:
    """TLS to the issuer: by `ssl.` options of the JAAS line, as in Kafka; else as to brokers, with
    this machine's trusted certificates in addition."""
    try:
        if not any(name.startswith("ssl.") for name in options):
            context = own_context()
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
            # Brokers may have names that their certificates lack; an issuer is sent the secret.
            context.check_hostname = True
            return context
        return client_context(
            TlsSettings(
                KeyStore(
                    options.get("ssl.keystore.location"),
                    options.get("ssl.keystore.password"),
                    options.get("ssl.key.password"),
                    options.get("ssl.keystore.key"),
                    options.get("ssl.keystore.certificate.chain"),
                    options.get("ssl.keystore.type", "JKS"),
                ),
                TrustStore(
                    options.get("ssl.truststore.location"),
                    options.get("ssl.truststore.password"),
                    options.get("ssl.truststore.certificates"),
                    options.get("ssl.truststore.type", "JKS"),
                ),
            )
        )
    except TlsError as error:
        text = f"{ENDPOINT}: TLS to {shown_url(url)}: {error}"
        raise ConfigError(ENDPOINT, None, str(error), text) from error


def _extensions(options: Mapping[str, str]) -> dict[str, str]:
    """The SASL extensions that a JAAS line has for the broker."""
    found: dict[str, str] = {}
    for option, value in options.items():
        prefix = next((each for each in _EXTENSIONS if option.startswith(each)), None)
        if prefix is None:
            continue
        name = option.removeprefix(prefix)
        is_good = _EXTENSION_NAME.fullmatch(name) and _EXTENSION_VALUE.fullmatch(value)
        if not is_good or name == "auth":
            reason = (
                f"{option}: the name of an extension has letters alone, and is not auth; its "
                "value has signs of ASCII"
            )
            text = f"sasl.jaas.config: {reason}"
            raise ConfigError("sasl.jaas.config", None, reason, text)
        found[name] = value
    return found


def _unsigned_tokens(options: Mapping[str, str], wall_ms: Callable[[], float]) -> Callable[[], str]:
    """Makes unsigned tokens by the options of a JAAS line."""
    try:
        lifetime_s = int(options.get(_LIFETIME, "3600"))
    except ValueError as error:
        reason = f"{_LIFETIME} is no number"
        raise ConfigError(
            "sasl.jaas.config", None, reason, f"sasl.jaas.config: {reason}"
        ) from error

    def unsigned() -> str:
        now_s = wall_ms() / 1000
        subject = options[UNSIGNED_SUBJECT]
        return encode_unsigned({"sub": subject, "iat": now_s, "exp": now_s + lifetime_s})

    return unsigned
