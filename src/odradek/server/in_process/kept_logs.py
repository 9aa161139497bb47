"""Where the logs of a broker lie between its stop and its next start.

A broker makes the logs that it does not find, as Kafka does, and its topics would be empty. Who
starts it again in the same program has to know of that.
"""

import os

from odradek.server.broker import BrokerServer
from odradek.server.errors import StartError


class KeptLogs:
    """The directories that the logs of one broker lay in when it was stopped."""

    def __init__(self) -> None:
        self._paths: tuple[str, ...] = ()

    def note(self, server: BrokerServer) -> None:
        """The broker is about to stop."""
        self._paths = tuple(log.local.path for log in server.logs.logs())

    def forget(self) -> None:
        """The records go with the stop."""
        self._paths = ()

    def check(self) -> None:
        """The broker is about to start again.

        Raises:
            StartError: somebody has removed records meanwhile.
        """
        for path in self._paths:
            if not os.path.isdir(path):
                raise StartError(f"The records that the broker had are gone: there is no {path}")
