"""Requests and responses of members of consumer groups, free of wire versions."""

from collections.abc import Collection
from typing import Final, NamedTuple

from odradek.coordinator.assignors import Partitions
from odradek.errors import BrokerError, ErrorCode

CLIENT_MEMBER_ID_VERSION: Final = 1
"""From this version on members make their own ids (KIP-1082)."""


class HeartbeatRequest(NamedTuple):
    """A ConsumerGroupHeartbeat. A field that is None (or -1) has not changed since the last one."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether all fields are set: by a member that joins, or does not know which of its
        requests have arrived."""
        subscribes = (
            self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        )
        return self.rebalance_timeout_ms >= 0 and subscribes and self.owned is not None


class HeartbeatResult(NamedTuple):
    """The answer; `assignment` is None if the member's assignment has not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class DescribedMember(NamedTuple):
    """A member, as ConsumerGroupDescribe shows it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str
    assignment: Partitions
    target_assignment: Partitions
    is_classic: bool


class DescribedGroup(NamedTuple):
    """A group, as ConsumerGroupDescribe shows it."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedMember, ...]


def check_heartbeat(
    request: HeartbeatRequest, api_version: int, assignors: Collection[str]
) -> None:
    """Checks everything that does not depend on the group.

    Raises:
        BrokerError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    has_own_id = request.member_epoch != 0 or api_version >= CLIENT_MEMBER_ID_VERSION
    if has_own_id and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == 0:
        _check_join(request)
    elif request.member_epoch == -2 and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < -2:
        raise _invalid(f"MemberEpoch is invalid: {request.member_epoch}.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: HeartbeatRequest) -> None:
    if request.rebalance_timeout_ms < 0:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)
