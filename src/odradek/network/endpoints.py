"""Listener syntax (R27): `NAME://host:port`, several of them, named ones mapped to protocols.

Pure text to values, so that the server, `advertised.listeners` and tests share it. An IPv6
address stands in brackets; an empty host means every address; port 0 takes a free one.
"""

from typing import Final

from odradek.model import EndPoint

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_PROTOCOL_MAP: Final = ",".join(f"{name}:{name}" for name in SECURITY_PROTOCOLS)


def parse_protocol_map(text: str) -> dict[str, str]:
    """Reads `listener.security.protocol.map`: `NAME:PROTOCOL,...`.

    Raises:
        ValueError: an entry is not a pair, or names a protocol that does not exist.
    """
    protocols: dict[str, str] = {}
    for entry in _entries(text):
        name, separator, protocol = entry.partition(":")
        protocol = protocol.strip().upper()
        if not separator or protocol not in SECURITY_PROTOCOLS:
            known = ", ".join(SECURITY_PROTOCOLS)
            raise ValueError(f"{entry!r} is not NAME:PROTOCOL with a protocol of {known}")
        protocols[name.strip().upper()] = protocol
    return protocols


def parse_listeners(text: str, protocol_map: str = DEFAULT_PROTOCOL_MAP) -> list[EndPoint]:
    """Reads `listeners` or `advertised.listeners`.

    Raises:
        ValueError: an entry is malformed, its name has no protocol, or a name or a port
            (other than 0) is taken twice.
    """
    protocols = parse_protocol_map(protocol_map)
    endpoints = [_parse_listener(entry, protocols) for entry in _entries(text)]
    if not endpoints:
        raise ValueError("at least one listener is needed")
    _check_unique(endpoints)
    return endpoints


def format_host_port(host: str, port: int) -> str:
    """`host:port` as clients write it, with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _entries(text: str) -> list[str]:
    return [entry for entry in (part.strip() for part in text.split(",")) if entry]


def _parse_listener(entry: str, protocols: dict[str, str]) -> EndPoint:
    name, separator, address = entry.partition("://")
    host, colon, port = address.rpartition(":")
    if not name or not separator or not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{entry!r} is not NAME://host:port")
    if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
        raise ValueError(f"{entry!r}: an IPv6 address stands in brackets, as in [::1]")
    name = name.upper()
    protocol = protocols.get(name)
    if protocol is None:
        raise ValueError(f"{entry!r}: {name} has no entry in listener.security.protocol.map")
    return EndPoint(name, protocol, host.strip("[]"), int(port))


def _check_unique(endpoints: list[EndPoint]) -> None:
    names = [endpoint.listener_name for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise ValueError(f"two listeners have the same name: {', '.join(names)}")
    fixed = [(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port]
    if len(set(fixed)) < len(fixed):
        raise ValueError("two listeners have the same host and port")
