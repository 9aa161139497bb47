"""Builds what protects the listeners of a broker."""

import logging
from collections.abc import Callable, Collection
from functools import partial
from ssl import SSLContext
from typing import Final

from odradek.background import Background
from odradek.client.core.network.handshake import LoginSource
from odradek.client.security import ClientSecurity
from odradek.clock import Clock
from odradek.config import BrokerConfig, ConfigError
from odradek.log_limit import LimitedLog
from odradek.model import EndPoint
from odradek.network.authentication import LoginGates
from odradek.network.listener import ListenerError
from odradek.network.secured import SecuredListener
from odradek.network.tls.protocol import TlsListener
from odradek.security.sasl.signed_tokens import PublicKeys
from odradek.server.security.broker_login import broker_login
from odradek.server.security.jwks import JsonWebKeys
from odradek.server.security.logins import Logins, ScramCredentials
from odradek.server.security.tls_terms import ListenerTls, tls_settings
from odradek.timer import PeriodicTask, Timer
from odradek.tls import TlsError, client_context

logger = logging.getLogger(__name__)

FILES_INTERVAL_MS: Final = 60_000
FAILURE_DELAY: Final = "connection.failed.authentication.delay.ms"


class ListenersSecurity:
    """The security of all listeners that have any, by their names in `by_listener`."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        background: Background,
        credentials: ScramCredentials,
        random_bytes: Callable[[int], bytes],
        between_brokers: Collection[str],
    ) -> None:
        """`between_brokers` are the listeners over which brokers speak with each other.

        Raises:
            ListenerError: a listener's settings are no good.
        """
        self._config = config
        self._clock = clock
        self._timer = timer
        self._background = background
        self._credentials = credentials
        self._random_bytes = random_bytes
        self._ends: list[Callable[[], object]] = []
        self._tls: dict[str, ListenerTls] = {}
        self._between_brokers: Final = between_brokers
        self._logins: dict[str, LoginSource] = {}
        self.by_listener: Final = {
            endpoint.listener_name: self._of_listener(endpoint)
            for endpoint in config.listeners
            if endpoint.security_protocol != "PLAINTEXT"
        }
        config.subscribe(self._on_config)
        config.check_by(self._check)
        if self._tls:
            rounds = PeriodicTask(timer, lambda: FILES_INTERVAL_MS, self._on_files)
            self._ends.append(rounds.cancel)

    def to_brokers(self, listener_name: str) -> ClientSecurity:
        """The security of this broker's connections to others, over a listener of that name."""
        tls = self._tls.get(listener_name)
        context = None if tls is None else tls.client_context()
        return ClientSecurity(context, self._logins.get(listener_name))

    def close(self) -> None:
        """Ends periodic work."""
        for end in self._ends:
            end()

    def _of_listener(self, endpoint: EndPoint) -> SecuredListener:
        name = endpoint.listener_name
        try:
            tls = self._of_tls(endpoint) if endpoint.security_protocol.endswith("SSL") else None
            is_login = endpoint.security_protocol.startswith("SASL")
            gates = self._gates(name) if is_login else None
            if is_login and name in self._between_brokers:
                self._logins[name] = broker_login(
                    self._config, name, self._clock, partial(self._to_issuer, endpoint)
                )
            return SecuredListener(tls, gates)
        except (TlsError, ConfigError) as error:
            raise ListenerError(f"Listener {name}: {error}") from error

    def _to_issuer(self, endpoint: EndPoint) -> SSLContext:
        """The TLS of this broker as a client of its token issuer."""
        return client_context(tls_settings(self._config, endpoint))

    def _of_tls(self, endpoint: EndPoint) -> TlsListener:
        name = endpoint.listener_name
        terms = self._tls[name] = ListenerTls(
            self._config, endpoint, is_between_brokers=name in self._between_brokers
        )
        return TlsListener(terms, self._new_log())

    def _gates(self, listener_name: str) -> LoginGates:
        logins = Logins(
            *(self._config, listener_name, self._clock),
            *(self._credentials, self._open_keys, self._random_bytes),
        )
        # On a clock that a test moves the refused client would wait for the test.
        delay_ms = self._config[FAILURE_DELAY] if self._clock.keeps_pace else 0
        max_bytes = self._config["sasl.server.max.receive.size"]
        return LoginGates(logins.rules, self._new_log(), max_bytes, delay_ms)

    def _new_log(self) -> LimitedLog:
        """A log with its own limit: whatever connects to the port again and again, such as a check
        of its health, hides no refused login."""
        return LimitedLog(logger, self._clock)

    def _open_keys(self, url: str) -> PublicKeys:
        keys = JsonWebKeys(self._config, url, self._timer, self._background)
        self._ends.append(keys.close)
        return keys

    # --- new certificates ----------------------------------------------------------------------

    def _on_config(self, names: frozenset[str]) -> None:
        if any("ssl." in name for name in names):
            self._renew(by_files=False)

    def _check(self, config: BrokerConfig, names: frozenset[str]) -> None:
        """Refuses, with the reason, a change that `_renew` could not take."""
        if not any("ssl." in name for name in names):
            return
        for name, tls in self._tls.items():
            try:
                tls.check(config)
            except TlsError as error:
                # Without the value: keys are settings, too.
                setting, reason = f"listener.name.{name.lower()}.ssl.*", str(error)
                text = f"Listener {name} cannot use these settings: {reason}"
                raise ConfigError(setting, None, reason, text) from error

    def _on_files(self) -> None:
        self._renew(by_files=True)

    def _renew(self, *, by_files: bool) -> None:
        for name, tls in self._tls.items():
            try:
                tls.renew(by_files=by_files)
            except TlsError as error:
                logger.error("Listener %s keeps its certificates: %s", name, error)
