"""`ShareGroupReplay`: applies the records of the log to share groups.

Compaction may leave a member's record without the group's before it, so any record makes its group;
only tombstones make none.
"""

from collections.abc import Callable
from typing import Any

from odradek.coordinator.group import GroupRegistry
from odradek.coordinator.records.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from odradek.coordinator.share_groups.group import ShareGroup


class ShareGroupReplay:
    """Replays records, one method for each kind; `methods` maps kinds to methods. `on_gone` is
    called for members that are gone."""

    def __init__(self, registry: GroupRegistry, on_gone: Callable[[str, str], None]) -> None:
        self._registry = registry
        self._on_gone = on_gone

    def methods(self) -> dict[type, Callable[[Any, Any], None]]:
        """The methods by the type of key."""
        return {
            ShareGroupMetadataKey: self._group,
            ShareGroupMemberMetadataKey: self._member,
            ShareGroupTargetAssignmentMetadataKey: self._target_epoch,
            ShareGroupTargetAssignmentMemberKey: self._target,
            ShareGroupCurrentMemberAssignmentKey: self._assignment,
            ShareGroupStatePartitionMetadataKey: self._states,
        }

    def _find(self, group_id: str, value: object | None) -> ShareGroup | None:
        """The group; made if there is none, unless the record ends something."""
        group = self._registry.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if value is None:
            return None
        self._registry.remove(group_id)
        made = ShareGroup(group_id)
        self._registry.put(made)
        return made

    def _group(self, key: Any, value: Any) -> None:
        group = self._find(key.group_id, value)
        if group is not None and value is not None:
            group.replay_group(value)
        elif group is not None:
            self._registry.remove(key.group_id)

    def _member(self, key: Any, value: Any) -> None:
        group = self._find(key.group_id, value)
        if group is not None:
            group.replay_member(key.member_id, value)
            if value is None:
                self._on_gone(key.group_id, key.member_id)

    def _target_epoch(self, key: Any, value: Any) -> None:
        group = self._find(key.group_id, value)
        if group is not None:
            group.replay_target_epoch(value)

    def _target(self, key: Any, value: Any) -> None:
        group = self._find(key.group_id, value)
        if group is not None:
            group.replay_target(key.member_id, value)

    def _assignment(self, key: Any, value: Any) -> None:
        group = self._find(key.group_id, value)
        if group is not None:
            group.replay_assignment(key.member_id, value)

    def _states(self, key: Any, value: Any) -> None:
        group = self._find(key.group_id, value)
        if group is not None:
            group.replay_states(value)
