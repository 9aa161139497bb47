"""`ClassicGroups`: the classic groups of one partition, as requests reach them.

Finds the group, checks who speaks, and leaves the rest to the group (`rebalance`) and to
`joining`. Also replays what the log says of classic groups.
"""

import logging
from collections.abc import Sequence

from odradek.coordinator.classic.group import ClassicGroup
from odradek.coordinator.classic.joining import join
from odradek.coordinator.classic.protocol import ClassicProtocol
from odradek.coordinator.classic.rebalance import RebalancingGroup
from odradek.coordinator.classic.requests import (
    NO_MEMBER_ID,
    GroupDescription,
    JoinRequest,
    LeavingMember,
    OnJoined,
    OnSynced,
    SyncRequest,
    SyncResult,
)
from odradek.coordinator.classic.states import GroupState
from odradek.coordinator.group import GroupRegistry, GroupType
from odradek.coordinator.records.group_records import GroupMetadataKey, GroupMetadataValue
from odradek.coordinator.services import ShardServices
from odradek.errors import BrokerError, ErrorCode

logger = logging.getLogger(__name__)


class ClassicGroups(ClassicProtocol):
    """Joins, syncs, heartbeats and leaves. Called on the broker's loop only."""

    def __init__(self, registry: GroupRegistry, services: ShardServices) -> None:
        self._registry = registry
        self._services = services
        self._is_loaded = False

    # Requests

    def join(self, request: JoinRequest, on_done: OnJoined) -> None:
        """See `ClassicProtocol` and `joining`: answered when a generation begins. A group is made
        for its first member, and is listed even when that may not join, until expiry finds nobody
        in it."""
        config = self._services.config
        longest_ms = config["group.max.session.timeout.ms"]
        if not config["group.min.session.timeout.ms"] <= request.session_timeout_ms <= longest_ms:
            raise BrokerError(ErrorCode.INVALID_SESSION_TIMEOUT)
        self._maybe_drop_empty_consumer_group(request.group_id)
        if self._registry.get(request.group_id) is None:
            if request.member_id != NO_MEMBER_ID:
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._new_group(request.group_id)
        join(self._classic(request.group_id), request, on_done)

    def _maybe_drop_empty_consumer_group(self, group_id: str) -> None:
        """A group without members may change its kind; its offsets stay."""
        group = self._registry.get(group_id)
        if group is not None and group.type is GroupType.CONSUMER and group.is_empty:
            logger.info("group %s, which is empty, becomes a classic group", group_id)
            self._services.append(group.tombstones(), lambda _error: None)
            self._registry.remove(group_id)

    def sync(self, request: SyncRequest, on_synced: OnSynced) -> None:
        """See `ClassicProtocol`: the leader brings everybody's assignment."""
        group = self._classic(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        _check_protocol(group, request)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state is GroupState.STABLE:
            group.remove_pending_sync(member)
            on_synced(group.synced(member))
            group.reschedule_heartbeat(member)
            return
        # Who sends a second one has given up the first.
        member.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = on_synced
        group.remove_pending_sync(member)
        if member.member_id == group.leader_id:
            group.store_assignments(_assignments(group, request))

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> None:
        """See `ClassicProtocol`."""
        group = self._classic(group_id)
        member = group.check_member(member_id, group_instance_id)
        group.check_generation(generation_id)
        group.reschedule_heartbeat(member)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, group_id: str, members: Sequence[LeavingMember]) -> list[ErrorCode]:
        """See `ClassicProtocol`."""
        try:
            group = self._classic(group_id)
        except BrokerError as error:
            return [error.code] * len(members)
        return [self._leave(group, member) for member in members]

    def _leave(self, group: RebalancingGroup, leaving: LeavingMember) -> ErrorCode:
        reason = f"it left ({leaving.reason or 'no reason given'})"
        member_id = leaving.member_id
        if member_id in group.pending_members:
            group.remove_pending_and_update_group(member_id, reason)
            return ErrorCode.NONE
        if member_id == NO_MEMBER_ID and leaving.group_instance_id is not None:
            member_id = group.static_members.get(leaving.group_instance_id, NO_MEMBER_ID)
        try:
            member = group.check_member(member_id, leaving.group_instance_id)
        except BrokerError as error:
            return error.code
        group.remove_and_update_group(member, reason)
        return ErrorCode.NONE

    def describe(self, group_id: str) -> GroupDescription:
        """The group for DescribeGroups.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND.
        """
        group = self._registry.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {group_id} not found."
                if group is None
                else f"Group {group_id} is not a classic group.",
            )
        return group.describe()

    def _classic(self, group_id: str) -> RebalancingGroup:
        group = self._registry.get(group_id)
        if isinstance(group, RebalancingGroup):
            return group
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)

    def _new_group(self, group_id: str) -> RebalancingGroup:
        group = RebalancingGroup(group_id, self._services.clock.wall_ms()).attach(self._services)
        self._registry.put(group)
        return group

    # The log

    def replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Applies a record. While the log is loaded groups are made from it; afterwards the
        group that wrote it takes it over. A generation that was on its way when its group
        became a consumer group is of no interest any more."""
        group = self._registry.get(key.group_id)
        now_ms = self._services.clock.wall_ms()
        if value is None:
            if isinstance(group, ClassicGroup):
                self._registry.remove(key.group_id)
        elif group is not None and group.type is GroupType.CONSUMER and not group.is_empty:
            return
        elif not self._is_loaded or group is None:
            made = RebalancingGroup.from_value(key.group_id, value)
            self._registry.put(made.attach(self._services))
            if self._is_loaded:
                self._take_over(made)
        elif isinstance(group, ClassicGroup):
            group.replay(value, now_ms)

    def _take_over(self, group: RebalancingGroup) -> None:
        """A consumer group has become a classic one: its members assign anew."""
        for member in list(group.members.values()):
            group.reschedule_heartbeat(member)
        if group.members:
            group.prepare_rebalance("it was a consumer group")

    def ensure_offset_group(self, group_id: str) -> None:
        """Makes the group of somebody who only stores offsets, when there is none."""
        if self._registry.get(group_id) is None:
            self._new_group(group_id)

    def on_loaded(self) -> None:
        """The sessions of all members begin anew: they had no coordinator to turn to."""
        self._is_loaded = True
        for group in self._registry:
            if isinstance(group, RebalancingGroup):
                for member in list(group.members.values()):
                    group.reschedule_heartbeat(member)


def _check_protocol(group: RebalancingGroup, request: SyncRequest) -> None:
    """From version 5 on members say which protocol they believe was chosen."""
    kind, name = request.protocol_type, request.protocol_name
    if (kind is not None and kind != group.protocol_type) or (
        name is not None and name != group.protocol_name
    ):
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _assignments(group: RebalancingGroup, request: SyncRequest) -> dict[str, bytes]:
    """The leader's assignment, with nothing for those whom it forgot."""
    strangers = request.assignments.keys() - group.members.keys()
    if strangers:
        logger.warning(
            "group %s: leader %s assigns to strangers, passed over: %s",
            group.group_id,
            request.member_id,
            ", ".join(sorted(strangers)),
        )
    return {member_id: request.assignments.get(member_id, b"") for member_id in group.members}
