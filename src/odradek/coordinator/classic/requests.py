"""Requests and responses of members of a classic group, free of wire versions.

Answers carry an error code and are values: a join that failed is as ordinary as one that
succeeded, and many of them leave later, from a purgatory.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from odradek.config.broker import BrokerConfig
from odradek.errors import BrokerError, ErrorCode

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1
MAX_NAME_BYTES: Final = 32_767 - 37
"""The longest string of the log, less the part of a member id beyond the client id."""

Protocols = tuple[tuple[str, bytes], ...]
"""The protocols of a member, its favourite first, each with its metadata."""


class JoinRequest(NamedTuple):
    """A JoinGroup."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str = ""
    requires_known_member_id: bool = False
    """From version 4 on: a new member first gets an id and joins with it (KIP-394)."""
    supports_skipping_assignment: bool = False
    """From version 9 on: a leader can be told to leave the assignment as it is (KIP-814)."""


class JoinedMember(NamedTuple):
    """A member, as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to a JoinGroup; only a leader gets `members`."""

    error_code: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """A SyncGroup; the leader's has the assignments by member id."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class SyncResult(NamedTuple):
    """The answer to a SyncGroup."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """A member that leaves, or is made to; a static one may be named by its instance alone."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class MemberDescription(NamedTuple):
    """A member, as DescribeGroups shows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group, as DescribeGroups shows it."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[MemberDescription, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


OnJoined = Callable[[JoinResult], None]
OnSynced = Callable[[SyncResult], None]
OnLeft = Callable[[list[ErrorCode] | BrokerError], None]


def check_session(request: JoinRequest, config: BrokerConfig) -> None:
    """Checks that the member's session is as long as the broker allows.

    Raises:
        BrokerError: INVALID_SESSION_TIMEOUT.
    """
    longest_ms = config["group.max.session.timeout.ms"]
    if not config["group.min.session.timeout.ms"] <= request.session_timeout_ms <= longest_ms:
        raise BrokerError(ErrorCode.INVALID_SESSION_TIMEOUT)


def check_names(request: JoinRequest) -> None:
    """Checks that a member's names fit the log's format: a member that does not fit would prevent
    every write of its group.

    Raises:
        BrokerError: INVALID_REQUEST.
    """
    names = [name for name, _ in request.protocols]
    names += (request.group_id, request.client_id, request.protocol_type)
    names.append(request.group_instance_id or "")
    longest = max(len(name.encode()) for name in names)
    if longest > MAX_NAME_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"a name of {longest} bytes, at most {MAX_NAME_BYTES} fit"
        )
