"""Bootstrap addresses: `host:port` lists as users write them."""

from typing import NamedTuple


class Address(NamedTuple):
    """The host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap_servers(text: str) -> list[Address]:
    """Reads `host:port,host:port`; IPv6 addresses are in brackets.

    Raises:
        ValueError: no address is given, or one has no host or no port.
    """
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError(f"no broker is named in {text!r}")
    return addresses


def _parse_address(text: str) -> Address:
    host, separator, port = text.rpartition(":")
    # A listener's prefix (PLAINTEXT://host:port) is often pasted along with the address.
    host = host.rpartition("://")[2].removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r} is no host:port")
    return Address(host, int(port))
