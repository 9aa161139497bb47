"""Settings of brokers inside a program: their defaults, and a word about mistyped ones."""

from collections.abc import Mapping
from typing import Final

from odradek.config import BrokerConfig
from odradek.config.likely_names import with_likely_setting
from odradek.config.single_node import SINGLE_NODE_DEFAULTS

TEST_DEFAULTS: Final[Mapping[str, str]] = {
    **SINGLE_NODE_DEFAULTS,
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}
"""Where an in-process broker differs from Kafka's defaults: what only costs time on one node."""


def check_settings(settings: Mapping[str, str]) -> None:
    """Tells of a mistake where it was made, in the program, and not at the start.

    Raises:
        ValueError: a setting is illegal, or there is none of that name.
    """
    unknown = BrokerConfig(settings).unknown
    if unknown:
        names = ", ".join(with_likely_setting(name) for name in unknown)
        raise ValueError(f"There is no broker setting {names}")


def setting_text(value: object) -> str:
    """A setting's value as it would stand in `server.properties`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def setting_texts(config: Mapping[str, object] | None) -> dict[str, str]:
    """Settings as they would stand in `server.properties`."""
    return {name: setting_text(value) for name, value in (config or {}).items()}
