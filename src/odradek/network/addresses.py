"""Addresses in the form of users and log lines."""


def format_host_port(host: str, port: int) -> str:
    """`host:port` as clients take it, with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain_address(address: str) -> str:
    """The plain address of an IPv4 client on a socket for both families."""
    return address.removeprefix("::ffff:") if "." in address else address


def as_asked(host: str) -> str | bytes:
    """A host for a look-up: with ASCII letters only it needs none of Python's tables of other
    alphabets, whose import takes longer than the answer."""
    return host.encode() if host.isascii() else host
