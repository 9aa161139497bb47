"""`GroupChange`: a command's changes to a consumer group, collected as records.

The group itself stays as it is until the records are committed and replayed; so this keeps the
command's decisions beside it, for the steps that depend on one another:

    a member is put, removed or replaced        subscriptions change
    metadata                                    expressions and topics are looked at again
    epoch                                       one higher if any of that made a difference
    target                                      computed anew if the epoch is ahead of it
    reconciliation                              the member goes one step towards its target
"""

from typing import Final
from uuid import UUID

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.consumer.group import ConsumerGroup, member_tombstones
from odradek.coordinator.consumer.member import ConsumerMember, to_topic_partitions
from odradek.coordinator.consumer.reconciliation import reconcile
from odradek.coordinator.consumer.subscriptions import Subscriptions
from odradek.coordinator.consumer.target_assignment import compute_target, readable_topics
from odradek.coordinator.modern.member_state import INITIAL_EPOCH
from odradek.coordinator.modern.topic_metadata import topics_hash
from odradek.coordinator.records.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.regular_expressions import matching_names
from odradek.metadata.image import MetadataImage


class GroupChange:
    """One command on one group. Made, used and dropped within the command."""

    def __init__(
        self, group: ConsumerGroup, image: MetadataImage, metadata_version: int, now_ms: int
    ) -> None:
        self.group: Final = group
        self.records: Final[list[CoordinatorRecord]] = []
        self.epoch = group.epoch
        self.target_epoch = group.assignment_epoch
        self.subscription_changed = False
        self._image = image
        self._metadata_version = metadata_version
        self._now_ms = now_ms
        self._metadata_hash = group.metadata_hash
        self._members: dict[str, ConsumerMember | None] = {}
        self._targets: dict[str, Partitions | None] = {}
        self._subscriptions: Subscriptions | None = None
        self._expressions = dict(group.expressions)

    # What it comes to

    def member(self, member_id: str) -> ConsumerMember | None:
        """The member as the command leaves it."""
        if member_id in self._members:
            return self._members[member_id]
        return self.group.members.get(member_id)

    def members(self) -> list[ConsumerMember]:
        """All members as the command leaves them."""
        changed = {**self.group.members, **self._members}
        return [member for member in changed.values() if member is not None]

    def target(self, member_id: str) -> Partitions:
        """The member's target as the command leaves it."""
        if member_id in self._targets:
            return self._targets[member_id] or {}
        return self.group.target(member_id)

    @property
    def subscriptions(self) -> Subscriptions:
        """The subscriptions, as the command leaves them."""
        return self.group.subscriptions if self._subscriptions is None else self._subscriptions

    # Members

    def put(self, member: ConsumerMember) -> None:
        """Puts a member that is new or has changed."""
        before = self.member(member.member_id)
        self._write(
            ConsumerGroupMemberMetadataKey(self.group.group_id, member.member_id),
            member.metadata_value(),
        )
        self._members[member.member_id] = member
        if before is None or before.subscription != member.subscription:
            self._resubscribe(before, member)

    def remove(self, member: ConsumerMember) -> None:
        """Removes a member and its records."""
        self.records.extend(member_tombstones(self.group.group_id, member.member_id))
        self._members[member.member_id] = None
        self._targets[member.member_id] = None
        self._resubscribe(member, None)

    def replace(self, old: ConsumerMember, new_member_id: str) -> ConsumerMember:
        """Replaces a static member by its next process, with the same subscription and
        assignment."""
        target = self.target(old.member_id)
        new = old._replace(member_id=new_member_id, member_epoch=0, previous_member_epoch=0)
        self.records.extend(member_tombstones(self.group.group_id, old.member_id))
        self._members[old.member_id] = None
        self._targets[old.member_id] = None
        self._members[new_member_id] = new
        self._write(
            ConsumerGroupMemberMetadataKey(self.group.group_id, new_member_id),
            new.metadata_value(),
        )
        self._put_target(new_member_id, target)
        self._write_assignment(new)
        return new

    def set_assignment(self, member: ConsumerMember) -> None:
        """Puts a member with another epoch, state or assignment."""
        self._members[member.member_id] = member
        self._write_assignment(member)

    def _resubscribe(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        self.subscription_changed = True
        if self._subscriptions is None:
            self._subscriptions = self.group.subscriptions.copy()
        if before is not None:
            self._subscriptions.discard(before)
        if after is not None:
            self._subscriptions.add(after)

    # Topics

    def check_metadata(self) -> bool:
        """Resolves expressions that are new or may match other topics now, drops unused ones, and
        returns whether the topics that the group reads have changed."""
        self._resolve_expressions()
        names = self.subscriptions.topic_names(self._expressions)
        self._metadata_hash = topics_hash(names, self._image)
        return self._metadata_hash != self.group.metadata_hash

    def _resolve_expressions(self) -> None:
        group_id = self.group.group_id
        used = self.subscriptions.expressions
        for expression in self._expressions.keys() - used.keys():
            del self._expressions[expression]
            self._write(ConsumerGroupRegularExpressionKey(group_id, expression), None)
        is_current = self.group.checked_metadata == self._metadata_version
        for expression in used:
            known = self._expressions.get(expression)
            if known is not None and is_current:
                continue
            topics = tuple(sorted(matching_names(expression, self._image.topics)))
            if known is None or known.topics != topics:
                value = ConsumerGroupRegularExpressionValue(
                    topics, self._metadata_version, self._now_ms
                )
                self._expressions[expression] = value
                self._write(ConsumerGroupRegularExpressionKey(group_id, expression), value)

    def bump_epoch(self) -> None:
        """Raises the group's epoch; `check_metadata` comes before."""
        self.epoch = max(self.group.epoch, INITIAL_EPOCH) + 1
        self._write(
            ConsumerGroupMetadataKey(self.group.group_id),
            ConsumerGroupMetadataValue(self.epoch, self._metadata_hash),
        )

    # Assignment

    def assign(self, assignor_name: str) -> None:
        """Computes the target for the present epoch and writes the differences."""
        group_id = self.group.group_id
        known = {**self.group.targets, **self._targets}
        before = {member_id: target for member_id, target in known.items() if target is not None}
        targets = compute_target(
            assignor_name, self.members(), self._expressions, before, self._image
        )
        for member_id, target in targets.items():
            if before.get(member_id) != target:
                self._put_target(member_id, target)
        self.target_epoch = self.epoch
        self._write(
            ConsumerGroupTargetAssignmentMetadataKey(group_id),
            ConsumerGroupTargetAssignmentMetadataValue(self.epoch, self._now_ms),
        )

    def reconcile(self, member: ConsumerMember, owned: Partitions | None) -> ConsumerMember:
        """Moves a member one step towards its target; returns the member after that."""
        target = self.target(member.member_id)
        subscribed = self._subscribed(member) if self.subscription_changed else None
        if self.epoch > self.target_epoch:
            # It was computed before the subscription changed.
            readable = self._subscribed(member) if subscribed is None else subscribed
            target = {topic_id: each for topic_id, each in target.items() if topic_id in readable}
        updated = reconcile(
            member,
            self.target_epoch,
            target,
            owned,
            self.group.owner,
            subscribed,
        )
        if updated is not member and updated != member:
            self.set_assignment(updated)
        return updated

    def _subscribed(self, member: ConsumerMember) -> set[UUID]:
        """The topics that a member reads and that exist."""
        topics = readable_topics(member, self._expressions, self._image)
        return {topic.topic_id for topic in topics}

    # Records

    def _put_target(self, member_id: str, target: Partitions) -> None:
        self._targets[member_id] = target
        self._write(
            ConsumerGroupTargetAssignmentMemberKey(self.group.group_id, member_id),
            ConsumerGroupTargetAssignmentMemberValue(to_topic_partitions(target)),
        )

    def _write_assignment(self, member: ConsumerMember) -> None:
        self._write(
            ConsumerGroupCurrentMemberAssignmentKey(self.group.group_id, member.member_id),
            member.assignment_value(),
        )

    def _write(self, key: object, value: object | None) -> None:
        self.records.append(CoordinatorRecord(key, value))
