"""A blocking client: an asyncio client on the loop's thread, and calls that wait for it.

`waits_for`, and `asks` where nothing is awaited, make a blocking method of an asyncio client's,
with the same arguments and documentation.
"""

import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from odradek.client.aio.closing import warn_unclosed
from odradek.client.errors import ClientClosed
from odradek.client.sync.shared_thread import SharedThread
from odradek.event_loop import LoopEnded, wait_for_outcome


class Client(Protocol):
    """The part of an asyncio client that every shell uses."""

    async def start(self) -> None:
        """See `AsyncClosing`."""

    async def close(self) -> None:
        """See `AsyncClosing`."""

    def metrics(self) -> dict[str, dict[str, float]]:
        """See `AsyncClosing`."""
        ...


C = TypeVar("C", bound=Client)
P = ParamSpec("P")
T = TypeVar("T")


class Shell(Generic[C]):
    """Closed by the end of a `with` block, or by `close`."""

    def __init__(self, make: Callable[[], C]) -> None:
        """Makes the client on the loop, since that is where it will be used.

        Raises:
            ValueError: a setting is illegal.
        """

        async def made() -> C:
            return make()

        self._is_closed = self._is_closing = False
        self._ending = threading.RLock()
        self._thread = SharedThread.move_in()
        try:
            self._client = self._wait(made())
        except BaseException:
            self._is_closed = True
            self._thread.move_out()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A forked child that ends, for example by sys.exit, can only say this.
        if error is None or not self._thread.is_forked:
            self.close()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True) and not self._thread.is_forked:
            warn_unclosed(self)

    def start(self) -> None:
        """Connects to a broker now instead of at the first use.

        Raises:
            KafkaError: none can be reached.
        """
        self._wait(self._client.start())

    def stop(self) -> None:
        """Closes the client, as `close` does."""
        self.close()

    def metrics(self) -> dict[str, dict[str, float]]:
        """The metrics of the client, by the groups and names of Kafka's own clients."""

        async def read() -> dict[str, dict[str, float]]:
            return self._client.metrics()

        return self._wait(read())

    def close(self) -> None:
        """Closes the client and its connections."""
        self._close(self._client.close)

    def _close(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._is_closed:
            self._thread.check_caller()
        if not self._ending.acquire(blocking=False):
            # Another thread does it, within the shorter of both time-outs.
            with suppress(ClientClosed, LoopEnded, CancelledError):
                Shell._wait(self, work())
            self._ending.acquire()
        try:
            # A call from a listener or a signal handler of this client would wait for itself.
            if not (self._is_closed or self._is_closing):
                self._is_closing = True
                self._end_for_good(work)
        finally:
            self._ending.release()

    def _end_for_good(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            self._wait(work())
        finally:
            self._is_closed = True
            self._thread.move_out()

    @property
    def _awaited(self) -> C:
        """Asked by `waits_for`."""
        return self._client

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for it; an interrupt cancels it.

        Raises:
            ClientClosed: the client has been closed.
        """
        return wait_for_outcome(self._submit(work))

    @contextmanager
    def _within(self, scope: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """A `with` block for an `async with` block of the client."""
        entered = self._wait(scope.__aenter__())
        try:
            yield entered
        except BaseException as error:
            if not self._thread.is_forked:
                self._wait(scope.__aexit__(type(error), error, error.__traceback__))
            raise
        self._wait(scope.__aexit__(None, None, None))

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        if self._is_closed:
            work.close()
            raise ClientClosed("the client was closed")
        return self._thread.submit(work)


def asks(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[Shell[C], P], T]:
    """The blocking twin of a method that is not awaited, but has to run on the loop."""

    @functools.wraps(method)
    def asking(shell: Shell[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def asked() -> T:
            return method(shell._client, *args, **kwargs)

        return shell._wait(asked())

    return asking
