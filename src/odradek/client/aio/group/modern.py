"""The consumer protocol (KIP-848): members send heartbeats, and the coordinator assigns partitions.

Heartbeats send this member's subscription and partitions; responses have its target. A partition to
revoke is given up while the consumer reads, and then reported; a new one is taken once the response
names it, which it does when no other member has it any more. Epochs fence: 0 joins, -1 leaves, -2
is a static member that will be back.
"""

import asyncio
import logging
from typing import Any, Final
from uuid import UUID

from odradek.client.aio.coordinators import say_goodbye
from odradek.client.aio.group.membership import Membership
from odradek.client.apis import CONSUMER_GROUP_HEARTBEAT
from odradek.client.core.cluster import Message
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.network.connections import GROUP_CHANNEL
from odradek.client.errors import KafkaError, raise_for
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.uuids import uuid_text

_LOGGER: Final = logging.getLogger(__name__)
_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
_LEAVE_STATIC_EPOCH: Final = -2
_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class ConsumerProtocolMembership(Membership):
    """A member of a consumer group of the newer protocol."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        member_id = UUID(int=self._cluster.rng.getrandbits(128), version=4)
        self._member_id = uuid_text(member_id)
        self._epoch = _JOIN_EPOCH
        self._interval_ms = 0
        # The member's target: by topic id, and by name as far as known.
        self._assignment: dict[UUID, tuple[int, ...]] | None = None
        # The names of its topics: a known one stays, even if metadata lacks it for a while.
        self._names: dict[UUID, str] = {}
        self._target: frozenset[TopicPartition] | None = None
        self._error: KafkaError | None = None
        # The topics that heartbeats send; None before the first look.
        self._wanted: frozenset[str] | None = None
        self._must_look = False
        self._looked_ms = self._cluster.clock.monotonic_ms()
        self._looking: asyncio.Task[None] | None = None
        self._must_tell = asyncio.Event()
        self._sent_fields: tuple[object, ...] = ()
        self._heartbeats: asyncio.Task[None] | None = None

    @property
    def needs_poll(self) -> bool:
        """See `Membership`."""
        return (
            self._heartbeats is None
            or self._error is not None
            or self._was_lost
            or not self._has_target
        )

    @property
    def _has_target(self) -> bool:
        """Whether this member has the partitions that it is to have, as far as it knows."""
        owned, target = self._positions.assigned, self._target
        if target is None or target is owned:
            return True
        is_equal = target == owned
        if is_equal:
            self._target = owned  # compared once: `needs_poll` is asked for each record
        return is_equal

    @property
    def metadata(self) -> GroupMetadata:
        """See `Membership`."""
        epoch = self._epoch if self._epoch > 0 else -1
        return GroupMetadata(
            self.group_id, epoch, self._member_id if epoch > 0 else "", self.instance_id
        )

    def subscription_changed(self) -> None:
        """See `Membership`."""
        self._must_look = True
        self._must_tell.set()

    async def poll(self) -> None:
        """See `Membership`."""
        if self._error is not None:
            await self._lose()
            error, self._error = self._error, None
            raise error
        if self._was_lost:
            await self._lose()
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._send_heartbeats())
            self._heartbeats.add_done_callback(self._heartbeats_ended)
        target = self._target
        if target is None:
            return
        owned = self._positions.assigned
        if gone := sorted(owned - target):
            # The next poll handles new partitions: they may belong to another member meanwhile.
            await self._revoke(gone)
        elif come := sorted(target - owned):
            await self._take(come)
        if target != owned:
            self._must_tell.set()

    async def leave(self) -> None:
        """See `Membership`."""
        try:
            if self._was_lost or self._epoch <= 0:
                await self._lose()
            else:
                await self._revoke(sorted(self._positions.assigned))
        finally:
            await self.end()
        if self.has_joined:
            # Also when no answer has come: the coordinator may know this member all the same.
            await self._say_goodbye()

    async def end(self) -> None:
        """See `Membership`."""
        await self._end(self._heartbeats)
        await self._end(self._looking)
        self._heartbeats = self._looking = None

    async def _say_goodbye(self) -> None:
        is_static = self.instance_id is not None
        self._begin_anew()
        question = self._ask({"member_epoch": _LEAVE_STATIC_EPOCH if is_static else _LEAVE_EPOCH})
        await say_goodbye(self._cluster, self.group_id, question)

    def _begin_anew(self) -> None:
        self._note_identity()
        self._epoch, self._sent_fields = _JOIN_EPOCH, ()
        self._assignment = self._target = None
        self._names.clear()

    # --- heartbeats -------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        failures = 0
        while True:
            if self.reader_is_late and self._epoch > 0:
                _LOGGER.warning("no read for max.poll.interval.ms: leaving group %s", self.group_id)
                # Before the answer: others may have the partitions as soon as it is sent.
                self._lost()
                await self._say_goodbye()
                return
            try:
                if self._wanted is None:
                    self._wanted = await self._interest.wanted_topics()
                await self._heartbeat(self._wanted)
                failures = 0
            except KafkaError as error:
                if error.code in _FENCED:
                    # It rejoins when the reader knows that; otherwise two members would read the
                    # same partitions.
                    self._begin_anew()
                    self._lost()
                    return
                if not error.retriable:
                    raise
                self._sent_fields = ()
                await self._wait(failures)
                failures += 1
                continue
            self._look_if_due()
            await self._pause()

    async def _pause(self) -> None:
        """Waits until the next heartbeat is due, or there is something to report."""
        try:
            async with asyncio.timeout(self._interval_ms / 1000):
                await self._must_tell.wait()
        except TimeoutError:
            pass

    async def _heartbeat(self, wanted: frozenset[str]) -> None:
        self._must_tell.clear()
        topics = tuple(sorted(wanted))
        owned = self._owned()
        fields: tuple[object, ...] = (topics, owned)
        values: dict[str, object] = {"member_epoch": self._epoch}
        # Fields that have not changed since they were sent are left out.
        if fields != self._sent_fields:
            settings = self._cluster.settings
            values |= {
                "rack_id": settings.text("client.rack") or None,
                "rebalance_timeout_ms": self._max_poll_interval_ms,
                "subscribed_topic_names": topics,
                "server_assignor": settings.text("group.remote.assignor") or None,
                "topic_partitions": [
                    {"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in owned
                ],
            }
        answer = await self._ask(values)
        self._metrics.heartbeats.add()
        self._sent_fields = fields
        self._member_id = answer.member_id or self._member_id
        self._epoch = answer.member_epoch
        self._interval_ms = max(1, _milliseconds(answer))
        if answer.assignment is not None:
            self._assignment = {
                each.topic_id: tuple(each.partitions) for each in answer.assignment.topic_partitions
            }
        self._aim()

    async def _ask(self, values: dict[str, object]) -> Message:
        defaults: dict[str, object] = {
            "group_id": self.group_id,
            "member_id": self._member_id,
            "instance_id": self.instance_id,
            "rebalance_timeout_ms": -1,
            "topic_partitions": None,
            "subscribed_topic_names": None,
        }
        answer = await self.ask_coordinator(
            CONSUMER_GROUP_HEARTBEAT, defaults | values, channel=GROUP_CHANNEL
        )
        raise_for(int(answer.error_code), answer.error_message)
        return answer

    def _owned(self) -> tuple[tuple[UUID, tuple[int, ...]], ...]:
        """The partitions this member owns, by topic id; none while it joins."""
        by_id: dict[UUID, list[int]] = {}
        if self._epoch != _JOIN_EPOCH:
            ids = {name: topic_id for topic_id, name in self._names.items()}
            for name, index in sorted(self._positions.assigned):
                if name in ids:
                    by_id.setdefault(ids[name], []).append(index)
        return tuple((topic_id, tuple(indexes)) for topic_id, indexes in by_id.items())

    # --- what topics there are --------------------------------------------------------------

    def _aim(self) -> None:
        """The assignment this member is to reach, as far as its topics' names are known."""
        if self._assignment is None:
            return
        known = self._cluster.metadata.topics_by_id
        # Also of partitions that this member still has and is to give up: it has to report them.
        owned = {each.topic for each in self._positions.assigned}
        named = {
            topic_id: known[topic_id].name for topic_id in self._assignment if topic_id in known
        }
        kept = {
            topic_id: name
            for topic_id, name in self._names.items()
            if topic_id in self._assignment or (name in owned and name not in named.values())
        }
        self._names = kept | named
        self._target = frozenset(
            TopicPartition(self._names[topic_id], index)
            for topic_id, indexes in self._assignment.items()
            if topic_id in self._names
            for index in indexes
        )
        if self.needs_poll:
            self._wakes()

    @property
    def _has_unnamed(self) -> bool:
        """Whether an assigned topic is unknown to the broker that was asked."""
        return self._assignment is not None and not self._assignment.keys() <= self._names.keys()

    def _look_if_due(self) -> None:
        """Looks at the topics beside the heartbeats, which do not wait for that."""
        now_ms = self._cluster.clock.monotonic_ms()
        max_age_ms = self._cluster.settings.number("metadata.max.age.ms")
        is_due = self._must_look or self._has_unnamed or now_ms - self._looked_ms >= max_age_ms
        if is_due and (self._looking is None or self._looking.done()):
            self._looked_ms = now_ms
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        self._must_look = False
        try:
            if self._has_unnamed:
                await self._cluster.refresh(None)
                self._aim()
            wanted = await self._interest.wanted_topics()
        except asyncio.CancelledError:
            self._must_look = True
            raise
        except KafkaError as error:
            if error.retriable:
                self._must_look = True
                _LOGGER.debug("the topics of group %s cannot be seen: %s", self.group_id, error)
            else:
                self._interest.tell_reader(error)
                self._wakes()
            return
        if wanted != self._wanted:
            self._wanted = wanted
            self._must_tell.set()

    def _heartbeats_ended(self, task: asyncio.Task[None]) -> None:
        if self._heartbeats is task:
            self._heartbeats = None
        if task.cancelled():
            return
        if (fault := task.exception()) is None:
            self._wakes()  # the next read rejoins
            return
        self._error = self._known(fault)
        self._begin_anew()
        self._lost()

    def _lost(self) -> None:
        self._was_lost = True
        self._wakes()

    async def _goes_on_after(
        self, refused: GroupMetadata, code: ErrorCode, timeout_ms: int
    ) -> bool:
        """See `Membership`; a heartbeat shows the meaning of a refusal."""
        del code
        deadline_ms = self._cluster.clock.monotonic_ms() + timeout_ms
        failures = 0
        while self.metadata == refused and self._cluster.clock.monotonic_ms() < deadline_ms:
            # The answer to a heartbeat, which overtook the commit, has the new epoch.
            self._must_tell.set()
            await self._wait(failures)
            failures += 1
        return self.metadata != refused


def _milliseconds(answer: Message) -> int:
    return int(answer.heartbeat_interval.total_seconds() * 1000)
