"""The logs of a broker between its stop and its next start.

As in Kafka a broker creates missing logs, and its topics would be empty. A restart in the same
program reports that instead.
"""

import os
from collections.abc import Iterator

from odradek.server.broker import BrokerServer
from odradek.server.errors import StartError
from odradek.storage.log.local_log import LocalLog


class KeptLogs:
    """The logs that one broker had when it was stopped, and where they lay."""

    def __init__(self) -> None:
        self._logs: list[tuple[LocalLog, str]] = []

    def note(self, server: BrokerServer) -> None:
        """The broker is about to stop."""
        self._logs = [(log.local, log.local.path) for log in server.logs.logs()]

    def forget(self) -> None:
        """The records go with the stop, or the broker runs again."""
        self._logs = []

    def check(self) -> None:
        """The broker is about to start again.

        Raises:
            StartError: somebody has removed records meanwhile.
        """
        for path in self._files():
            if not os.path.isfile(path):
                raise StartError(f"The records that the broker had are gone: there is no {path}")

    def _files(self) -> Iterator[str]:
        """The segments at its stop, without those of topics that were deleted meanwhile."""
        for log, path in self._logs:
            if log.path == path:
                yield from (segment.file.path for segment in log.segments.all())
