"""`OfOneProcess`: an object that a forked process cannot use.

Calls that need a connection check the process. Putting a record into a batch or taking a fetched
one happens too often for that: those clients are notified of the fork.
"""

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from odradek.client.errors import UsageError
from odradek.errors import ErrorCode

_FORKED: Final = (
    "this client was made before its process was forked: its connections are the parent's"
)


class OfOneProcess:
    """A base class for objects with sockets and threads of the process that created them."""

    def __init__(self) -> None:
        self._process_id: Final = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the object's own one."""
        return self._process_id != os.getpid()

    def check_process(self) -> None:
        """Raises UsageError in a process that was forked from its own."""
        if self.is_forked:
            raise UsageError(_FORKED, ErrorCode.INVALID_REQUEST)


C = TypeVar("C")
_ON_FORKED: Final[WeakKeyDictionary[Any, Callable[[Any], None]]] = WeakKeyDictionary()


def tell_of_forks(client: C, on_forked: Callable[[C], None]) -> None:
    """Calls a function with a client that finds itself in a child."""
    _ON_FORKED[client] = on_forked


def _tell_all() -> None:
    for client, on_forked in list(_ON_FORKED.items()):
        on_forked(client)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_all)
