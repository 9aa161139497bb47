"""The properties of Kafka's clients that ours does not have, but that files and scripts name.

Properties that change nothing visible are accepted, after their values are checked as Kafka's
clients do. Properties that request an unsupported feature are refused with the reason. Properties
that Kafka's clients do not know either are ignored, as there.
"""

from collections.abc import Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final

from odradek.client.settings import (
    ADMIN_SETTINGS,
    CONSUMER_SETTINGS,
    PRODUCER_SETTINGS,
    SHARE_CONSUMER_SETTINGS,
)
from odradek.config.definition import ConfigError, Setting, table
from odradek.config.tables.rows import rows
from odradek.suggestions import did_you_mean

if TYPE_CHECKING:
    from odradek.client.core.producing.intake import Partitioner

PARTITIONER: Final = "partitioner.class"
_ROUND_ROBIN: Final = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
_NO_CLASSES: Final = "there are no Java classes here"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."

# Why a property is refused, and the values that ask for nothing that is missing.
_Refused = Mapping[str, tuple[str, tuple[str, ...]]]
_OF_ALL: Final[_Refused] = {
    "metric.reporters": (_NO_CLASSES, ("", "org.apache.kafka.common.metrics.JmxReporter")),
    "sasl.client.callback.handler.class": (_NO_CLASSES, ()),
    "sasl.login.class": (_NO_CLASSES, ()),
    "sasl.oauthbearer.jwt.validator.class": (
        _NO_CLASSES,
        (f"{_OAUTH}DefaultJwtValidator", f"{_OAUTH}ClientJwtValidator"),
    ),
    "security.providers": (_NO_CLASSES, ("",)),
    "ssl.engine.factory.class": (
        _NO_CLASSES,
        ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",),
    ),
    "ssl.provider": (_NO_CLASSES, ("", "SunJSSE")),
}
_OF_CONSUMERS: Final[_Refused] = {
    **_OF_ALL,
    "interceptor.classes": (f"{_NO_CLASSES} to give records to", ("",)),
}
_OF_SHARE_CONSUMERS: Final[_Refused] = {
    **_OF_ALL,
    **dict.fromkeys(
        (
            *("auto.offset.reset", "enable.auto.commit", "group.instance.id", "group.protocol"),
            *("group.remote.assignor", "heartbeat.interval.ms", "interceptor.classes"),
            *("isolation.level", "partition.assignment.strategy", "session.timeout.ms"),
        ),
        ("it cannot be set when using a share group", ()),
    ),
}
_OF_PRODUCERS: Final[_Refused] = {
    **_OF_CONSUMERS,
    "partitioner.ignore.keys": ("records with a key go where the key says", ("false",)),
    "transaction.two.phase.commit.enable": ("a tool commits by itself", ("false",)),
}
# Properties with these prefixes are refused for every client.
_ASSERTIONS: Final = "sasl.oauthbearer.assertion."
_OF_JAVA: Final = (
    *("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"),
    *("group.remote.assignor", "sasl.kerberos.kinit.cmd", "sasl.kerberos.service.name"),
    *("sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer"),
    *("sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.scope.claim.name"),
    *("ssl.keymanager.algorithm", "ssl.secure.random.implementation"),
    "ssl.trustmanager.algorithm",
)
# What else may begin so is up to the user.
_FREE: Final = ("config.providers", "metrics.context.")

# As what their values are read; most of these change nothing.
_CHECKED: Final = table(rows("java_client"))
_CHECKED_BY_PRODUCERS: Final = table([*rows("java_client"), *rows("java_producer")])
_CHECKED_BY_CONSUMERS: Final = table([*rows("java_client"), *rows("java_consumer")])
_CHECKED_BY_SHARE_CONSUMERS: Final = {**CONSUMER_SETTINGS, **_CHECKED}

_PROTOCOL: Final = "group.protocol"
_OF_SHARE_GROUPS: Final = ("share.acknowledgement.mode", "share.acquire.mode")
# Properties of the other group protocols.
_NOT_WITH: Final = {
    "classic": ("group.remote.assignor", *_OF_SHARE_GROUPS),
    "consumer": (
        *("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"),
        *_OF_SHARE_GROUPS,
    ),
}


def check_properties(given: Mapping[str, str], settings: Mapping[str, Setting]) -> None:
    """Checks the `settings` that our client does not have.

    Raises:
        ConfigError: a property requests an unsupported feature, or has an illegal value.
    """
    refused, checked = _OF_ALL, _CHECKED
    if settings is PRODUCER_SETTINGS:
        refused, checked = _OF_PRODUCERS, _CHECKED_BY_PRODUCERS
        partitioner_of(given)
    elif settings is CONSUMER_SETTINGS:
        refused, checked = _OF_CONSUMERS, _CHECKED_BY_CONSUMERS
        _check_protocol(given)
    elif settings is SHARE_CONSUMER_SETTINGS:
        refused, checked = _OF_SHARE_CONSUMERS, _CHECKED_BY_SHARE_CONSUMERS
    for name, value in given.items():
        if name in checked:
            checked[name].parse(value)
        if name not in settings:
            _refuse(name, value, refused)


def refuse_unknown(names: Iterable[str]) -> None:
    """Refuses properties that neither our clients nor Kafka's have: mistyped ones.

    Raises:
        ValueError: there is one; the likely one is suggested.
    """
    known = {*_CHECKED_BY_PRODUCERS, *_CHECKED_BY_CONSUMERS, *_OF_PRODUCERS, *_OF_SHARE_CONSUMERS}
    known |= {PARTITIONER, *ADMIN_SETTINGS, *PRODUCER_SETTINGS, *CONSUMER_SETTINGS}
    known |= {*SHARE_CONSUMER_SETTINGS, *_OF_SHARE_GROUPS, *_OF_JAVA}
    for name in names:
        if name not in known and not name.startswith((_ASSERTIONS, *_FREE)):
            raise ValueError(f"there is no client setting {name}{did_you_mean(name, known)}")


def _check_protocol(given: Mapping[str, str]) -> None:
    protocol = given.get(_PROTOCOL, "classic").strip().lower()
    for name in _NOT_WITH.get(protocol, ()):
        if value := given.get(name):
            reason = f"{name} cannot be set when {_PROTOCOL}={protocol.upper()}"
            raise ConfigError(name, value, reason, reason)


def _refuse(name: str, value: str, refused: _Refused) -> None:
    if name.startswith(_ASSERTIONS):
        reason = "tokens are had by an id and its secret, or from a file"
        raise ConfigError(name, "[hidden]", reason)
    reason, harmless = refused.get(name, ("", (value.strip(),)))
    if value.strip() not in harmless:
        raise ConfigError(name, value, reason)


def partitioner_of(given: Mapping[str, str]) -> "Partitioner | None":
    """The partitioner that `partitioner.class` names; None leaves the choice to the producer.

    Raises:
        ConfigError: there is no such class.
    """
    name = given.get(PARTITIONER)
    if name is None:
        return None
    if name.strip() != _ROUND_ROBIN:
        raise ConfigError(PARTITIONER, name, f"Class {name} could not be found.")
    turns = count()
    # One after another, whatever the key; a tool writes to one topic.
    return lambda _key, _all, available: available[next(turns) % len(available)]
