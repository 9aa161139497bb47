"""Addresses as people and log lines write them."""


def format_host_port(host: str, port: int) -> str:
    """`host:port` as clients take it, with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain_address(address: str) -> str:
    """An IPv4 client of a socket for both families, by its own address."""
    return address.removeprefix("::ffff:") if "." in address else address


def as_asked(host: str) -> str | bytes:
    """A host as it is asked for: one of ASCII letters needs none of Python's tables of names in
    other alphabets, whose import takes longer than the answer."""
    return host.encode() if host.isascii() else host
