"""Reconciliation: the next step of a member from its current to its target assignment.

    keep    = assigned & target
    revoke  = assigned - target         the member must give these back first
    receive = target - keep             as far as nobody else has them

While it has to give back, it stays at its epoch with `keep`, UNREVOKED_PARTITIONS, until it
reports owned partitions without those. Then it moves to the target's epoch, with what it may
receive: STABLE if that was everything, else UNRELEASED_PARTITIONS, and tries again with every
heartbeat. So no partition ever has two owners, and members never wait for one another with
partitions that they keep.
"""

from collections.abc import Callable, Collection
from uuid import UUID

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.consumer.member import ConsumerMember
from odradek.coordinator.modern.member_state import MemberState
from odradek.coordinator.modern.partitions import (
    NO_PARTITIONS,
    difference,
    intersection,
    union,
)
from odradek.errors import BrokerError, ErrorCode

Owner = Callable[[UUID, int], str | None]
"""Which member may be reading a partition."""


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    owner: Owner,
    subscribed: Collection[UUID] | None = None,
) -> ConsumerMember:
    """The member one step further, or unchanged if it has to wait.

    `owned` are the partitions that it reports, None if it reports none. `subscribed` are its
    topics, if it has just changed them: it has to give back partitions of other topics at once,
    even while it waits.

    Raises:
        BrokerError: FENCED_MEMBER_EPOCH, its state was written by a newer coordinator and it has to
            rejoin.
    """
    match member.state:
        case MemberState.STABLE if member.member_epoch == target_epoch and subscribed is None:
            return member
        case MemberState.UNREVOKED_PARTITIONS if _still_owns(owned, member.pending_revocation):
            return member if subscribed is None else _unsubscribed(member, subscribed)
        case MemberState.UNKNOWN if owned is None or owned:
            raise BrokerError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"member {member.member_id} is in an unknown state and has to join again",
            )
    return _step(member, target_epoch, target, owned, owner)


def _unsubscribed(member: ConsumerMember, subscribed: Collection[UUID]) -> ConsumerMember:
    """A member that also has to give back partitions of topics that it does not read any more."""
    kept = {topic_id: each for topic_id, each in member.assigned.items() if topic_id in subscribed}
    pending = union(member.pending_revocation, difference(member.assigned, kept))
    return member.at_epoch(member.member_epoch, member.state, kept, pending)


def _step(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    owner: Owner,
) -> ConsumerMember:
    kept = intersection(member.assigned, target)
    revoked = difference(member.assigned, kept)
    if revoked and _still_owns(owned, revoked):
        return member.at_epoch(member.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    wanted = difference(target, kept)
    received = {
        topic_id: free
        for topic_id, indexes in wanted.items()
        if (
            free := frozenset(
                index for index in indexes if owner(topic_id, index) in (None, member.member_id)
            )
        )
    }
    complete = sum(map(len, received.values())) == sum(map(len, wanted.values()))
    state = MemberState.STABLE if complete else MemberState.UNRELEASED_PARTITIONS
    return member.at_epoch(target_epoch, state, union(kept, received), NO_PARTITIONS)


def _still_owns(owned: Partitions | None, revoked: Partitions) -> bool:
    """Whether the member still has some of these; a member that does not report its partitions has
    not given them back."""
    return owned is None or any(
        not indexes.isdisjoint(owned.get(topic_id, ())) for topic_id, indexes in revoked.items()
    )
