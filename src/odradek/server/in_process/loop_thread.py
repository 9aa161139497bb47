"""A thread with an event loop: where the broker of `with odradek.Broker()` runs.

Whoever asks from another thread hands a coroutine over and waits for what comes of it.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from odradek.server.event_loop import new_event_loop

T = TypeVar("T")
STOPPED: Final = "the broker was stopped meanwhile"


class LoopEnded(RuntimeError):
    """The loop was closed before it had an outcome."""


class LoopThread:
    """An event loop that runs in a thread until it is closed.

    The thread is a daemon: a test that forgets to stop its broker does not hang the process.
    """

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="odradek-broker", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for its outcome.

        Raises:
            LoopEnded: the loop was closed before it had one.
        """
        assert not self.is_current, "the loop's own thread would wait for itself"
        try:
            return self.submit(work).result()
        except CancelledError:
            raise LoopEnded(STOPPED) from None

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs a coroutine on the loop, and answers at once where its outcome will be.

        Raises:
            RuntimeError: the loop is closed.
        """
        with self._lock:
            if self._is_closed:
                work.close()
                raise RuntimeError(STOPPED)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run_within(self, work: Coroutine[Any, Any, T], patience_s: float) -> T:
        """As `run`, but waits no longer than that.

        Raises:
            TimeoutError: the loop has not done it by then.
        """
        return self.submit(work).result(patience_s)

    @property
    def is_current(self) -> bool:
        """Whether the caller is this very thread."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Ends the loop and the thread; who waits for an outcome yet is told."""
        with self._lock:
            self._is_closed = True
            ended = asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)
        ended.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
