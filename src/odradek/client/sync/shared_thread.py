"""The thread with the event loop on which all blocking clients of a process do their work.

The first client starts it and the last one ends it. It is a daemon: an unclosed client does not
keep the process alive.
"""

import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from odradek.client.core.processes import OfOneProcess
from odradek.client.errors import UsageError
from odradek.errors import ErrorCode
from odradek.event_loop import LoopThread

T = TypeVar("T")


class SharedThread(OfOneProcess):
    """A `LoopThread` with a count of its clients. `move_in` returns the existing one."""

    _lock: Final = threading.Lock()
    _current: "SharedThread | None" = None

    def __init__(self) -> None:
        super().__init__()
        self._clients = 0
        self._thread = LoopThread("odradek-client", "the client was closed meanwhile")

    @classmethod
    def move_in(cls) -> "SharedThread":
        """The process's thread, for one more client, which calls `move_out` at its end."""
        with cls._lock:
            known = cls._current
            # A process that was forked has its parent's variables, but not its threads.
            if known is None or known.is_forked:
                known = cls._current = SharedThread()
            known._clients += 1
            return known

    def move_out(self) -> None:
        """Removes a client; with the last one the thread ends."""
        with self._lock:
            self._clients -= 1
            if self._clients:
                return
            SharedThread._current = None
        self._thread.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs a coroutine; the future has its outcome.

        Raises:
            UsageError: as `check_caller`.
        """
        try:
            self.check_caller()
        except UsageError:
            work.close()
            raise
        return self._thread.submit(work)

    def check_caller(self) -> None:
        """Raises UsageError when the caller is the thread itself, which would wait for itself, or a
        process that was forked from the one that has it."""
        self.check_process()
        if self._thread.is_current:
            raise UsageError(
                "a blocking client cannot be used in calls from its own thread: callbacks of "
                "deliveries, interceptors, serializers",
                ErrorCode.INVALID_REQUEST,
            )
