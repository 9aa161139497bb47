"""Settings of brokers inside a program: their defaults, and a word about mistyped ones."""

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from odradek.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig
from odradek.config.definition import Setting
from odradek.config.files.providers import resolved
from odradek.config.protection import check_protection
from odradek.config.single_node import SINGLE_NODE_DEFAULTS
from odradek.config.suggestions import with_suggestion
from odradek.config.tables.security import AUTHORIZER_CLASSES
from odradek.config.unserved import unserved
from odradek.errors import BrokerError, ErrorCode
from odradek.server.in_process.arguments.kinds import check_mapping, check_path
from odradek.suggestions import did_you_mean

logger = logging.getLogger(__name__)

_ADDRESSES: Final = ("listeners", "advertised.listeners", "metrics.listener")
_PORT: Final = re.compile(r":([0-9]+)\s*(?=[,/]|$)")

TEST_DEFAULTS: Final[Mapping[str, str]] = {
    **SINGLE_NODE_DEFAULTS,
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
}
"""The differences of an in-process broker from Kafka's defaults: waits that only cost time on one
node."""


def check_settings(
    settings: Mapping[str, str], given: Iterable[str], *, is_cluster: bool = False
) -> None:
    """Reports a mistake where it was made, in the program, and not at the start. `given` names
    those of the settings that the program chose.

    Raises:
        ValueError: a setting is illegal, there is none of that name, or it promises protection
            that is not served.
    """
    config = BrokerConfig(settings)
    if config.unknown:
        names = ", ".join(with_suggestion(name) for name in config.unknown)
        raise ValueError(f"There is no broker setting {names}")
    check_protection(config, settings, is_cluster=is_cluster)
    if idle := unserved(given):
        logger.warning("Settings without effect: %s", ", ".join(idle))


def check_ports(settings: Mapping[str, str], brokers: int) -> None:
    """Refuses a port that each of several brokers would take, or tell its clients of.

    Raises:
        ValueError: a setting names one.
    """
    for name in _ADDRESSES if brokers > 1 else ():
        for port in _PORT.findall(settings.get(name, "")):
            if int(port):
                raise ValueError(
                    f"{name} gives port {port} to each of {brokers} brokers, and only one can have "
                    "it; give port 0, and each has a free one"
                )


def refuse_settings(config: Mapping[str, object], instead: Mapping[str, str]) -> None:
    """Refuses settings that something else decides, here and in every start: `instead` says what.

    Raises:
        TypeError: these are no settings.
        ValueError: there are such settings.
    """
    check_mapping("config", "settings", config)
    for name, what in instead.items():
        if name in config:
            raise ValueError(f"{name} has no place in config: {what}")


def check_topic_settings(config: Mapping[str, object] | None) -> None:
    """Refuses a mistyped name, and suggests the likely one.

    Raises:
        TypeError: these are no settings.
        BrokerError: INVALID_CONFIG, there is no such setting of topics.
    """
    settings: Mapping[str, object] = {} if config is None else config
    check_mapping("config", "settings", settings)
    for name in settings:
        if name not in TOPIC_SETTINGS:
            meant = did_you_mean(name.replace("_", "."), TOPIC_SETTINGS)
            text = f"there is no topic setting called {name!r}{meant}"
            raise BrokerError(ErrorCode.INVALID_CONFIG, text)


def refuse_arguments(
    call: Callable[..., object], mistyped: Mapping[str, object], settings: Mapping[str, Setting]
) -> None:
    """Refuses arguments that a call does not take, and suggests the likely one, or the setting that
    was meant, which goes into `config` under Kafka's name.

    Raises:
        TypeError: there are such arguments.
    """
    for name, value in mistyped.items():
        setting = name.replace("_", ".")
        called = call.__name__.removesuffix("_async")
        if setting in settings:
            shown = "..." if settings[setting].is_sensitive else repr(value)
            raise TypeError(
                f"{called} takes settings as config={{...}} under Kafka's names: "
                f"config={{{setting!r}: {shown}}}"
            )
        # Imported here: mistakes are rare, and a start should be quick.
        from inspect import Parameter, signature

        taken = signature(call).parameters.items()
        names = [name for name, each in taken if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
        raise TypeError(f"{called} has no argument {name!r}{did_you_mean(name, names)}")


def path_of(data_dir: str | os.PathLike[str] | None) -> str | None:
    """The data directory's path, if one is given; several as in `log.dirs`, with commas between.

    Raises:
        TypeError: it is no path: settings that were meant for `config`, for one. ValueError:
            `log.dirs` would mean another directory, or none.
    """
    if data_dir is None:
        return None
    check_path("data_dir", data_dir)
    path = os.fsdecode(data_dir)
    if not path or path != path.strip():
        raise ValueError(f"data_dir is {path!r}: it must be a path, without blanks at its ends")
    BROKER_SETTINGS["log.dirs"].parse(path)
    return path


def with_authorizer(acls: object) -> dict[str, str]:
    """The settings of a broker that has ACLs from the beginning, if it has any."""
    return {"authorizer.class.name": AUTHORIZER_CLASSES[0]} if acls else {}


def setting_text(value: object) -> str:
    """A setting's value as in `server.properties`."""
    if isinstance(value, list | tuple):
        return ",".join(map(setting_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def setting_texts(config: Mapping[str, object] | None) -> dict[str, str]:
    """Settings as in `server.properties`; references to values elsewhere are resolved."""
    return resolved({name: setting_text(value) for name, value in (config or {}).items()})
