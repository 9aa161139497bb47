"""The parked fetches, by connection.

A connection has at most one: the network handles no further request of it before the answer.
When it closes, its fetch is dropped without reading anything. A fetch that is answered is
forgotten at once: kept, it would keep its answer, of as many megabytes as the client asked for.
"""

from odradek.replication.delayed.fetch import DelayedFetch


class ParkedFetches:
    """Connection ids and their waiting fetches."""

    def __init__(self) -> None:
        # With the name of the client that waits.
        self._by_connection: dict[str, tuple[str, DelayedFetch]] = {}

    def __len__(self) -> int:
        return len(self._by_connection)

    def waiting(self) -> list[tuple[str, DelayedFetch]]:
        """Lists the waiting clients with what they wait for."""
        return list(self._by_connection.values())

    def park(self, connection_id: str, client_id: str, fetch: DelayedFetch) -> None:
        """Remembers the fetch that a connection waits for."""
        self._by_connection[connection_id] = client_id, fetch

    def answered(self, connection_id: str) -> None:
        """Forgets the fetch that the connection waited for, if it did."""
        self._by_connection.pop(connection_id, None)

    def connection_closed(self, connection_id: str) -> None:
        """Drops the connection's fetch, if it waits."""
        parked = self._by_connection.pop(connection_id, None)
        if parked is not None:
            parked[1].abandon()
