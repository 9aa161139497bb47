"""`ConsumerMember`: a member of a consumer group, immutable; a change makes another one.

Two records describe it: its subscription (key 5), and its current assignment (key 8).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.consumer.requests import HeartbeatRequest
from odradek.coordinator.modern.member_state import JOIN_EPOCH, MemberState
from odradek.coordinator.modern.partitions import NO_PARTITIONS, union
from odradek.coordinator.records.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

AssignmentEpochs = Mapping[UUID, Mapping[int, int]]
"""By topic and partition."""

NO_EPOCHS: Final[AssignmentEpochs] = MappingProxyType({})
STATIC_LEAVE_EPOCH: Final = -2
"""A static member says with it that it will be back."""


class ConsumerMember(NamedTuple):
    """A member. It owns the `assigned` partitions, and until it reports otherwise those in
    `pending_revocation`; the two are disjoint. `assignment_epochs` has, for each of these
    partitions, the epoch since which the member has owned it without a break."""

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
    assignment_epochs: AssignmentEpochs = NO_EPOCHS

    @property
    def owned(self) -> Partitions:
        """The partitions the member may be reading: those assigned, and those still to revoke."""
        return union(self.assigned, self.pending_revocation)

    @property
    def is_classic(self) -> bool:
        """Whether the member speaks the classic protocol, in a group that was upgraded."""
        return self.classic is not None

    @property
    def subscription(self) -> tuple[frozenset[str], str]:
        """The member's subscription, by name and by regular expression."""
        return self.subscribed_topic_names, self.subscribed_topic_regex

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has reached its assignment of that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def described_by(self, request: HeartbeatRequest) -> "ConsumerMember":
        """Returns the member with the fields of a heartbeat; missing ones stay as they are."""
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
        held = union(assigned, pending)
        return self._replace(
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch if moved else self.previous_member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending,
            assignment_epochs={
                topic_id: _since(self.assignment_epochs.get(topic_id, {}), indexes, epoch)
                for topic_id, indexes in held.items()
            },
        )

    def released(self) -> "ConsumerMember":
        """The state of a static member that leaves and will be back: its epochs cannot commit any
        more, and its successor counts as owner of the partitions from the beginning."""
        released = self.at_epoch(STATIC_LEAVE_EPOCH, self.state, self.assigned, NO_PARTITIONS)
        return released._replace(
            assignment_epochs={
                topic_id: dict.fromkeys(indexes, 0) for topic_id, indexes in self.assigned.items()
            }
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
        """Returns the member with the value of key 5."""
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
            to_topic_partitions(self.assigned, self.assignment_epochs),
            to_topic_partitions(self.pending_revocation, self.assignment_epochs),
        )

    def with_assignment(
        self, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> "ConsumerMember":
        """Returns the member with the value of key 8; without one it has nothing."""
        if value is None:
            return self._replace(
                member_epoch=JOIN_EPOCH,
                previous_member_epoch=-1,
                state=MemberState.STABLE,
                assigned=NO_PARTITIONS,
                pending_revocation=NO_PARTITIONS,
                assignment_epochs=NO_EPOCHS,
            )
        known = value.state in MemberState.__members__.values()
        return self._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=to_partitions(value.assigned_partitions),
            pending_revocation=to_partitions(value.partitions_pending_revocation),
            assignment_epochs=_to_epochs(value),
        )


def _or(said: str | None, known: str | None) -> str | None:
    return known if said is None else said


def _since(known: Mapping[int, int], indexes: frozenset[int], epoch: int) -> dict[int, int]:
    return {index: known.get(index, epoch) for index in indexes}


def to_topic_partitions(
    partitions: Partitions, epochs: AssignmentEpochs | None = None
) -> tuple[TopicPartitions, ...]:
    """Partitions as records have them, in a fixed order."""
    return tuple(
        TopicPartitions(topic_id, indexes, _epochs_of(epochs, topic_id, indexes))
        for topic_id in sorted(partitions)
        for indexes in [tuple(sorted(partitions[topic_id]))]
    )


def _epochs_of(
    epochs: AssignmentEpochs | None, topic_id: UUID, indexes: tuple[int, ...]
) -> tuple[int, ...] | None:
    if epochs is None:
        return None
    known = epochs[topic_id]
    return tuple(known[index] for index in indexes)


def to_partitions(topics: tuple[TopicPartitions, ...]) -> Partitions:
    """Partitions from a record."""
    return {
        topic.topic_id: frozenset(topic.partitions)
        for topic in topics
        if topic.topic_id is not None and topic.partitions
    }


def _to_epochs(value: ConsumerGroupCurrentMemberAssignmentValue) -> AssignmentEpochs:
    """The epochs of a record; brokers before KIP-1251 wrote none, then it is the member's."""
    found: dict[UUID, dict[int, int]] = {}
    for topic in (*value.assigned_partitions, *value.partitions_pending_revocation):
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = (value.member_epoch,) * len(topic.partitions)
        if topic.topic_id is not None:
            found.setdefault(topic.topic_id, {}).update(zip(topic.partitions, epochs, strict=True))
    return found
