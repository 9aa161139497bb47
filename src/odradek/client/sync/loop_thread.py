"""The thread with the event loop on which all blocking clients of a process do their work.

It is there from the first client's beginning to the last one's end, and a daemon: a client that
nobody closes does not keep the process.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from odradek.client.errors import UsageError
from odradek.errors import ErrorCode

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread. `move_in` gives the one that there is."""

    _lock: Final = threading.Lock()
    _current: "LoopThread | None" = None

    def __init__(self) -> None:
        self._clients = 0
        self._process_id = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="odradek-client", daemon=True
        )
        self._thread.start()

    @classmethod
    def move_in(cls) -> "LoopThread":
        """The process's thread, for one more client; each moves out again."""
        with cls._lock:
            known = cls._current
            # A process that was forked has its parent's variables, but not its threads.
            if known is None or known._process_id != os.getpid():
                known = cls._current = LoopThread()
            known._clients += 1
            return known

    def move_out(self) -> None:
        """A client has ended; with the last one the thread does."""
        with self._lock:
            self._clients -= 1
            if self._clients:
                return
            LoopThread._current = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs a coroutine; the future has its outcome.

        Raises:
            UsageError: the caller is the thread itself, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise UsageError(
                "a blocking client cannot be used by what its own thread calls: callbacks of "
                "deliveries, interceptors, serializers",
                ErrorCode.INVALID_REQUEST,
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop)
