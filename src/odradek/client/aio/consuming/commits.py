"""The commits of a consumer: requested ones, and those of auto-commit.

Commits without waiting run as tasks; callbacks report their results, and run only in the reader's
calls (`run_callbacks`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from odradek.client.aio.group import Membership
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.groups.commits import Offsets, with_metadata
from odradek.client.errors import ClientClosed, KafkaError
from odradek.client.settings import ClientSettings
from odradek.clock import Clock
from odradek.model import TopicPartition

_LOGGER: Final = logging.getLogger(__name__)
CommitCallback = Callable[[Mapping[TopicPartition, CommittedOffset], KafkaError | None], None]


class CommitInterceptor(Protocol):
    """Sees offsets that were committed."""

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Called with committed offsets."""
        ...


class Commits:
    """Commits as the group's member. `consumed` returns the reader's positions, `wakes` wakes
    it."""

    def __init__(
        self,
        settings: ClientSettings,
        clock: Clock,
        membership: Callable[[], Membership],
        consumed: Callable[[], Offsets],
        interceptors: Sequence[CommitInterceptor],
        wakes: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._membership = membership
        self._consumed = consumed
        self._interceptors = interceptors
        self._wakes = wakes
        has_group = bool(settings.text("group.id"))
        self._is_automatic = has_group and settings.flag("enable.auto.commit")
        self._interval_ms = max(1, settings.number("auto.commit.interval.ms"))
        self._due_ms = clock.monotonic_ms() + self._interval_ms
        self._under_way: dict[asyncio.Task[None], None] = {}
        self._callbacks: deque[Callable[[], None]] = deque()

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commits offsets, or the reader's positions.

        Raises:
            CommitFailed: the group has continued without this member. KafkaError: anything else.
        """
        wanted = self._wanted(offsets)
        if wanted:
            await self._membership().commit(wanted)
            self._tell(wanted)

    def commit_async(self, offsets: Offsets | None, callback: CommitCallback | None) -> None:
        """Commits without waiting."""
        wanted = self._wanted(offsets)
        if wanted:
            task = self._membership().commit(wanted)
            self._under_way[task] = None
            task.add_done_callback(partial(self._ended, wanted, callback))

    @property
    def needs_reader(self) -> bool:
        """Whether a read has to handle commits first: one is due, or has a result to report."""
        return bool(self._callbacks) or self._is_due

    @property
    def are_under_way(self) -> bool:
        """Whether commits without a waiter are under way: they need the loop."""
        return bool(self._under_way)

    @property
    def due_in_s(self) -> float | None:
        """The time until auto-commit's next one; None without auto-commit."""
        if not self._is_automatic:
            return None
        return max(0, self._due_ms - self._clock.monotonic_ms()) / 1000

    @property
    def _is_due(self) -> bool:
        return self._is_automatic and self._clock.monotonic_ms() >= self._due_ms

    def commit_if_due(self) -> None:
        """Auto-commits, every `auto.commit.interval.ms`."""
        if not self._is_due:
            return
        self._due_ms = self._clock.monotonic_ms() + self._interval_ms
        if not self._under_way:
            self.commit_async(None, None)

    def before_dropping(self) -> None:
        """With auto-commit commits pending offsets before partitions are dropped at once."""
        if self._is_automatic:
            self.commit_async(None, None)

    async def before_revoking(self) -> None:
        """With auto-commit commits pending offsets before partitions are revoked."""
        if not self._is_automatic:
            return
        try:
            await self.commit()
        except KafkaError as error:
            _LOGGER.warning("the offsets could not be committed: %s", error)

    async def await_pending(self) -> None:
        """Waits for the commits under way."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def give_up(self) -> None:
        """Ends the commits under way; it is unknown whether they are committed."""
        for task in self._under_way:
            task.cancel()
        await self.await_pending()

    def run_callbacks(self) -> None:
        """Reports the results of commits without a waiter. An exception of a callback is raised
        here; the others are called the next time."""
        while self._callbacks:
            self._callbacks.popleft()()

    def run_last_callbacks(self) -> None:
        """Like `run_callbacks`, for the last time: an exception is logged."""
        while self._callbacks:
            try:
                self.run_callbacks()
            except Exception:  # a user's callback: the client is closed all the same
                _LOGGER.warning("the callback of a commit failed", exc_info=True)

    def _ended(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        callback: CommitCallback | None,
        task: asyncio.Task[None],
    ) -> None:
        self._under_way.pop(task, None)
        error: KafkaError | None = None
        if task.cancelled():
            error = ClientClosed("the consumer was closed before its commit was answered")
        elif isinstance(fault := task.exception(), KafkaError):
            error = fault
        elif fault is not None:
            error = KafkaError(f"the commit failed: {fault!r}")
        if error is None:
            self._tell(offsets)
        else:
            _LOGGER.warning("the offsets could not be committed: %s", error)
        if callback is not None:
            self._callbacks.append(partial(callback, offsets, error))
            self._wakes()

    def _tell(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:  # a user's interceptor: the offsets are committed
                _LOGGER.warning("an interceptor failed on a commit", exc_info=True)

    def _wanted(self, offsets: Offsets | None) -> dict[TopicPartition, CommittedOffset]:
        return with_metadata(self._consumed() if offsets is None else offsets)
