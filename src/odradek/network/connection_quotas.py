"""How many connections may be open: in all, and per address.

`max.connections` bounds the broker, `max.connections.per.ip` every address, with
`max.connections.per.ip.overrides` (`address:count,...`) for single ones. A connection that
is over a limit is closed at once; the clients of others do not notice.
"""

from collections import Counter


class ConnectionQuotas:
    """Counts open connections by address and decides whether one more may come."""

    def __init__(
        self,
        max_connections: int,
        max_connections_per_ip: int,
        overrides: dict[str, int] | None = None,
    ) -> None:
        self._max_connections = max_connections
        self._max_connections_per_ip = max_connections_per_ip
        self._overrides = overrides or {}
        self._by_address: Counter[str] = Counter()
        self.total = 0

    def admit(self, address: str) -> str | None:
        """Counts a connection in and answers None, or says why it must be refused."""
        if self.total >= self._max_connections:
            return f"the broker has {self.total} connections (max.connections)"
        limit = self._overrides.get(address, self._max_connections_per_ip)
        if self._by_address[address] >= limit:
            return f"the address has {self._by_address[address]} connections (limit {limit})"
        self._by_address[address] += 1
        self.total += 1
        return None

    def leave(self, address: str) -> None:
        """Counts an admitted connection out."""
        assert self._by_address[address] > 0, f"{address} leaves but was never admitted"
        self.total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


def parse_overrides(text: str) -> dict[str, int]:
    """Reads `address:count,...`; an IPv6 address may hold colons, the count is after the last.

    Raises:
        ValueError: an entry has no count, or not a whole number that is 0 or more.
    """
    overrides: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        address, separator, count = entry.rpartition(":")
        if not separator or not count.isdigit():
            raise ValueError(f"{entry!r} is not address:count")
        overrides[address.strip("[]")] = int(count)
    return overrides
