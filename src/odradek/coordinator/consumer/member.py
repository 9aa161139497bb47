"""`ConsumerMember`: a member of a consumer group, immutable; a change makes another one.

Two records tell of it: what it subscribes to (key 5), and what it has (key 8).
"""

from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.consumer.requests import HeartbeatRequest
from odradek.coordinator.records.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2


class MemberState(IntEnum):
    """How far a member is; the numbers stand in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It was asked to give partitions back and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given back."""
    UNKNOWN = 127
    """Written by a coordinator that knows more states."""


class ConsumerMember(NamedTuple):
    """A member. It owns what is `assigned`, and until it says otherwise what is
    `pending_revocation`; the two have nothing in common."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS

    @property
    def is_classic(self) -> bool:
        """Whether the member speaks the classic protocol, in a group that was upgraded."""
        return self.classic is not None

    @property
    def subscription(self) -> tuple[frozenset[str], str]:
        """What the member reads, by name and by expression."""
        return self.subscribed_topic_names, self.subscribed_topic_regex

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has what the assignment of that epoch gives it."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def described_by(self, request: HeartbeatRequest) -> "ConsumerMember":
        """The member with what a heartbeat says of it; what it leaves out stays."""
        names = request.subscribed_topic_names
        regex = request.subscribed_topic_regex
        timeout_ms = request.rebalance_timeout_ms
        return self._replace(
            instance_id=_or(request.instance_id, self.instance_id),
            rack_id=_or(request.rack_id, self.rack_id),
            client_id=request.client_id,
            client_host=request.client_host,
            subscribed_topic_names=self.subscribed_topic_names if names is None else names,
            subscribed_topic_regex=self.subscribed_topic_regex if regex is None else regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
            server_assignor=_or(request.server_assignor, self.server_assignor),
            classic=None,
        )

    def at_epoch(
        self, epoch: int, state: MemberState, assigned: Partitions, pending: Partitions
    ) -> "ConsumerMember":
        """The member with another assignment; it remembers the epoch before."""
        moved = epoch != self.member_epoch
        return self._replace(
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch if moved else self.previous_member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending,
        )

    # Records

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        """The value for key 5."""
        return ConsumerGroupMemberMetadataValue(
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            tuple(sorted(self.subscribed_topic_names)),
            self.subscribed_topic_regex,
            self.rebalance_timeout_ms,
            self.server_assignor,
            self.classic,
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        """The member with what a value for key 5 says."""
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """The value for key 8."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            self.member_epoch,
            self.previous_member_epoch,
            self.state,
            to_topic_partitions(self.assigned),
            to_topic_partitions(self.pending_revocation),
        )

    def with_assignment(
        self, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> "ConsumerMember":
        """The member with what a value for key 8 says; without one it has nothing."""
        if value is None:
            return self._replace(
                member_epoch=JOIN_EPOCH,
                previous_member_epoch=-1,
                state=MemberState.STABLE,
                assigned=NO_PARTITIONS,
                pending_revocation=NO_PARTITIONS,
            )
        known = value.state in MemberState.__members__.values()
        return self._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=to_partitions(value.assigned_partitions),
            pending_revocation=to_partitions(value.partitions_pending_revocation),
        )


def _or(said: str | None, known: str | None) -> str | None:
    return known if said is None else said


def to_topic_partitions(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    """Partitions as records have them, in a fixed order."""
    return tuple(
        TopicPartitions(topic_id, tuple(sorted(partitions[topic_id])))
        for topic_id in sorted(partitions)
    )


def to_partitions(topics: tuple[TopicPartitions, ...]) -> Partitions:
    """Partitions from a record."""
    return {
        topic.topic_id: frozenset(topic.partitions)
        for topic in topics
        if topic.topic_id is not None and topic.partitions
    }
