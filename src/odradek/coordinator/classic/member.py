"""`ClassicMember`: a member of a classic group, its metadata, and the request that it waits in."""

from odradek.coordinator.classic.requests import (
    JoinRequest,
    OnJoined,
    OnSynced,
    Protocols,
    SyncResult,
)
from odradek.coordinator.records.group_records import MemberMetadataValue


class ClassicMember:
    """Lives from its first join until it leaves, is removed or expires.

    It waits in at most one JoinGroup or SyncGroup at a time: a repeated request replaces the one
    before, whose connection is gone. `is_new` until its first join is answered: such a member does
    not know its id and cannot send heartbeats.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "heartbeat_satisfied",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.awaiting_join: OnJoined | None = None
        self.awaiting_sync: OnSynced | None = None
        self.is_new = False
        self.heartbeat_satisfied = False

    @classmethod
    def from_request(cls, member_id: str, request: JoinRequest) -> "ClassicMember":
        """The member that a request makes."""
        return cls(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
        )

    @classmethod
    def from_value(cls, value: MemberMetadataValue, protocol_name: str) -> "ClassicMember":
        """Returns the member as the log describes it; of its protocols only the chosen one is
        stored."""
        member = cls(
            value.member_id,
            value.group_instance_id,
            value.client_id,
            value.client_host,
            value.rebalance_timeout_ms,
            value.session_timeout_ms,
            ((protocol_name, value.subscription),),
        )
        member.assignment = value.assignment
        return member

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id, which outlives its process (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_alive(self) -> bool:
        """Whether the member is alive: it has sent a heartbeat, or waits for an answer of the
        group."""
        if self.is_new:
            return self.heartbeat_satisfied
        waits = self.awaiting_join is not None or self.awaiting_sync is not None
        return waits or self.heartbeat_satisfied

    def metadata(self, protocol_name: str) -> bytes:
        """The member's metadata for a protocol; empty when it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: frozenset[str]) -> str:
        """The member's favourite among the common protocols."""
        return next(name for name, _ in self.protocols if name in candidates)

    def answer_sync(self, result: SyncResult) -> bool:
        """Answers a waiting SyncGroup; False when there is none."""
        on_synced, self.awaiting_sync = self.awaiting_sync, None
        if on_synced is None:
            return False
        on_synced(result)
        return True
