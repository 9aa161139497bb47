"""The lifecycle that all clients share: `async with`, or `start` and `stop`; closing that nothing
interrupts; a warning for a client that is never closed; metrics."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.waiting import is_being_cancelled


class ClosingTimeout:
    """The time-out of closing: the shortest one of all callers."""

    def __init__(self) -> None:
        self._until_s: float | None = None
        self._scope: asyncio.Timeout | None = None

    def shorten(self, timeout_ms: int | None) -> None:
        """Shortens the time-out to a caller's; None means without end."""
        if timeout_ms is None:
            return
        until_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        if self._until_s is None or until_s < self._until_s:
            self._until_s = until_s
            if self._scope is not None:
                self._scope.reschedule(until_s)

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Raises TimeoutError when the time is over."""
        async with asyncio.timeout_at(self._until_s) as self._scope:
            try:
                yield
            finally:
                self._scope = None


class AsyncClosing:
    """A client: made without a connection, closed by the end of an `async with` block."""

    _cluster: ClusterClient
    _closing: asyncio.Task[None] | None = None
    _closing_timeout: ClosingTimeout

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A forked child that ends, for example by sys.exit, can only say this.
        if error is None or not self._cluster.is_forked:
            await self.close()

    def __del__(self) -> None:
        cluster: ClusterClient | None = getattr(self, "_cluster", None)  # `__init__` may fail
        if cluster is not None and cluster.is_in_use:
            warn_unclosed(self)

    async def start(self) -> None:
        """Connects to a broker now instead of at the first use.

        Raises:
            KafkaError: none can be reached.
        """
        await self._cluster.connection(None)

    async def stop(self) -> None:
        """Closes the client, as `close` does."""
        await self.close()

    async def close(self) -> None:
        """Closes the client and its connections, also if the caller is cancelled meanwhile."""
        raise NotImplementedError

    def metrics(self) -> dict[str, dict[str, float]]:
        """The metrics of the client, by the groups and names of Kafka's own clients."""
        return self._cluster.metrics.snapshot()

    async def _close_once(
        self,
        work: Callable[[ClosingTimeout], Coroutine[Any, Any, None]],
        timeout_ms: int | None = None,
    ) -> None:
        """Does the work of `close` once, and to its end, even if no caller waits any more. A call
        with less time than earlier ones shortens it for all."""
        self._cluster.check_process()
        closing = self._closing
        # A program that cancels all tasks of its loop ends that of closing, too.
        if closing is None or closing.cancelled():
            self._closing_timeout = ClosingTimeout()
            closing = self._closing = asyncio.create_task(work(self._closing_timeout))
        self._closing_timeout.shorten(timeout_ms)
        if self._is_waited_for:
            return
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            await self._close_once(work, timeout_ms)

    @property
    def _is_waited_for(self) -> bool:
        """Whether closing waits for its caller, who cannot wait for it then."""
        return False


def warn_unclosed(client: object) -> None:
    """Warns that a client went away with its connections open."""
    warnings.warn(f"unclosed client {client!r}", ResourceWarning, stacklevel=2, source=client)
