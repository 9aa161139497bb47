"""The settings of the way to ZooKeeper: its address, TLS, the login and the protection of nodes."""

from typing import Final

from odradek.config import BrokerConfig, ConfigError
from odradek.metadata.zookeeper import ZooKeeperLogin, ZooKeeperSettings
from odradek.security.jaas import DIGEST_MODULE, parse_jaas
from odradek.tls import KeyStore, TlsSettings, TrustStore

_JAAS: Final = "zookeeper.sasl.jaas.config"


def zookeeper_settings(config: BrokerConfig) -> ZooKeeperSettings:
    """How to reach the ensemble; by default the first connection may take a session time-out.

    Raises:
        ConfigError: the login is malformed.
    """
    session_timeout_ms: int = config["zookeeper.session.timeout.ms"]
    connection_timeout_ms: int | None = config["zookeeper.connection.timeout.ms"]
    return ZooKeeperSettings(
        config["zookeeper.connect"],
        session_timeout_ms,
        session_timeout_ms if connection_timeout_ms is None else connection_timeout_ms,
        config["zookeeper.max.in.flight.requests"],
        _tls(config) if config["zookeeper.ssl.client.enable"] else None,
        _login(config[_JAAS]),
        protects_nodes=config["zookeeper.set.acl"],
    )


def _login(text: str | None) -> ZooKeeperLogin | None:
    if text is None:
        return None
    try:
        line = parse_jaas(text)
    except ValueError as error:
        raise _malformed(str(error)) from error
    if line.module != DIGEST_MODULE:
        raise _malformed(f"only {DIGEST_MODULE} is served, not {line.module}")
    missing = {"username", "password"} - line.options.keys()
    if missing:
        raise _malformed(f"{' and '.join(sorted(missing, reverse=True))} must be given")
    login = ZooKeeperLogin(line.options["username"], line.options["password"])
    if not all(each.isascii() for each in login):
        # ZooKeeper reads what DIGEST-MD5 sends as ISO-8859-1, its own file by the JVM's default.
        raise _malformed("username and password must be ASCII")
    return login


def _malformed(reason: str) -> ConfigError:
    """The error about the line, which is not shown: it has a password."""
    return ConfigError(_JAAS, None, reason, f"{_JAAS}: {reason}")


def _tls(config: BrokerConfig) -> TlsSettings:
    password: str | None = config["zookeeper.ssl.keystore.password"]
    lowest: str = config["zookeeper.ssl.protocol"]
    # Kafka offers only that one, which ZooKeeper 3.9 refuses by default.
    versions = (lowest, "TLSv1.3") if lowest == "TLSv1.2" else (lowest,)
    return TlsSettings(
        KeyStore(
            config["zookeeper.ssl.keystore.location"],
            password,
            password,
            type=config["zookeeper.ssl.keystore.type"] or "JKS",
        ),
        TrustStore(
            config["zookeeper.ssl.truststore.location"],
            config["zookeeper.ssl.truststore.password"],
            type=config["zookeeper.ssl.truststore.type"] or "JKS",
        ),
        config["zookeeper.ssl.enabled.protocols"] or versions,
        config["zookeeper.ssl.cipher.suites"],
        checks_host_name=bool(config["zookeeper.ssl.endpoint.identification.algorithm"]),
    )
