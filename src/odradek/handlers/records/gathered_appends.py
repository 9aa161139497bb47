"""`GatheredAppends`: the appends of the produce requests of one socket read.

Their frames are theirs until the end of the read, where all are appended with one write for each
partition.
"""

from collections.abc import Callable, Sequence

from odradek.replication.append import AppendRequest


class GatheredAppends:
    """Handed to `append_records` in the order of the requests."""

    def __init__(self, append_records: Callable[[Sequence[AppendRequest]], None]) -> None:
        self._append_records = append_records
        self._requests: list[AppendRequest] = []

    def add(self, request: AppendRequest) -> None:
        """Leaves a request for the next `append`."""
        self._requests.append(request)

    def append(self) -> None:
        """Appends and answers what is gathered.

        A response may let a connection continue and gather more; that belongs to another read.
        """
        requests = self._requests
        if requests:
            self._requests = []
            self._append_records(requests)
