"""`async with` for whatever is closed at its end, and closing that nothing interrupts."""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self


class AsyncClosing:
    """A client: made without a connection, closed by the end of an `async with` block."""

    _closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Gives back what it has. Who is cancelled meanwhile leaves the closing to go on."""
        raise NotImplementedError

    async def _close_once(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Does the work of `close`: once, and to its end, whoever waits for it or waits no more."""
        if self._closing is None:
            self._closing = asyncio.create_task(work())
        await asyncio.shield(self._closing)
