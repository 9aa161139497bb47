"""The lifecycle that all clients share: `async with`, or `start` and `stop`; closing that nothing
interrupts; a warning for a client that is never closed; metrics."""

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from odradek.client.aio.cluster import ClusterClient


class AsyncClosing:
    """A client: made without a connection, closed by the end of an `async with` block."""

    _cluster: ClusterClient
    _closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Of a child that ends, by sys.exit for one, that is what there is to tell.
        if error is None or not self._cluster.is_forked:
            await self.close()

    def __del__(self) -> None:
        cluster: ClusterClient | None = getattr(self, "_cluster", None)  # it may not have been made
        if cluster is not None and cluster.is_in_use:
            warn_unclosed(self)

    async def start(self) -> None:
        """Connects to a broker now, which otherwise happens when one is needed.

        Raises:
            KafkaError: none can be reached.
        """
        await self._cluster.connection(None)

    async def stop(self) -> None:
        """Closes the client, as `close` does."""
        await self.close()

    async def close(self) -> None:
        """Gives back what it has. Who is cancelled meanwhile leaves the closing to go on."""
        raise NotImplementedError

    def metrics(self) -> dict[str, dict[str, float]]:
        """The metrics of the client, by the groups and names of Kafka's own clients."""
        return self._cluster.metrics.snapshot()

    async def _close_once(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Does the work of `close`: once, and to its end, whoever waits for it or waits no more."""
        self._cluster.check_process()
        if self._closing is None:
            self._closing = asyncio.create_task(work())
        await asyncio.shield(self._closing)


def warn_unclosed(client: object) -> None:
    """Warns that a client went away with its connections open."""
    warnings.warn(f"unclosed client {client!r}", ResourceWarning, stacklevel=2, source=client)
