"""Describes settings: the value in force, all its sources, and what it means.

As in Kafka, a broker's setting that no table knows is shown as sensitive and read-only. Settings
that Kafka does not have are shown only if they are set.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from odradek.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigSource,
    DynamicMode,
    Layered,
    Setting,
    SettingType,
    Value,
)
from odradek.config.group import GROUP_SYNONYMS
from odradek.config.layers import base_name
from odradek.config.topic import usable_topic_settings
from odradek.controller.configs.broker_loggers import logger_entries
from odradek.controller.results import ConfigEntry, ConfigSynonym
from odradek.controller.topics.names import check_topic_name
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ConfigResource, MetadataImage
from odradek.model import ConfigResourceType


class ConfigDescriber:
    """Describes settings as broker `broker_id` sees them."""

    def __init__(self, config: BrokerConfig, broker_id: int) -> None:
        self._config: Final = config
        self._broker_id: Final = broker_id
        self._described: Mapping[str, Value] | None = None
        self._topic_defaults: list[ConfigEntry] = []

    def describe(
        self, image: MetadataImage, resource: ConfigResource, names: Iterable[str] | None = None
    ) -> list[ConfigEntry]:
        """The settings of a resource; only those of `names`, when they are given.

        Raises:
            BrokerError: there is no such resource, it is another broker, or its kind has no
                settings here.
        """
        wanted = None if names is None else set(names)
        match resource.type:
            case ConfigResourceType.TOPIC:
                check_topic_name(resource.name)
                if image.topic(resource.name) is None:
                    # Kafka's broker has no text either, and clients show their own.
                    raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
                return self.topic_entries(image.config(resource), wanted)
            case ConfigResourceType.BROKER if not resource.name:
                return _all_brokers_entries(image.config(resource), wanted)
            case ConfigResourceType.BROKER:
                check_broker(resource, self._broker_id)
                return _broker_entries(self._config, wanted)
            case ConfigResourceType.BROKER_LOGGER:
                check_broker(resource, self._broker_id)
                return logger_entries(wanted)
            case ConfigResourceType.GROUP | ConfigResourceType.CLIENT_METRICS if not resource.name:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "The name must not be empty")
            case ConfigResourceType.GROUP:
                return _group_entries(self._config, image.config(resource), wanted)
            case ConfigResourceType.CLIENT_METRICS:
                return _client_metrics_entries(image.config(resource), wanted)
            case _:
                message = f"Unsupported resource type: {resource.type.name}"
                raise BrokerError(ErrorCode.INVALID_REQUEST, message)

    def topic_entries(
        self, overrides: Mapping[str, str], wanted: set[str] | None = None
    ) -> list[ConfigEntry]:
        """The settings of a topic that sets `overrides` itself.

        The settings that topics take from the broker are described once and kept until the broker's
        settings change, since the response for every created topic has all of them.
        """
        defaults = self._config.topic_defaults()
        if self._described is not defaults:
            self._described = defaults
            self._topic_defaults = [self._inherited(row) for row in _sorted(TOPIC_SETTINGS)]
        return [
            _overridden(entry, overrides[entry.name]) if entry.name in overrides else entry
            for entry in self._topic_defaults
            if (wanted is None or entry.name in wanted)
            and (entry.name in overrides or not TOPIC_SETTINGS[entry.name].is_hidden)
        ]

    def created_entries(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """`topic_entries` for the response to a created topic: there Kafka repeats the requested
        values as they were written, and also counts the coarser settings of the broker (hours for
        milliseconds) as sources."""
        return [
            entry._replace(value=overrides[entry.name])
            if entry.name in overrides
            else entry._replace(source=self._config.topic_source(entry.name))
            for entry in self.topic_entries(overrides)
        ]

    def _inherited(self, row: Setting) -> ConfigEntry:
        """An inherited setting: its source may be in hours; its value is the topic's effective
        one."""
        entry = _entry(row, self._config.topic_layers(row.name), False)
        return entry._replace(value=row.render(self._config.topic_defaults()[row.name]))


def check_broker(resource: ConfigResource, broker_id: int) -> None:
    """Refuses a broker that is not this one: only it can answer for itself.

    Raises:
        BrokerError: INVALID_REQUEST.
    """
    try:
        named = int(resource.name)
    except ValueError:
        message = f"Broker id must be an integer, but it is: {resource.name}"
        raise BrokerError(ErrorCode.INVALID_REQUEST, message) from None
    if named != broker_id:
        message = f"Unexpected broker id, expected {broker_id}, but received {resource.name}"
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)


def _overridden(entry: ConfigEntry, text: str) -> ConfigEntry:
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG
    values, _ = usable_topic_settings({entry.name: text})
    # A value of another version that this one cannot read is shown as it is.
    value = TOPIC_SETTINGS[entry.name].render(values[entry.name]) if values else text
    own = ConfigSynonym(entry.name, value, source)
    return entry._replace(value=value, source=source, synonyms=(own, *entry.synonyms))


def _broker_entries(config: BrokerConfig, wanted: set[str] | None) -> list[ConfigEntry]:
    named = config.set_names()
    rows = {
        name: row for name, row in BROKER_SETTINGS.items() if name in named or not row.is_hidden
    }
    rows.update((name, _row_of(name)) for name in named if name not in BROKER_SETTINGS)
    entries = _entries(rows, wanted, lambda row: config.layers(row.name), read_only=_is_read_only)
    return [_own_value(config, entry) for entry in entries]


def _row_of(name: str) -> Setting:
    """The row of a name that is not in the table: that of its base for a listener's setting, or an
    unknown one."""
    base = BROKER_SETTINGS.get(base_name(name) or "")
    if base is None:
        return Setting(name, SettingType.UNKNOWN, None, "")
    return replace(base, name=name, default=None, text="", dynamic=DynamicMode.READ_ONLY)


def _is_read_only(row: Setting) -> bool:
    return row.dynamic is DynamicMode.READ_ONLY


def _own_value(config: BrokerConfig, entry: ConfigEntry) -> ConfigEntry:
    """The value if the setting itself decides; a coarser synonym (hours for ms) is listed, but has
    another number."""
    if entry.is_sensitive or entry.name not in BROKER_SETTINGS:
        return entry
    return entry._replace(value=BROKER_SETTINGS[entry.name].render(config[entry.name]))


def _all_brokers_entries(settings: Mapping[str, str], wanted: set[str] | None) -> list[ConfigEntry]:
    rows = {name: BROKER_SETTINGS.get(name) or _row_of(name) for name in settings}

    def layers(row: Setting) -> list[Layered]:
        return _layer(row.name, settings, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)

    return _entries(rows, wanted, layers, read_only=_is_read_only)


def _client_metrics_entries(
    settings: Mapping[str, str], wanted: set[str] | None
) -> list[ConfigEntry]:
    source = ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG

    def layers(row: Setting) -> list[Layered]:
        return _layer(row.name, settings, source)

    entries = _entries(CLIENT_METRICS_SETTINGS, wanted, layers, read_only=lambda _: False)
    return [entry if entry.synonyms else _with_default(entry) for entry in entries]


def _with_default(entry: ConfigEntry) -> ConfigEntry:
    """For client metrics the default is shown, but not as a source."""
    row = CLIENT_METRICS_SETTINGS[entry.name]
    return entry._replace(value=row.render(row.default))


def _group_entries(
    config: BrokerConfig, settings: Mapping[str, str], wanted: set[str] | None
) -> list[ConfigEntry]:
    def layers(row: Setting) -> list[Layered]:
        own = _layer(row.name, settings, ConfigSource.GROUP_CONFIG)
        synonym = GROUP_SYNONYMS.get(row.name)
        return own + (config.layers(synonym) if synonym else _table_default(row))

    return _entries(GROUP_SETTINGS, wanted, layers, read_only=lambda _: False)


def _entries(
    rows: Mapping[str, Setting],
    wanted: set[str] | None,
    layers: Callable[[Setting], list[Layered]],
    *,
    read_only: Callable[[Setting], bool],
) -> list[ConfigEntry]:
    return [
        _entry(row, layers(row), read_only(row))
        for row in _sorted(rows)
        if wanted is None or row.name in wanted
    ]


def _sorted(rows: Mapping[str, Setting]) -> list[Setting]:
    return sorted(rows.values(), key=lambda row: row.name)


def _entry(row: Setting, layers: list[Layered], is_read_only: bool) -> ConfigEntry:
    hidden = row.is_sensitive
    synonyms = tuple(
        ConfigSynonym(layer.name, None if hidden else layer.text, layer.source) for layer in layers
    )
    return ConfigEntry(
        name=row.name,
        value=synonyms[0].value if synonyms else None,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        type=row.type,
        is_read_only=is_read_only,
        is_sensitive=hidden,
        synonyms=synonyms,
        documentation=None if row.is_hidden else row.text or None,
    )


def _layer(name: str, settings: Mapping[str, str], source: ConfigSource) -> list[Layered]:
    return [Layered(name, settings[name], source)] if name in settings else []


def _table_default(row: Setting) -> list[Layered]:
    if row.default is None:
        return []
    return [Layered(row.name, row.render(row.default), ConfigSource.DEFAULT_CONFIG)]
