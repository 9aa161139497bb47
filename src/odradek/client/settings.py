"""The settings of clients: Kafka's names, defaults and bounds, in one table a client.

A value may be given under Kafka's name or, as a keyword, with underscores for its dots; as text or
as its value. Some settings are arguments of the client instead: serializers, which are functions,
and interceptors, which are objects.
"""

import pkgutil
from collections.abc import Callable, Mapping
from typing import Final

from odradek.config.definition import ConfigError, Setting, Value, table
from odradek.config.tables.rows import rows
from odradek.suggestions import did_you_mean

TOKEN_PROVIDER: Final = "sasl.oauthbearer.token.provider"

_COMMON: Final = [*rows("client_security"), *rows("client")]
ADMIN_SETTINGS: Final = table([*_COMMON, *rows("admin")])
PRODUCER_SETTINGS: Final = table([*_COMMON, *rows("producer")])
CONSUMER_SETTINGS: Final = table([*_COMMON, *rows("consumer")])
SHARE_CONSUMER_SETTINGS: Final = table([*_COMMON, *rows("share_consumer")])


class ClientSettings:
    """The values of one client's settings; `number`, `text`, `flag`, `items` read them by name."""

    def __init__(
        self,
        rows: Mapping[str, Setting],
        config: Mapping[str, object],
        keywords: Mapping[str, object],
        bootstrap_servers: str | Mapping[str, object] = "",
    ) -> None:
        """Checks every value. Instead of brokers there may be settings, which include them.

        Raises:
            ValueError: a name is unknown, or a value illegal.
        """
        by_keyword = {name.replace(".", "_"): name for name in rows}
        given = dict(config)
        if isinstance(bootstrap_servers, Mapping):
            given.update(bootstrap_servers)
        elif bootstrap_servers:
            given["bootstrap.servers"] = bootstrap_servers
        for keyword, value in keywords.items():
            given[by_keyword.get(keyword, keyword)] = value
        self._values: dict[str, Value] = {name: row.default for name, row in rows.items()}
        self._functions: dict[str, Callable[[], str]] = {}
        for name, value in given.items():
            if name not in rows:
                raise _unknown(name, rows)
            if name == TOKEN_PROVIDER and value:
                self._functions[name] = _function(name, value)
                continue
            self._values[name] = rows[name].parse(_as_text(value))
        self.given = frozenset(given)

    def override(self, name: str, value: Value) -> None:
        """Sets a value that follows from other settings; for the client that owns these, at its
        start."""
        self._values[name] = value

    def value(self, name: str) -> Value:
        """The value of a setting of any type."""
        return self._values[name]

    def number(self, name: str) -> int:
        """The value of a numeric setting."""
        value = self._values[name]
        assert isinstance(value, int), f"{name} is {value!r}"
        return value

    def text(self, name: str) -> str:
        """The value of a textual setting; "" where it is unset."""
        value = self._values[name]
        return "" if value is None else str(value)

    def function(self, name: str) -> Callable[[], str] | None:
        """The function that was given as a setting, if one was."""
        return self._functions.get(name)

    def flag(self, name: str) -> bool:
        """The value of a setting that is true or false."""
        value = self._values[name]
        assert isinstance(value, bool), f"{name} is {value!r}"
        return value

    def items(self, name: str) -> tuple[str, ...]:
        """The elements of a list."""
        value = self._values[name]
        assert isinstance(value, tuple), f"{name} is {value!r}"
        return value


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _function(name: str, value: object) -> Callable[[], str]:
    """The function itself, or the one that a text names as `package.module:function`: a name can
    stand in a file, and travels to other processes, which import the module."""
    found = value
    if isinstance(value, str):
        if ":" not in value:
            # It may be the token itself.
            raise ConfigError(name, "[hidden]", "it must be package.module:function")
        try:
            found = pkgutil.resolve_name(value)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(name, value, str(error)) from error
        except Exception as error:  # the module is the user's own
            raise ConfigError(name, value, f"importing it failed: {error!r}") from error
    if not callable(found):
        raise ConfigError(name, str(value), "it is not a function")
    return found


def _unknown(name: str, rows: Mapping[str, Setting]) -> ConfigError:
    meant = did_you_mean(name.replace("_", "."), rows)
    return ConfigError(name, None, f"there is no such setting{meant}")
