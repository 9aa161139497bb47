"""Calls that wait, and the `wakeup` that ends them with `WokenUp`, from any task or thread."""

import asyncio
from types import TracebackType

from odradek.client.errors import WokenUp


class Waking:
    """The calls of one client that wait at present; if none does, the next is woken."""

    def __init__(self) -> None:
        self._waiting: dict[Waited, None] = {}  # in the order in which they began
        self.is_due = False

    def wake(self) -> None:
        """Ends all that wait, or the next."""
        self.is_due = not self._waiting
        for waited in self._waiting:
            waited.wake()

    def waited(self, timeout_ms: float | None = None) -> "Waited":
        """The scope of a call that waits, so long at most.

        Raises:
            WokenUp: `wakeup` was called.
            TimeoutError: the time is over.
        """
        return Waited(self, timeout_ms)

    def check(self) -> None:
        """Raises WokenUp if `wakeup` was called while no call waited."""
        if self.is_due:
            self.is_due = False
            raise WokenUp("wakeup was called")

    def begin(self, waited: "Waited") -> None:
        """Adds a waiting call."""
        self.check()
        self._waiting[waited] = None

    def end(self, waited: "Waited") -> None:
        """Removes a waiting call."""
        self._waiting.pop(waited, None)


class Waited:
    """See `Waking.waited`."""

    def __init__(self, waking: Waking, timeout_ms: float | None) -> None:
        self._waking = waking
        self._scope = asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000)
        self._is_woken = False

    @property
    def is_over(self) -> bool:
        """Whether a TimeoutError is its own, and not from code that ran meanwhile."""
        return self._scope.expired()

    def wake(self) -> None:
        """Ends the wait."""
        self._is_woken = True
        if not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> None:
        self._waking.begin(self)
        await self._scope.__aenter__()

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._waking.end(self)
        try:
            await self._scope.__aexit__(error_type, error, traceback)
        except TimeoutError:
            if self._is_woken:
                raise WokenUp("wakeup was called") from None
            raise
        if self._is_woken:
            self._waking.is_due = True  # it had ended just before: the next is woken
