"""Which fetches wait, by the connection that waits for them.

A connection has at most one: the network handles no further request of it before the answer.
When it closes, its fetch is dropped without reading anything.
"""

from odradek.replication.delayed_fetch import DelayedFetch


class ParkedFetches:
    """Connection ids and their waiting fetches; completed ones are replaced, not removed."""

    def __init__(self) -> None:
        self._by_connection: dict[str, DelayedFetch] = {}

    def __len__(self) -> int:
        return sum(not fetch.is_completed for fetch in self._by_connection.values())

    def park(self, connection_id: str, fetch: DelayedFetch) -> None:
        """Remembers the fetch that a connection waits for."""
        self._by_connection[connection_id] = fetch

    def connection_closed(self, connection_id: str) -> None:
        """Drops the connection's fetch, if it waits."""
        fetch = self._by_connection.pop(connection_id, None)
        if fetch is not None:
            fetch.abandon()
