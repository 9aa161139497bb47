"""How the calls of `odradek.Broker` and `odradek.Cluster` get to the loop of their brokers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar
from weakref import WeakSet

from odradek.event_loop import LoopThread
from odradek.server.broker import BrokerServer
from odradek.server.faults import FaultBoard
from odradek.server.in_process.calls.broker_helpers import BrokerHelpers
from odradek.server.in_process.last_errors import LastErrors
from odradek.server.in_process.report import report_on
from odradek.server.in_process.shown import as_html

T = TypeVar("T")

REPORT_PATIENCE_S: Final = 5.0
RUNNING: "Final[WeakSet[LoopCalls]]" = WeakSet()
"""What runs in this process now: whoever reports about a failed test looks here."""


class LoopCalls:
    """What derives from it has the brokers, and the thread they live in, if any."""

    _thread: LoopThread | None
    _servers: list[BrokerServer]
    _helpers: BrokerHelpers
    _faults: FaultBoard
    _errors: LastErrors

    def _check_running(self) -> None:
        """Raises RuntimeError where there is nobody to ask."""
        raise NotImplementedError

    def _asked(self) -> BrokerHelpers:
        self._check_running()
        return self._helpers

    def _run(self, work: Coroutine[Any, Any, T], awaited: str) -> T:
        """Has the brokers' thread do it, and waits; `awaited` is what to use without one."""
        thread = self._thread
        if thread is None:
            work.close()
            self._check_running()
            raise RuntimeError(f"on the broker's own loop, use `await {awaited}(...)`")
        return thread.run(work)

    def _repr_html_(self) -> str:
        kind = f"odradek.{type(self).__name__}"
        return self._now(lambda: as_html(kind, self._servers, self._helpers))

    def report(self) -> str:
        """What somebody wants to know when a test has failed: topics with their end offsets, groups
        with their states and lag, what waits and for what, the last errors answered, the faults
        in force. From any thread; a broker that does not answer within seconds says so."""

        async def see() -> str:
            return report_on(self._servers, self._helpers, self._errors, self._faults)

        thread = self._thread
        if thread is None or thread.is_current:
            return report_on(self._servers, self._helpers, self._errors, self._faults)
        try:
            return thread.run_within(see(), REPORT_PATIENCE_S)
        except TimeoutError:
            return "the broker's loop does not answer: something holds it up"

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits what the brokers' loop does, whichever loop this is."""
        thread = self._thread
        if thread is None or thread.is_current:
            return await work
        return await asyncio.wrap_future(thread.submit(work))

    async def _seen(self, look: Callable[[], T]) -> T:
        """What the brokers' loop sees there, whichever loop this is."""

        async def see() -> T:
            return look()

        return await self._there(see())

    def _now(self, function: Callable[[], T]) -> T:
        """Has the brokers' loop call it at once: from any thread, and from the loop itself."""
        thread = self._thread
        if thread is None or thread.is_current:
            return function()

        async def call() -> T:
            return function()

        return thread.run(call())
