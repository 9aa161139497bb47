"""Which fetches wait, by the connection that waits for them.

A connection has at most one: the network handles no further request of it before the answer.
When it closes, its fetch is dropped without reading anything. A fetch that is answered is
forgotten at once: kept, it would keep its answer, of as many megabytes as the client asked for.
"""

from odradek.replication.delayed.fetch import DelayedFetch


class ParkedFetches:
    """Connection ids and their waiting fetches."""

    def __init__(self) -> None:
        self._by_connection: dict[str, DelayedFetch] = {}

    def __len__(self) -> int:
        return len(self._by_connection)

    def park(self, connection_id: str, fetch: DelayedFetch) -> None:
        """Remembers the fetch that a connection waits for."""
        self._by_connection[connection_id] = fetch

    def answered(self, connection_id: str) -> None:
        """Forgets the fetch that the connection waited for, if it did."""
        self._by_connection.pop(connection_id, None)

    def connection_closed(self, connection_id: str) -> None:
        """Drops the connection's fetch, if it waits."""
        fetch = self._by_connection.pop(connection_id, None)
        if fetch is not None:
            fetch.abandon()
