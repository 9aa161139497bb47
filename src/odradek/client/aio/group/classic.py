"""The classic protocol: the coordinator gathers members, of which one assigns (KIP-429 too).

A rebalance is a separate task: JoinGroup, the leader's assignment, SyncGroup. `poll` gives up
partitions before it (all of them, unless the group is cooperative), waits for it, and takes what it
brought. A heartbeat that says REBALANCE_IN_PROGRESS, or changed topics, make `poll` start again.

A member that is removed during it has also lost the partitions that a cooperative member keeps
meanwhile. It rejoins only when the reader knows that; otherwise two members would read the same
partitions.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from odradek.client.aio.coordinators import say_goodbye
from odradek.client.aio.group.membership import Membership, is_lost
from odradek.client.apis import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from odradek.client.core.cluster import Message
from odradek.client.core.groups.assignors import Assignor, assignor_of
from odradek.client.core.groups.consumer_protocol import read_assignment, read_subscription
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.groups.member_state import MemberEvent, MemberState, moved
from odradek.client.core.network.connections import GROUP_CHANNEL
from odradek.client.errors import KafkaError, error_for, raise_for
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import (
    NO_GENERATION,
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)

_LOGGER: Final = logging.getLogger(__name__)
_JOIN_SLACK_MS: Final = 5_000


class ClassicMembership(Membership):
    """A member of a classic group."""

    def __init__(self, *arguments: Any, assignors: Sequence[Assignor] = ()) -> None:
        super().__init__(*arguments)
        settings = self._cluster.settings
        names = settings.items("partition.assignment.strategy")
        if assignors and "partition.assignment.strategy" not in settings.given:
            names = ()
        known = [*assignors, *(assignor_of(name) for name in names)]
        self._assignors = {each.name: each for each in known}
        # All members must be cooperative for the group to be: as in Kafka's own consumer.
        self._is_cooperative = all(each.is_cooperative for each in known)
        self._session_timeout_ms = settings.number("session.timeout.ms")
        self._heartbeat_interval_ms = settings.number("heartbeat.interval.ms")
        self.state = MemberState.UNJOINED
        self._member_id = ""
        self._generation_id = NO_GENERATION
        self._needs_rejoin = True
        self._error: KafkaError | None = None
        # Its result; None if the member was removed while it had partitions.
        self._rebalance: asyncio.Task[tuple[TopicPartition, ...] | None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._joined_topics: frozenset[str] = frozenset()
        self._led_counts: dict[str, int] | None = None
        self._looked_ms = self._heard_ms = self._cluster.clock.monotonic_ms()

    @property
    def needs_poll(self) -> bool:
        """See `Membership`."""
        if self._rebalance is not None:
            return self._was_lost or self._rebalance.done()
        return self._needs_rejoin or self._error is not None or self._is_silent

    @property
    def _is_silent(self) -> bool:
        """Whether a member sends no heartbeats: a program has cancelled all tasks of the loop."""
        return self._heartbeats is None and self._generation_id != NO_GENERATION

    @property
    def metadata(self) -> GroupMetadata:
        """See `Membership`."""
        return GroupMetadata(self.group_id, self._generation_id, self._member_id, self.instance_id)

    def subscription_changed(self) -> None:
        """See `Membership`."""
        self._needs_rejoin = True
        self._wakes()

    async def poll(self) -> None:
        """See `Membership`."""
        if self._error is not None:
            await self._lose()
            error, self._error = self._error, None
            raise error
        if self._is_joining and self._was_lost:
            await self._lose()
        elif self._rebalance is None and self._needs_rejoin:
            await self._prepare()
            if self._was_lost:
                return  # removed meanwhile: the reader has to know first
            self._needs_rejoin = False
            self.state = moved(self.state, MemberEvent.JOIN_SENT)
            # Meanwhile reading continues, from the partitions that a cooperative member keeps.
            self._rebalance = asyncio.create_task(self._join_until_it_works())
            self._rebalance.add_done_callback(lambda _: self._wakes())
        elif self._rebalance is not None and self._rebalance.done():
            rebalance, self._rebalance = self._rebalance, None
            if rebalance.cancelled():  # by somebody else
                self._needs_rejoin = True
                return
            assigned = None
            if (fault := rebalance.exception()) is None:
                assigned = rebalance.result()
            else:
                self._error = self._known(fault)
            if assigned is None or self._was_lost:
                self._forget(keep_member_id=self._error is None)
                self._lost()
                return
            self.state = moved(self.state, MemberEvent.ASSIGNED)
            try:
                await self._complete(assigned)
            except asyncio.CancelledError:
                self._needs_rejoin = True  # perhaps it has not taken everything
                raise
        elif self._is_silent:
            self._begin_heartbeats()

    async def leave(self) -> None:
        """See `Membership`."""
        # While it is a member still: a rebalance that is under way may make the commit wait.
        try:
            if self._was_lost or self._generation_id == NO_GENERATION:
                await self._lose()
            else:
                await self._revoke(sorted(self._positions.assigned))
            if self._leaving is not None:
                await self._leaving
        finally:
            await self.end()
        member_id = self._member_id
        self._forget(keep_member_id=False)
        await self._leave_group(member_id, "the consumer is being closed")

    async def end(self) -> None:
        """See `Membership`."""
        await self._end(self._rebalance)
        await self._end(self._heartbeats)
        await self._end(self._looking)
        await self._end(self._leaving)
        self._rebalance = self._heartbeats = self._looking = self._leaving = None

    async def _leave_late(self, member_id: str, *ending: "asyncio.Task[Any] | None") -> None:
        for task in ending:
            await self._end(task)
        await self._leave_group(member_id, "max.poll.interval.ms has passed between two reads")

    async def _leave_group(self, member_id: str, reason: str) -> None:
        if member_id and self.instance_id is None:
            values = {
                "group_id": self.group_id,
                "member_id": member_id,
                "members": [{"member_id": member_id, "group_instance_id": None, "reason": reason}],
            }
            question = self.ask_coordinator(LEAVE_GROUP, values)
            await say_goodbye(self._cluster, self.group_id, question)

    # --- a rebalance ------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Revokes the partitions that have to be given up before joining."""
        if self._was_lost or self._may_be_out:
            await self._lose()
        elif not self._is_cooperative:
            await self._revoke(sorted(self._positions.assigned))
        else:
            owned = sorted(self._positions.assigned)
            await self._revoke([each for each in owned if not self._interest.reads(each.topic)])

    @property
    def _may_be_out(self) -> bool:
        """Whether the member was silent for so long that it may have been removed, and others have
        its partitions: a group with members of both protocols readmits it without saying so."""
        silent_ms = self._cluster.clock.monotonic_ms() - self._heard_ms
        return silent_ms >= self._session_timeout_ms

    def _check_still_in(self) -> None:
        """Refuses to join with partitions that others may have: members that join send no
        heartbeats, and what they wait for first may take longer than their session."""
        if self._may_be_out and self._positions.assigned:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, "this member was silent for too long")

    async def _complete(self, assigned: tuple[TopicPartition, ...]) -> None:
        """Takes the assignment of a rebalance; a cooperative member first gives up partitions, and
        joins again."""
        owned = self._positions.assigned
        gone = sorted(owned - set(assigned))
        if gone:
            await self._revoke(gone)
            if self._is_cooperative:
                self._needs_rejoin = True
            if self._was_lost:
                return  # removed meanwhile: its new partitions belong to another member
        await self._take(sorted(set(assigned) - owned))

    async def _join_until_it_works(self) -> tuple[TopicPartition, ...] | None:
        failures = 0
        while True:
            had_id = bool(self._member_id)
            try:
                assigned = await self._join()
            except KafkaError as error:
                _LOGGER.debug("joining group %s: %s", self.group_id, error)
                if error.code == ErrorCode.MEMBER_ID_REQUIRED and not had_id:
                    continue
                # Another rebalance has begun: a member takes part in it as it is.
                is_again = error.code == ErrorCode.REBALANCE_IN_PROGRESS
                if is_lost(error) and not is_again:
                    self._forget(keep_member_id=False)
                    if self._positions.assigned:
                        return None
                elif not (error.retriable or is_again) and (
                    error.code != ErrorCode.MEMBER_ID_REQUIRED
                ):
                    raise
                elif self._may_be_out and self._positions.assigned:
                    return None
                await self._wait(failures)
                failures += 1
            else:
                self._heard_ms = self._cluster.clock.monotonic_ms()
                # From now on, though nobody may read for a while.
                self._begin_heartbeats()
                return assigned

    async def _join(self) -> tuple[TopicPartition, ...]:
        topics = await self._interest.wanted_topics()
        answer = await self.ask_coordinator(
            JOIN_GROUP,
            lambda: self._join_values(topics),
            channel=GROUP_CHANNEL,
            timeout_ms=self._max_poll_interval_ms + _JOIN_SLACK_MS,
        )
        if answer.error_code and answer.member_id and not self._member_id:
            self._member_id = answer.member_id  # KIP-394: the id to join with
        raise_for(int(answer.error_code), self.group_id)
        self._metrics.joins.add()
        self._member_id, self._generation_id = answer.member_id, answer.generation_id
        self._heard_ms = self._cluster.clock.monotonic_ms()
        self._joined_topics = topics
        shared_out = []
        self._led_counts = None
        if answer.leader == self._member_id:
            shared_out = await self._share_out(answer)
        return await self._sync(answer, shared_out)

    def _join_values(self, topics: frozenset[str]) -> dict[str, object]:
        self._check_still_in()
        owned = tuple(sorted(self._positions.assigned))
        return {
            "group_id": self.group_id,
            "session_timeout_ms": self._session_timeout_ms,
            "rebalance_timeout_ms": self._max_poll_interval_ms,
            "member_id": self._member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [
                {"name": each.name, "metadata": self._subscription(each, topics, owned)}
                for each in self._assignors.values()
            ],
        }

    def _subscription(
        self, assignor: Assignor, topics: frozenset[str], owned: tuple[TopicPartition, ...]
    ) -> bytes:
        return encode_subscription(
            Subscription(
                tuple(topics),
                owned,
                assignor.user_data(owned, self._generation_id),
                self._generation_id,
                self._cluster.settings.text("client.rack") or None,
            )
        )

    async def _share_out(self, joined: Message) -> list[dict[str, object]]:
        """The leader's part: the assignment."""
        members: dict[str, Subscription] = {}
        for each in joined.members:
            instance_id = getattr(each, "group_instance_id", None)
            subscription = read_subscription(each.metadata)
            members[each.member_id] = subscription._replace(instance_id=instance_id)
        counts = await self._partition_counts(members)
        if getattr(joined, "skip_assignment", False):
            return []  # a static leader came back: every member keeps its partitions
        assignments = self._assignors[joined.protocol_name].assign(members, counts)
        return [
            {"member_id": member_id, "assignment": encode_assignment(Assignment(partitions))}
            for member_id, partitions in assignments.items()
        ]

    async def _partition_counts(self, members: dict[str, Subscription]) -> dict[str, int]:
        topics = sorted({topic for each in members.values() for topic in each.topics})
        if outdated := self._cluster.outdated(topics):
            await self._cluster.refresh(outdated)
        # Only the leader notices new partitions without a reader.
        self._led_counts = self._counts(topics)
        return {topic: count for topic, count in self._led_counts.items() if count}

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._cluster.metadata.topics
        return {
            topic: len(known[topic].partition_metadata) if topic in known else 0 for topic in topics
        }

    async def _sync(
        self, joined: Message, shared_out: list[dict[str, object]]
    ) -> tuple[TopicPartition, ...]:
        values = {
            "group_id": self.group_id,
            "generation_id": self._generation_id,
            "member_id": self._member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocol_name": joined.protocol_name,
            "assignments": shared_out,
        }
        answer = await self.ask_coordinator(
            SYNC_GROUP,
            values,
            channel=GROUP_CHANNEL,
            timeout_ms=self._max_poll_interval_ms + _JOIN_SLACK_MS,
        )
        raise_for(int(answer.error_code), self.group_id)
        return read_assignment(answer.assignment).partitions

    # --- heartbeats -------------------------------------------------------------------------

    @property
    def _is_joining(self) -> bool:
        return self._rebalance is not None and not self._rebalance.done()

    def _begin_heartbeats(self) -> None:
        if self._heartbeats is None or self._heartbeats.done():
            self._heartbeats = asyncio.create_task(self._send_heartbeats())
            self._heartbeats.add_done_callback(self._heartbeats_ended)

    async def _send_heartbeats(self) -> None:
        """Sends a heartbeat every `heartbeat.interval.ms`, until this member is removed."""
        failures = 0
        while True:
            wait_ms = self._heartbeat_interval_ms
            if failures:
                wait_ms = min(wait_ms, self._backoff.wait_ms(failures - 1))
            await asyncio.sleep(wait_ms / 1000)
            if self.reader_is_late:
                _LOGGER.warning("no read for max.poll.interval.ms: leaving group %s", self.group_id)
                # The partitions are lost before the answer: others may have them as soon as this
                # member has gone. A read meanwhile joins as another member.
                rebalance, self._rebalance = self._rebalance, None
                if rebalance is not None:
                    rebalance.cancel()
                leaving = self._leave_late(self._member_id, rebalance, self._leaving)
                self._forget(keep_member_id=False)
                self._lost()
                self._leaving = asyncio.create_task(leaving)
                return
            if self._is_joining:
                continue  # a member that joins is known to be alive
            identity = self.metadata
            sent_ms = self._cluster.clock.monotonic_ms()
            try:
                await self._heartbeat()
                failures, self._heard_ms = 0, sent_ms
            except KafkaError as error:
                failures += 1
                if identity != self.metadata:
                    continue  # it was about a generation that is over
                if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
                    failures = 0
                    self._needs_rejoin = True
                    self._wakes()
                elif is_lost(error):
                    self._forget(keep_member_id=False)
                    self._lost()
                    return
                elif not error.retriable:
                    self._fail(error)
                    return
            self._look_if_due()

    async def _heartbeat(self) -> None:
        values = {
            "group_id": self.group_id,
            "generation_id": self._generation_id,
            "member_id": self._member_id,
            "group_instance_id": self.instance_id,
        }
        timeout_ms = min(self._session_timeout_ms, self._cluster.request_timeout_ms)
        answer = await self.ask_coordinator(
            HEARTBEAT, values, channel=GROUP_CHANNEL, timeout_ms=timeout_ms
        )
        self._metrics.heartbeats.add()
        raise_for(int(answer.error_code), self.group_id)

    def _look_if_due(self) -> None:
        """Looks at the topics beside the heartbeats, which do not wait for that."""
        # On a separate schedule: the fetcher also keeps the metadata from becoming old.
        now_ms = self._cluster.clock.monotonic_ms()
        max_age_ms = self._cluster.settings.number("metadata.max.age.ms")
        is_due = self.state is MemberState.STABLE and now_ms - self._looked_ms >= max_age_ms
        if is_due and (self._looking is None or self._looking.done()):
            self._looked_ms = now_ms
            self._looking = asyncio.create_task(self._look_for_new_partitions())

    async def _look_for_new_partitions(self) -> None:
        """A member whose pattern matches more, and the leader of grown topics, rejoin."""
        try:
            topics = await self._interest.wanted_topics()
            led = self._led_counts
            if led is not None:
                await self._cluster.refresh(led)
                if self._counts(led) != led:
                    self._needs_rejoin = True
        except KafkaError as error:
            _LOGGER.debug("the topics of group %s cannot be seen: %s", self.group_id, error)
            return
        if topics != self._joined_topics:
            self._needs_rejoin = True
        if self._needs_rejoin:
            self._wakes()

    def _heartbeats_ended(self, task: asyncio.Task[None]) -> None:
        if self._heartbeats is task:
            self._heartbeats = None
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fail(self._known(fault))

    # --- ends -------------------------------------------------------------------------------

    def _lost(self) -> None:
        self._was_lost = True
        self._needs_rejoin = True
        self._wakes()

    def _forget(self, *, keep_member_id: bool) -> None:
        self._note_identity()
        self._generation_id = NO_GENERATION
        if not keep_member_id:
            self._member_id = ""
        if self._rebalance is None:
            self.state = moved(self.state, MemberEvent.LOST)

    def _fail(self, error: KafkaError) -> None:
        """Ends a membership that cannot continue, with an error for the reader. The next read joins
        again."""
        self._error = error
        self._forget(keep_member_id=False)
        self._lost()

    async def _goes_on_after(
        self, refused: GroupMetadata, code: ErrorCode, timeout_ms: int
    ) -> bool:
        """See `Membership`."""
        is_known = code != ErrorCode.UNKNOWN_MEMBER_ID or refused.member_id != self._member_id
        rebalance = self._rebalance
        if is_known and rebalance is not None and not rebalance.done():
            await asyncio.wait([rebalance], timeout=timeout_ms / 1000)
            return rebalance.done()
        if is_known and self.metadata != refused:
            return True
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            # It removes no member. Perhaps it has ended meanwhile; else a heartbeat tells.
            await self._wait(0)
            return not self._needs_rejoin
        self._forget(keep_member_id=False)
        self._lost()
        return False
