"""Describes settings: the value in force, every place that has one, and what it means."""

from collections.abc import Callable, Iterable, Mapping

from odradek.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigSource,
    DynamicMode,
    Layered,
    Setting,
)
from odradek.config.group import GROUP_SYNONYMS
from odradek.controller.results import ConfigEntry, ConfigSynonym
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ConfigResource, MetadataImage, ResourceType


def describe_configs(
    config: BrokerConfig,
    image: MetadataImage,
    broker_id: int,
    resource: ConfigResource,
    names: Iterable[str] | None = None,
) -> list[ConfigEntry]:
    """The settings of a resource; only those of `names`, when they are given.

    Raises:
        BrokerError: there is no such resource, it is another broker, or its kind has no
            settings here.
    """
    wanted = None if names is None else set(names)
    match resource.type:
        case ResourceType.TOPIC:
            if image.topic(resource.name) is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return topic_entries(config, image.config(resource), wanted)
        case ResourceType.BROKER if not resource.name:
            return _all_brokers_entries(image.config(resource), wanted)
        case ResourceType.BROKER:
            check_broker(resource, broker_id)
            return _broker_entries(config, wanted)
        case ResourceType.GROUP:
            return _group_entries(config, image.config(resource), wanted)
        case _:
            message = f"Unsupported resource type: {resource.type.name}"
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)


def check_broker(resource: ConfigResource, broker_id: int) -> None:
    """Refuses a broker that is not this one: only it can answer for itself.

    Raises:
        BrokerError: INVALID_REQUEST.
    """
    if resource.name != str(broker_id):
        message = (
            f"Unexpected broker id, expected {broker_id} or empty string, "
            f"but received {resource.name}"
        )
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)


def topic_entries(
    config: BrokerConfig, overrides: Mapping[str, str], wanted: set[str] | None = None
) -> list[ConfigEntry]:
    """The settings of a topic that sets `overrides` itself."""

    def layers(row: Setting) -> list[Layered]:
        own = _layer(row.name, overrides, ConfigSource.DYNAMIC_TOPIC_CONFIG)
        return own + (config.topic_layers(row.name) or _table_default(row))

    defaults = config.topic_defaults()
    entries = _entries(TOPIC_SETTINGS, wanted, layers, read_only=lambda _: False)
    return [
        entry
        if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        else entry._replace(value=TOPIC_SETTINGS[entry.name].render(defaults[entry.name]))
        for entry in entries
    ]


def _broker_entries(config: BrokerConfig, wanted: set[str] | None) -> list[ConfigEntry]:
    entries = _entries(
        BROKER_SETTINGS,
        wanted,
        lambda row: config.layers(row.name),
        read_only=lambda row: row.dynamic is DynamicMode.READ_ONLY,
    )
    return [_own_value(config, entry) for entry in entries]


def _own_value(config: BrokerConfig, entry: ConfigEntry) -> ConfigEntry:
    """A coarser synonym (hours for ms) is listed, but its number is not this setting's."""
    if entry.is_sensitive:
        return entry
    return entry._replace(value=BROKER_SETTINGS[entry.name].render(config[entry.name]))


def _all_brokers_entries(settings: Mapping[str, str], wanted: set[str] | None) -> list[ConfigEntry]:
    rows = {name: row for name, row in BROKER_SETTINGS.items() if name in settings}

    def layers(row: Setting) -> list[Layered]:
        return _layer(row.name, settings, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)

    return _entries(rows, wanted, layers, read_only=lambda _: False)


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
        for row in sorted(rows.values(), key=lambda row: row.name)
        if wanted is None or row.name in wanted
    ]


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
        documentation=row.text,
    )


def _layer(name: str, settings: Mapping[str, str], source: ConfigSource) -> list[Layered]:
    return [Layered(name, settings[name], source)] if name in settings else []


def _table_default(row: Setting) -> list[Layered]:
    if row.default is None:
        return []
    return [Layered(row.name, row.render(row.default), ConfigSource.DEFAULT_CONFIG)]
