"""`ShareMember`: a member of a share group, immutable; a change makes another one.

Two records describe it: its subscription (key 10), and its assignment (key 14).
"""

from typing import NamedTuple

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.modern.member_state import JOIN_EPOCH, MemberState
from odradek.coordinator.modern.partitions import NO_PARTITIONS
from odradek.coordinator.records.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
)
from odradek.coordinator.share_groups.requests import DescribedShareMember, ShareHeartbeatRequest


class ShareMember(NamedTuple):
    """A member."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    assigned: Partitions = NO_PARTITIONS

    def described_by(self, request: ShareHeartbeatRequest) -> "ShareMember":
        """The member with the fields of a heartbeat; missing ones stay as they are."""
        names = request.subscribed_topic_names
        return self._replace(
            rack_id=self.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            subscribed_topic_names=self.subscribed_topic_names if names is None else names,
        )

    def at_epoch(self, epoch: int, assigned: Partitions) -> "ShareMember":
        """The member with another assignment; it remembers the epoch before."""
        moved = epoch != self.member_epoch
        return self._replace(
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch if moved else self.previous_member_epoch,
            assigned=assigned,
        )

    def described(self) -> DescribedShareMember:
        """The member for ShareGroupDescribe."""
        return DescribedShareMember(
            self.member_id,
            self.rack_id,
            self.member_epoch,
            self.client_id,
            self.client_host,
            tuple(sorted(self.subscribed_topic_names)),
            self.assigned,
        )

    # Records

    def metadata_value(self) -> ShareGroupMemberMetadataValue:
        """The value for key 10."""
        names = tuple(sorted(self.subscribed_topic_names))
        return ShareGroupMemberMetadataValue(self.rack_id, self.client_id, self.client_host, names)

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> "ShareMember":
        """The member with the value of key 10."""
        return self._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
        )

    def assignment_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        """The value for key 14."""
        return ShareGroupCurrentMemberAssignmentValue(
            self.member_epoch, self.previous_member_epoch, MemberState.STABLE, self.assigned
        )

    def with_assignment(
        self, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> "ShareMember":
        """The member with the value of key 14; without one it has nothing."""
        if value is None:
            return self._replace(
                member_epoch=JOIN_EPOCH, previous_member_epoch=-1, assigned=NO_PARTITIONS
            )
        return self._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            assigned=value.partitions,
        )
