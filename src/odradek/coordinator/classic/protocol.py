"""`ClassicProtocol`: the requests of members that use the classic protocol.

Every kind of group answers them itself: in a classic group the members divide the partitions
(`classic.groups`), in a consumer group the coordinator assigns to them as to all others
(`consumer.classic_members`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from odradek.coordinator.classic.requests import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    OnLeft,
    SyncRequest,
    SyncResult,
)
from odradek.errors import BrokerError


class ClassicProtocol(ABC):
    """The four requests of the protocol, for the groups of one kind in one partition."""

    @abstractmethod
    def join(
        self, request: JoinRequest, on_done: Callable[[JoinResult | BrokerError], None]
    ) -> None:
        """JoinGroup; `on_done` is called once, unless this raises.

        Raises:
            BrokerError: the member may not join.
        """

    @abstractmethod
    def sync(self, request: SyncRequest, on_synced: Callable[[SyncResult], None]) -> None:
        """SyncGroup; `on_synced` is called once, unless this raises.

        Raises:
            BrokerError: it is no member, or its generation or protocol is another, or it has to
                join again.
        """

    @abstractmethod
    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> None:
        """Heartbeat: a sign of life.

        Raises:
            BrokerError: REBALANCE_IN_PROGRESS, the member should join again; else it is no
                member, or of another generation.
        """

    @abstractmethod
    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        on_done: OnLeft,
    ) -> None:
        """LeaveGroup: members leave, or are made to by an administrator; one code for each.
        `on_done` is called once, unless this raises."""
