"""Settings that may change while a broker runs: Kafka's rules.

A name that is not known is kept like any other, since a plug-in may know it. A known one must be
dynamic, and reach as far as it is set: some only hold for one broker, those of certificates only
for one listener. Thread counts change by a factor of two at most, so that a typing error does not
stop a broker. Values are checked here one by one; whether they go together is `BrokerConfig`'s.
"""

from collections.abc import Mapping
from typing import Any, Final

from odradek.config.definition import ConfigError, DynamicMode, Setting
from odradek.config.layers import base_name

_CERTIFICATES: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_FOR_LISTENERS_OF_ALL_BROKERS: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)
_REPORTER: Final = "org.apache.kafka.common.metrics.JmxReporter"
_THREAD_COUNTS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)


def check_names(
    table: Mapping[str, Setting], settings: Mapping[str, str], *, per_broker: bool
) -> None:
    """Refuses names that may not be set in this scope, and values that are none of their type.

    Raises:
        ConfigError: which, and why.
    """
    for name, text in settings.items():
        base = base_name(name)
        if base is not None and not per_broker and base not in _FOR_LISTENERS_OF_ALL_BROKERS:
            raise ConfigError(name, text, "it can only be set for one broker, not for all")
        if name in _CERTIFICATES:
            raise ConfigError(name, text, "it can only be changed for one listener, by its prefix")
        row = table.get(base or name)
        if row is not None:
            _check_row(row, name, text, per_broker=per_broker)


def _check_row(row: Setting, name: str, text: str, *, per_broker: bool) -> None:
    if name == row.name:
        if row.dynamic is DynamicMode.READ_ONLY:
            raise ConfigError(name, text, "it cannot be changed while the broker runs")
        if row.dynamic is DynamicMode.PER_BROKER and not per_broker:
            raise ConfigError(name, text, "it can only be set for one broker, not for all")
    row.parse(text)


def usable(
    table: Mapping[str, Setting], settings: Mapping[str, str], *, per_broker: bool
) -> tuple[dict[str, str], list[ConfigError]]:
    """Keeps the stored settings that may be set in this scope; reports the others."""
    kept: dict[str, str] = {}
    problems: list[ConfigError] = []
    for name, text in settings.items():
        try:
            check_names(table, {name: text}, per_broker=per_broker)
        except ConfigError as error:
            problems.append(error)
        else:
            kept[name] = text
    return kept, problems


def check_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Refuses values that the running broker could not apply.

    Raises:
        ConfigError: which, and why.
    """
    for name in _THREAD_COUNTS:
        if after[name] != before[name]:
            _check_threads(name, before[name], after[name])
    for reporter in after["metric.reporters"]:
        if reporter != _REPORTER:
            raise ConfigError("metric.reporters", reporter, "there is no such class in this broker")


def _check_threads(name: str, before: int, after: int) -> None:
    if after < 1:
        raise ConfigError(name, str(after), "it must be at least 1")
    if after < before // 2:
        raise ConfigError(name, str(after), f"it must be at least half of what it is, {before}")
    if after > before * 2:
        raise ConfigError(name, str(after), f"it must be at most twice of what it is, {before}")
