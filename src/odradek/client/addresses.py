"""Bootstrap addresses: `host:port` lists as users write them."""

import re
from typing import Final, NamedTuple

from odradek.config.definition import ConfigError

# Kafka's own: a name with other characters would be looked up for a minute. A listener's prefix
# (PLAINTEXT://host:port) is often pasted along with the address.
_ADDRESS: Final = re.compile(
    r"(?:[0-9a-zA-Z%._-]*://)?\[?(?P<host>[0-9a-zA-Z%._:-]+)]?:0*(?P<port>[0-9]+)"
)
# More are none, and may be too many for `int`.
_DIGITS_OF_A_PORT: Final = 5


class Address(NamedTuple):
    """The host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap_servers(text: str, setting: str = "bootstrap.servers") -> list[Address]:
    """Reads `host:port,host:port`, the value of a setting; IPv6 addresses are in brackets.

    Raises:
        ConfigError: no address is given, or one is malformed; in the words of Kafka's clients.
    """
    parts = [part for part in map(str.strip, text.split(",")) if part]
    if not parts:
        reason = "values must not be empty."
        raise ConfigError(setting, text, reason, f"Configuration '{setting}' {reason}")
    return [_parse_address(part, setting) for part in parts]


def _parse_address(text: str, setting: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise _invalid("url", text, setting)
    digits = match["port"]
    if len(digits) > _DIGITS_OF_A_PORT or not 0 < int(digits) < 65_536:
        raise _invalid("port", text, setting)
    return Address(match["host"], int(digits))


def _invalid(part: str, text: str, setting: str) -> ConfigError:
    reason = f"Invalid {part} in {setting}"
    return ConfigError(setting, text, reason, f"{reason}: {text}")
