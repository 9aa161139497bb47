"""Calls about consumer groups: members and states, lag, resetting offsets."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple, Self
from uuid import UUID

from odradek.coordinator.group import Group, GroupType
from odradek.coordinator.offsets.requests import (
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
    TopicErrors,
)
from odradek.coordinator.share_groups.group import ShareGroup
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
from odradek.server.in_process.arguments.kinds import (
    items_of,
    seconds,
    whole,
    whole_or_none,
)
from odradek.server.in_process.calls.changes import Changes
from odradek.server.in_process.calls.running_brokers import RunningBrokers, partition_of
from odradek.server.in_process.calls.share_helpers import ShareGroupHelpers
from odradek.server.in_process.calls.topic_reader import NEVER_MS
from odradek.suggestions import did_you_mean, name_of

Target = str | int | datetime | Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]

DEAD: Final = "Dead"
STABLE: Final = "Stable"
# The states that are written to the log, and therefore noticed; the others are passed through.
LASTING_STATES: Final = (STABLE, "Empty", DEAD)
INACTIVE_STATES: Final = ("Empty", DEAD)
_CONSUMER_TYPE: Final = "consumer"
# There has been no group at all, or not this one.
_NOT_YET: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND)
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


class Lag(int):
    """How many offsets a group is behind the end of a partition. Without a committed offset
    (`is_committed`) that is all existing records: what it has read is unknown."""

    is_committed: bool

    def __new__(cls, offsets: int, is_committed: bool = True) -> Self:
        """A number like any other, with a mark."""
        lag = super().__new__(cls, offsets)
        lag.is_committed = is_committed
        return lag

    def __repr__(self) -> str:
        return f"{int(self)}{'' if self.is_committed else ' (nothing committed)'}"


class GroupHelpers:
    """The questions about groups to the brokers that run. All calls are their loop's."""

    def __init__(self, brokers: RunningBrokers, changes: Changes) -> None:
        self._brokers: Final = brokers
        self._changes: Final = changes
        self.shared: Final = ShareGroupHelpers(brokers)

    def states(self) -> dict[str, str]:
        """See `BrokerCalls.groups`."""
        listed = (
            group
            for server in self._brokers.all
            for group in server.coordinators.groups.coordinator.list_groups((), ())
        )
        return {group.group_id: group.state for group in sorted(listed)}

    def describe(self, group: str) -> GroupState:
        """See `BrokerCalls.group`."""
        name_of("a group", group)
        try:
            coordinator = self._brokers.coordinator(group).coordinators.groups.coordinator
            listed = {each.group_id: each for each in coordinator.list_groups((), ())}.get(group)
        except BrokerError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
            return GroupState(group, DEAD)
        if listed is None:
            return GroupState(group, DEAD)
        if listed.type == GroupType.SHARE:
            return self._describe_shared(group)
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

    def _describe_shared(self, group: str) -> GroupState:
        shared = self._brokers.coordinator(group).coordinators.groups.share_groups.describe(group)
        members = tuple(
            GroupMember(
                each.member_id,
                each.client_id,
                each.client_host,
                _named(self._brokers.image, each.assignment),
            )
            for each in shared.members
        )
        return GroupState(group, shared.state, members)

    async def wait_for(
        self, group: str, state: str, members: int | None, timeout_s: float
    ) -> GroupState:
        """See `BrokerCalls.wait_for_group`."""
        members, limit_s = whole_or_none("members", members), seconds(timeout_s)
        if state not in LASTING_STATES:
            awaited = ", ".join(LASTING_STATES)
            raise ValueError(f"a group can be awaited to be one of {awaited}, not {state!r}")

        async def look() -> GroupState | None:
            await self._loaded()
            try:
                found = self.describe(group)
            except BrokerError as error:
                if error.code.retriable:
                    return None  # the group is moving to another broker
                raise
            enough = members is None or len(found.members) == members
            return found if found.state == state and enough else None

        try:
            async with asyncio.timeout(limit_s):
                return await self._changes.look_until(look, lambda wake: self._park(group, wake))
        except TimeoutError:
            wanted = state if members is None else f"{state} with {members} members"
            why = self._state_in_words(group, wanted)
            raise TimeoutError(f"{why} after {limit_s:g} s") from None

    def _state_in_words(self, group: str, wanted: str) -> str:
        try:
            found = self.describe(group)
            if found.state == DEAD:
                return self._no_group(group)
        except BrokerError as error:  # nobody coordinates it, or groups are being read
            return error.message
        count = len(found.members)
        return f"group {group} is {found.state} with {count} members, not {wanted},"

    async def _loaded(self) -> None:
        """Returns when every broker has read the groups that it coordinates."""
        while any(
            server.coordinators.groups.coordinator.runtime.is_loading
            for server in self._brokers.all
        ):
            await asyncio.sleep(0)  # they are read in slices, in turns of the loop

    def _park(self, group: str, wake: Callable[[], None]) -> list[DelayedFetch]:
        """Calls `wake` at the next record of the group's partition, or of a share group's states.
        Without these topics a change of the metadata wakes."""
        try:
            places = [self._brokers.group_partition(group), *self.shared.state_partitions(group)]
        except BrokerError:
            return []
        fetches = [self._park_at(where, wake) for where in places]
        return [each for each in fetches if each is not None]

    def _park_at(self, where: TopicPartition, wake: Callable[[], None]) -> DelayedFetch | None:
        try:
            replicas = self._brokers.leader(where).replicas
            end = replicas.partition(where).leader_log().log_end_offset
        except BrokerError:
            return None
        params = FetchParams(CONSUMER_REPLICA_ID, NEVER_MS, 1, 1, False)
        return replicas.fetch_messages(params, [FetchInfo(where, end, 1)], lambda _: wake())

    def lag(self, group: str) -> dict[TopicPartition, Lag]:
        """See `BrokerCalls.lag`."""
        name_of("a group", group)
        shared = self.shared.find(group)
        lags = self._lags(group) if shared is None else self._lags_of_shared(shared)
        if not lags:
            raise self._nothing_known(group)
        return dict(sorted(lags.items()))

    def _lags(self, group: str) -> dict[TopicPartition, Lag]:
        offsets = self.offsets(group)
        lags = {where: Lag(self._end(where) - offset) for where, offset in offsets.items()}
        for where in self._subscribed(group):
            if where not in lags:
                first = self._lookup(where, EARLIEST_TIMESTAMP)
                lags[where] = Lag(self._end(where) - first, is_committed=False)
        return lags

    def _lags_of_shared(self, found: ShareGroup) -> dict[TopicPartition, Lag]:
        return {where: Lag(lag) for where, lag in self.shared.lag(found).items()}

    def _nothing_known(self, group: str) -> BrokerError:
        """The error for a group without a lag: an empty answer would look like a group that has
        caught up."""
        found = self._registered(group)
        if found is None:
            return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, self._no_group(group))
        names = sorted(found.subscribed_topics)
        missing = [self._brokers.no_topic(name) for name in names if not self._has_topic(name)]
        if missing:
            text = f"group {group} subscribes to missing topics: {'; '.join(missing)}"
            return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        what = "has not begun to read" if names else "has committed nothing and subscribes to"
        text = f"group {group} {what} {', '.join(names) or 'nothing'}"
        return BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, text)

    def _has_topic(self, name: str) -> bool:
        return self._brokers.image.topic(name) is not None

    def _registered(self, group: str) -> Group | None:
        """The group of any kind, as its coordinator keeps it."""
        if not self._has_topic(GROUP_METADATA_TOPIC):
            return None
        coordinator = self._brokers.coordinator(group).coordinators.groups.coordinator
        return coordinator.runtime.shard(group).registry.get(group)

    def _no_group(self, group: str) -> str:
        return f"there is no group called {group!r}{did_you_mean(group, self.states())}"

    def _subscribed(self, group: str) -> list[TopicPartition]:
        """The partitions of topics that the group's members read, or may read."""
        found = self._registered(group)
        if found is None:
            return []
        return [
            TopicPartition(name, index)
            for name, topic in self._brokers.image.topics.items()
            if not topic.is_internal and found.is_subscribed_to(name)
            for index in range(len(topic.partitions))
        ]

    async def wait_for_lag(
        self, group: str, at_most: int, timeout_s: float
    ) -> dict[TopicPartition, Lag]:
        """See `BrokerCalls.wait_for_lag`."""
        at_most, limit_s = whole("at_most", at_most), seconds(timeout_s)

        async def look() -> dict[TopicPartition, Lag] | None:
            await self._loaded()
            try:
                lags = self.lag(group)
            except BrokerError as error:
                if error.code.retriable or error.code in _NOT_YET:
                    return None
                raise
            return lags if sum(lags.values()) <= at_most else None

        try:
            async with asyncio.timeout(limit_s):
                return await self._changes.look_until(look, lambda wake: self._park(group, wake))
        except TimeoutError:
            why = self._behind_in_words(group)
            raise TimeoutError(f"{why}, after {limit_s:g} s") from None

    def _behind_in_words(self, group: str) -> str:
        try:
            lags = self.lag(group)
        except BrokerError as error:
            return error.message
        parts = ", ".join(f"{where} by {lag}" for where, lag in lags.items() if lag)
        return f"group {group} is behind in {parts}"

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of topics that exist, or where a share group begins; none of a
        group that does not exist."""
        if not self._has_topic(GROUP_METADATA_TOPIC):
            return {}
        if (shared := self.shared.find(group)) is not None:
            return self.shared.offsets(shared)
        coordinator = self._brokers.coordinator(group).coordinators.groups.coordinator
        committed = coordinator.fetch_offsets(group, None, -1).committed
        return {
            TopicPartition(topic, index): found.offset
            for topic, partitions in sorted(committed.items())
            if self._has_topic(topic)
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
            wanted = {self._existing(where): whole("to", each) for where, each in to.items()}
        else:
            wanted = {where: self._position(where, to) for where in self._of(group, topics)}
        if not wanted:
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"group {group} has no offsets{did_you_mean(group, self.states())}: "
                "name the topics to give it some",
            )
        await self._make_home()
        if self.shared.find(group) is not None:
            await self.shared.alter(group, wanted)
            return dict(sorted(wanted.items()))
        await self._commit(self._brokers.coordinator(group), group, wanted)
        return dict(sorted(wanted.items()))

    def _existing(self, where: object) -> TopicPartition:
        if not isinstance(where, tuple) or len(where) != 2:
            kind = type(where).__name__
            raise TypeError(f"offsets are reset by topic and partition, and not by {kind}")
        found = TopicPartition(where[0], whole("partition", where[1]))
        partition_of(self._brokers.image, found)
        return found

    def _of(self, group: str, topics: Iterable[str]) -> list[TopicPartition]:
        names = [topics] if isinstance(topics, str) else items_of("topics", "names", topics)
        if not names:
            return list(self.offsets(group))
        found = [self._brokers.topic(name_of("a topic", name)) for name in names]
        return [
            TopicPartition(topic.name, index)
            for topic in found
            for index in range(len(topic.partitions))
        ]

    def _position(self, where: TopicPartition, to: str | int | datetime) -> int:
        """The requested offset, within the existing ones."""
        first = self._lookup(where, EARLIEST_TIMESTAMP)
        end = self._lookup(where, LATEST_TIMESTAMP)
        if isinstance(to, datetime):
            found = self._lookup(where, int(to.timestamp() * 1000))
            return end if found < 0 else found
        if isinstance(to, str):
            if to not in _POSITIONS:
                raise ValueError(f"offsets are reset to 'earliest' or 'latest', not {to!r}")
            return self._lookup(where, _POSITIONS[to])
        return min(max(whole("to", to), first), end)

    def _lookup(self, where: TopicPartition, timestamp: int) -> int:
        partition = self._brokers.leader(where).replicas.partition(where)
        return find_offset(
            partition, timestamp, ISOLATION_HIGH_WATERMARK, NO_LEADER_EPOCH, only_leader=True
        ).offset

    async def _make_home(self) -> None:
        """Creates the topic of all groups where there has been none, as a client's search does."""
        if not self._has_topic(GROUP_METADATA_TOPIC):
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
        groups = coordinator.coordinators.groups.coordinator
        answer: TopicErrors = await outcome(lambda on_done: groups.commit_offsets(request, on_done))
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
    """Reads the assignment a classic group's leader has given a member; none where that is another
    format."""
    try:
        return tuple(sorted(decode_assignment(assignment).partitions))
    except ProtocolError:
        return ()
