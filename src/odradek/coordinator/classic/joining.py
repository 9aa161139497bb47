"""JoinGroup: who may join a classic group, under which id, and what that sets off.

A member is new (no id), pending (it has been given an id and comes back with it, KIP-394) or
known. A known one that joins again with the same protocols, while its generation stands, is
told that generation once more: its answer was lost. A leader that joins again wants a new
assignment and gets a rebalance. A static member that comes back as a new process takes the
place of the old one; if nothing else changed, nobody else notices (KIP-345, KIP-814).
"""

import logging

from odradek.coordinator.classic.member import ClassicMember
from odradek.coordinator.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, RebalancingGroup
from odradek.coordinator.classic.requests import (
    NO_MEMBER_ID,
    JoinRequest,
    JoinResult,
    OnJoined,
    SyncResult,
)
from odradek.coordinator.classic.states import GroupState
from odradek.errors import BrokerError, ErrorCode

logger = logging.getLogger(__name__)


def join(group: RebalancingGroup, request: JoinRequest, on_joined: OnJoined) -> None:
    """Lets somebody join; `on_joined` is called once, now or when the rebalance is through.

    Raises:
        BrokerError: it may not join.
    """
    _check_size(group, request.member_id)
    names = [name for name, _ in request.protocols]
    if not group.supports(request.protocol_type, names):
        raise BrokerError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"protocols {names} of type {request.protocol_type!r} do not go with the group's",
        )
    if request.member_id == NO_MEMBER_ID:
        _join_new(group, request, on_joined)
    elif request.member_id in group.pending_members and request.group_instance_id is None:
        _add(group, request.member_id, request, on_joined)
    else:
        _join_known(group, request, on_joined)


def _check_size(group: RebalancingGroup, member_id: str) -> None:
    """Raises when the group is full. Who is in it already may stay, unless a smaller limit
    was set: then those go who come back last."""
    limit = group.services.config["group.max.size"]
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        waits = member is not None and member.awaiting_join is not None
        accepted = waits or group.joining_count < limit
    elif group.state is GroupState.EMPTY:
        accepted = len(group.pending_members - {member_id}) < limit
    else:
        accepted = member is not None or len(group.members) < limit
    if not accepted:
        if member is not None:
            group.remove_member(member)
        group.pending_members.discard(member_id)
        group.maybe_complete_join()
        raise BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED)


def _join_new(group: RebalancingGroup, request: JoinRequest, on_joined: OnJoined) -> None:
    instance_id = request.group_instance_id
    name = request.client_id if instance_id is None else instance_id
    member_id = f"{name}-{group.services.new_uuid()}"
    if instance_id is not None:
        if instance_id in group.static_members:
            _replace_static(group, instance_id, member_id, request, on_joined)
        else:
            _add(group, member_id, request, on_joined)
    elif request.requires_known_member_id:
        group.schedule_pending_member(member_id, request.session_timeout_ms)
        on_joined(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(group, member_id, request, on_joined)


def _add(
    group: RebalancingGroup, member_id: str, request: JoinRequest, on_joined: OnJoined
) -> None:
    member = ClassicMember.from_request(member_id, request)
    member.is_new = True
    group.add(member, request.protocol_type)
    group.await_join(member, on_joined)
    if group.state is GroupState.PREPARING_REBALANCE and group.is_initial_rebalance:
        group.new_member_added = True
    group.schedule_heartbeat(member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    group.maybe_prepare_rebalance_or_complete_join(_reason(f"new member {member_id}", request))


def _join_known(group: RebalancingGroup, request: JoinRequest, on_joined: OnJoined) -> None:
    member = group.check_member(request.member_id, request.group_instance_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        _update(group, member, request, on_joined)
        group.maybe_complete_join()
    elif member.protocols != request.protocols:
        _rejoin(group, member, request, on_joined, "with other protocols")
    elif group.state is GroupState.STABLE and member.member_id == group.leader_id:
        _rejoin(group, member, request, on_joined, "as the leader")
    else:
        # The answer was lost, or it is an eager client's retry; its generation stands.
        on_joined(group.joined(member))


def _rejoin(
    group: RebalancingGroup,
    member: ClassicMember,
    request: JoinRequest,
    on_joined: OnJoined,
    how: str,
) -> None:
    _update(group, member, request, on_joined)
    group.maybe_prepare_rebalance_or_complete_join(
        _reason(f"member {member.member_id} joins again {how}", request)
    )


def _update(
    group: RebalancingGroup, member: ClassicMember, request: JoinRequest, on_joined: OnJoined
) -> None:
    """Takes over what the member says now."""
    group.update_protocols(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    group.await_join(member, on_joined)


def _replace_static(
    group: RebalancingGroup,
    instance_id: str,
    member_id: str,
    request: JoinRequest,
    on_joined: OnJoined,
) -> None:
    """A new process of a static member: the old one is fenced."""
    old_member_id = group.static_members[instance_id]
    old_leader_id = group.leader_id or NO_MEMBER_ID
    member = group.replace_static(instance_id, member_id)
    logger.info(
        "group %s: member %s takes the place of %s (instance %s)",
        group.group_id,
        member_id,
        old_member_id,
        instance_id,
    )
    group.end_session(old_member_id)
    group.answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
    member.answer_sync(SyncResult(ErrorCode.FENCED_INSTANCE_ID))
    before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    _update(group, member, request, on_joined)
    member.client_id, member.client_host = request.client_id, request.client_host
    group.reschedule_heartbeat(member)
    if group.state is GroupState.PREPARING_REBALANCE:
        group.maybe_complete_join()
    elif group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        _store_replacement(group, member, old_member_id, old_leader_id, before, request)
    else:
        group.prepare_rebalance(
            _reason(f"static member {member_id} came back differently", request)
        )


def _store_replacement(
    group: RebalancingGroup,
    member: ClassicMember,
    old_member_id: str,
    old_leader_id: str,
    before: tuple[tuple[tuple[str, bytes], ...], int, int],
    request: JoinRequest,
) -> None:
    """Writes the new id down, and tells the member the generation as it stands."""
    member_id = member.member_id

    def on_committed(error: BrokerError | None) -> None:
        if group.members.get(member_id) is not member:
            return
        if error is None:
            group.answer_join(member, _standing(group, member, old_leader_id, request))
            # While it waited, its session could not run out and was not renewed.
            group.reschedule_heartbeat(member)
            return
        logger.error("group %s: %s not stored: %s", group.group_id, member_id, error)
        group.answer_join(member, JoinResult(error.code, NO_MEMBER_ID))
        group.end_session(member_id)
        protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
        group.update_protocols(member, protocols)
        group.replace_static(request.group_instance_id or "", old_member_id)
        group.reschedule_heartbeat(member)

    group.store(group.to_value(), on_committed)


def _standing(
    group: RebalancingGroup, member: ClassicMember, old_leader_id: str, request: JoinRequest
) -> JoinResult:
    """The generation that a static member came back to.

    A leader must not assign anew. It is told so where it can understand that, and else is
    shown its old id as the leader's, so that it takes itself for a follower.
    """
    result = group.joined(member)
    leads = group.leader_id == member.member_id
    if request.supports_skipping_assignment:
        return result._replace(skip_assignment=leads)
    return result._replace(members=(), leader_id=old_leader_id)


def _reason(what: str, request: JoinRequest) -> str:
    return f"{what} ({request.reason})" if request.reason else what
