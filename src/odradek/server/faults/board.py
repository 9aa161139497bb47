"""`FaultBoard`: the faults in force, and the brokers that they are in force at."""

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from odradek.errors import ErrorCode
from odradek.server.faults.fault import Effect, Fault, Filter
from odradek.server.faults.handler import FaultyHandler

if TYPE_CHECKING:
    from odradek.server.broker import BrokerServer


class FaultBoard:
    """Puts faults into force and takes them out. All calls are the loop's of the brokers.

    `running` has the brokers that run; the code that starts and stops them keeps it up to date, and
    calls `on_started`: a fault outlives a restart.
    """

    def __init__(self, running: "Sequence[BrokerServer]") -> None:
        self._running: Final = running
        self._faults: Final[list[Fault]] = []
        self._strikes: Final[set[asyncio.Future[None]]] = set()

    @property
    def active(self) -> tuple[Fault, ...]:
        """Lists the faults in force, the oldest first."""
        return tuple(self._faults)

    def put(
        self,
        effect: Effect,
        filter: Filter,
        end: Callable[[Fault], None],
        *,
        times: int | None = None,
        error: ErrorCode = ErrorCode.NONE,
        delay_ms: int = 0,
        name: str = "",
    ) -> Fault:
        """Puts a fault into force, whose `end` calls `end` here, from the right thread.

        Raises:
            ValueError: it would never strike, or a delay is negative.
        """
        fault = Fault(effect, filter, end, times=times, error=error, delay_ms=delay_ms, name=name)
        self._faults.append(fault)
        self._apply()
        return fault

    def end(self, fault: Fault) -> None:
        """Takes a fault out of force, if it still is."""
        if fault in self._faults:
            self._faults.remove(fault)
            self._apply()

    def end_all(self) -> None:
        """Takes every fault out of force."""
        self._faults.clear()
        self._apply()

    def on_started(self, server: "BrokerServer") -> None:
        """A broker serves: applies the current faults there too."""
        if self._faults:
            self._apply_to(server)

    async def struck(self, fault: Fault, times: int, timeout_s: float | None) -> None:
        """Returns when a fault has struck so often.

        Raises:
            TimeoutError: it has not by then.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while fault.struck < times:
                    await self._next_strike()
        except TimeoutError:
            text = f"{fault} has not struck {times} times after {timeout_s:g} s"
            raise TimeoutError(text) from None

    async def _next_strike(self) -> None:
        strike: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._strikes.add(strike)
        try:
            await strike
        finally:
            self._strikes.discard(strike)

    def _on_struck(self, fault: Fault) -> None:
        if fault.is_used_up:
            self.end(fault)
        for strike in tuple(self._strikes):
            if not strike.done():
                strike.set_result(None)

    def _apply(self) -> None:
        for server in self._running:
            self._apply_to(server)

    def _apply_to(self, server: "BrokerServer") -> None:
        broker_id = server.config.broker_id
        full = [each for each in self._faults if each.effect is Effect.FULL_DISK]
        here = [each for each in full if each.filter.broker_id in (None, broker_id)]
        server.files.pool.trouble = self._refuse_writing(here[0]) if here else None
        if len(full) == len(self._faults):
            server.sockets.use(server.dispatcher)
        else:
            server.sockets.use(FaultyHandler(server, self._of_requests, self._on_struck))

    def _of_requests(self) -> list[Fault]:
        return [each for each in self._faults if each.effect is not Effect.FULL_DISK]

    def _refuse_writing(self, fault: Fault) -> Callable[[str], None]:
        loop = asyncio.get_running_loop()

        def refuse(path: str) -> None:
            fault.struck += 1
            loop.call_soon_threadsafe(self._on_struck, fault)  # helper threads write too
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        return refuse
