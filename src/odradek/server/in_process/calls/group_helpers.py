"""What a test asks of consumer groups: members and states, lag, and to set their offsets back."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from odradek.coordinator.offsets.requests import (
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
    TopicErrors,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage
from odradek.model import GROUP_METADATA_TOPIC, NO_LEADER_EPOCH, TopicPartition
from odradek.protocol.consumer_protocol import decode_assignment
from odradek.protocol.primitives import ProtocolError
from odradek.replication.delayed.fetch import DelayedFetch
from odradek.replication.fetch import (
    CONSUMER_REPLICA_ID,
    ISOLATION_HIGH_WATERMARK,
    FetchInfo,
    FetchParams,
)
from odradek.replication.offset_lookup import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    find_offset,
)
from odradek.server.awaiting import outcome
from odradek.server.broker import BrokerServer
from odradek.server.in_process.calls.changes import Changes
from odradek.server.in_process.calls.running_brokers import RunningBrokers
from odradek.server.in_process.calls.topic_reader import NEVER_MS

Target = str | int | datetime | Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]

DEAD: Final = "Dead"
STABLE: Final = "Stable"
# What is written to the log, and therefore noticed; the others are passed through.
LASTING_STATES: Final = (STABLE, "Empty", DEAD)
INACTIVE_STATES: Final = ("Empty", DEAD)
_CONSUMER_TYPE: Final = "consumer"
_NO_GENERATION: Final = -1
_COMMIT_VERSION: Final = 8
_POSITIONS: Final = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}


class GroupMember(NamedTuple):
    """A member of a group, with the partitions that it has been given."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupState(NamedTuple):
    """A group as it is at one moment; a group that does not exist is `Dead`."""

    group: str
    state: str
    members: tuple[GroupMember, ...] = ()


