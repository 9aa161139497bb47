"""`CoordinatedGroup`: the requests of members of a classic group, and their consequences.

A joining member is new (no id), pending (it got an id and comes back with it, KIP-394) or known. A
known member that joins again with the same protocols, while its generation is current, gets that
generation once more: its response was lost. A leader that joins again wants a new assignment and
gets a rebalance. The new process of a static member replaces the old one; if nothing else changed,
there is no rebalance (KIP-345, KIP-814).

SyncGroup, Heartbeat and LeaveGroup are for members of the generation.
"""

import logging
from collections.abc import Sequence

from odradek.coordinator.classic.member import ClassicMember
from odradek.coordinator.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, RebalancingGroup
from odradek.coordinator.classic.requests import (
    NO_MEMBER_ID,
    JoinRequest,
    JoinResult,
    LeavingMember,
    OnJoined,
    OnLeft,
    OnSynced,
    SyncRequest,
    SyncResult,
)
from odradek.coordinator.classic.states import GroupState
from odradek.coordinator.runtime.batches import Answer
from odradek.errors import BrokerError, ErrorCode

logger = logging.getLogger(__name__)


class CoordinatedGroup(RebalancingGroup):
    """A classic group in charge of its members. Called on the broker's loop only."""

    # Joining

    def join(self, request: JoinRequest, on_joined: OnJoined) -> None:
        """Handles a join; `on_joined` is called once, now or when the rebalance is complete.

        Raises:
            BrokerError: the member may not join.
        """
        self._check_size(request.member_id)
        names = [name for name, _ in request.protocols]
        if not self.supports(request.protocol_type, names):
            raise BrokerError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"protocols {names} of type {request.protocol_type!r} do not go with the group's",
            )
        if request.member_id == NO_MEMBER_ID:
            self._join_new(request, on_joined)
        elif request.member_id in self.pending_members and request.group_instance_id is None:
            self._add(request.member_id, request, on_joined)
        else:
            self._join_known(request, on_joined)

    def _check_size(self, member_id: str) -> None:
        """Raises when the group is full. Present members may stay, unless the limit was lowered:
        then the last ones to rejoin are refused."""
        limit = self.services.config["group.max.size"]
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            waits = member is not None and member.awaiting_join is not None
            accepted = waits or self.joining_count < limit
        elif self.state is GroupState.EMPTY:
            accepted = len(self.pending_members - {member_id}) < limit
        else:
            accepted = member is not None or len(self.members) < limit
        if not accepted:
            if member is not None:
                self.remove_member(member)
            self.pending_members.discard(member_id)
            self.maybe_complete_join()
            raise BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _join_new(self, request: JoinRequest, on_joined: OnJoined) -> None:
        instance_id = request.group_instance_id
        name = request.client_id if instance_id is None else instance_id
        member_id = f"{name}-{self.services.new_uuid()}"
        if instance_id is not None:
            if instance_id in self.static_members:
                self._replace_static(instance_id, member_id, request, on_joined)
            else:
                self._add(member_id, request, on_joined)
        elif request.requires_known_member_id:
            self.schedule_pending_member(member_id, request.session_timeout_ms)
            on_joined(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(member_id, request, on_joined)

    def _add(self, member_id: str, request: JoinRequest, on_joined: OnJoined) -> None:
        member = ClassicMember.from_request(member_id, request)
        member.is_new = True
        self.add(member, request.protocol_type)
        self.await_join(member, on_joined)
        if self.state is GroupState.PREPARING_REBALANCE and self.is_initial_rebalance:
            self.new_member_added = True
        self.schedule_heartbeat(member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.maybe_prepare_rebalance_or_complete_join(_reason(f"new member {member_id}", request))

    def _join_known(self, request: JoinRequest, on_joined: OnJoined) -> None:
        member = self.check_member(request.member_id, request.group_instance_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._update(member, request, on_joined)
            self.maybe_complete_join()
        elif member.protocols != request.protocols:
            self._rejoin(member, request, on_joined, "with other protocols")
        elif self.state is GroupState.STABLE and member.member_id == self.leader_id:
            self._rejoin(member, request, on_joined, "as the leader")
        else:
            # The answer was lost, or it is an eager client's retry; its generation stands.
            on_joined(self.joined(member))

    def _rejoin(
        self,
        member: ClassicMember,
        request: JoinRequest,
        on_joined: OnJoined,
        how: str,
    ) -> None:
        self._update(member, request, on_joined)
        self.maybe_prepare_rebalance_or_complete_join(
            _reason(f"member {member.member_id} joins again {how}", request)
        )

    def _update(self, member: ClassicMember, request: JoinRequest, on_joined: OnJoined) -> None:
        """Takes over the member's data from its request."""
        self.update_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        self.await_join(member, on_joined)

    def _replace_static(
        self,
        instance_id: str,
        member_id: str,
        request: JoinRequest,
        on_joined: OnJoined,
    ) -> None:
        """Replaces a static member by its new process, and fences the old one."""
        old_member_id = self.static_members[instance_id]
        old_leader_id = self.leader_id or NO_MEMBER_ID
        member = self.replace_static(instance_id, member_id)
        logger.info(
            "group %s: member %s takes the place of %s (instance %s)",
            self.group_id,
            member_id,
            old_member_id,
            instance_id,
        )
        self.end_session(old_member_id)
        self.answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
        member.answer_sync(SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._update(member, request, on_joined)
        member.client_id, member.client_host = request.client_id, request.client_host
        self.reschedule_heartbeat(member)
        if self.state is GroupState.PREPARING_REBALANCE:
            self.maybe_complete_join()
        elif self.state is GroupState.STABLE and self.select_protocol() == self.protocol_name:
            self._store_replacement(member, old_member_id, old_leader_id, before, request)
        else:
            self.prepare_rebalance(
                _reason(f"static member {member_id} came back differently", request)
            )

    def _store_replacement(
        self,
        member: ClassicMember,
        old_member_id: str,
        old_leader_id: str,
        before: tuple[tuple[tuple[str, bytes], ...], int, int],
        request: JoinRequest,
    ) -> None:
        """Stores the new id, and answers with the current generation."""
        member_id = member.member_id

        def answer(result: JoinResult) -> bool:
            if self.members.get(member_id) is not member or not self.answer_join(member, result):
                return False
            # The session was neither expired nor renewed while the member waited.
            self.reschedule_heartbeat(member)
            return True

        def on_committed(error: BrokerError | None) -> None:
            if error is None:
                answer(self._standing(member, old_leader_id, request))
                return
            logger.error("group %s: %s not stored: %s", self.group_id, member_id, error)
            if not answer(JoinResult(error.code, NO_MEMBER_ID)):
                return  # a rebalance has given it its new id meanwhile
            self.end_session(member_id)
            protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
            self.update_protocols(member, protocols)
            self.replace_static(request.group_instance_id or "", old_member_id)
            self.reschedule_heartbeat(member)

        def on_late() -> None:
            # It is unknown whether the new id is stored; another process may take its place at
            # once.
            answer(JoinResult(ErrorCode.REQUEST_TIMED_OUT, NO_MEMBER_ID))

        self.store(self.to_value(), on_committed, on_late)

    def _standing(
        self, member: ClassicMember, old_leader_id: str, request: JoinRequest
    ) -> JoinResult:
        """The current generation, for a static member that has come back.

        A leader must not assign again. The response says so if its version allows that, or else
        names the old id as the leader, so the client considers itself a follower.
        """
        result = self.joined(member)
        leads = self.leader_id == member.member_id
        if request.supports_skipping_assignment:
            return result._replace(skip_assignment=leads)
        return result._replace(members=(), leader_id=old_leader_id)

    # Being a member

    def sync(self, request: SyncRequest, on_synced: OnSynced) -> None:
        """Handles a SyncGroup; the leader's has all assignments. `on_synced` is called once, now or
        when they are committed.

        Raises:
            BrokerError: it is no member, or its generation or protocol is another, or it has to
                join again.
        """
        member = self.check_member(request.member_id, request.group_instance_id)
        self.check_generation(request.generation_id)
        self._check_protocol(request)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        if self.state is GroupState.STABLE:
            self.remove_pending_sync(member)
            on_synced(self.synced(member))
            self.reschedule_heartbeat(member)
            return
        # A client sends a second SyncGroup only after it has given up the first.
        member.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = on_synced
        self.remove_pending_sync(member)
        if member.member_id == self.leader_id:
            self.store_assignments(self._assignments(request))

    def _check_protocol(self, request: SyncRequest) -> None:
        """Refuses a member with another idea of the chosen protocol, which it names from version 5
        on."""
        kind, name = request.protocol_type, request.protocol_name
        if (kind is not None and kind != self.protocol_type) or (
            name is not None and name != self.protocol_name
        ):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _assignments(self, request: SyncRequest) -> dict[str, bytes]:
        """The leader's assignment; members that it left out get nothing."""
        strangers = request.assignments.keys() - self.members.keys()
        if strangers:
            logger.warning(
                "group %s: leader %s assigns to unknown members, ignored: %s",
                self.group_id,
                request.member_id,
                ", ".join(sorted(strangers)),
            )
        return {member_id: request.assignments.get(member_id, b"") for member_id in self.members}

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int) -> None:
        """A sign of life.

        Raises:
            BrokerError: REBALANCE_IN_PROGRESS, the member should join again; else it is no
                member, or of another generation.
        """
        member = self.check_member(member_id, group_instance_id)
        self.check_generation(generation_id)
        self.reschedule_heartbeat(member)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, leaving: Sequence[LeavingMember], on_left: OnLeft) -> None:
        """Removes members, or ids that have not joined yet; one code for each. `on_left` is called
        once: now, or, if the group is empty then, when that is committed.
        """
        count = len(self.members)
        codes = [self._let_go(each) for each in leaving]
        self.leave_answer = Answer(codes, on_left)
        if len(self.members) < count:
            self.on_members_gone(f"{count - len(self.members)} members have left")
        else:
            self.maybe_complete_join()
        answer = self.take_leave_answer()
        if answer is not None:
            answer.on_committed(None)

    def _let_go(self, leaving: LeavingMember) -> ErrorCode:
        reason = f"it left ({leaving.reason or 'no reason given'})"
        member_id = leaving.member_id
        if member_id in self.pending_members:
            self.let_go_pending(member_id, reason)
            return ErrorCode.NONE
        if member_id == NO_MEMBER_ID and leaving.group_instance_id is not None:
            member_id = self.static_members.get(leaving.group_instance_id, NO_MEMBER_ID)
        try:
            member = self.check_member(member_id, leaving.group_instance_id)
        except BrokerError as error:
            return error.code
        self.let_go(member, reason)
        return ErrorCode.NONE


def _reason(what: str, request: JoinRequest) -> str:
    return f"{what} ({request.reason})" if request.reason else what
