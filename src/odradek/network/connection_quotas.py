"""The limits of open connections: in all, and per address.

`max.connections` bounds the broker, `max.connections.per.ip` every address, with
`max.connections.per.ip.overrides` for single ones. A connection that is over a limit is closed at
once; other clients are not affected. A full broker still admits brokers, on listeners that are
reserved for them. The limits may change at run time; accepted connections stay.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

UNLIMITED: Final = 2**31 - 1


class ConnectionQuotas:
    """Counts open connections by address and decides whether one more may come."""

    def __init__(
        self,
        max_connections: int = UNLIMITED,
        max_connections_per_ip: int = UNLIMITED,
        overrides: Mapping[str, int] | None = None,
    ) -> None:
        self._by_address: Counter[str] = Counter()
        self.total = 0
        self.limit(max_connections, max_connections_per_ip, overrides or {})

    def limit(
        self, max_connections: int, max_connections_per_ip: int, overrides: Mapping[str, int]
    ) -> None:
        """Sets the limits for the connections to come."""
        self._max_connections = max_connections
        self._max_connections_per_ip = max_connections_per_ip
        self._overrides = overrides

    def admit(self, address: str, *, is_protected: bool = False) -> str | None:
        """Counts a connection in and returns None, or the reason for its refusal."""
        if self.total >= self._max_connections and not is_protected:
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
