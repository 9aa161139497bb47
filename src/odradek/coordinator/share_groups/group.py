"""`ShareGroup`: the state of a share group. Two numbers drive it: the group's epoch rises whenever
its members, their subscriptions, its topics or its states change; the assignment's follows.

`initialized` are the partitions that have a state, `initializing` those whose states are being
made; members are assigned only the former. `deleting` are topics whose states are on their way out.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final
from uuid import UUID

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.group import CheckPartition, Group, GroupType
from odradek.coordinator.modern.member_state import INITIAL_EPOCH
from odradek.coordinator.modern.partitions import NO_PARTITIONS, difference, union
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.records.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from odradek.coordinator.share_groups.member import ShareMember
from odradek.coordinator.share_groups.requests import DescribedShareGroup
from odradek.coordinator.share_groups.simple_assignor import SIMPLE_ASSIGNOR
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage

SHARE_PROTOCOL_TYPE: Final = "share"
NO_CHECK: Final = -1


class ShareGroupState(StrEnum):
    """States, by the names that clients and tools know."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup(Group):
    """A group. Only the `replay_*` methods change it."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.initializing: Partitions = NO_PARTITIONS
        self.initialized: Partitions = NO_PARTITIONS
        self.deleting: Mapping[UUID, str] = {}
        self.topic_names: dict[UUID, str] = {}
        self.checked_metadata = NO_CHECK
        """The version of the metadata that the group was last found to agree with."""

    # As any group

    @property
    def type(self) -> GroupType:
        """See `Group`."""
        return GroupType.SHARE

    @property
    def state_name(self) -> str:
        """See `Group`."""
        return (ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY).value

    @property
    def protocol_type(self) -> str:
        """See `Group`."""
        return SHARE_PROTOCOL_TYPE

    @property
    def member_count(self) -> int:
        """See `Group`."""
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        """See `Group`."""
        return not self.members

    @property
    def may_expire(self) -> bool:
        """See `Group`: its states are its offsets, and do not expire."""
        return False

    def check_offset_commit(
        self,
        member_id: str,  # noqa: ARG002 - share groups have no commits
        group_instance_id: str | None,  # noqa: ARG002
        generation_or_epoch: int,  # noqa: ARG002
        api_version: int,  # noqa: ARG002
        is_transactional: bool = False,  # noqa: ARG002
    ) -> CheckPartition | None:
        """See `Group`."""
        raise self._no_offsets()

    def on_offset_commit(self, member_id: str) -> None:
        """See `Group`."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:  # noqa: ARG002
        """See `Group`."""
        raise self._no_offsets()

    def check_offset_delete(self) -> None:
        """See `Group`."""
        raise self._no_offsets()

    def _no_offsets(self) -> BrokerError:
        return BrokerError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group."
        )

    def check_delete(self) -> None:
        """See `Group`."""
        if self.members:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} is not empty.")

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """See `Group`."""
        members = self.members.values()
        return frozenset(name for each in members for name in each.subscribed_topic_names)

    def is_subscribed_to(self, topic: str) -> bool:
        """See `Group`."""
        return any(topic in each.subscribed_topic_names for each in self.members.values())

    def offset_expiry_base_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:  # noqa: ARG002
        """See `Group`."""
        return None

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """See `Group`: the members' first, the group's own last."""
        group_id = self.group_id
        records = [record for each in self.members for record in member_tombstones(group_id, each)]
        keys = (
            ShareGroupTargetAssignmentMetadataKey(group_id),
            ShareGroupStatePartitionMetadataKey(group_id),
            ShareGroupMetadataKey(group_id),
        )
        return [*records, *(CoordinatorRecord(key, None) for key in keys)]

    def on_removed(self) -> None:
        """See `Group`: sessions find no member any more and end without effect."""

    def on_unloaded(self) -> None:
        """See `Group`: nobody ever waits in such a group."""

    # Questions

    def topic_names_read(self) -> set[str]:
        """The topics that any member reads."""
        return {name for each in self.members.values() for name in each.subscribed_topic_names}

    def uninitialized(self, names: set[str], image: MetadataImage) -> Partitions:
        """The partitions of those topics that have no state."""
        topics = [image.topic(name) for name in sorted(names)]
        wanted = {
            topic.topic_id: frozenset(range(len(topic.partitions)))
            for topic in topics
            if topic is not None and topic.partitions
        }
        return difference(wanted, self.initialized)

    def with_states(self) -> Partitions:
        """The partitions that have, or may have, a state."""
        return union(self.initialized, self.initializing)

    def describe(self) -> DescribedShareGroup:
        """The group for ShareGroupDescribe."""
        return DescribedShareGroup(
            self.group_id,
            self.state_name,
            self.epoch,
            self.assignment_epoch,
            SIMPLE_ASSIGNOR,
            tuple([each.described() for each in self.members.values()]),
        )

    # Records

    def states_record(
        self,
        initializing: Partitions,
        initialized: Partitions,
        deleting: Mapping[UUID, str],
        image: MetadataImage,
    ) -> CoordinatorRecord:
        """The record of key 15; deleted topics keep their last name."""

        def named(partitions: Partitions) -> tuple[tuple[UUID, str, tuple[int, ...]], ...]:
            return tuple(
                (topic_id, self._name_of(topic_id, image), tuple(sorted(partitions[topic_id])))
                for topic_id in sorted(partitions)
            )

        value = ShareGroupStatePartitionMetadataValue(
            named(initializing), named(initialized), tuple(sorted(deleting.items()))
        )
        return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(self.group_id), value)

    def _name_of(self, topic_id: UUID, image: MetadataImage) -> str:
        topic = image.topic_by_id(topic_id)
        return self.topic_names.get(topic_id, "") if topic is None else topic.name

    # Replay

    def replay_group(self, value: ShareGroupMetadataValue) -> None:
        """Key 11."""
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def replay_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        """Key 10; the last record of a leaving member has no value."""
        if value is None:
            self.members.pop(member_id, None)
        else:
            known = self.members.get(member_id) or ShareMember(member_id)
            self.members[member_id] = known.with_metadata(value)

    def replay_assignment(
        self, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """Key 14."""
        known = self.members.get(member_id)
        if known is not None or value is not None:
            self.members[member_id] = (known or ShareMember(member_id)).with_assignment(value)

    def replay_target_epoch(self, value: ShareGroupTargetAssignmentMetadataValue | None) -> None:
        """Key 12."""
        self.assignment_epoch = 0 if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp_ms

    def replay_target(
        self, member_id: str, value: ShareGroupTargetAssignmentMemberValue | None
    ) -> None:
        """Key 13."""
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = value.partitions

    def replay_states(self, value: ShareGroupStatePartitionMetadataValue | None) -> None:
        """Key 15."""
        if value is None:
            value = ShareGroupStatePartitionMetadataValue((), (), ())
        self.initializing = {each[0]: frozenset(each[2]) for each in value.initializing}
        self.initialized = {each[0]: frozenset(each[2]) for each in value.initialized}
        self.deleting = dict(value.deleting)
        named = (*value.initializing, *value.initialized)
        self.topic_names = {**self.deleting, **{topic_id: name for topic_id, name, _ in named}}


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The records that remove a member; the subscription goes last."""
    return [
        CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id, member_id), None),
    ]
