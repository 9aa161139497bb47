"""The time-out of partitions that a member of a consumer group must give back.

It begins with the request to give them back, and ends when the member reaches its next epoch or
joins again. Otherwise the member is removed.
"""

from dataclasses import dataclass

from odradek.coordinator.modern.deadlines import MemberDeadline


@dataclass(frozen=True, slots=True)
class RevocationKey:
    """A member that must give partitions back."""

    group_id: str
    member_id: str


class DelayedRevocation(MemberDeadline):
    """A member must give partitions back within its rebalance time-out."""

    def missing(self) -> str:
        """The conditions still awaited."""
        return "partitions to be given back"
