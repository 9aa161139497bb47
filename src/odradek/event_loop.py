"""Event loops: which kind, and one that runs in its own thread."""

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from odradek.clock import monotonic_s

P = ParamSpec("P")
T = TypeVar("T")
Owner = TypeVar("Owner")
Owner_co = TypeVar("Owner_co", covariant=True)


class Waits(Protocol[Owner_co]):
    """An object with blocking twins of another object's methods, or of its own methods: see
    `waits_for`."""

    @property
    def _awaited(self) -> Owner_co:
        """The object whose methods are waited for."""
        ...

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on its loop, and waits for the outcome."""
        ...


def waits_for(
    method: Callable[Concatenate[Owner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Waits[Owner], P], T]:
    """The blocking twin of a method that is awaited: the same arguments, and documentation."""

    @functools.wraps(method)
    def waiting(waits: Waits[Owner], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return waits._wait(method(waits._awaited, *args, **kwargs))

    waiting.__name__ = method.__name__.removesuffix("_async")
    waiting.__qualname__ = method.__qualname__.removesuffix("_async")
    return waiting


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A fresh loop of the best kind there is: uvloop's where it is installed, else asyncio's.

    Neither stands still where a library freezes `time.monotonic`, by which asyncio's loops go.
    """
    loop: asyncio.AbstractEventLoop
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
        loop.time = monotonic_s  # type: ignore[method-assign]
        return loop
    loop = uvloop.new_event_loop()
    return loop


def on_end_signals(loop: asyncio.AbstractEventLoop, callback: Callable[[int], None]) -> None:
    """Calls it with the signal when this process is asked to end, by SIGTERM or Ctrl-C."""
    for each in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(each, callback, each)
        except NotImplementedError:  # Windows
            signal.signal(each, lambda number, _: loop.call_soon_threadsafe(callback, number))


class LoopEnded(RuntimeError):
    """The loop was closed before it had an outcome."""


class LoopThread:
    """An event loop that runs in a thread until it is closed.

    Another thread submits a coroutine and waits for its outcome. The thread is a daemon: a loop
    that nobody closes does not hang the process.
    """

    def __init__(self, name: str, ended: str) -> None:
        """`name` is the thread's, `ended` the error text after `close`."""
        self._ended: Final = ended
        self._loop = new_event_loop()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for its outcome; an interrupt cancels it.

        Raises:
            LoopEnded: the loop was closed before it had one.
        """
        assert not self.is_current, "the loop's own thread would wait for itself"
        try:
            return wait_for_outcome(self.submit(work))
        except CancelledError:
            raise LoopEnded(self._ended) from None

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs a coroutine on the loop, and answers at once where its outcome will be.

        Raises:
            LoopEnded: the loop is closed.
        """
        with self._lock:
            if self._is_closed:
                work.close()
                raise LoopEnded(self._ended)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run_within(self, work: Coroutine[Any, Any, T], patience_s: float) -> T:
        """Like `run`, but with a time-out.

        Raises:
            TimeoutError: the loop has not done it by then.
        """
        return wait_for_outcome(self.submit(work), patience_s)

    @property
    def is_current(self) -> bool:
        """Whether the caller is this very thread."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Ends the loop and the thread; callers that still wait for an outcome get `LoopEnded`."""
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


def wait_for_outcome(future: "Future[T]", patience_s: float | None = None) -> T:
    """Waits for what a loop in another thread does, and cancels it if that ends the wait early: by
    Ctrl-C or a time-out. Otherwise the loop would go on with what nobody waits for."""
    try:
        return future.result(patience_s)
    except BaseException:
        future.cancel()
        raise


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
