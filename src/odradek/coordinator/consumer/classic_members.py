"""`ClassicMembers`: members that speak the classic protocol in a consumer group (KIP-848).

They are in such a group while it is upgraded or downgraded process by process. The coordinator
assigns to them as to all members. Others get their assignment in the response to a heartbeat;
classic members get it by rejoining, which REBALANCE_IN_PROGRESS asks them to do. Their generation
is their epoch, their subscription names the partitions that they own, and none of them leads.
"""

import logging
from collections.abc import Callable, Sequence

from odradek.coordinator.classic.groups import ClassicGroups
from odradek.coordinator.classic.protocol import ClassicProtocol
from odradek.coordinator.classic.requests import (
    NO_MEMBER_ID,
    JoinRequest,
    JoinResult,
    LeavingMember,
    OnLeft,
    OnSynced,
    SyncRequest,
    SyncResult,
)
from odradek.coordinator.consumer.consumer_groups import ConsumerGroups
from odradek.coordinator.consumer.conversion import common_protocol
from odradek.coordinator.consumer.embedded_protocol import (
    by_topic_id,
    read_subscription,
    write_assignment,
)
from odradek.coordinator.consumer.group import ConsumerGroup
from odradek.coordinator.consumer.group_change import GroupChange
from odradek.coordinator.consumer.member import ConsumerMember
from odradek.coordinator.group import CONSUMER_PROTOCOL_TYPE
from odradek.coordinator.modern.member_state import MemberState
from odradek.coordinator.records.consumer_group_records import ClassicMemberMetadata
from odradek.coordinator.runtime.shard import CoordinatorResult
from odradek.errors import BrokerError, ErrorCode

logger = logging.getLogger(__name__)


