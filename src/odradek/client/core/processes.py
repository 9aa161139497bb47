"""`OfOneProcess`: what a process that is forked from its own can only leave alone."""

import os
from typing import Final

from odradek.client.errors import UsageError
from odradek.errors import ErrorCode

_FORKED: Final = (
    "this client was made before its process was forked: its connections are the parent's"
)


class OfOneProcess:
    """A base class of what lives by the sockets and threads of the process that made it."""

    def __init__(self) -> None:
        self._process_id: Final = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether it is another process's, of which this one was forked."""
        return self._process_id != os.getpid()

    def check_process(self) -> None:
        """Raises UsageError in a process that was forked from its own."""
        if self.is_forked:
            raise UsageError(_FORKED, ErrorCode.INVALID_REQUEST)
