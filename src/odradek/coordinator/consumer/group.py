"""`ConsumerGroup`: the state of a group whose partitions the coordinator assigns.

Three numbers drive it. The group's epoch rises whenever its members, their subscriptions or
their topics change. The assignment's epoch follows when a target assignment has been computed. Each
member's epoch follows when the member has given back its revoked partitions. Everything here but
`checked_metadata` comes from the log.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from uuid import UUID

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.consumer.member import (
    ConsumerMember,
    to_partitions,
)
from odradek.coordinator.consumer.requests import DescribedGroup, DescribedMember
from odradek.coordinator.consumer.subscriptions import Subscriptions
from odradek.coordinator.group import CONSUMER_PROTOCOL_TYPE, CheckPartition, Group, GroupType
from odradek.coordinator.modern.member_state import MemberState
from odradek.coordinator.modern.partitions import NO_PARTITIONS
from odradek.coordinator.records.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
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
from odradek.errors import BrokerError, ErrorCode

MEMBER_EPOCH_COMMIT_VERSION = 9
"""From this version on OffsetCommit knows the errors of member epochs."""
NO_EPOCH = -1


class ConsumerGroupState(StrEnum):
    """States, by the names that clients and tools know; each follows from the epochs."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup(Group):
    """A group. Only the `replay_*` methods change it.

    Invariant: a partition has at most one owner, which has it assigned or pending
    revocation.
    """

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Partitions] = {}
        self.expressions: dict[str, ConsumerGroupRegularExpressionValue] = {}
        self.subscriptions = Subscriptions()
        self.checked_metadata = NO_EPOCH
        """The version of the metadata that the group was last found to agree with."""
        self._owners: dict[UUID, dict[int, str]] = {}

    # As any group

    @property
    def type(self) -> GroupType:
        """See `Group`."""
        return GroupType.CONSUMER

    @property
    def state_name(self) -> str:
        """See `Group`."""
        return self.state.value

    @property
    def state(self) -> ConsumerGroupState:
        """The state, by the epochs."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def protocol_type(self) -> str:
        """See `Group`."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def member_count(self) -> int:
        """See `Group`."""
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        """See `Group`."""
        return not self.members

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,  # noqa: ARG002 - the member's epoch says it all
        generation_or_epoch: int,
        api_version: int,
        is_transactional: bool = False,
    ) -> CheckPartition | None:
        """See `Group`. A commit without an epoch is allowed only while there are no members; with
        an earlier epoch a member may commit partitions that it has kept since (KIP-1251)."""
        if generation_or_epoch < 0 and not self.members:
            return None
        member = self._known(member_id)
        is_old = api_version < MEMBER_EPOCH_COMMIT_VERSION and not is_transactional
        if is_old and not member.is_classic:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {MEMBER_EPOCH_COMMIT_VERSION} or above must be used by "
                "members of the consumer protocol.",
            )
        if generation_or_epoch >= member.member_epoch:
            _check_epoch(member, generation_or_epoch)
            return None
        return lambda topic_id, partition: _check_kept(
            member, generation_or_epoch, topic_id, partition
        )

    def on_offset_commit(self, member_id: str) -> None:
        """See `Group`: only heartbeats count as a sign of life in this protocol."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """See `Group`: clients that are no members may read offsets."""
        if member_id is None and member_epoch < 0:
            return
        _check_epoch(self._known(member_id or ""), member_epoch)

    def _known(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def check_offset_delete(self) -> None:
        """See `Group`: subscriptions are known here, so it is up to each topic."""

    def check_delete(self) -> None:
        """See `Group`."""
        if self.members:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """See `Group`; topics that only expressions match are not included."""
        return frozenset(self.subscriptions.names)

    def is_subscribed_to(self, topic: str) -> bool:
        """See `Group`."""
        return self.subscriptions.includes(topic, self.expressions)

    def offset_expiry_base_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """See `Group`."""
        return None if self.is_subscribed_to(topic) else commit_timestamp_ms

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """See `Group`: the members' first, the group's own last."""
        group_id = self.group_id
        records = [record for each in self.members for record in member_tombstones(group_id, each)]
        for expression in self.expressions:
            key = ConsumerGroupRegularExpressionKey(group_id, expression)
            records.append(CoordinatorRecord(key, None))
        records.append(CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id), None))
        records.append(CoordinatorRecord(ConsumerGroupMetadataKey(group_id), None))
        return records

    def on_removed(self) -> None:
        """See `Group`: deadlines find no member any more and end without effect."""

    def on_unloaded(self) -> None:
        """See `Group`: nobody ever waits in such a group."""

    # Questions

    def target(self, member_id: str) -> Partitions:
        """The target assignment of the member."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """The member that may be reading the partition."""
        owners = self._owners.get(topic_id)
        return None if owners is None else owners.get(partition)

    def may_receive(self, member: ConsumerMember) -> bool:
        """Whether a member that waits for partitions can have all of them now."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return all(
            self.owner(topic_id, index) in (None, member.member_id)
            for topic_id, indexes in self.target(member.member_id).items()
            for index in indexes
        )

    def describe(self, default_assignor: str) -> DescribedGroup:
        """The group for ConsumerGroupDescribe."""
        members = tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.rack_id,
                member.member_epoch,
                member.client_id,
                member.client_host,
                tuple(sorted(member.subscribed_topic_names)),
                member.subscribed_topic_regex,
                member.owned,
                self.target(member.member_id),
                member.is_classic,
            )
            for member in self.members.values()
        )
        return DescribedGroup(
            self.group_id,
            self.state_name,
            self.epoch,
            self.assignment_epoch,
            preferred_assignor(self.members.values(), default_assignor),
            members,
        )

    # Replay

    def replay_group(self, value: ConsumerGroupMetadataValue) -> None:
        """Key 3."""
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def replay_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        """Key 5; the last record of a leaving member has no value."""
        before = self.members.get(member_id)
        if before is not None:
            self.subscriptions.discard(before)
            if self.static_members.get(before.instance_id or "") == member_id:
                del self.static_members[before.instance_id or ""]
        if value is None:
            self._release(before)
            self.members.pop(member_id, None)
            return
        member = (before or ConsumerMember(member_id)).with_metadata(value)
        self.members[member_id] = member
        self.subscriptions.add(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def replay_assignment(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """Key 8."""
        before = self.members.get(member_id)
        self._release(before)
        if before is None and value is None:
            return
        member = (before or ConsumerMember(member_id)).with_assignment(value)
        self.members[member_id] = member
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, indexes in partitions.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(indexes, member_id))

    def _release(self, member: ConsumerMember | None) -> None:
        """Removes the member as an owner; partitions that another member has got meanwhile stay
        with that one."""
        if member is None:
            return
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, indexes in partitions.items():
                owners = self._owners.get(topic_id, {})
                for index in indexes:
                    if owners.get(index) == member.member_id:
                        del owners[index]
                if not owners:
                    self._owners.pop(topic_id, None)

    def replay_target_epoch(self, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        """Key 6."""
        self.assignment_epoch = 0 if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp_ms

    def replay_target(
        self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        """Key 7."""
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = to_partitions(value.topic_partitions)

    def replay_expression(
        self, expression: str, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        """Key 16."""
        if value is None:
            self.expressions.pop(expression, None)
        else:
            self.expressions[expression] = value


def preferred_assignor(members: Iterable[ConsumerMember], default: str) -> str:
    """The assignor that most members prefer; `default` if none has a preference."""
    votes = Counter(each.server_assignor for each in members if each.server_assignor is not None)
    return votes.most_common(1)[0][0] if votes else default


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The records that remove a member; the subscription goes last."""
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def _check_kept(
    member: ConsumerMember, received: int, topic_id: UUID | None, partition: int
) -> None:
    """Checks that the member already had the partition in that epoch, and still has it."""
    epochs = member.assignment_epochs.get(topic_id, {}) if topic_id is not None else {}
    assigned_at = epochs.get(partition)
    if assigned_at is None or received < assigned_at:
        _check_epoch(member, received)


def _check_epoch(member: ConsumerMember, received: int) -> None:
    if received == member.member_epoch:
        return
    known = f"epoch {received} of member {member.member_id}; the coordinator knows"
    code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
    raise BrokerError(code, f"{known} {member.member_epoch}")
