"""`Background` and `Workers` on threads: fsync, metadata commits, removal of large files, loading.

Work runs on a small pool; its outcome comes back to the loop, one wake-up for each. The
pool's threads start when there is something to do, so an idle broker has none.

Exactly one of a work's callbacks is called, whatever its result, and work whose callback raises
still counts as done: `drain` ends. A bug is logged with its traceback; an `AssertionError`, of work
or of a callback, is then passed to `on_broken_invariant`, which ends the broker (fail-stop): its
state could not be trusted any more.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from odradek.background import Work, log_mistake

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ThreadPoolBackground:
    """Runs blocking work on threads, and its callbacks on `loop`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_broken_invariant: Callable[[AssertionError], None],
        threads: int = 4,
    ) -> None:
        self._loop = loop
        self._on_broken_invariant = on_broken_invariant
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="odradek-background")
        self._pending = 0
        self._drained = asyncio.Event()
        self._drained.set()

    def submit(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Runs `work` on a thread, then exactly one of the callbacks on the loop."""
        self._begin()
        future = self._pool.submit(work)
        future.add_done_callback(partial(self._hand_back, on_done, on_error))

    def defer(self, action: Callable[[], None]) -> None:
        """Calls `action` at the loop's next turn."""
        self._begin()
        self._loop.call_soon(self._call_back, action)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self._pending == 0

    async def idle(self) -> None:
        """Waits until nothing is under way, at one moment at least."""
        await self._drained.wait()

    async def drain(self) -> None:
        """Waits until nothing is under way, including work that callbacks submit."""
        # Between the last outcome and this task's turn the timer may have submitted more.
        while self._pending:
            await self._drained.wait()

    def close(self) -> None:
        """Ends the threads; everything is drained, so none of them is at work."""
        assert self._pending == 0, f"{self._pending} pieces of work are under way"
        self._pool.shutdown()

    def _hand_back(
        self,
        on_done: Callable[[T], None],
        on_error: Callable[[BaseException], None],
        future: "Future[T]",
    ) -> None:
        self._loop.call_soon_threadsafe(self._finish, on_done, on_error, future)

    def _finish(
        self,
        on_done: Callable[[T], None],
        on_error: Callable[[BaseException], None],
        future: "Future[T]",
    ) -> None:
        error = future.exception()
        if error is None:
            self._call_back(lambda: on_done(future.result()))
            return
        log_mistake(error)
        self._call_back(lambda: on_error(error))
        if isinstance(error, AssertionError):
            self._on_broken_invariant(error)

    def _call_back(self, callback: Callable[[], None]) -> None:
        """Runs the end of a piece of work; an exception ends only that piece."""
        try:
            callback()
        except AssertionError as error:
            logger.exception("a callback of background work failed")
            self._on_broken_invariant(error)
        except Exception:  # the caller's callback: the next piece of work is not its affair
            logger.exception("a callback of background work failed")
        finally:
            self._end()

    def _begin(self) -> None:
        self._pending += 1
        self._drained.clear()

    def _end(self) -> None:
        self._pending -= 1
        if self._pending == 0:
            self._drained.set()


class ThreadWorkers:
    """`Workers` with a pool of threads for each row, which lives as long as the call."""

    def run(self, rows: Sequence[Sequence[Work[T]]], threads: int) -> Iterator[T]:
        """Yields on the caller's thread; an abandoned iterator begins no further work."""
        # A piece's results, and then its future.
        handed_over: SimpleQueue[tuple[T] | Future[None]] = SimpleQueue()

        def hand_over(result: T) -> None:
            handed_over.put((result,))

        with ExitStack() as pools:
            for row in rows:
                pool = ThreadPoolExecutor(threads, thread_name_prefix="odradek-worker")
                pools.callback(pool.shutdown, cancel_futures=True)
                for work in row:
                    future = pool.submit(work, hand_over)
                    future.add_done_callback(handed_over.put)
            unfinished = sum(len(row) for row in rows)
            while unfinished:
                item = handed_over.get()
                if isinstance(item, Future):
                    item.result()
                    unfinished -= 1
                else:
                    yield item[0]
