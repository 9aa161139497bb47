"""Produce requests of one socket read, waiting to be appended together.

Handling a produce request only puts it here; at the end of the read everything goes to the
logs with one write per partition (`settle`), and is answered. Imports no handler, so that
the context may hold it.
"""

from odradek.replication.append import AppendRequest
from odradek.replication.replica_manager import ReplicaManager


class ProduceBatch:
    """What has been read and not appended yet. The requests' frames are still valid."""

    def __init__(self) -> None:
        self._queued: list[AppendRequest] = []

    def add(self, request: AppendRequest) -> None:
        """Queues a request behind those that came before it."""
        self._queued.append(request)

    def settle(self, replicas: ReplicaManager) -> None:
        """Appends and answers what is queued.

        An answer may let a connection go on and queue more; that belongs to the next turn.
        """
        queued = self._queued
        if queued:
            self._queued = []
            replicas.append_records(queued)
