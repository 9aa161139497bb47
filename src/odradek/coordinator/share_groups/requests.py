"""Requests and responses of members of share groups, and of operators, free of wire versions."""

from typing import NamedTuple
from uuid import UUID

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.modern.member_state import JOIN_EPOCH, LEAVE_EPOCH
from odradek.errors import BrokerError, ErrorCode


class ShareHeartbeatRequest(NamedTuple):
    """A ShareGroupHeartbeat. Topics that are None have not changed since the last one."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


class ShareHeartbeatResult(NamedTuple):
    """The answer; `assignment` is None if the member's assignment has not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class DescribedShareMember(NamedTuple):
    """A member, as ShareGroupDescribe shows it."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    assignment: Partitions


class DescribedShareGroup(NamedTuple):
    """A group, as ShareGroupDescribe shows it."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedShareMember, ...]


class ShareOffset(NamedTuple):
    """A group's offset in a partition; -1 if it is undecided, or unknown."""

    topic_id: UUID
    partition: int
    start_offset: int = -1
    leader_epoch: int = 0
    delivery_complete_count: int = -1
    error: BrokerError | None = None


def check_share_heartbeat(request: ShareHeartbeatRequest) -> None:
    """Checks everything that does not depend on the group.

    Raises:
        BrokerError: INVALID_REQUEST.
    """
    if not request.member_id.strip():
        raise _invalid("")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            raise _invalid("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise _invalid(f"MemberEpoch is invalid: {request.member_epoch}.")


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)
