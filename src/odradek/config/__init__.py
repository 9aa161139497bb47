"""The settings of brokers, topics and groups: Kafka's names, types, defaults and bounds.

A name's table is imported when it is first asked for: a client needs none of the broker's.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.config.broker import BROKER_SETTINGS, BrokerConfig
    from odradek.config.client_metrics import CLIENT_METRICS_SETTINGS
    from odradek.config.definition import (
        ConfigError,
        ConfigSource,
        DynamicMode,
        Setting,
        SettingType,
        Value,
    )
    from odradek.config.group import GROUP_SETTINGS
    from odradek.config.layers import Layered
    from odradek.config.properties import parse_properties
    from odradek.config.topic import TOPIC_SETTINGS, LogConfig

__all__ = [
    "BROKER_SETTINGS",
    "CLIENT_METRICS_SETTINGS",
    "GROUP_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "ConfigError",
    "ConfigSource",
    "DynamicMode",
    "Layered",
    "LogConfig",
    "Setting",
    "SettingType",
    "Value",
    "parse_properties",
]

_HOMES = {
    "BROKER_SETTINGS": "odradek.config.broker",
    "BrokerConfig": "odradek.config.broker",
    "CLIENT_METRICS_SETTINGS": "odradek.config.client_metrics",
    "GROUP_SETTINGS": "odradek.config.group",
    "Layered": "odradek.config.layers",
    "LogConfig": "odradek.config.topic",
    "TOPIC_SETTINGS": "odradek.config.topic",
    "parse_properties": "odradek.config.properties",
}


def __getattr__(name: str) -> object:
    """Imports what is named, once."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = _HOMES.get(name, "odradek.config.definition")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found
