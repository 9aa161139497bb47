"""`GatheredAppends`: the appends of the produce requests of one socket read.

The requests keep their frames until the end of the read, when all are appended with one write for
each partition.
"""

from collections.abc import Callable, Sequence

from odradek.replication.append import AppendRequest


class GatheredAppends:
    """The gathered requests, appended in their order."""

    def __init__(self, append_records: Callable[[Sequence[AppendRequest]], None]) -> None:
        self._append_records = append_records
        self._requests: list[AppendRequest] = []

    def add(self, request: AppendRequest) -> None:
        """Leaves a request for the next `append`."""
        self._requests.append(request)

    def append(self) -> None:
        """Appends and answers the gathered requests.

        A response may let a connection continue and gather more; those belong to another read.
        """
        requests = self._requests
        if requests:
            self._requests = []
            self._append_records(requests)
