"""`ConsumerGroupReplay`: applies the records of the log to consumer groups.

Compaction may leave a member's record without the group's before it, so any record makes its group;
only tombstones make none.
"""

from collections.abc import Callable, Iterable
from typing import Any

from odradek.coordinator.consumer.group import ConsumerGroup
from odradek.coordinator.consumer.member import ConsumerMember
from odradek.coordinator.group import GroupRegistry
from odradek.coordinator.records.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.coordinator.records.record import CoordinatorRecord

OnMember = Callable[[str, str, ConsumerMember | None, ConsumerMember | None], None]
"""Gets a group's id, a member's id, and the member before and after the record."""


def replayed(group_id: str, records: Iterable[CoordinatorRecord]) -> ConsumerGroup:
    """The group that such records make, outside of any registry."""
    registry = GroupRegistry()
    # No deadlines, since nobody will wait for its members.
    methods = ConsumerGroupReplay(registry, lambda *_member: None).methods()
    for record in records:
        if type(record.key) in methods:
            methods[type(record.key)](record.key, record.value)
    group = registry.get(group_id)
    assert isinstance(group, ConsumerGroup), f"no record makes a group of {group_id}"
    return group


class ConsumerGroupReplay:
    """Replays records, one method for each kind; `methods` maps kinds to methods."""

    def __init__(self, registry: GroupRegistry, on_member: OnMember) -> None:
        self._registry = registry
        self._on_member = on_member

    def methods(self) -> dict[type, Callable[[Any, Any], None]]:
        """The methods by the type of key."""
        return {
            ConsumerGroupMetadataKey: self._group,
            ConsumerGroupPartitionMetadataKey: self._partition_metadata,
            ConsumerGroupMemberMetadataKey: self._member,
            ConsumerGroupTargetAssignmentMetadataKey: self._target_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self._target,
            ConsumerGroupCurrentMemberAssignmentKey: self._assignment,
            ConsumerGroupRegularExpressionKey: self._expression,
        }

    def _find(self, group_id: str, value: object | None) -> ConsumerGroup | None:
        """The group; made if there is none, unless the record ends something."""
        group = self._registry.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if value is None:
            return None
        self._registry.remove(group_id)
        made = ConsumerGroup(group_id)
        self._registry.put(made)
        return made

    def _group(
        self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
    ) -> None:
        group = self._find(key.group_id, value)
        if group is not None and value is not None:
            group.replay_group(value)
        elif group is not None:
            self._registry.remove(key.group_id)

    def _partition_metadata(
        self,
        key: ConsumerGroupPartitionMetadataKey,
        value: ConsumerGroupPartitionMetadataValue | None,
    ) -> None:
        """Old brokers wrote what topics they saw; the hash in the group's record replaces it."""

    def _member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        group = self._find(key.group_id, value)
        if group is not None:
            before = group.members.get(key.member_id)
            group.replay_member(key.member_id, value)
            self._tell(group, key.member_id, before)

    def _target_epoch(
        self,
        key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        group = self._find(key.group_id, value)
        if group is not None:
            group.replay_target_epoch(value)

    def _target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        group = self._find(key.group_id, value)
        if group is not None:
            group.replay_target(key.member_id, value)

    def _assignment(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        group = self._find(key.group_id, value)
        if group is not None:
            before = group.members.get(key.member_id)
            group.replay_assignment(key.member_id, value)
            self._tell(group, key.member_id, before)

    def _tell(self, group: ConsumerGroup, member_id: str, before: ConsumerMember | None) -> None:
        self._on_member(group.group_id, member_id, before, group.members.get(member_id))

    def _expression(
        self,
        key: ConsumerGroupRegularExpressionKey,
        value: ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        group = self._find(key.group_id, value)
        if group is not None:
            group.replay_expression(key.regular_expression, value)