class ClassicMembers(ClassicProtocol):
    """Joins, syncs, heartbeats and leaves in consumer groups. A group without members becomes a
    classic one when one of these joins it."""

    def __init__(self, groups: ConsumerGroups, classic: ClassicGroups) -> None:
        self._groups = groups
        self._classic = classic

    def join(
        self, request: JoinRequest, on_done: Callable[[JoinResult | BrokerError], None]
    ) -> None:
        """See `ClassicProtocol`: answered when its change is committed, with the member's epoch as
        the generation, and without a leader."""
        group_id = request.group_id
        if self._groups.group(group_id).is_empty:
            self._classic.join(request, on_done)
            return

        def on_joined(outcome: JoinResult | BrokerError) -> None:
            if isinstance(outcome, JoinResult) and outcome.error_code is ErrorCode.NONE:
                self._groups.end_revocation(group_id, outcome.member_id)
            on_done(outcome)

        self._groups.services.execute(group_id, lambda: self._join(request), on_joined)

    def _join(self, request: JoinRequest) -> CoordinatorResult[JoinResult]:
        self._groups.on_heard(request.group_id, request.member_id)
        group = self._groups.group_with_members(request.group_id)
        member_id, is_new = request.member_id, request.member_id == NO_MEMBER_ID
        if is_new:
            member_id = str(self._groups.services.new_uuid())
        self._groups.check_size(group, member_id)
        _check_protocols(group, member_id, request)
        if is_new and request.requires_known_member_id and request.group_instance_id is None:
            return CoordinatorResult((), JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        change = self._groups.change(group)
        member = self._find(change, member_id, request)
        subscription = read_subscription(request.protocols[0][1])
        updated = member._replace(
            instance_id=request.group_instance_id or member.instance_id,
            rack_id=subscription.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            subscribed_topic_names=frozenset(subscription.topics),
            subscribed_topic_regex="",
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            server_assignor=None,
            classic=ClassicMemberMetadata(request.session_timeout_ms, request.protocols),
        )
        if updated != change.member(member_id):
            change.put(updated)
        members = change.members()
        if self._groups.maybe_downgrade(change, members):
            # Its SyncGroup finds the classic group's rebalance.
            result = _joined(member_id, group.epoch, common_protocol(members))
            return CoordinatorResult(change.records, result)
        owned = by_topic_id(subscription.owned, self._groups.image)
        reconciled = self._groups.assign_and_reconcile(change, updated, owned)
        self._groups.start_session(group.group_id, member_id, request.session_timeout_ms)
        result = _joined(member_id, reconciled.member_epoch, request.protocols[0][0])
        return CoordinatorResult(change.records, result)

    def _find(self, change: GroupChange, member_id: str, request: JoinRequest) -> ConsumerMember:
        instance_id = request.group_instance_id
        holder = self._groups.static_member(change.group, instance_id)
        if holder is not None and holder.member_id != member_id:
            if request.member_id != NO_MEMBER_ID:
                raise BrokerError(ErrorCode.FENCED_INSTANCE_ID)
            return change.replace(holder, member_id)
        member = holder or change.group.members.get(member_id)
        if member is None:
            logger.info("group %s: classic member %s joins", change.group.group_id, member_id)
            return ConsumerMember(member_id)
        return member

    def sync(self, request: SyncRequest, on_synced: OnSynced) -> None:
        """See `ClassicProtocol`: answered at once with the coordinator's assignment."""
        self._groups.on_heard(request.group_id, request.member_id)
        group = self._groups.group_with_members(request.group_id)
        member, classic = self._check(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        name, subscription = classic.supported_protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
            request.protocol_name not in (None, name)
        ):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.epoch > member.member_epoch and not _gives_back(member):
            self._call_back(group, member)
        self._groups.start_session(group.group_id, member.member_id, classic.session_timeout_ms)
        version = read_subscription(subscription).version
        assignment = write_assignment(version, member.assigned, self._groups.image)
        on_synced(SyncResult(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, name, assignment))

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> None:
        """See `ClassicProtocol`."""
        group = self._groups.group_with_members(group_id)
        member, classic = self._check(group, member_id, group_instance_id, generation_id)
        self._groups.start_session(group_id, member_id, classic.session_timeout_ms)
        if group.epoch > member.member_epoch or _gives_back(member) or group.may_receive(member):
            self._call_back(group, member)

    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        on_done: OnLeft,
    ) -> None:
        """See `ClassicProtocol`; administrators may name members of both protocols."""
        self._groups.services.execute(group_id, lambda: self._leave(group_id, members), on_done)

    def _leave(
        self, group_id: str, members: Sequence[LeavingMember]
    ) -> CoordinatorResult[list[ErrorCode]]:
        group = self._groups.group(group_id)
        leaving: dict[str, ConsumerMember] = {}
        codes: list[ErrorCode] = []
        for each in members:
            try:
                member = self._find_leaving(group, each)
            except BrokerError as error:
                codes.append(error.code)
                continue
            logger.info(
                "group %s: member %s is out: it left (%s)",
                group_id,
                member.member_id,
                each.reason or "no reason given",
            )
            leaving[member.member_id] = member
            codes.append(ErrorCode.NONE)
        change = self._groups.change(group)
        if leaving:
            self._groups.fence(change, list(leaving.values()))
        return CoordinatorResult(change.records, codes)

    def _find_leaving(self, group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
        holder = self._groups.static_member(group, leaving.group_instance_id)
        if leaving.group_instance_id is not None:
            if holder is None:
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
            if leaving.member_id not in (NO_MEMBER_ID, holder.member_id):
                raise BrokerError(ErrorCode.FENCED_INSTANCE_ID)
        member = holder or group.members.get(leaving.member_id)
        if member is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def _check(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> tuple[ConsumerMember, ClassicMemberMetadata]:
        holder = self._groups.static_member(group, instance_id)
        if holder is not None and holder.member_id != member_id:
            raise BrokerError(ErrorCode.FENCED_INSTANCE_ID)
        member = group.members.get(member_id)
        if member is None or member.classic is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation_id != member.member_epoch:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        return member, member.classic

    def _call_back(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Asks a member to join again, within its rebalance time-out."""
        self._groups.await_rejoin(group.group_id, member)
        raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)


def _joined(member_id: str, epoch: int, protocol_name: str) -> JoinResult:
    return JoinResult(ErrorCode.NONE, member_id, epoch, CONSUMER_PROTOCOL_TYPE, protocol_name)


def _gives_back(member: ConsumerMember) -> bool:
    return member.state is MemberState.UNREVOKED_PARTITIONS


def _check_protocols(group: ConsumerGroup, member_id: str, request: JoinRequest) -> None:
    """Classic members must have a protocol in common, or they could not be a classic group."""
    names = {name for name, _ in request.protocols}
    for member in group.members.values():
        if member.classic is not None and member.member_id != member_id:
            names &= {name for name, _ in member.classic.supported_protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
