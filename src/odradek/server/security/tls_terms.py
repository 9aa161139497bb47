"""The TLS of one listener by its settings, renewed when they, or the files they name, change."""

import logging
import os
import ssl
from contextlib import suppress
from typing import Final, NamedTuple

from odradek.config import BrokerConfig
from odradek.model import ANONYMOUS, EndPoint, KafkaPrincipal
from odradek.network.tls.terms import PeerRefused
from odradek.security.distinguished_name import alternative_names_of, subject_of
from odradek.security.mapping_rules import mapped_name, parse_mapping_rules
from odradek.security.principal import user
from odradek.tls import (
    KeyStore,
    TlsError,
    TlsSettings,
    TrustStore,
    client_context,
    read_identity,
    server_context,
)

logger = logging.getLogger(__name__)


class ListenerTls:
    """See `tls.terms.TlsTerms`. A change that is no good leaves everything as it was."""

    def __init__(
        self, config: BrokerConfig, endpoint: EndPoint, *, is_between_brokers: bool
    ) -> None:
        """With the side of a client, too, where the listener is one `between_brokers`.

        Raises:
            TlsError: a store cannot be used, or a rule is malformed.
        """
        self._config = config
        self._endpoint: Final = endpoint
        self._listener_name: Final = endpoint.listener_name
        self._is_between_brokers: Final = is_between_brokers
        try:
            self._rules = parse_mapping_rules(self._of("ssl.principal.mapping.rules"))
        except ValueError as error:
            raise TlsError(f"ssl.principal.mapping.rules: {error}") from error
        self._seen = self._files()
        self._context, self._client_context, self._names = self._made(config)

    def context(self) -> ssl.SSLContext:
        """The newest context."""
        return self._context

    def client_context(self) -> ssl.SSLContext:
        """The newest context of this broker as a client of the others."""
        assert self._client_context is not None, "asked for between brokers alone"
        return self._client_context

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """The principal of a certificate.

        Raises:
            PeerRefused: no rule lets them in, or it cannot be read.
        """
        if certificate is None:
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
        except ValueError as error:
            raise PeerRefused(f"the client's certificate cannot be read: {error}") from error
        name = mapped_name(self._rules, subject)
        if name is None:
            raise PeerRefused(f"no rule of ssl.principal.mapping.rules matches {subject}")
        return user(name)

    def renew(self, *, by_files: bool) -> None:
        """Takes new settings, or new contents of the files they name, for the connections to come.

        Raises:
            TlsError: they are no good; all stays as it was.
        """
        seen = self._files()
        if by_files and seen == self._seen:
            return
        self._seen = seen  # a fault is logged once
        context, client, names = self._made(self._config)
        self._check_names(names, self._config)
        self._context, self._client_context, self._names = context, client, names
        logger.info("Listener %s has new certificates", self._listener_name)

    def check(self, config: BrokerConfig) -> None:
        """Looks at settings that are not in force yet.

        Raises:
            TlsError: `renew` would refuse them.
        """
        _, _, names = self._made(config)
        self._check_names(names, config)

    def _made(self, config: BrokerConfig) -> tuple[ssl.SSLContext, ssl.SSLContext | None, "_Names"]:
        settings = tls_settings(config, self._endpoint)
        context = server_context(settings)
        client = client_context(settings) if self._is_between_brokers else None
        return context, client, _names_of(settings.key_store)

    def _check_names(self, new: "_Names", config: BrokerConfig) -> None:
        """Refuses a certificate whose names clients or other brokers would not accept."""
        old, name = self._names, self._listener_name
        if new.subject != old.subject and not config.of_listener(name, "ssl.allow.dn.changes"):
            raise TlsError(
                f"the new certificate is of {new.subject}, the old one of {old.subject} "
                "(ssl.allow.dn.changes accepts it)"
            )
        may_lack = config.of_listener(name, "ssl.allow.san.changes")
        if not new.alternative >= old.alternative and not may_lack:
            raise TlsError(
                "the new certificate lacks alternative names of the old one "
                "(ssl.allow.san.changes lets it in)"
            )

    def _files(self) -> list[tuple[str, int, int]]:
        """The signature of a file, to notice changes."""
        found = []
        for name in ("ssl.keystore.location", "ssl.truststore.location"):
            path = self._of(name)
            with suppress(OSError):  # it is just being replaced, or missing
                status = os.stat(path)
                found.append((path, status.st_mtime_ns, status.st_size))
        return found

    def _of(self, name: str) -> str:
        return str(value) if (value := self._config.of_listener(self._listener_name, name)) else ""


class _Names(NamedTuple):
    """Whose certificate it is."""

    subject: str
    alternative: frozenset[bytes]


def _names_of(key_store: KeyStore) -> _Names:
    try:
        certificate = read_identity(key_store).certificate
        return _Names(subject_of(certificate), alternative_names_of(certificate))
    except ValueError as error:
        raise TlsError(f"the key store: {error}") from error


def tls_settings(config: BrokerConfig, endpoint: EndPoint) -> TlsSettings:
    """Reads the TLS settings of a listener."""
    listener_name = endpoint.listener_name

    def of(name: str) -> str | None:
        value: str | None = config.of_listener(listener_name, name)
        return value

    client_auth = of("ssl.client.auth") or "none"
    if endpoint.security_protocol == "SASL_SSL":
        # As in Kafka SASL identifies the client, unless this very listener also asks for a
        # certificate.
        client_auth = config.for_listener(listener_name, "ssl.client.auth") or "none"
    return TlsSettings(
        KeyStore(
            of("ssl.keystore.location"),
            of("ssl.keystore.password"),
            of("ssl.key.password"),
            of("ssl.keystore.key"),
            of("ssl.keystore.certificate.chain"),
            of("ssl.keystore.type") or "JKS",
        ),
        TrustStore(
            of("ssl.truststore.location"),
            of("ssl.truststore.password"),
            of("ssl.truststore.certificates"),
            of("ssl.truststore.type") or "JKS",
        ),
        config.of_listener(listener_name, "ssl.enabled.protocols"),
        config.of_listener(listener_name, "ssl.cipher.suites"),
        client_auth,
        checks_host_name=bool(of("ssl.endpoint.identification.algorithm")),
    )
