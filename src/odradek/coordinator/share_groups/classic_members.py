"""Answers members of the classic protocol: a share group has none, and accepts none."""

# ruff: noqa: ARG002 - the refusals depend on no argument

from collections.abc import Callable, Sequence

from odradek.coordinator.classic.protocol import ClassicProtocol
from odradek.coordinator.classic.requests import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from odradek.errors import BrokerError, ErrorCode


class NoClassicMembers(ClassicProtocol):
    """Refuses all four requests."""

    def join(
        self, request: JoinRequest, on_done: Callable[[JoinResult | BrokerError], None]
    ) -> None:
        """See `ClassicProtocol`."""
        raise BrokerError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Group {request.group_id} is a share group.",
        )

    def sync(self, request: SyncRequest, on_synced: Callable[[SyncResult], None]) -> None:
        """See `ClassicProtocol`."""
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> None:
        """See `ClassicProtocol`."""
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)

    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        on_done: Callable[[list[ErrorCode] | BrokerError], None],
    ) -> None:
        """See `ClassicProtocol`."""
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
