"""Waits for changes in a running broker, and their ends.

Nothing polls: a change of the metadata wakes every wait, an append wakes by a fetch that is parked
on the awaited partitions, like a consumer's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from odradek.metadata.image import MetadataDelta
from odradek.metadata.store import ListenerStage
from odradek.replication.delayed.fetch import DelayedFetch
from odradek.server.broker import BrokerServer

T = TypeVar("T")
STOPPED: Final = "the broker was stopped meanwhile"


class Changes:
    """The looks that are waiting for a change."""

    def __init__(self) -> None:
        self._waiting: Final[set[asyncio.Future[None]]] = set()

    def watch(self, server: BrokerServer) -> None:
        """Wakes waiters when the metadata of a broker changes, and now: they may ask it from here
        on, for what it has begun to lead while it started."""
        server.store.subscribe(ListenerStage.CONTROLLER, self._on_metadata)
        self._wake_all()

    def close(self) -> None:
        """The broker stops: waits end with an error."""
        for change in tuple(self._waiting):
            if not change.done():
                change.set_exception(RuntimeError(STOPPED))

    async def look_until(
        self,
        look: Callable[[], Awaitable[T | None]],
        park: Callable[[Callable[[], None]], list[DelayedFetch]],
    ) -> T:
        """Looks, now and after every change, until there is something to see.

        `park(wake)` has `wake` called when a look is worth while again; the fetches that it
        answers are given up afterwards.

        Raises:
            RuntimeError: the broker was stopped meanwhile.
        """
        while True:
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # Before the look, so that no change goes by between the two.
            self._waiting.add(change)
            fetches: list[DelayedFetch] = []
            try:
                if (seen := await look()) is not None:
                    return seen
                fetches = park(partial(_wake, change))
                await change
            finally:
                self._waiting.discard(change)
                for fetch in fetches:
                    fetch.abandon()

    def _on_metadata(self, _delta: MetadataDelta) -> tuple[()]:
        self._wake_all()
        return ()

    def _wake_all(self) -> None:
        for change in tuple(self._waiting):
            _wake(change)


def _wake(change: "asyncio.Future[None]") -> None:
    if not change.done():
        change.set_result(None)
