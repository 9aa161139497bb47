"""`RebalancingGroup`: a classic group that waits, answers and writes. `coordinated_group` has its
members' requests.

A rebalance runs from one wait to the next:

    PreparingRebalance    members' heartbeats are answered REBALANCE_IN_PROGRESS; `DelayedJoin`
                          waits until all have joined again, `InitialDelayedJoin` gives the first
                          some time
    CompletingRebalance   who is missing is removed, the joins are answered, the leader gets the
                          list; `DelayedSync` waits for everybody's SyncGroup; the leader's is
                          stored, and when it is committed everyone is answered
    Stable                `DelayedHeartbeat` watches each member

Every member has one session, and every sign of life ends its `DelayedHeartbeat` and begins the
next. Every act and every omission of a member ends in one of the methods here.
"""

import logging
from typing import Final, Self

from odradek.background import do_each
from odradek.coordinator.classic.delayed import (
    DelayedHeartbeat,
    DelayedJoin,
    DelayedSync,
    GroupJoinKey,
    GroupSyncKey,
    InitialDelayedJoin,
    MemberKey,
)
from odradek.coordinator.classic.group import ClassicGroup
from odradek.coordinator.classic.member import ClassicMember
from odradek.coordinator.classic.requests import NO_MEMBER_ID, JoinResult, SyncResult
from odradek.coordinator.classic.states import GroupState
from odradek.coordinator.records.group_records import GroupMetadataKey, GroupMetadataValue
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.batches import Answer
from odradek.coordinator.runtime.partition_writer import OnCommitted
from odradek.coordinator.runtime.shard import OnLate
from odradek.coordinator.services import ShardServices
from odradek.errors import BrokerError, ErrorCode

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long a member may wait in its very first join. It does not know its id yet, so it cannot
send heartbeats; if its client gave up and tried again, nobody will ever claim this member."""

_CAN_REBALANCE: Final = frozenset(
    {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
)


class RebalancingGroup(ClassicGroup):
    """A classic group with its sessions and rebalances."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id, now_ms)
        self._services: ShardServices | None = None
        self._join_key = GroupJoinKey(group_id)
        self._sync_key = GroupSyncKey(group_id)
        self.leave_answer: Answer[list[ErrorCode]] | None = None
        """Of a LeaveGroup that is being carried out; it waits where nobody is left."""

    def attach(self, services: ShardServices) -> Self:
        """Gives the group its services; done once, where it is made."""
        self._services = services
        return self

    @property
    def services(self) -> ShardServices:
        """Time, purgatories, settings and the log."""
        assert self._services is not None, f"group {self.group_id} is not attached"
        return self._services

    def _now_ms(self) -> int:
        return self.services.clock.wall_ms()

    # Sessions

    def reschedule_heartbeat(self, member: ClassicMember) -> None:
        """Starts the member's session again after a sign of life."""
        self.schedule_heartbeat(member, member.session_timeout_ms)

    def schedule_heartbeat(self, member: ClassicMember, timeout_ms: int) -> None:
        """Ends the member's present session, and starts the next."""
        key = MemberKey(self.group_id, member.member_id)
        heartbeats = self.services.heartbeats
        member.heartbeat_satisfied = True
        heartbeats.check_and_complete(key, "sign of life")
        member.heartbeat_satisfied = False
        heartbeats.try_complete_else_watch(
            DelayedHeartbeat(self, member.member_id, timeout_ms), [key]
        )

    def schedule_pending_member(self, member_id: str, timeout_ms: int) -> None:
        """Waits until a member joins with the id that it was given."""
        self.pending_members.add(member_id)
        key = MemberKey(self.group_id, member_id)
        self.services.heartbeats.try_complete_else_watch(
            DelayedHeartbeat(self, member_id, timeout_ms), [key]
        )

    def end_session(self, member_id: str) -> None:
        """Ends the session of a member that is gone, or has another id now."""
        self.services.heartbeats.check_and_complete(MemberKey(self.group_id, member_id), "gone")

    def is_heartbeat_satisfied(self, member_id: str) -> bool:
        """See `HeartbeatingGroup`."""
        if self.is_dead:
            return True
        if member_id in self.pending_members:
            return False
        member = self.members.get(member_id)
        return member is None or member.is_alive

    def on_heartbeat_expired(self, member_id: str) -> None:
        """See `HeartbeatingGroup`."""
        if member_id in self.pending_members:
            self.remove_pending_and_update_group(member_id, "it has not joined with its id in time")
            return
        member = self.members.get(member_id)
        if member is None:
            return
        if self.services.is_present(self.group_id, member_id):
            self.reschedule_heartbeat(member)
        else:
            self.remove_and_update_group(member, f"no heartbeat for {member.session_timeout_ms} ms")

    # Leaving

    def remove_pending_and_update_group(self, member_id: str, reason: str) -> None:
        """Forgets a pending member; the rebalance need not wait for it."""
        self.let_go_pending(member_id, reason)
        self.maybe_complete_join()

    def let_go_pending(self, member_id: str, reason: str) -> None:
        """Forgets a pending member."""
        logger.info("group %s: pending member %s is dropped: %s", self.group_id, member_id, reason)
        self.pending_members.discard(member_id)
        self.end_session(member_id)

    def remove_and_update_group(self, member: ClassicMember, reason: str) -> None:
        """Removes a member, and rebalances."""
        self.let_go(member, reason)
        self.on_members_gone(f"member {member.member_id} has left: {reason}")

    def let_go(self, member: ClassicMember, reason: str) -> None:
        """Removes a member, without a rebalance yet."""
        logger.info(
            "group %s: member %s (client %s at %s) leaves generation %d: %s",
            self.group_id,
            member.member_id,
            member.client_id,
            member.client_host,
            self.generation_id,
            reason,
        )
        self.remove_member(member)

    def take_leave_answer(self) -> Answer[list[ErrorCode]] | None:
        """The pending answer to a LeaveGroup, which only the first caller gets."""
        answer, self.leave_answer = self.leave_answer, None
        return answer

    def on_members_gone(self, reason: str) -> None:
        """Rebalances after members were removed."""
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare_rebalance(reason)
        else:
            self.maybe_complete_join()

    def remove_member(self, member: ClassicMember) -> None:
        """Removes a member; its waiting request is answered, so it can rejoin."""
        self.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID))
        self.remove(member.member_id)
        self.end_session(member.member_id)
        member.answer_sync(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    # Joining

    def maybe_prepare_rebalance_or_complete_join(self, reason: str) -> None:
        """Begins a rebalance, or checks whether all have joined a present one."""
        if self.state in _CAN_REBALANCE:
            self.prepare_rebalance(reason)
        else:
            self.maybe_complete_join()

    def prepare_rebalance(self, reason: str) -> None:
        """Begins a rebalance."""
        logger.info(
            "group %s: rebalance of generation %d (%s): %s",
            self.group_id,
            self.generation_id,
            self.state,
            reason,
        )
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self.enter_preparing_rebalance(self._now_ms())
        self.services.rebalances.check_and_complete(self._sync_key, "rebalance")
        self._await_members()

    def _await_members(self) -> None:
        rebalances = self.services.rebalances
        timeout_ms = self.rebalance_timeout_ms
        operation = DelayedJoin(self, timeout_ms)
        if self.is_initial_rebalance:
            delay_ms = self.services.config["group.initial.rebalance.delay.ms"]
            remaining_ms = max(timeout_ms - delay_ms, 0)
            operation = InitialDelayedJoin(self, rebalances, delay_ms, remaining_ms)
        rebalances.try_complete_else_watch(operation, [self._join_key])

    def maybe_complete_join(self) -> None:
        """Checks whether all members have joined, after one has joined or was removed."""
        self.services.rebalances.check_and_complete(self._join_key, "join")

    def members_to_join(self) -> int:
        """See `JoiningGroup`; 0 for a dead group."""
        if self.is_dead:
            return 0
        return len(self.members) - self.joining_count + len(self.pending_members)

    def take_new_member_added(self) -> bool:
        """See `JoiningGroup`."""
        added, self.new_member_added = self.new_member_added, False
        return added and not self.is_dead

    def on_join_complete(self) -> None:
        """See `JoiningGroup`. Static members that have not joined yet keep their place."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        for member in list(self.members.values()):
            if member.awaiting_join is None and not member.is_static:
                logger.info(
                    "group %s: member %s did not join generation %d in time",
                    self.group_id,
                    member.member_id,
                    self.generation_id + 1,
                )
                self.remove_member(member)
        if not self.elect_joined_leader() and self.members:
            # Only static members are left, and none is back yet.
            self.services.rebalances.try_complete_else_watch(
                DelayedJoin(self, self.rebalance_timeout_ms), [self._join_key]
            )
            return
        self.init_next_generation(self._now_ms())
        if self.members:
            self._answer_joins()
        else:
            self._store_empty()

    def _answer_joins(self) -> None:
        logger.info(
            "group %s: generation %d with %d members begins, %s leads, protocol %s",
            self.group_id,
            self.generation_id,
            len(self.members),
            self.leader_id,
            self.protocol_name,
        )
        members = list(self.members.values())
        self.pending_sync = set(self.members)
        generation_id = self.generation_id
        self.services.rebalances.try_complete_else_watch(
            DelayedSync(self, generation_id, self.rebalance_timeout_ms), [self._sync_key]
        )
        do_each(members, self._answer_join)

    def _answer_join(self, member: ClassicMember) -> None:
        member.is_new = False
        if self.answer_join(member, self.joined(member)):
            self.reschedule_heartbeat(member)

    def _store_empty(self) -> None:
        logger.info("group %s: generation %d is empty", self.group_id, self.generation_id)
        answer = self.take_leave_answer()

        def on_committed(error: BrokerError | None) -> None:
            # A coordinator that loads the log then finds removed members, until their sessions
            # expire.
            if error is not None:
                logger.warning("group %s: not stored as empty: %s", self.group_id, error)
            if answer is not None:
                answer.on_committed(error)

        self.store(self.to_value(), on_committed, None if answer is None else answer.on_late)

    # Syncing

    def members_to_sync(self) -> int:
        """See `SyncingGroup`."""
        return len(self.pending_sync)

    def awaits_sync(self) -> bool:
        """See `SyncingGroup`."""
        return self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)

    def on_sync_expired(self, generation_id: int) -> None:
        """See `SyncingGroup`."""
        for member_id in list(self.pending_sync):
            member = self.members.get(member_id)
            if member is not None:
                logger.info(
                    "group %s: member %s did not sync generation %d in time",
                    self.group_id,
                    member_id,
                    generation_id,
                )
                self.remove_member(member)
        self.prepare_rebalance(f"members did not sync generation {generation_id} in time")

    def remove_pending_sync(self, member: ClassicMember) -> None:
        """Records that a member has sent its SyncGroup."""
        self.pending_sync.discard(member.member_id)
        self.services.rebalances.check_and_complete(self._sync_key, "sync")

    def store_assignments(self, assignments: dict[str, bytes]) -> None:
        """Stores the leader's assignment; when it is committed, all members are answered."""
        generation_id = self.generation_id

        def on_outcome(error: BrokerError | None) -> None:
            if self.generation_id != generation_id:
                return
            if error is None and self.state is GroupState.STABLE:
                self._answer_syncs()
            elif error is not None and self.state is GroupState.COMPLETING_REBALANCE:
                logger.error("group %s: assignment not stored: %s", self.group_id, error)
                try:
                    self._refuse_syncs(error.code)
                finally:
                    reason = f"the assignment could not be stored: {error.code.name}"
                    self.prepare_rebalance(reason)

        self.store(
            self.to_value(assignments),
            on_outcome,
            lambda: on_outcome(BrokerError(ErrorCode.REQUEST_TIMED_OUT)),
        )

    def store(
        self,
        value: GroupMetadataValue,
        on_committed: OnCommitted,
        on_late: OnLate | None = None,
    ) -> None:
        """Stores the group; `on_late` is called if the write takes too long for its waiters."""

        def on_written(error: BrokerError | None) -> None:
            self.uncommitted_count -= 1
            on_committed(error)

        self.uncommitted_count += 1
        record = CoordinatorRecord(GroupMetadataKey(self.group_id), value)
        self.services.append([record], on_written, on_late)

    def _answer_syncs(self) -> None:
        members = list(self.members.values())
        do_each(members, lambda member: self._answer_sync(member, self.synced(member)))

    def _refuse_syncs(self, code: ErrorCode) -> None:
        members = list(self.members.values())
        for member in members:
            member.assignment = b""
        do_each(members, lambda member: self._answer_sync(member, SyncResult(code)))

    def _answer_sync(self, member: ClassicMember, result: SyncResult) -> None:
        if member.answer_sync(result):
            # The session was neither expired nor renewed while the member waited.
            self.reschedule_heartbeat(member)

    # As any group

    def on_offset_commit(self, member_id: str) -> None:
        """See `Group`."""
        member = self.members.get(member_id)
        if member is not None:
            self.reschedule_heartbeat(member)

    def on_removed(self) -> None:
        """See `Group`."""
        try:
            super().on_removed()
        finally:
            self._end_waits()

    def on_unloaded(self) -> None:
        """See `Group`."""
        try:
            super().on_unloaded()
        finally:
            self._end_waits()

    def _end_waits(self) -> None:
        """Ends all waits for a dead group."""
        for member_id in (*self.members, *self.pending_members):
            self.end_session(member_id)
        self.maybe_complete_join()
        self.services.rebalances.check_and_complete(self._sync_key, "removed")
