"""State that both group protocols share: the group's offsets, the listener, the time that a reader
may take."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.coordinators import ask_coordinator
from odradek.client.aio.waiting import is_being_cancelled
from odradek.client.apis import OFFSET_COMMIT, OFFSET_COMMIT_BY_ID, OFFSET_FETCH, ClientApi
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.cluster import GROUP, Message, Values
from odradek.client.core.consuming.positions import PartitionPosition, Positions
from odradek.client.core.groups.commits import (
    NO_IDS,
    commit_errors,
    commits_by_topic,
    committed_offsets,
)
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.metadata import by_topic
from odradek.client.core.metrics import ClientMetrics
from odradek.client.core.network.connections import MAIN_CHANNEL
from odradek.client.core.retries import ExponentialBackoff
from odradek.client.errors import (
    CommitFailed,
    GroupError,
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
    unanswered,
)
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

_LOGGER: Final = logging.getLogger(__name__)
_METRICS: Final = "consumer-coordinator-metrics"
_LOST_MEMBER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
_UNKNOWN_TOPIC: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)
Partitions = Collection[TopicPartition]


class RebalanceListener(Protocol):
    """Called when partitions come and go, while the consumer reads; may be plain or `async`."""

    def on_partitions_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called with new partitions."""
        ...

    def on_partitions_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called with partitions that are about to be revoked; offsets can still be committed."""
        ...

    def on_partitions_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called with partitions that other members may have already: nothing can be committed."""
        ...


class GroupMetrics:
    """The metrics of a member; a new object continues with the same numbers."""

    def __init__(self, metrics: ClientMetrics, positions: Positions) -> None:
        self.commits = metrics.meter("commit", _METRICS)
        self.commit_latency = metrics.average("commit-latency", _METRICS)
        self.heartbeats = metrics.meter("heartbeat", _METRICS)
        self.joins = metrics.meter("join", _METRICS)
        self.rebalances = metrics.meter("rebalance", _METRICS, is_rare=True)
        metrics.gauge("assigned-partitions", lambda: len(positions.assigned), _METRICS)


class Interest(Protocol):
    """The topics that this member reads."""

    async def wanted_topics(self) -> frozenset[str]:
        """The existing topics of the subscription.

        Raises:
            KafkaError: nobody can be asked for them, or one of them cannot be.
        """
        ...

    def reads(self, topic: str) -> bool:
        """Whether the subscription has a topic."""
        ...

    def tell_reader(self, failure: KafkaError) -> None:
        """Keeps a failure that does not end the membership, for example its listener's, until the
        reader has it; the reported change itself is done."""
        ...


class _Held(NamedTuple):
    """The partitions of a commit as a member had them when it was asked for, and in what it was a
    member then."""

    states: Mapping[TopicPartition, PartitionPosition | None]
    generation_id: int
    former: GroupMetadata | None


