"""The settings of brokers, topics and groups: Kafka's names, types, defaults and bounds.

A table is imported at its first use: a client needs none of the broker's.
"""

from typing import TYPE_CHECKING

from odradek._lazy import exports

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
    from odradek.config.files.properties import parse_properties
    from odradek.config.group import GROUP_SETTINGS
    from odradek.config.layers import Layered
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

__getattr__ = exports(
    __name__,
    {
        "BROKER_SETTINGS": "odradek.config.broker",
        "BrokerConfig": "odradek.config.broker",
        "CLIENT_METRICS_SETTINGS": "odradek.config.client_metrics",
        "ConfigError": "odradek.config.definition",
        "ConfigSource": "odradek.config.definition",
        "DynamicMode": "odradek.config.definition",
        "GROUP_SETTINGS": "odradek.config.group",
        "Layered": "odradek.config.layers",
        "LogConfig": "odradek.config.topic",
        "Setting": "odradek.config.definition",
        "SettingType": "odradek.config.definition",
        "TOPIC_SETTINGS": "odradek.config.topic",
        "Value": "odradek.config.definition",
        "parse_properties": "odradek.config.files.properties",
    },
)
