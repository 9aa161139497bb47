"""The definition of a setting: its name, type, default, bounds, how it may change, and its text.

One row per setting, in one table per kind of resource. The parser, `--help`, DescribeConfigs and
the reference pages all read the row, so they cannot disagree. Values arrive as text, from a
properties file or a request, and are parsed by Kafka's rules: surrounding blanks do not count,
numbers are plain decimal ones, lists are separated by commas. No setting is named in this module.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class SettingType(IntEnum):
    """The types of settings; the numbers are those of DescribeConfigs' `config_type`."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class DynamicMode(IntEnum):
    """Whether a running broker takes a new value, and for whom; the order is Kafka's scope."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2

    @property
    def label(self) -> str:
        """The mode as Kafka's documentation spells it."""
        return self.name.lower().replace("_", "-")


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs' `config_source`."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigError(ValueError):
    """A setting's value is not acceptable; the text names the setting, the value and the reason.

    `text` is the whole sentence where it is not the usual one of these three.
    """

    def __init__(self, name: str, value: str | None, reason: str, text: str | None = None) -> None:
        self.name: Final = name
        self.value: Final = value
        self.reason: Final = reason
        super().__init__(text or f"Invalid value {value} for configuration {name}: {reason}")


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Characters that no path and no message can have: NUL, and lone surrogates.
_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")
# The characters of Java's `trim`: all up to the space.
_BLANKS: Final = "".join(map(chr, range(33)))
_BITS: Final = {SettingType.SHORT: 16, SettingType.INT: 32, SettingType.LONG: 64}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of a settings table.

    `default` is a parsed value; None says that the setting is unset unless someone sets it. A list
    has at least as many elements as `at_least` says.
    `also` is one more legal number outside the bounds, `choices` names the legal strings (of
    a list: the legal elements), and every string or element must match `pattern` wholly, unless
    `alone` is all that a list has.
    """

    name: str
    type: SettingType
    default: Value
    text: str
    at_least: float | None = None
    at_most: float | None = None
    also: int | None = None
    choices: tuple[str, ...] = ()
    ignore_case: bool = False
    pattern: str | None = None
    alone: str | None = None
    dynamic: DynamicMode = DynamicMode.READ_ONLY
    is_hidden: bool = False

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must never be shown: it is a secret, or of an unknown setting."""
        return self.type in (SettingType.PASSWORD, SettingType.UNKNOWN)

    def parse(self, text: str) -> Value:
        """The value of `text`.

        Raises:
            ConfigError: the text is not of the setting's type, or outside its bounds.
        """
        trimmed = text.strip(_BLANKS)
        if _NO_TEXT.search(trimmed):
            raise self._error(
                readable(trimmed), "Neither \\u0000 nor half a character may be in it"
            )
        match self.type:
            case SettingType.BOOLEAN:
                return self._boolean(trimmed)
            case SettingType.SHORT | SettingType.INT | SettingType.LONG:
                return self._bounded(self._integer(trimmed), trimmed)
            case SettingType.DOUBLE:
                return self._bounded(self._decimal(trimmed), trimmed)
            case SettingType.LIST:
                return self._list(trimmed)
            case _:
                self._check_string(trimmed)
                return trimmed

    def render(self, value: Value) -> str | None:
        """The value as text, as in a properties file; None if it is unset."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return repr(value).upper().replace("E+", "E")
        return str(value)

    @property
    def valid_values(self) -> str:
        """The bounds as Kafka's documentation writes them; "" when there are none."""
        if self.choices:
            return f"[{', '.join(self.choices)}]"
        if self.at_least is None and self.at_most is None:
            return ""
        if self.type is SettingType.LIST:
            return "any non-empty list"
        parts = [_plain(self.at_least), "...", _plain(self.at_most)]
        bounds = f"[{','.join(part for part in parts if part)}]"
        return bounds if self.also is None else f"{bounds} or {self.also}"

    def _boolean(self, text: str) -> bool:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise self._error(text, "Expected value to be either true or false")
        return lowered == "true"

    def _integer(self, text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise self._error(text, f"Not a number of type {self.type.name}")
        limit = 1 << (_BITS[self.type] - 1)
        if len(text) > 20 or not -limit <= int(text) < limit:
            raise self._error(text, f"Not a number of type {self.type.name}")
        return int(text)

    def _decimal(self, text: str) -> float:
        if not _DECIMAL.fullmatch(text):
            raise self._error(text, f"Not a number of type {self.type.name}")
        return float(text)

    def _bounded(self, number: int | float, text: str) -> int | float:
        if number == self.also:
            return number
        if self.at_least is not None and number < self.at_least:
            raise self._error(text, f"Value must be at least {_plain(self.at_least)}")
        if self.at_most is not None and number > self.at_most:
            raise self._error(text, f"Value must be no more than {_plain(self.at_most)}")
        return number

    def _list(self, text: str) -> tuple[str, ...]:
        elements = tuple(each.strip() for each in text.split(",")) if text else ()
        if self.at_least is not None and len(elements) < self.at_least:
            raise self._error(text, "There must be at least one element")
        if "" in elements and self.alone is None:
            raise self._error(text, "No element may be empty")
        for element in () if "".join(elements) == self.alone else elements:
            self._check_string(element)
        # Kafka leaves doubles in lists that it checks as a whole.
        return elements if self.alone is not None else tuple(dict.fromkeys(elements))

    def _check_string(self, text: str) -> None:
        if self.choices and not self._is_choice(text):
            raise self._error(text, f"String must be one of: {', '.join(self.choices)}")
        if self.pattern is not None and not re.fullmatch(self.pattern, text):
            raise self._error(text, f"Value must match {self.pattern}")

    def _is_choice(self, text: str) -> bool:
        if self.ignore_case:
            return text.lower() in {choice.lower() for choice in self.choices}
        return text in self.choices

    def _error(self, text: str, reason: str) -> ConfigError:
        return ConfigError(self.name, "[hidden]" if self.is_sensitive else text, reason)


def readable(text: str) -> str:
    """The text with escapes for illegal characters."""
    return _NO_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def table(rows: Iterable[Setting]) -> Mapping[str, Setting]:
    """The rows by name.

    Raises:
        ConfigError: two rows have the same name.
    """
    settings: dict[str, Setting] = {}
    for row in rows:
        if row.name in settings:
            raise ConfigError(row.name, None, "the table has two rows of this name")
        settings[row.name] = row
    return settings


def _plain(bound: float | None) -> str:
    if bound is None:
        return ""
    return str(int(bound)) if bound == int(bound) else str(bound)
