"""Values from elsewhere: `config.providers`, with the three providers that come with Kafka.

`${env:NAME}`, `${file:PATH:KEY}` and `${directory:PATH:FILE}` in a value are replaced by the value
of the provider of that name, which is not resolved again. As in Kafka, a reference that no provider
knows stays as it is; a class other than the three is refused.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from odradek.config.definition import ConfigError, readable
from odradek.config.files.properties import load_properties
from odradek.expressions import ExpressionError, Match, java_pattern

_Lookup = Callable[[str, str], str | None]
"""The value of a path and a key; None where there is none."""

_SETTING: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")


def resolved(
    settings: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The settings with their references resolved.

    Raises:
        ConfigError: a provider cannot be had, or cannot read what it was asked for.
    """
    names = [name.strip() for name in settings.get(_SETTING, "").split(",")]
    lookups = {
        name: _lookup(name, settings, environment)
        for name in names
        if f"{_SETTING}.{name}.class" in settings
    }

    def value(match: re.Match[str]) -> str:
        provider, path, key = match.groups("")
        found = lookups[provider](path, key) if provider in lookups else None
        return match[0] if found is None else found

    return {name: _REFERENCE.sub(value, text) for name, text in settings.items()}


def _lookup(name: str, settings: Mapping[str, str], environment: Mapping[str, str]) -> _Lookup:
    setting = f"{_SETTING}.{name}.class"
    chosen = settings[setting].strip()
    roots = _allowed_paths(name, settings)
    if chosen == f"{_PACKAGE}EnvVarConfigProvider":
        return _of_environment(environment, _allowed_names(name, settings))
    if chosen == f"{_PACKAGE}FileConfigProvider":
        return _where_allowed(roots, _from_file)
    if chosen == f"{_PACKAGE}DirectoryConfigProvider":
        return _where_allowed(roots, _from_directory)
    reason = "Could not load config provider class or one of its dependencies"
    raise ConfigError(setting, chosen, reason)


def _allowed_names(name: str, settings: Mapping[str, str]) -> Match:
    setting = f"{_SETTING}.{name}.param.allowlist.pattern"
    pattern = settings.get(setting, ".*")
    try:
        return java_pattern(pattern)
    except ExpressionError as error:
        raise ConfigError(setting, pattern, str(error)) from error


def _of_environment(environment: Mapping[str, str], is_allowed: Match) -> _Lookup:
    def look_up(path: str, key: str) -> str | None:
        if path:
            reason = f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'"
            raise ConfigError(_SETTING, path, reason, reason)
        return environment.get(key) if is_allowed(key) else None

    return look_up


def _allowed_paths(name: str, settings: Mapping[str, str]) -> list[str]:
    """The paths that `allowed.paths` names; none allows all, as in Kafka."""
    setting = f"{_SETTING}.{name}.param.allowed.paths"
    text = settings.get(setting)
    paths = [os.path.normpath(path.strip()) for path in text.split(",")] if text else []
    for path in paths:
        if fault := _fault_of(path):
            sentence = f"Path {readable(path)} {fault}"
            raise ConfigError(setting, path, sentence, sentence)
    return paths


def _fault_of(path: str) -> str:
    """Why no path can be allowed below this one; empty if it can."""
    if not os.path.isabs(path):
        return "is not absolute"
    return "" if os.path.exists(path) else "does not exist"


def _where_allowed(roots: Sequence[str], look_up: _Lookup) -> _Lookup:
    """Refuses paths outside of `roots`, if there are any."""
    if not roots:
        return look_up
    beginnings = tuple(root.rstrip(os.sep) + os.sep for root in roots)

    def look_up_inside(path: str, key: str) -> str | None:
        wanted = os.path.normpath(path)
        is_inside = (wanted + os.sep).startswith(beginnings)
        return look_up(wanted, key) if is_inside else None

    return look_up_inside


def _from_file(path: str, key: str) -> str | None:
    if not path:
        return None
    try:
        return load_properties(path, "utf-8").get(key)
    except ConfigError:
        raise
    except (OSError, ValueError) as error:  # no UTF-8, or a path that can be nobody's
        reason = f"Could not read properties from file {readable(path)}"
        raise ConfigError(_SETTING, path, reason, reason) from error


def _from_directory(path: str, key: str) -> str | None:
    whole = os.path.join(path, key)
    if not path or not key or os.path.basename(key) != key or not os.path.isfile(whole):
        return None
    try:
        with open(whole, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = f"Could not read file {whole} for property {key}"
        raise ConfigError(_SETTING, path, reason, reason) from error
