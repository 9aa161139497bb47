"""The subscription of a consumer, and its membership in the group.

The membership gives up and takes partitions inside of `poll` and nowhere else.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import Final

from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.group import Membership, RebalanceListener
from odradek.client.aio.waiting import is_being_cancelled
from odradek.client.core.listed import each_once
from odradek.client.errors import ClientClosed, KafkaError, UsageError
from odradek.errors import ErrorCode
from odradek.expressions import ExpressionError, Match, java_pattern

_LOGGER: Final = logging.getLogger(__name__)
# How long closing waits for a listener that it has cancelled.
_LISTENER_ENDS_S: Final = 0.1
# The work that has called the listener, in the listener's task and those that it begins:
# `asyncio.wait_for` begins one, up to Python 3.11.
_CALLED_BY: Final[ContextVar[asyncio.Task[None] | None]] = ContextVar("_CALLED_BY", default=None)
# Makes a membership that reads the topics of a subscription, with its listener.
NewMembership = Callable[["Subscription"], Membership]


class Subscription:
    """Topics by name or by pattern, and the membership in a group."""

    def __init__(self, cluster: ClusterClient, new_membership: NewMembership) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._new_membership = new_membership
        self._creates_topics = settings.flag("allow.auto.create.topics")
        self._skips_internal = settings.flag("exclude.internal.topics")
        self._has_group = bool(settings.text("group.id"))
        self._pattern: Match | None = None
        self._membership: Membership | None = None
        self._polling: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._is_abandoned = False
        # They outlive their membership: leaving the group may be what one more listener fails at.
        self._failures: deque[KafkaError] = deque()
        self.topics: frozenset[str] = frozenset()
        self.listener: RebalanceListener | None = None
        self.is_member = False

    def check_group(self) -> None:
        """Refuses a call that needs a group.

        Raises:
            UsageError: there is no group.
        """
        if not self._has_group:
            raise UsageError("this needs a group.id", ErrorCode.INVALID_GROUP_ID)

    @property
    def membership(self) -> Membership:
        """The membership, or one that only knows the group, for offsets.

        Raises:
            UsageError: there is no group.
        """
        self.check_group()
        if self._membership is None:
            self._membership = self._new_membership(self)
        return self._membership

    def subscribe(
        self, topics: Iterable[str], pattern: str | None, listener: RebalanceListener | None
    ) -> None:
        """Reads these topics, or those that match, as a member from the next poll on.

        Raises:
            UsageError: no topic is named, or the pattern is invalid, or a cancelled `unsubscribe`
                is still running. TypeError: it is one name, and no list of them.
        """
        wanted = frozenset(each_once(topics))
        if self._leaving is not None:
            raise UsageError("the group is still being left", ErrorCode.INVALID_REQUEST)
        self._pattern = None if pattern is None else _compiled(pattern)
        self.topics = wanted
        self.listener = listener
        if not self.topics and self._pattern is None:
            raise UsageError("no topic is named; see `unsubscribe`", ErrorCode.INVALID_REQUEST)
        if self.is_member:
            self.membership.listener = listener
            self.membership.subscription_changed()
        else:
            self._membership = self._new_membership(self)
            self.is_member = True

    async def wanted_topics(self) -> frozenset[str]:
        """The topics to read.

        Raises:
            KafkaError: nobody can be asked for them, or one of them cannot be.
        """
        pattern, named = self._pattern, self.topics
        if pattern is None:
            if outdated := self._cluster.outdated(named):
                answer = await self._cluster.refresh(
                    outdated, allow_auto_topic_creation=self._creates_topics
                )
                if self._pattern is not None or self.topics is not named:
                    return await self.wanted_topics()  # another subscription by now
                answer.raise_refused(outdated)
            return named
        answer = await self._cluster.refresh(None)
        if self._pattern is not pattern:
            return await self.wanted_topics()
        # A transient error of a topic does not end its subscription.
        kept = self.topics & self._cluster.metadata.topics.keys()
        self.topics = frozenset(
            name
            for name, topic in answer.topics.items()
            if pattern(name) is not None
            and not (topic.is_internal and self._skips_internal)
            and (not topic.error_code or name in kept)
        )
        return self.topics

    def reads(self, topic: str) -> bool:
        """Whether a topic is named, or matches."""
        if self._pattern is None:
            return topic in self.topics
        return self._pattern(topic) is not None

    def tell_reader(self, failure: KafkaError) -> None:
        """Keeps a failure until the reader polls, or leaves the group; each is raised once."""
        self._failures.append(failure)

    @property
    def needs_poll(self) -> bool:
        """Whether the membership has work to do before more records are returned, or a failure to
        tell."""
        if self._polling is not None or self._leaving is not None or self._failures:
            return True
        return self._membership is not None and self.is_member and self._membership.needs_poll

    @property
    def is_called_by_listener(self) -> bool:
        """Whether a listener calls: its rebalance, or leaving the group, waits for it."""
        caller = _CALLED_BY.get()
        return caller is not None and caller in (self._polling, self._leaving)

    async def poll(self) -> None:
        """Lets the membership do its work.

        If the caller is cancelled, the work continues: such a read returns nothing, and all records
        returned before count as processed. The next poll waits for it first.

        Raises:
            UsageError: a listener reads.
            KafkaError: this member cannot be one, or its listener failed.
        """
        if self.is_called_by_listener:
            raise listener_reads()
        await self._until_left()
        membership = self._membership
        if membership is not None and self.is_member:
            await self._poll(membership)
        self._raise_failure()

    async def _poll(self, membership: Membership) -> None:
        membership.polled()
        # A member that leaves takes nothing more.
        while self._leaving is None and (self._polling is not None or membership.needs_poll):
            polling = self._polling
            if polling is None:
                polling = self._polling = _begin(membership.poll)
            try:
                await asyncio.shield(polling)
            except asyncio.CancelledError:
                if polling.cancelled() and not is_being_cancelled():
                    return  # another task unsubscribes, or closes the consumer
                raise
            finally:
                if self._polling is polling and polling.done():
                    self._polling = None

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures.popleft()

    def was_read(self) -> None:
        """Marks the end of a read: from now on the reader may be late."""
        if self._membership is not None and self.is_member:
            self._membership.polled()

    async def unsubscribe(self) -> None:
        """Leaves the group, and drops the topics; offsets may be asked for afterwards.

        If the caller is cancelled, leaving the group continues. A listener does not wait for it.

        Raises:
            ClientClosed: closing the consumer has ended it.
            KafkaError: the listener failed; the group is left.
        """
        if self.is_called_by_listener:
            self.begin_to_leave()
        else:
            await self.end()

    async def end(self) -> None:
        """Leaves the group, as `unsubscribe` does, for a caller that no listener waits for."""
        self.begin_to_leave()
        await self._until_left()
        self._raise_failure()

    def begin_to_leave(self) -> asyncio.Task[None]:
        """Begins what `unsubscribe` waits for; the reader has the failures of the listener."""
        leaving = self._leaving
        # A program that cancels all tasks of its loop interrupts leaving, which then goes on.
        if leaving is None or leaving.done():
            leaving = self._leaving = _begin(self._leave)
        return leaving

    async def _until_left(self) -> None:
        while self._leaving is not None:
            leaving = self.begin_to_leave()
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError:
                if is_being_cancelled() or not leaving.cancelled():
                    raise
                if self._is_abandoned:
                    raise ClientClosed("the consumer was closed") from None

    async def abandon(self) -> None:
        """Ends a rebalance, and an `unsubscribe`, that takes too long: the group notices by the
        missing heartbeats."""
        self._is_abandoned = True
        under_way = [each for each in (self._leaving, self._polling) if each is not None]
        for each in under_way:
            each.cancel()
        ended = asyncio.gather(*under_way, return_exceptions=True)
        await asyncio.wait([ended], timeout=_LISTENER_ENDS_S)
        if not ended.done():
            _LOGGER.warning("a listener goes on, though the consumer that called it is closed")
        if self._membership is not None:
            await self._membership.end()
        self._left()

    async def _leave(self) -> None:
        try:
            polling, self._polling = self._polling, None
            if polling is not None:
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)
            membership = self._membership
            if membership is not None and self.is_member:
                await membership.leave()
        finally:
            if not is_being_cancelled():
                self._left()

    def _left(self) -> None:
        self.is_member = False
        self._membership = self._pattern = self._leaving = None
        self.topics = frozenset()


def _begin(work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    """Begins work that calls a listener."""

    async def marked() -> None:
        before = _CALLED_BY.set(asyncio.current_task())
        try:
            await work()
        finally:
            _CALLED_BY.reset(before)

    return asyncio.create_task(marked())


def listener_reads() -> UsageError:
    """The error of a read that a listener makes: it would wait for its own end."""
    return UsageError("a listener cannot read: reads wait for it", ErrorCode.INVALID_REQUEST)


def _compiled(pattern: str) -> Match:
    if not pattern:
        raise UsageError("the pattern is empty", ErrorCode.INVALID_REQUEST)
    try:
        return java_pattern(pattern)
    except ExpressionError as error:
        code = ErrorCode.INVALID_REGULAR_EXPRESSION
        raise UsageError(f"{pattern!r} cannot be matched: {error}", code) from error
