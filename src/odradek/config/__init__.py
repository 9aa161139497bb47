"""The settings of brokers, topics and groups: Kafka's names, types, defaults and bounds."""

from odradek.config.broker import BROKER_SETTINGS, BrokerConfig, Layered
from odradek.config.definition import (
    ConfigError,
    ConfigSource,
    DynamicMode,
    Setting,
    SettingType,
    Value,
)
from odradek.config.group import GROUP_SETTINGS
from odradek.config.properties import parse_properties
from odradek.config.topic import TOPIC_SETTINGS, LogConfig

__all__ = [
    "BROKER_SETTINGS",
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
