"""The settings of groups (ConfigResource GROUP), with the broker settings that are their
defaults."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from odradek.config.definition import ConfigError, table
from odradek.config.tables.rows import rows

GROUP_SETTINGS: Final = table(rows("group"))

_WITHOUT_SYNONYM: Final = frozenset(
    {
        "share.auto.offset.reset",
        "share.isolation.level",
        "share.release.backoff.max.ms",
        "share.release.backoff.ms",
        "share.release.backoff.multiplier",
        "share.renew.acknowledge.enable",
    }
)

GROUP_SYNONYMS: Final[Mapping[str, str]] = {
    name: f"group.{name}" for name in GROUP_SETTINGS if name not in _WITHOUT_SYNONYM
}
"""The broker setting that a group's own setting overrides."""

_BOUNDED: Final = {
    "consumer.session.timeout.ms": "group.consumer.{}.session.timeout.ms",
    "consumer.heartbeat.interval.ms": "group.consumer.{}.heartbeat.interval.ms",
    "consumer.assignment.interval.ms": "group.consumer.{}.assignment.interval.ms",
    "share.session.timeout.ms": "group.share.{}.session.timeout.ms",
    "share.heartbeat.interval.ms": "group.share.{}.heartbeat.interval.ms",
    "share.assignment.interval.ms": "group.share.{}.assignment.interval.ms",
    "share.record.lock.duration.ms": "group.share.{}.record.lock.duration.ms",
    "share.delivery.count.limit": "group.share.{}.delivery.count.limit",
    "share.partition.max.record.locks": "group.share.{}.partition.max.record.locks",
    "streams.session.timeout.ms": "group.streams.{}.session.timeout.ms",
    "streams.heartbeat.interval.ms": "group.streams.{}.heartbeat.interval.ms",
    "streams.assignment.interval.ms": "group.streams.{}.assignment.interval.ms",
    "streams.num.standby.replicas": "group.streams.{}.standby.replicas",
}
"""The broker's bounds of a group's setting, by the words `min` and `max`."""


def check_group_settings(settings: Mapping[str, str], broker_value: Callable[[str], Any]) -> None:
    """Checks a group's own settings against their types and the broker's bounds.

    Raises:
        ConfigError: a name is unknown, or a value is illegal.
    """
    values: dict[str, Any] = {}
    for name, text in settings.items():
        row = GROUP_SETTINGS.get(name)
        if row is None:
            raise ConfigError(name, text, "Unknown group config name")
        values[name] = row.parse(text)
        _check_bounds(name, values[name], broker_value)
    for kind in ("consumer", "share", "streams"):
        _check_session(kind, values, broker_value)


def bounds_of(name: str) -> tuple[str, ...]:
    """The broker's settings that bound a group's, the lower one first; empty if none do."""
    pattern = _BOUNDED.get(name)
    return () if pattern is None else (pattern.format("min"), pattern.format("max"))


def _check_bounds(name: str, value: Any, broker_value: Callable[[str], Any]) -> None:
    for bound, is_broken in zip(bounds_of(name), (int.__lt__, int.__gt__), strict=False):
        limit = broker_value(bound)
        if limit is not None and is_broken(value, limit):
            raise ConfigError(name, str(value), f"it is outside of what {bound} allows, {limit}")


def _check_session(
    kind: str, values: Mapping[str, Any], broker_value: Callable[[str], Any]
) -> None:
    """A member must be able to send a heartbeat before its session ends."""
    session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    if session not in values and heartbeat not in values:
        return
    session_ms = values.get(session, broker_value(f"group.{session}"))
    heartbeat_ms = values.get(heartbeat, broker_value(f"group.{heartbeat}"))
    if session_ms <= heartbeat_ms:
        raise ConfigError(session, str(session_ms), f"it must exceed {heartbeat}, {heartbeat_ms}")
