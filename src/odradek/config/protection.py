"""Refuses settings that promise protection which is not served.

If they had no effect, their user would believe the broker protected, or a suite that it tests
access rules. So the command and the brokers inside a program refuse them alike.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.config.broker import BROKER_SETTINGS, BrokerConfig
from odradek.config.definition import ConfigError
from odradek.config.layers import base_name, place_of
from odradek.model import EndPoint

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
_AUTHORIZER: Final = "authorizer.class.name"
_TOKEN_KEY: Final = "delegation.token.secret.key"
_JWKS: Final = "sasl.oauthbearer.jwks.endpoint.url"
_NO_TOKENS: Final = "there are no delegation tokens"
_UNSIGNED: Final = "tokens are not signed, and this is not looked at"
_NEEDS: Final[Mapping[str, tuple[str, str]]] = {
    "super.users": (_AUTHORIZER, "everybody is one"),
    "allow.everyone.if.no.acl.found": (_AUTHORIZER, "everybody may do everything"),
    "delegation.token.max.lifetime.ms": (_TOKEN_KEY, _NO_TOKENS),
    "delegation.token.expiry.time.ms": (_TOKEN_KEY, _NO_TOKENS),
    "delegation.token.expiry.check.interval.ms": (_TOKEN_KEY, _NO_TOKENS),
    "sasl.oauthbearer.expected.audience": (_JWKS, _UNSIGNED),
    "sasl.oauthbearer.expected.issuer": (_JWKS, _UNSIGNED),
    "sasl.oauthbearer.clock.skew.seconds": (_JWKS, _UNSIGNED),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": (_JWKS, _UNSIGNED),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": (_JWKS, _UNSIGNED),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": (_JWKS, _UNSIGNED),
}
"""Settings, the one without which each has no effect, and the consequence."""
_OF_LOGINS: Final = (
    "sasl.",
    "connections.max.reauth.ms",
    "connection.failed.authentication.delay.ms",
)
_OF_TOKENS: Final = (
    "sasl.oauthbearer.",
    *(f"sasl.login.{each}" for each in ("connect.", "read.", "refresh.", "retry.")),
)
_CLIENT_AUTH: Final = "ssl.client.auth"
_ZOOKEEPER: Final = "zookeeper.connect"
_ZOOKEEPER_TLS: Final = "zookeeper.ssl.client.enable"
_ZOOKEEPER_CERTIFICATE: Final = "zookeeper.ssl.keystore.location"
_ZOOKEEPER_LOGIN: Final = "zookeeper.sasl.jaas.config"
_SET_ACL: Final = "zookeeper.set.acl"
_NOT_REVOKED: Final = "revoked certificates of ZooKeeper would be taken"
_ZOOKEEPER_UNSERVED: Final[Mapping[str, str]] = {
    "zookeeper.ssl.crl.enable": _NOT_REVOKED,
    "zookeeper.ssl.ocsp.enable": _NOT_REVOKED,
}


def check_protection(
    config: BrokerConfig, given: Mapping[str, str], *, is_cluster: bool = False
) -> None:
    """Refuses settings under which data would be served unprotected. A broker that meets others in
    ZooKeeper `is_cluster`, too.

    Raises:
        ConfigError: with what to do about it.
    """
    for name in sorted(given):
        _check_class(name, given[name])
    _check_needs(given)
    if is_cluster or config[_ZOOKEEPER]:
        _check_between_brokers(config)
    if config[_ZOOKEEPER]:
        _check_zookeeper(config, given)
    _check_listeners(config, given)


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
        f"{name}: {value} is a Java class, which cannot be loaded here, and what it protects "
        "would be open: remove the setting if Kafka's own rules are meant",
    )


def _check_needs(given: Mapping[str, str]) -> None:
    """Refuses settings that do nothing without another one."""
    found = {base_name(name) or name for name in given if _is_set(name, given[name])}
    for name in sorted(given):
        needed, instead = _needed(base_name(name) or name)
        if needed is not None and needed not in found and _is_set(name, given[name]):
            reason = f"without {needed} {instead}"
            raise ConfigError(name, given[name], reason, f"{name}: {reason}")


def _needed(setting: str) -> tuple[str | None, str]:
    if setting.startswith("zookeeper.s"):  # .ssl.*, .sasl.* and .set.acl
        return _ZOOKEEPER, "there is no ZooKeeper to protect"
    return _NEEDS.get(setting, (None, ""))


def _check_listeners(config: BrokerConfig, given: Mapping[str, str]) -> None:
    """Refuses settings of TLS or SASL that no listener has."""
    listeners = [*config.listeners, *config.controller_listeners]
    between: str = config["security.inter.broker.protocol"]
    if between != "PLAINTEXT" and between not in _protocols(listeners):
        raise _idle("security.inter.broker.protocol", between, _no_listener(between))
    for name in sorted(given):
        if _is_set(name, given[name]):
            lack = _lack_of(name, config, listeners)
            if lack is not None:
                raise _idle(name, given[name], lack)


def _lack_of(name: str, config: BrokerConfig, listeners: Sequence[EndPoint]) -> str | None:
    """The reason why a setting of TLS or SASL protects nothing; None when it does, and of all
    other settings."""
    setting = base_name(name) or name
    if not setting.startswith(("ssl.", *_OF_LOGINS)):
        return None
    listener, mechanism = place_of(name)
    if listener is not None:
        listeners = [each for each in listeners if each.listener_name.lower() == listener]
        if not listeners:
            return f"no listener is called {listener.upper()}"
    if setting.startswith("ssl."):
        return _lack_of_tls(name, _protocols(listeners))
    return _lack_of_logins(setting, mechanism, config, listeners)


def _lack_of_tls(name: str, protocols: set[str]) -> str | None:
    if name == _CLIENT_AUTH and "SASL_SSL" in protocols and "SSL" not in protocols:
        return f"no listener has SSL, and SASL_SSL looks at listener.name.NAME.{_CLIENT_AUTH} alone"
    has_tls = any(protocol.endswith("SSL") for protocol in protocols)
    return None if has_tls else _no_listener("SSL or SASL_SSL")


def _lack_of_logins(
    setting: str, mechanism: str | None, config: BrokerConfig, listeners: Sequence[EndPoint]
) -> str | None:
    enabled = [
        config.of_listener(each.listener_name, "sasl.enabled.mechanisms")
        for each in listeners
        if each.security_protocol.startswith("SASL")
    ]
    if not enabled:
        return _no_listener("SASL_PLAINTEXT or SASL_SSL")
    wanted = mechanism or ("OAUTHBEARER" if setting.startswith(_OF_TOKENS) else None)
    if wanted is None or any(wanted in mechanisms for mechanisms in enabled):
        return None
    return f"no listener has {wanted} among its sasl.enabled.mechanisms"


def _protocols(listeners: Sequence[EndPoint]) -> set[str]:
    return {endpoint.security_protocol for endpoint in listeners}


def _no_listener(wanted: str) -> str:
    return f"no listener has {wanted}"


def _idle(name: str, text: str, lack: str) -> ConfigError:
    return ConfigError(
        name,
        text,
        lack,
        f"{name} protects nothing, since {lack}: name one in listeners, or remove the setting",
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
            f"Brokers would connect over a listener {wanted}, which does not exist: "
            f"name one of {', '.join(names)} in {setting}, or its protocol in "
            "security.inter.broker.protocol",
        )


def _check_zookeeper(config: BrokerConfig, given: Mapping[str, str]) -> None:
    """Refuses settings that would leave what the brokers keep in ZooKeeper open."""
    for name, what in _ZOOKEEPER_UNSERVED.items():
        if config[name]:
            raise ConfigError(
                name, "true", "not supported", f"{name}: {what}; remove it if that may be so"
            )
    if config[_SET_ACL] and not _is_known_to_zookeeper(config):
        reason = (
            f"ZooKeeper would not know this broker: name a user in {_ZOOKEEPER_LOGIN}, or a "
            f"certificate in {_ZOOKEEPER_CERTIFICATE} with {_ZOOKEEPER_TLS}=true"
        )
        raise ConfigError(_SET_ACL, "true", reason, f"{_SET_ACL}: {reason}")
    if config[_ZOOKEEPER_TLS]:
        return
    for name in sorted(given):
        if name.startswith("zookeeper.ssl.") and _is_set(name, given[name]):
            reason = f"it protects nothing without {_ZOOKEEPER_TLS}=true"
            raise ConfigError(name, given[name], reason, f"{name}: {reason}")


def _is_known_to_zookeeper(config: BrokerConfig) -> bool:
    """Whether the broker logs in, by a user or a certificate, so that ACLs can name it."""
    has_certificate = config[_ZOOKEEPER_TLS] and config[_ZOOKEEPER_CERTIFICATE]
    return bool(config[_ZOOKEEPER_LOGIN] or has_certificate)


def _is_set(name: str, text: str) -> bool:
    """Whether a setting has another value than the one it has anyway."""
    row = BROKER_SETTINGS.get(base_name(name) or name)
    return row is not None and text.strip() != "" and row.parse(text) != row.default
