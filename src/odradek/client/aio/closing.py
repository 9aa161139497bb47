"""`async with` for whatever is closed at its end."""

from types import TracebackType
from typing import Self


class AsyncClosing:
    """A client: made without a connection, closed by the end of an `async with` block."""

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
        """Gives back what it has."""
        raise NotImplementedError
