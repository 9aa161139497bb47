"""Takes the steps before a consumer returns records: rebalances, commits that are due, results of
commits, errors, and further fetches.

Every read asks `must_look` whether such a step is due, even if records are at hand.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from odradek.client.aio.consuming.commits import Commits
from odradek.client.aio.consuming.subscription import Subscription
from odradek.client.aio.fetching.fetcher import Fetcher
from odradek.client.aio.waking import Waking
from odradek.client.core.consuming.positions import Positions
from odradek.client.core.processes import OfOneProcess, tell_of_forks
from odradek.client.errors import ClientClosed
from odradek.clock import Clock
from odradek.log_limit import LimitedLog

_LOGGER: Final = logging.getLogger(__name__)
# The shortest pause between two warnings that a reader reads nothing.
_IDLE_INTERVAL_MS: Final = 30_000


class Reading(OfOneProcess):
    """The reads of one consumer, one at a time."""

    def __init__(
        self,
        clock: Clock,
        positions: Positions,
        subscription: Subscription,
        fetcher: Fetcher,
        commits: Commits,
        waking: Waking,
    ) -> None:
        super().__init__()
        self._positions = positions
        self._subscription = subscription
        self._fetcher = fetcher
        self._commits = commits
        self._waking = waking
        self._idle = LimitedLog(_LOGGER, clock, _IDLE_INTERVAL_MS)
        self._is_closed = False
        self.is_going_on = False
        tell_of_forks(self, Reading._on_forked)

    def end(self) -> None:
        """The consumer is closed: waiting and later reads get `ClientClosed`."""
        self._is_closed = True
        self._fetcher.news.set()

    def _on_forked(self) -> None:
        """Drops the records, which belong to the parent process."""
        self._is_closed = True

    @property
    def must_look(self) -> bool:
        """Whether a step is due before records at hand can be returned."""
        return (
            self._is_closed
            or self._waking.is_due
            or self._subscription.needs_poll
            or self._commits.needs_reader
        )

    async def wait_until(self, is_there: Callable[[], bool], timeout_ms: int) -> None:
        """Keeps membership and fetches going until there are records, or until the time-out.

        Raises:
            ClientClosed: the consumer was closed. KafkaError: reading cannot continue as it is.
        """
        if not self._positions.assigned and not self._subscription.is_member:
            self._idle.warning("a read without subscription or assignment brings nothing")
        waited = self._waking.waited(max(timeout_ms, 1))
        try:
            async with waited:
                self.is_going_on = True
                while True:
                    await self._look(lets_others_work=not timeout_ms)
                    if not timeout_ms:
                        return
                    if self._subscription.needs_poll:
                        continue  # before anything is given out
                    if is_there():
                        return
                    await self._news()
        except TimeoutError:
            if not waited.is_over:
                raise  # by the callback of a commit
            self.check_open()
        finally:
            self.is_going_on = False
            self._subscription.was_read()

    async def _look(self, *, lets_others_work: bool) -> None:
        self.check_open()
        self._fetcher.news.clear()
        self._commits.run_callbacks()
        await self._subscription.poll()
        self.check_open()
        self._commits.commit_if_due()
        self._fetcher.pump()
        if self._fetcher.has_unsent or self._commits.are_under_way or lets_others_work:
            # Missing data is requested before the reader continues, commits get their responses
            # though it never waits, and a caller that only polls, again and again, lets the loop
            # receive.
            await asyncio.sleep(0)
        self.raise_error()

    async def _news(self) -> None:
        """Waits for news, or until a commit is due: a waiting reader has processed all earlier
        records."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._commits.due_in_s):
                await self._fetcher.news.wait()

    def raise_error(self) -> None:
        """Raises, once, the error that stopped the fetcher."""
        error, self._fetcher.error = self._fetcher.error, None
        if error is not None:
            raise error

    def check_open(self) -> None:
        """Refuses a read of a closed consumer.

        Raises:
            ClientClosed: it is closed.
            UsageError: it belongs to another process.
        """
        if self._is_closed:
            self.check_process()
            raise ClientClosed("the consumer was closed")
