"""How the calls of `odradek.Broker` and `odradek.Cluster` get to the loop of their brokers."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from odradek.server.broker_helpers import BrokerHelpers
from odradek.server.faults import FaultBoard
from odradek.server.loop_thread import LoopThread

T = TypeVar("T")


class LoopCalls:
    """What derives from it has the brokers, and the thread they live in, if any."""

    _thread: LoopThread | None
    _helpers: BrokerHelpers
    _faults: FaultBoard

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
            raise RuntimeError(f"on a running loop, use `await {awaited}(...)`")
        return thread.run(work)

    def _now(self, function: Callable[[], T]) -> T:
        """Has the brokers' loop call it at once: from any thread, and from the loop itself."""
        thread = self._thread
        if thread is None or thread.is_current:
            return function()

        async def call() -> T:
            return function()

        return thread.run(call())
