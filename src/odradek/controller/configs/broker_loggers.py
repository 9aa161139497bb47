"""The broker's loggers as a resource with settings (ConfigResource BROKER_LOGGER): their levels.

A logger without a level is shown with its effective one. Levels belong to the process and are not
stored.
"""

import logging
from collections.abc import Sequence
from typing import Final

from odradek.config import ConfigSource, SettingType
from odradek.controller.results import AlterOperation, ConfigAlteration, ConfigEntry
from odradek.errors import BrokerError, ErrorCode

ROOT: Final = "root"
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}


def logger_entries(wanted: set[str] | None) -> list[ConfigEntry]:
    """The levels of all loggers, or of the wanted ones."""
    return [_entry(name) for name in _names() if wanted is None or name in wanted]


def alter_loggers(steps: Sequence[ConfigAlteration], *, validate_only: bool) -> None:
    """Sets levels, or lets loggers inherit them again.

    Raises:
        BrokerError: a logger or a level is unknown, or the step cannot be done with levels; nothing
            has changed then.
    """
    for step in steps:
        _check(step)
    if not validate_only:
        for step in steps:
            _logger(step.name).setLevel(_LEVELS.get(step.value or "", logging.NOTSET))


def _check(step: ConfigAlteration) -> None:
    if step.operation not in (AlterOperation.SET, AlterOperation.DELETE):
        message = f"A log level can be set and deleted only: {step.name}"
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)
    if step.name not in _names():
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"Logger {step.name} does not exist!")
    if step.operation == AlterOperation.SET and step.value not in _LEVELS:
        levels = ", ".join(_LEVELS)
        message = f"Cannot set the log level of {step.name} to {step.value}: it is none of {levels}"
        raise BrokerError(ErrorCode.INVALID_CONFIG, message)
    if step.operation == AlterOperation.DELETE and step.name == ROOT:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger")


def _names() -> list[str]:
    """The root, and every existing logger, without placeholders."""
    known = logging.root.manager.loggerDict.items()
    return [ROOT, *sorted(name for name, each in known if isinstance(each, logging.Logger))]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _entry(name: str) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=_level_name(_logger(name).getEffectiveLevel()),
        source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        type=SettingType.UNKNOWN,
        is_read_only=False,
        is_sensitive=False,
        synonyms=(),
        documentation=None,
    )


def _level_name(level: int) -> str:
    """Kafka's name of the least level that is not below it."""
    return min(_LEVELS, key=lambda name: (_LEVELS[name] < level, abs(_LEVELS[name] - level)))
