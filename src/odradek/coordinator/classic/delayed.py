"""The delayed operations of a classic group: joins, syncs, heartbeats.

The operations hold no rules of groups. They ask their group, through the small ports below, whether
the wait is over, and report completion or time-out. As with every delayed operation, a time-out
runs `on_complete` first and `on_expiration` after it.

DelayedJoin       until every known member has joined again; woken under GroupJoinKey by a
                  join, a leave, or a member's expiry
DelayedSync       until every member has synced or the generation is over; woken under
                  GroupSyncKey by a sync, a leave, a join, or an expiry
DelayedHeartbeat  until the member gives a sign of life, waits in a join or sync itself, or is
                  gone; woken under MemberKey by a join, a sync, a heartbeat, or a leave

A sign of life completes the heartbeat that waits, and the caller schedules the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory


@dataclass(frozen=True, slots=True)
class GroupJoinKey:
    """The rebalance of a group waits here for its members."""

    group_id: str


@dataclass(frozen=True, slots=True)
class GroupSyncKey:
    """A generation of a group waits here for its members to fetch their assignments."""

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberKey:
    """The session of a member waits here for its next sign of life."""

    group_id: str
    member_id: str


class JoiningGroup(Protocol):
    """The group as a delayed join sees it."""

    @property
    def group_id(self) -> str:
        """The group's name."""
        ...

    def members_to_join(self) -> int:
        """How many known members have not joined the present rebalance yet."""
        ...

    def take_new_member_added(self) -> bool:
        """Whether a new member joined since this was last asked."""
        ...

    def on_join_complete(self) -> None:
        """Continues with the present members: drops the others, elects, starts the next
        generation."""
        ...


class SyncingGroup(Protocol):
    """The group as a delayed sync sees it."""

    @property
    def generation_id(self) -> int:
        """The present generation."""
        ...

    def members_to_sync(self) -> int:
        """How many members of the generation have not sent SyncGroup yet."""
        ...

    def awaits_sync(self) -> bool:
        """Whether the group is in a state in which members still have to sync."""
        ...

    def on_sync_expired(self, generation_id: int) -> None:
        """Drops the members that did not sync in time, and rebalances."""
        ...


class HeartbeatingGroup(Protocol):
    """The group as a delayed heartbeat sees it."""

    def is_heartbeat_satisfied(self, member_id: str) -> bool:
        """Whether the member lives, waits in a join or sync, or is no member any more."""
        ...

    def on_heartbeat_expired(self, member_id: str) -> None:
        """Drops the member, and rebalances."""
        ...


class DelayedJoin(DelayedOperation):
    """A rebalance that waits until all known members are back, the rebalance time-out at most.

    Both ends are the same to the group: it continues with the present members.
    """

    def __init__(self, group: JoiningGroup, rebalance_timeout_ms: int) -> None:
        super().__init__(rebalance_timeout_ms)
        self._group = group

    def try_complete(self) -> bool:
        """Completes when all known members have joined."""
        return self._group.members_to_join() == 0 and self.force_complete()

    def on_complete(self) -> None:
        """Lets the group continue."""
        self._group.on_join_complete()

    def on_expiration(self) -> None:
        """Does nothing: missing members were dropped on completion."""

    def missing(self) -> str:
        """How many members are awaited."""
        return f"{self._group.members_to_join()} members to join"


class InitialDelayedJoin(DelayedJoin):
    """The first rebalance of an empty group, which leaves time for more members to join.

    It lasts `delay_ms`, however many members have joined, and again as long if a new member has
    joined meanwhile, up to the rebalance time-out in all.
    """

    def __init__(
        self,
        group: JoiningGroup,
        purgatory: DelayedOperationPurgatory,
        delay_ms: int,
        remaining_ms: int,
    ) -> None:
        """`remaining_ms`: the rest of the rebalance time-out after this delay."""
        super().__init__(group, delay_ms)
        self._purgatory = purgatory
        self._initial_delay_ms = delay_ms
        self._remaining_ms = remaining_ms

    def try_complete(self) -> bool:
        """Only time ends it."""
        return False

    def on_complete(self) -> None:
        """Waits again if members have joined, else lets the group continue."""
        if not self._group.take_new_member_added() or self._remaining_ms <= 0:
            super().on_complete()
            return
        delay_ms = min(self._initial_delay_ms, self._remaining_ms)
        following = InitialDelayedJoin(
            self._group, self._purgatory, delay_ms, self._remaining_ms - delay_ms
        )
        key = GroupJoinKey(self._group.group_id)
        self._purgatory.try_complete_else_watch(following, [key])

    def missing(self) -> str:
        """Names no member: it waits for time."""
        return "time for more members to come"


class DelayedSync(DelayedOperation):
    """A generation whose members have to fetch their assignments, in `timeout_ms` at most."""

    def __init__(self, group: SyncingGroup, generation_id: int, timeout_ms: int) -> None:
        super().__init__(timeout_ms)
        self._group = group
        self._generation_id = generation_id

    def _is_over(self) -> bool:
        group = self._group
        moved_on = group.generation_id != self._generation_id or not group.awaits_sync()
        return moved_on or group.members_to_sync() == 0

    def try_complete(self) -> bool:
        """Completes when all have synced, or when the group has moved on without this sync."""
        return self._is_over() and self.force_complete()

    def on_complete(self) -> None:
        """Does nothing: each member was answered when the assignment arrived."""

    def on_expiration(self) -> None:
        """Drops the members that did not sync, if the generation is still theirs."""
        if not self._is_over():
            self._group.on_sync_expired(self._generation_id)

    def missing(self) -> str:
        """How many members are awaited."""
        return f"{self._group.members_to_sync()} members to sync"


class DelayedHeartbeat(DelayedOperation):
    """A member's session: it must give a sign of life within `session_timeout_ms`.

    Also used for a member id that was handed out and has not joined yet (KIP-394): joining
    is its sign of life.
    """

    def __init__(self, group: HeartbeatingGroup, member_id: str, session_timeout_ms: int) -> None:
        super().__init__(session_timeout_ms)
        self._group = group
        self._member_id = member_id

    def try_complete(self) -> bool:
        """Completes with the member's sign of life."""
        return self._group.is_heartbeat_satisfied(self._member_id) and self.force_complete()

    def on_complete(self) -> None:
        """Does nothing: the sign of life has scheduled the next heartbeat."""

    def on_expiration(self) -> None:
        """Removes the member, unless it waits for an answer of the group at this moment."""
        if not self._group.is_heartbeat_satisfied(self._member_id):
            self._group.on_heartbeat_expired(self._member_id)

    def missing(self) -> str:
        """The member whose sign of life is awaited."""
        return f"a sign of life of {self._member_id}"

    def is_routine(self) -> bool:
        """True: every live member has one."""
        return True
