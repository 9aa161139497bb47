"""The settings by which clients of many libraries log in as one user, each in its own words."""

import ssl
from typing import Any, Final

from odradek.clock import Clock, SystemClock
from odradek.security.jaas import jaas_text
from odradek.security.sasl.claims import encode_unsigned
from odradek.security.sasl.mechanism import OAUTHBEARER
from odradek.server.in_process.protected.authority import Certificate
from odradek.server.in_process.protected.secret import Secret
from odradek.tls import KeyStore, TlsSettings, TrustStore, client_context

TOKEN_LIFETIME_MS: Final = 3_600_000


class Login:
    """One user's way into a broker. Each method gives the settings of one library.

    They are new objects each time, to be added to: `Producer({**login.confluent(), "acks": "1"})`.
    Secrets among them are texts whose `repr` is `[hidden]`.
    """

    def __init__(
        self,
        name: str,
        password: str,
        bootstrap_servers: str,
        protocol: str,
        mechanism: str | None,
        authority: str | None,
        certificate: Certificate | None,
        clock: Clock,
    ) -> None:
        self.name: Final = name
        self._password = Secret(password)
        self._bootstrap_servers = bootstrap_servers
        self._protocol = protocol
        self._mechanism = mechanism
        self._authority = authority
        self._certificate = certificate
        self._clock = clock

    def __repr__(self) -> str:
        return f"<odradek login of {self.name!r} by {self._mechanism or self._protocol}>"

    def token(self, lifetime_ms: int = TOKEN_LIFETIME_MS, **claims: object) -> str:
        """A token of this user, unsigned, that expires so long after now on the broker's clock.
        Claims come on top, or in place of those that are there."""
        now_s = self._clock.wall_ms() / 1000
        own = {"sub": self.name, "iat": now_s, "exp": now_s + lifetime_ms / 1000}
        return Secret(encode_unsigned({**own, **claims}))

    def confluent(self) -> dict[str, Any]:
        """For confluent-kafka, and whatever else is made of librdkafka."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap_servers,
            "security.protocol": self._protocol.lower(),
        }
        if self._authority is not None:
            settings["ssl.ca.pem"] = self._authority
        if self._certificate is not None:
            settings["ssl.certificate.pem"] = self._certificate.certificate
            settings["ssl.key.pem"] = Secret(self._certificate.key)
        if self._mechanism is not None:
            settings["sasl.mechanism"] = self._mechanism
            if self._mechanism == OAUTHBEARER:
                settings["oauth_cb"] = self._confluent_token
            else:
                settings["sasl.username"] = self.name
                settings["sasl.password"] = self._password
        return settings

    def aiokafka(self) -> dict[str, Any]:
        """For aiokafka."""
        settings = self._python()
        if self._mechanism == OAUTHBEARER:
            from aiokafka.abc import AbstractTokenProvider

            login = self

            class Provider(AbstractTokenProvider):  # type: ignore[misc, unused-ignore]
                async def token(self) -> str:
                    return login.token()

            settings["sasl_oauth_token_provider"] = Provider()
        return settings

    def kafka_python(self) -> dict[str, Any]:
        """For kafka-python."""
        settings = self._python()
        if self._mechanism == OAUTHBEARER:
            from kafka.sasl.oauth import AbstractTokenProvider

            login = self

            class Provider(AbstractTokenProvider):  # type: ignore[misc, unused-ignore]
                def token(self) -> str:
                    return login.token()

            settings["sasl_oauth_token_provider"] = Provider()
        return settings

    def client(self) -> dict[str, Any]:
        """For `odradek.client`."""
        settings: dict[str, Any] = {
            name: text for name, text in self.java().items() if not name.endswith(".type")
        }
        if self._mechanism == OAUTHBEARER:
            del settings["sasl.jaas.config"]
            settings["sasl.oauthbearer.token.provider"] = self.token
        return settings

    def java(self) -> dict[str, str]:
        """Properties of a Java client, which `--command-config` takes as well."""
        settings = {
            "bootstrap.servers": self._bootstrap_servers,
            "security.protocol": self._protocol,
        }
        if self._authority is not None:
            settings["ssl.truststore.type"] = "PEM"
            settings["ssl.truststore.certificates"] = self._authority
        if self._certificate is not None:
            settings["ssl.keystore.type"] = "PEM"
            settings["ssl.keystore.key"] = Secret(self._certificate.key)
            settings["ssl.keystore.certificate.chain"] = self._certificate.certificate
        if self._mechanism is not None:
            options = {"username": self.name, "password": self._password}
            if self._mechanism == OAUTHBEARER:
                options = {"unsecuredLoginStringClaim_sub": self.name}
            settings["sasl.mechanism"] = self._mechanism
            settings["sasl.jaas.config"] = Secret(jaas_text(self._mechanism, options))
        return settings

    def spark(self) -> dict[str, str]:
        """Options of Spark's readers and writers: those of the Java client behind `kafka.`."""
        return {f"kafka.{name}": text for name, text in self.java().items()}

    def _python(self) -> dict[str, Any]:
        """The settings that Python clients share."""
        settings: dict[str, Any] = {
            "bootstrap_servers": self._bootstrap_servers,
            "security_protocol": self._protocol,
        }
        if self._authority is not None:
            settings["ssl_context"] = self._context(self._authority)
        if self._mechanism is not None:
            settings["sasl_mechanism"] = self._mechanism
            if self._mechanism != OAUTHBEARER:
                settings["sasl_plain_username"] = self.name
                settings["sasl_plain_password"] = self._password
        return settings

    def _context(self, authority: str) -> ssl.SSLContext:
        own = self._certificate
        key_store = KeyStore()
        if own is not None:
            key_store = KeyStore(key=own.key, certificate_chain=own.certificate)
        return client_context(TlsSettings(key_store, TrustStore(certificates=authority)))

    def _confluent_token(self, _config: str) -> tuple[str, float]:
        # librdkafka takes none that has expired by the machine's date, and does not look inside.
        return self.token(), (SystemClock().wall_ms() + TOKEN_LIFETIME_MS) / 1000
