"""Reads `listeners` and its map of protocols: `NAME://host:port`, IPv6 in brackets."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.config.definition import ConfigError
from odradek.model import EndPoint

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

PLAIN: Final = "PLAINTEXT://"

_ENDPOINT: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]/:\s]*))"
    r":(?P<port>[0-9]{1,5})"
)


def named_listener(text: str) -> str:
    """Adds `PLAINTEXT://` to `HOST:PORT`; returns `NAME://HOST:PORT` as it is."""
    return text if "://" in text else PLAIN + text


def parse_protocol_map(text: str) -> dict[str, str]:
    """The security protocol of every listener name, from `listener.security.protocol.map`.

    Raises:
        ConfigError: a part is not `NAME:PROTOCOL`, or a name has two protocols.
    """
    name = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        listener, _, protocol = part.partition(":")
        listener, protocol = listener.strip().upper(), protocol.strip().upper()
        if not listener or protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(name, text, "Value must be NAME:PROTOCOL")
        if protocols.setdefault(listener, protocol) != protocol:
            raise ConfigError(name, text, f"{listener} has two security protocols")
    return protocols


def parse_endpoints(
    name: str, listeners: Iterable[str], protocols: Mapping[str, str]
) -> list[EndPoint]:
    """The end points of a list of listeners; an empty host means every address.

    Raises:
        ConfigError: a listener is malformed, has an unknown name, or occurs twice.
    """
    endpoints: list[EndPoint] = []
    for text in listeners:
        endpoint = _parse_endpoint(name, text, protocols)
        if any(endpoint.listener_name == other.listener_name for other in endpoints):
            raise ConfigError(name, text, "Each listener must have a name of its own")
        endpoints.append(endpoint)
    if not endpoints:
        raise ConfigError(name, "", "There must be at least one listener")
    return endpoints


def _parse_endpoint(name: str, text: str, protocols: Mapping[str, str]) -> EndPoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise ConfigError(name, text, "Value must be NAME://host:port, the port up to 65535")
    listener = match["name"].upper()
    protocol = protocols.get(listener)
    if protocol is None:
        reason = f"No security protocol defined for listener {listener}"
        raise ConfigError(name, text, reason)
    return EndPoint(listener, protocol, match["v6"] or match["host"] or "", int(match["port"]))