class GroupHelpers:
    """The questions about groups to the brokers that run. All calls are their loop's."""

    def __init__(self, brokers: RunningBrokers, changes: Changes) -> None:
        self._brokers: Final = brokers
        self._changes: Final = changes

    def states(self) -> dict[str, str]:
        """See `BrokerCalls.groups`."""
        listed = (
            group
            for server in self._brokers.all
            for group in server.groups.coordinator.list_groups((), ())
        )
        return {group.group_id: group.state for group in sorted(listed)}

    def describe(self, group: str) -> GroupState:
        """See `BrokerCalls.group`."""
        try:
            coordinator = self._brokers.coordinator(group).groups.coordinator
            listed = {each.group_id: each for each in coordinator.list_groups((), ())}.get(group)
        except BrokerError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
            return GroupState(group, DEAD)
        if listed is None:
            return GroupState(group, DEAD)
        if listed.type == _CONSUMER_TYPE:
            found = coordinator.describe_consumer_group(group)
            image = self._brokers.image
            members = tuple(
                GroupMember(
                    each.member_id,
                    each.client_id,
                    each.client_host,
                    _named(image, each.assignment),
                )
                for each in found.members
            )
            return GroupState(group, found.state, members)
        described = coordinator.describe_group(group)
        return GroupState(
            group,
            described.state,
            tuple(
                GroupMember(
                    each.member_id, each.client_id, each.client_host, _assigned(each.assignment)
                )
                for each in described.members
            ),
        )

    async def wait_for(
        self, group: str, state: str, members: int | None, timeout_s: float
    ) -> GroupState:
        """See `BrokerCalls.wait_for_group`."""
        if state not in LASTING_STATES:
            awaited = ", ".join(LASTING_STATES)
            raise ValueError(f"a group can be awaited to be one of {awaited}, not {state!r}")

        async def look() -> GroupState | None:
            await self._loaded()
            try:
                found = self.describe(group)
            except BrokerError as error:
                if error.code.retriable:
                    return None  # on its way to another broker
                raise
            enough = members is None or len(found.members) == members
            return found if found.state == state and enough else None

        try:
            async with asyncio.timeout(timeout_s):
                return await self._changes.look_until(look, lambda wake: self._park(group, wake))
        except TimeoutError:
            found = self.describe(group)
            wanted = state if members is None else f"{state} with {members} members"
            raise TimeoutError(
                f"group {group} is {found.state} with {len(found.members)} members, "
                f"not {wanted}, after {timeout_s:g} s"
            ) from None

    async def _loaded(self) -> None:
        """Returns when every broker has read the groups that it coordinates."""
        while any(server.groups.coordinator.runtime.is_loading for server in self._brokers.all):
            await asyncio.sleep(0)  # they are read in slices, in turns of the loop

    def _park(self, group: str, wake: Callable[[], None]) -> list[DelayedFetch]:
        """Has `wake` called by the next record of the group's partition."""
        try:
            where = self._brokers.group_partition(group)
            replicas = self._brokers.leader(where).replicas
            end = replicas.partition(where).leader_log().log_end_offset
        except BrokerError:
            return []  # the metadata will tell
        params = FetchParams(CONSUMER_REPLICA_ID, NEVER_MS, 1, 1, False)
        fetch = replicas.fetch_messages(params, [FetchInfo(where, end, 1)], lambda _: wake())
        return [] if fetch is None else [fetch]

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """See `BrokerCalls.lag`."""
        offsets = self.offsets(group)
        if not offsets and group not in self.states():
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group called {group!r}")
        return {where: self._end(where) - offset for where, offset in offsets.items()}

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of topics that exist; none of a group that does not."""
        if self._brokers.image.topic(GROUP_METADATA_TOPIC) is None:
            return {}
        coordinator = self._brokers.coordinator(group).groups.coordinator
        committed = coordinator.fetch_offsets(group, None, -1).committed
        return {
            TopicPartition(topic, index): found.offset
            for topic, partitions in sorted(committed.items())
            if self._brokers.image.topic(topic) is not None
            for index, found in sorted(partitions.items())
        }

    def _end(self, where: TopicPartition) -> int:
        return self._brokers.leader(where).replicas.partition(where).leader_log().high_watermark

    async def reset(
        self, group: str, to: Target, topics: Iterable[str]
    ) -> dict[TopicPartition, int]:
        """See `BrokerCalls.reset`."""
        state = self.describe(group).state
        if state not in INACTIVE_STATES:
            raise BrokerError(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {group} is {state}: close its consumers before its offsets are reset",
            )
        if isinstance(to, Mapping):
            wanted = {TopicPartition(*where): offset for where, offset in to.items()}
        else:
            wanted = {where: self._position(where, to) for where in self._of(group, topics)}
        if not wanted:
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"group {group} has no offsets: name the topics to give it some",
            )
        await self._make_home()
        await self._commit(self._brokers.coordinator(group), group, wanted)
        return dict(sorted(wanted.items()))

    def _of(self, group: str, topics: Iterable[str]) -> list[TopicPartition]:
        names = list(topics)
        if not names:
            return list(self.offsets(group))
        return [
            TopicPartition(name, index)
            for name in names
            for index in range(len(self._brokers.topic(name).partitions))
        ]

    def _position(self, where: TopicPartition, to: str | int | datetime) -> int:
        """The offset that is meant, within what there is."""
        first = self._lookup(where, EARLIEST_TIMESTAMP)
        end = self._lookup(where, LATEST_TIMESTAMP)
        if isinstance(to, datetime):
            found = self._lookup(where, int(to.timestamp() * 1000))
            return end if found < 0 else found
        if isinstance(to, str):
            if to not in _POSITIONS:
                raise ValueError(f"offsets are reset to 'earliest' or 'latest', not {to!r}")
            return self._lookup(where, _POSITIONS[to])
        return min(max(to, first), end)

    def _lookup(self, where: TopicPartition, timestamp: int) -> int:
        partition = self._brokers.leader(where).replicas.partition(where)
        return find_offset(
            partition, timestamp, ISOLATION_HIGH_WATERMARK, NO_LEADER_EPOCH, only_leader=True
        ).offset

    async def _make_home(self) -> None:
        """Creates the topic of all groups where there has been none, as a client's search does."""
        if self._brokers.image.topic(GROUP_METADATA_TOPIC) is None:
            await self._brokers.auto_create(GROUP_METADATA_TOPIC)
        await self._loaded()

    async def _commit(
        self, coordinator: BrokerServer, group: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        partitions: dict[str, list[CommittedPartition]] = {}
        for where, offset in offsets.items():
            committed = CommittedPartition(where.partition, offset, NO_LEADER_EPOCH, "")
            partitions.setdefault(where.topic, []).append(committed)
        topics = [
            CommittedTopic(name, self._brokers.topic(name).topic_id, each)
            for name, each in partitions.items()
        ]
        request = OffsetCommitRequest(
            group, "", None, _NO_GENERATION, -1, topics, api_version=_COMMIT_VERSION
        )
        answer: TopicErrors = await outcome(
            lambda on_done: coordinator.groups.coordinator.commit_offsets(request, on_done)
        )
        for topic, codes in answer:
            for index, code in codes:
                if code is not ErrorCode.NONE:
                    raise BrokerError(code, f"{TopicPartition(topic, index)}: {code.text}")


def _named(
    image: MetadataImage, assignment: Mapping[UUID, frozenset[int]]
) -> tuple[TopicPartition, ...]:
    names = {topic.topic_id: name for name, topic in image.topics.items()}
    return tuple(
        sorted(
            TopicPartition(names[topic_id], index)
            for topic_id, indexes in assignment.items()
            if topic_id in names
            for index in indexes
        )
    )


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """What a classic group's leader has given a member; nothing where that is another format."""
    try:
        return tuple(sorted(decode_assignment(assignment).partitions))
    except ProtocolError:
        return ()
