"""The layers in which a broker's setting may have a value, and the names that it may have there.

Kafka's rules. A layer is looked through under every name that means the same, the finest first;
what is found under other names before the setting's own does not count for it, so that
`log.retention.hours` is no source of `log.retention.ms` although both mean the same. A setting
for one listener (`listener.name.NAME.setting`) falls back on the one for all.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.config.definition import ConfigSource, Setting

_LISTENER_NAME: Final = re.compile(r"listener\.name\.([^.]*)\.(.*)")
_MECHANISM: Final = re.compile(
    r"(plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.(?=sasl\.|connections\.)"
)
_MECHANISM_SETTINGS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_FAMILIES: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Broker settings that mean the same, the finest first."""


class Layered(NamedTuple):
    """A setting's value in one layer, as text; `name` may be a synonym of what was asked for."""

    name: str
    text: str | None
    source: ConfigSource


def names_of(name: str) -> tuple[str, ...]:
    """The names that a setting's value is looked for under."""
    for family in _FAMILIES:
        if name in family:
            return family
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    base = base_name(name)
    return (name,) if base is None else (name, base)


def synonyms_of(name: str) -> tuple[str, ...]:
    """The other names that mean the same for all listeners."""
    names = names_of(name) if base_name(name) is None else (name,)
    return tuple(each for each in names if each != name)


def base_name(name: str) -> str | None:
    """The setting's name without its listener and mechanism; None if it has none."""
    match = _LISTENER_NAME.fullmatch(name)
    if match is None:
        return None
    base = _MECHANISM.sub("", match[2])
    return next((each for each in _MECHANISM_SETTINGS if base.endswith(each)), base)


def place_of(name: str) -> tuple[str | None, str | None]:
    """The listener, in lower case, and the SASL mechanism that a setting is for; None for all."""
    match = _LISTENER_NAME.fullmatch(name)
    if match is None:
        return None, None
    mechanism = _MECHANISM.match(match[2])
    return match[1], None if mechanism is None else mechanism[1].upper()


def layers_of(
    name: str,
    table: Mapping[str, Setting],
    sources: Iterable[tuple[Mapping[str, str], ConfigSource]],
) -> list[Layered]:
    """The values of a setting by layer: the one in effect first, the table's default last."""
    names = names_of(name)
    found = [
        Layered(each, settings[each], source)
        for settings, source in sources
        for each in names
        if each in settings
    ]
    found += [default for each in names for default in _default_layer(table.get(each))]
    own = next((index for index, layer in enumerate(found) if layer.name == name), len(found))
    return found[own:]


def _default_layer(row: Setting | None) -> list[Layered]:
    if row is None or row.default is None or row.is_hidden:
        return []
    return [Layered(row.name, row.render(row.default), ConfigSource.DEFAULT_CONFIG)]
