"""The settings of client metrics (ConfigResource CLIENT_METRICS): which clients push which metrics,
how often.

A subscription is named and holds for the clients that all of its `match` patterns fit.
"""

from collections.abc import Mapping
from typing import Final

from odradek.config.definition import ConfigError, Setting, SettingType, table
from odradek.expressions import (
    ExpressionError,
    ExpressionsUnavailable,
    Match,
    UnreadableExpression,
    java_pattern,
)

DEFAULT_INTERVAL_MS: Final = 300_000
CLIENT_METRICS_SETTINGS: Final = table(
    [
        Setting(
            "interval.ms",
            SettingType.INT,
            DEFAULT_INTERVAL_MS,
            "How often the clients push, in 100 ms to an hour.",
        ),
        Setting(
            "match",
            SettingType.LIST,
            (),
            "Which clients push: `property=pattern`, separated by commas; all when empty.",
        ),
        Setting(
            "metrics",
            SettingType.LIST,
            (),
            "What the names of the pushed metrics begin with; `*` for all, none when empty.",
        ),
    ]
)
LEAST_INTERVAL_MS: Final = 100
MOST_INTERVAL_MS: Final = 3_600_000
MATCHED_PROPERTIES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class IllegalSubscription(ConfigError):
    """A subscription that Kafka takes for a mistake of the request, not of a value."""


def check_client_metrics(settings: Mapping[str, str]) -> None:
    """Refuses settings that no subscription can have.

    Raises:
        IllegalSubscription: a name is unknown, or the interval too short or too long.
        ConfigError: a value is illegal, or a pattern is none.
    """
    for name, text in settings.items():
        row = CLIENT_METRICS_SETTINGS.get(name)
        if row is None:
            raise IllegalSubscription(name, text, "Unknown client metrics configuration")
        value = row.parse(text)
        if isinstance(value, int) and not LEAST_INTERVAL_MS <= value <= MOST_INTERVAL_MS:
            reason = f"it must be between {LEAST_INTERVAL_MS} and {MOST_INTERVAL_MS}"
            raise IllegalSubscription(name, text, reason)
    parse_match(settings.get("match", ""))


def parse_match(text: str) -> dict[str, Match]:
    """Reads the patterns of `match`, by the property of a client that each is for. They are Java's.

    Raises:
        ConfigError: a part is not `property=pattern`, or the pattern is none, or cannot be matched
            here.
    """
    patterns = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, *rest = (piece.strip() for piece in part.split("="))
        if name not in MATCHED_PROPERTIES or len(rest) != 1 or not rest[0]:
            raise ConfigError("match", text, f"Illegal client matching pattern: {part}")
        try:
            patterns[name] = java_pattern(rest[0])
        except (ExpressionsUnavailable, UnreadableExpression) as error:
            reason = f"{rest[0]} cannot be matched here: {error}"
            raise ConfigError("match", text, reason) from error
        except ExpressionError as error:
            raise ConfigError("match", text, f"Illegal client matching pattern: {part}") from error
    return patterns


def wanted_metrics(settings: Mapping[str, str]) -> tuple[str, ...]:
    """The prefixes of metric names that a subscription asks for."""
    wanted = CLIENT_METRICS_SETTINGS["metrics"].parse(settings.get("metrics", ""))
    assert isinstance(wanted, tuple), "metrics is a list"
    return wanted


def push_interval_ms(settings: Mapping[str, str]) -> int:
    """How often the clients of a subscription push."""
    own = settings.get("interval.ms")
    return DEFAULT_INTERVAL_MS if own is None else int(own)