class CommitsInTurn:
    """The commits of a consumer that are under way. They go in the order of their calls, even if
    some are cancelled, and whatever is subscribed to meanwhile: a repeated one must not overtake
    the next."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.under_way: dict[asyncio.Task[None], Mapping[TopicPartition, CommittedOffset]] = {}


class Membership:
    """A member of a group. `wakes` is called when `poll` has something to do; `is_read` returns
    whether a read is waiting for records."""

    def __init__(
        self,
        cluster: ClusterClient,
        positions: Positions,
        interest: Interest,
        listener: RebalanceListener | None,
        before_revoking: Callable[[], Awaitable[None]],
        wakes: Callable[[], None],
        is_read: Callable[[], bool],
        commits: CommitsInTurn,
    ) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._positions = positions
        self._interest = interest
        self.listener = listener
        self._before_revoking = before_revoking
        self._wakes = wakes
        self._is_read = is_read
        self._commits = commits
        # The coordinator has removed this member; the reader does not know yet.
        self._was_lost = False
        # Its identity before it was removed, or left; None before.
        self._former: GroupMetadata | None = None
        self.has_joined = False
        self.group_id = settings.text("group.id")
        self.instance_id = settings.text("group.instance.id") or None
        self._max_poll_interval_ms = settings.number("max.poll.interval.ms")
        self._polled_ms = cluster.clock.monotonic_ms()
        self._metrics = GroupMetrics(cluster.metrics, positions)
        self._backoff = ExponentialBackoff(
            settings.number("retry.backoff.ms"),
            settings.number("retry.backoff.max.ms"),
            cluster.rng,
        )

    # --- what a protocol fills in -----------------------------------------------------------

    @property
    def needs_poll(self) -> bool:
        """Whether `poll` would do anything."""
        raise NotImplementedError

    async def poll(self) -> None:
        """Joins, gives up and takes partitions. Cancelling it loses nothing.

        Raises:
            KafkaError: this member cannot be one.
        """
        raise NotImplementedError

    async def leave(self) -> None:
        """Leaves the group (a static member only goes silent), and ends the background."""
        raise NotImplementedError

    async def end(self) -> None:
        """Ends only the background: the group notices by the missing heartbeats."""
        raise NotImplementedError

    @property
    def metadata(self) -> GroupMetadata:
        """The identity of this member at present."""
        raise NotImplementedError

    def subscription_changed(self) -> None:
        """Handles a change of the subscription."""
        raise NotImplementedError

    @property
    def last_metadata(self) -> GroupMetadata:
        """The identity of this member, and of a former one the last that it had: offsets of a
        transaction that come from outside of any generation are accepted, though others may have
        the partitions."""
        present = self.metadata
        if present.generation_id >= 0 or self._former is None:
            return present
        return self._former

    def _note_identity(self) -> None:
        """Remembers an identity that ends now."""
        if self.metadata.generation_id >= 0:
            self._former = self.metadata

    # --- offsets ----------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> asyncio.Task[None]:
        """Commits as this member, after earlier commits; retries transient errors. If the member is
        in another generation meanwhile, only partitions that it kept.

        Raises:
            CommitFailed: the group has continued without this member. KafkaError: anything else.
        """
        held = {partition: self._positions.get(partition) for partition in offsets}
        # As they are now: records of a topic recreated meanwhile belong to another topic.
        topic_ids = {
            each: state.topic_id for each, state in held.items() if state and state.topic_id
        }
        task = asyncio.create_task(
            self._commit_in_turn(
                offsets, _Held(held, self.metadata.generation_id, self._former), topic_ids
            )
        )
        self._commits.under_way[task] = offsets
        task.add_done_callback(self._commits.under_way.pop)
        return task

    async def _commit_in_turn(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        held: _Held,
        topic_ids: Mapping[TopicPartition, UUID],
    ) -> None:
        limit = self._cluster.time_limit()

        async def attempt() -> None:
            while True:
                wanted = await self._of_their_topics(offsets, topic_ids)
                # As late as the identity is read: what waits may outlast a rebalance.
                self._check_may_commit(held)
                identity = self.metadata
                try:
                    if wanted:
                        await self._commit_as(identity, wanted, topic_ids)
                    return
                except CommitFailed as error:
                    left_ms = limit.left_ms
                    if not left_ms:
                        raise
                    if not await self._goes_on_after(identity, error.code, left_ms):
                        raise

        try:
            async with asyncio.timeout(limit.left_ms / 1000):
                await self._commits.turn.acquire()
        except TimeoutError:
            text = f"commits before this one were not answered within {limit}"
            raise RequestTimedOut(text) from None
        try:
            await self._cluster.retrying(attempt, limit)
        finally:
            self._commits.turn.release()

    async def _of_their_topics(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        topic_ids: Mapping[TopicPartition, UUID],
    ) -> dict[TopicPartition, CommittedOffset]:
        """Keeps the partitions whose topics were not recreated since they were read: an offset of
        the earlier topic would skip records of the new one."""
        with suppress(KafkaError):
            if outdated := self._cluster.outdated(each.topic for each in topic_ids):
                await self._cluster.refresh(outdated)
        metadata = self._cluster.metadata
        return {
            each: offset
            for each, offset in offsets.items()
            if not metadata.has_other(each.topic, topic_ids.get(each))
        }

    def _check_may_commit(self, held: _Held) -> None:
        generation_id = self.metadata.generation_id
        is_member = not self._was_lost and generation_id >= 0
        # A group that was deleted begins to count its generations anew.
        is_same = generation_id == held.generation_id and self._former is held.former
        has_kept = is_same or all(
            state is not None and self._positions.get(partition) is state
            for partition, state in held.states.items()
        )
        # Without a generation it would count as the commit of somebody outside of the group.
        if self.has_joined and not (is_member and has_kept):
            raise CommitFailed(
                f"this consumer is not a member of group {self.group_id} at present, "
                "or has lost the partitions",
                ErrorCode.UNKNOWN_MEMBER_ID,
            )

    async def _goes_on_after(
        self, refused: GroupMetadata, code: ErrorCode, timeout_ms: int
    ) -> bool:
        """Whether a member whose commit was refused still belongs to the group: its generation may
        have changed while the commit was on its way. Waits until that is known.

        A former member has lost its partitions.
        """
        raise NotImplementedError

    async def _commit_as(
        self,
        identity: GroupMetadata,
        offsets: Mapping[TopicPartition, CommittedOffset],
        topic_ids: Mapping[TopicPartition, UUID],
    ) -> None:
        """Commits to topics by id if it is known and the coordinator supports ids, so a recreated
        topic does not get an offset of the earlier one."""
        answers: dict[TopicPartition, KafkaError | None] = {}
        of_known = {each: offset for each, offset in offsets.items() if each in topic_ids}
        if of_known:
            with suppress(UnsupportedVersion):
                answers |= await self._ask_to_commit(
                    OFFSET_COMMIT_BY_ID, identity, of_known, topic_ids
                )
        by_name = {each: offset for each, offset in offsets.items() if each not in answers}
        if by_name:
            answers |= await self._ask_to_commit(OFFSET_COMMIT, identity, by_name, NO_IDS)
        refused = {each: error for each, error in answers.items() if error is not None}
        # Perhaps recreated: the next attempt checks.
        self._cluster.doubt(
            each.topic for each, error in refused.items() if error.code in _UNKNOWN_TOPIC
        )
        self._raise_worst(refused.values())

    async def _ask_to_commit(
        self,
        api: ClientApi,
        identity: GroupMetadata,
        offsets: Mapping[TopicPartition, CommittedOffset],
        topic_ids: Mapping[TopicPartition, UUID],
    ) -> dict[TopicPartition, KafkaError | None]:
        values = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": identity.generation_id,
            "member_id": identity.member_id,
            "group_instance_id": identity.instance_id,
            "topics": commits_by_topic(offsets, topic_ids),
        }
        sent_ms = self._cluster.clock.monotonic_ms()
        answer = await self.ask_coordinator(api, values)
        self._metrics.commits.add()
        self._metrics.commit_latency.add(self._cluster.clock.monotonic_ms() - sent_ms)
        return commit_errors(answer, offsets, topic_ids)

    def _raise_worst(self, errors: Collection[KafkaError]) -> None:
        """Raises the errors of a commit, if any: permanent ones before transient ones."""
        for error in errors:
            if error.code in _LOST_MEMBER:
                raise CommitFailed(
                    f"group {self.group_id} has continued without this member "
                    f"({error.code.name}): read again to rejoin",
                    error.code,
                )
        for error in sorted(errors, key=lambda each: each.retriable):
            raise error

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Fetches the group's committed offsets, after this member's own commits under way;
        partitions without one are missing.

        Raises:
            KafkaError: it cannot be had.
        """
        return await self._cluster.retrying(lambda: self._committed_once(partitions))

    async def _committed_once(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        about_to = [
            task
            for task, offsets in self._commits.under_way.items()
            if not offsets.keys().isdisjoint(partitions)
        ]
        if about_to:
            await asyncio.wait(about_to)  # they may have to look at their topics yet
        topics = [
            {"name": name, "partition_indexes": indexes}
            for name, indexes in by_topic(partitions).items()
        ]
        group: dict[str, object] = {"group_id": self.group_id, "topics": topics}
        values = {**group, "groups": [group], "require_stable": True}
        answer = await self.ask_coordinator(OFFSET_FETCH, values)
        answers = committed_offsets(answer, self.group_id)
        committed = {}
        for each in partitions:
            # A missing partition in the response does not mean that nothing is committed.
            found = answers.get(each, unanswered(each))
            if isinstance(found, KafkaError):
                raise found
            if found is not None:
                committed[each] = found
        return committed

    # --- for the protocols ------------------------------------------------------------------

    async def ask_coordinator(
        self,
        api: ClientApi,
        values: Values,
        *,
        channel: str = MAIN_CHANNEL,
        timeout_ms: int | None = None,
    ) -> Message:
        """See `coordinators.ask_coordinator`."""
        return await ask_coordinator(
            self._cluster, self.group_id, api, values, channel=channel, timeout_ms=timeout_ms
        )

    def forget_coordinator(self) -> None:
        """Forgets the group's coordinator, which moved or went away."""
        self._cluster.forget_coordinator(self.group_id, GROUP)

    def polled(self) -> None:
        """Records that the reader is alive, and that this member takes part in the group."""
        self.has_joined = True
        self._polled_ms = self._cluster.clock.monotonic_ms()

    @property
    def reader_is_late(self) -> bool:
        """Whether the last read ended `max.poll.interval.ms` ago, and none is under way."""
        if self._is_read():
            return False
        silent_ms = self._cluster.clock.monotonic_ms() - self._polled_ms
        return silent_ms >= self._max_poll_interval_ms

    async def _revoke(self, partitions: Partitions) -> None:
        """Gives up partitions, after a commit."""
        if not partitions:
            return
        going = [state for each in partitions if (state := self._positions.get(each)) is not None]
        for state in going:
            state.is_revoking = True
        try:
            await self._before_revoking()
            await self._tell("on_partitions_revoked", partitions)
            self._positions.assign(sorted(self._positions.assigned - set(partitions)))
        finally:
            for state in going:
                state.is_revoking = False  # if it was cancelled, they may stay after all

    async def _lose(self) -> None:
        """Drops all partitions: other members have them. If cancelled, it has to be called again:
        the listener may not have heard."""
        lost = sorted(self._positions.assigned)
        if lost:
            name = "on_partitions_lost"
            if not hasattr(self.listener, name):
                name = "on_partitions_revoked"
            await self._tell(name, lost)
            self._positions.assign(())
        self._was_lost = False

    async def _take(self, partitions: Partitions) -> None:
        """Adds partitions to those that are owned."""
        self._metrics.rebalances.add()
        self._positions.assign(sorted(self._positions.assigned | set(partitions)))
        await self._tell("on_partitions_assigned", partitions)

    async def _tell(self, name: str, partitions: Partitions) -> None:
        callback = getattr(self.listener, name, None)
        if callback is None:
            return
        try:
            result = callback(sorted(partitions))
            if inspect.isawaitable(result):
                await result
        except (Exception, asyncio.CancelledError) as error:
            # A user's listener. The rebalance continues: a member that has lost a partition must
            # not keep it.
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            _LOGGER.warning("%s of the listener failed", name, exc_info=True)
            failure = KafkaError(f"{name} of the listener failed: {error!r}")
            failure.__cause__ = error
            self._interest.tell_reader(failure)

    def _known(self, fault: BaseException) -> KafkaError:
        """The failure of a task of this member, as an error for the reader."""
        if isinstance(fault, KafkaError):
            return fault
        _LOGGER.error("the member of group %s failed", self.group_id, exc_info=fault)
        return KafkaError(f"the consumer failed: {fault!r}")

    async def _end(self, task: "asyncio.Task[Any] | None") -> None:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _wait(self, failures: int) -> None:
        await asyncio.sleep(self._backoff.wait_ms(failures) / 1000)


def is_lost(error: KafkaError) -> bool:
    """Whether the coordinator does not know the member any more, or not in this generation."""
    return isinstance(error, GroupError) and error.code in _LOST_MEMBER
