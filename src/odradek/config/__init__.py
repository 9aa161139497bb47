"""The settings of brokers, topics and groups: Kafka's names, types, defaults and bounds."""

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
