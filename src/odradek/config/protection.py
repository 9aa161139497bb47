"""Settings that promise protection which is not served: refused, not ignored.

Where they have no effect, whoever set them believes the broker to be protected, or a suite that it
tests access rules. So the command and the brokers inside a program refuse them alike.
"""

from collections.abc import Mapping
from typing import Final

from odradek.config.broker import BROKER_SETTINGS, BrokerConfig
from odradek.config.definition import ConfigError
from odradek.config.layers import base_name

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
# Classes that a broker loads; these are what is served anyway.
_OWN_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "principal.builder.class": (),
    "ssl.engine.factory.class": ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",),
    "sasl.server.callback.handler.class": (
        f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        f"{_OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
        f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
        "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler",
        "org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",
    ),
    "sasl.oauthbearer.jwt.validator.class": (f"{_OAUTH}.BrokerJwtValidator",),
}
_ZOOKEEPER_TLS: Final = "zookeeper.ssl.client.enable"
_NOT_REVOKED: Final = "revoked certificates of ZooKeeper would be taken"
_ZOOKEEPER_UNSERVED: Final[Mapping[str, str]] = {
    "zookeeper.set.acl": "the nodes of this broker would be open to all that reach ZooKeeper",
    "zookeeper.ssl.crl.enable": _NOT_REVOKED,
    "zookeeper.ssl.ocsp.enable": _NOT_REVOKED,
}


def check_protection(
    config: BrokerConfig, given: Mapping[str, str], *, is_cluster: bool = False
) -> None:
    """Refuses to serve openly what was to be protected. A broker that meets others in ZooKeeper
    `is_cluster`, too.

    Raises:
        ConfigError: with what to do about it.
    """
    for name in sorted(given):
        _check_class(name, given[name])
    if is_cluster or config["zookeeper.connect"]:
        _check_between_brokers(config)
    if config["zookeeper.connect"]:
        _check_zookeeper(config)
    _check_listeners(config, given)
    if config["super.users"] and not config["authorizer.class.name"]:
        raise ConfigError(
            "super.users", config["super.users"], "without authorizer.class.name everybody is one"
        )


def _check_class(name: str, text: str) -> None:
    setting = base_name(name) or name
    row = BROKER_SETTINGS.get(setting)
    own = _OWN_CLASSES.get(setting)
    value = text.strip()
    if own is None or row is None or value in ("", row.default, *own):
        return
    raise ConfigError(
        name,
        text,
        "not supported",
        f"{name}: {value} is a class of Java's, which cannot be loaded here, and what it protects "
        "would be open: remove the setting if Kafka's own rules are meant",
    )


def _check_listeners(config: BrokerConfig, given: Mapping[str, str]) -> None:
    """Refuses settings of TLS or SASL that no listener has."""
    listeners = [*config.listeners, *config.controller_listeners]
    protocols = {endpoint.security_protocol for endpoint in listeners}
    between: str = config["security.inter.broker.protocol"]
    if between != "PLAINTEXT" and between not in protocols:
        raise _idle("security.inter.broker.protocol", between, between)
    has_tls = any(protocol.endswith("SSL") for protocol in protocols)
    has_sasl = any(protocol.startswith("SASL") for protocol in protocols)
    for name in sorted(given):
        setting = base_name(name) or name
        is_idle = (setting.startswith("ssl.") and not has_tls) or (
            setting.startswith("sasl.") and not has_sasl
        )
        if is_idle and _is_set(setting, given[name]):
            wanted = "SSL or SASL_SSL" if setting.startswith("ssl.") else "SASL_SSL"
            raise _idle(name, given[name], wanted)


def _idle(name: str, text: str, wanted: str) -> ConfigError:
    return ConfigError(
        name,
        text,
        "no listener has it",
        f"{name} protects nothing, since no listener has {wanted}: name one in listeners, or "
        "remove the setting",
    )


def _check_between_brokers(config: BrokerConfig) -> None:
    """Brokers of a cluster need a listener on which they reach each other."""
    names = [endpoint.listener_name for endpoint in config.listeners]
    wanted = config.inter_broker_listener_name
    if wanted not in names:
        setting = "inter.broker.listener.name"
        reason = f"it must be one of the listeners, which are {', '.join(names)}"
        raise ConfigError(
            setting,
            wanted,
            reason,
            f"Brokers would speak with each other over a listener {wanted}, which is not there: "
            f"name one of {', '.join(names)} in {setting}, or its protocol in "
            "security.inter.broker.protocol",
        )


def _check_zookeeper(config: BrokerConfig) -> None:
    """Refuses settings that would leave what the brokers keep in ZooKeeper open."""
    for name, what in _ZOOKEEPER_UNSERVED.items():
        if config[name]:
            raise ConfigError(
                name, "true", "not supported", f"{name}: {what}; remove it if that may be so"
            )
    if config[_ZOOKEEPER_TLS]:
        return
    for name in ("zookeeper.ssl.keystore.location", "zookeeper.ssl.truststore.location"):
        if config[name]:
            reason = f"it protects nothing without {_ZOOKEEPER_TLS}=true"
            raise ConfigError(name, config[name], reason, f"{name}: {reason}")


def _is_set(setting: str, text: str) -> bool:
    """Whether a setting has another value than the one it has anyway."""
    row = BROKER_SETTINGS.get(setting)
    return row is not None and text.strip() != "" and row.parse(text) != row.default
