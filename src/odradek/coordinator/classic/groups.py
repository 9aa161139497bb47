"""`ClassicGroups`: the classic groups of one partition, as requests reach them.

Finds or makes the group, which does the rest (`coordinated_group`). Also replays the records of
classic groups.
"""

import logging
from collections.abc import Callable, Sequence

from odradek.coordinator.classic.coordinated_group import CoordinatedGroup
from odradek.coordinator.classic.group import ClassicGroup
from odradek.coordinator.classic.protocol import ClassicProtocol
from odradek.coordinator.classic.requests import (
    NO_MEMBER_ID,
    GroupDescription,
    JoinRequest,
    JoinResult,
    LeavingMember,
    OnLeft,
    OnSynced,
    SyncRequest,
)
from odradek.coordinator.group import Group, GroupRegistry, GroupType
from odradek.coordinator.records.group_records import GroupMetadataKey, GroupMetadataValue
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.shard import CoordinatorResult
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

    def join(
        self, request: JoinRequest, on_done: Callable[[JoinResult | BrokerError], None]
    ) -> None:
        """See `ClassicProtocol`: answered when a generation begins. A missing group is made and
        stored first; it is listed even if its first member may not join, until expiry finds it
        empty. An empty group of another kind becomes a classic one first."""
        group = self._registry.get(request.group_id)
        if isinstance(group, CoordinatedGroup):
            group.join(request, on_done)
        elif request.member_id != NO_MEMBER_ID:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            self._make_group(group, request, on_done)

    def _make_group(
        self,
        replaced: Group | None,
        request: JoinRequest,
        on_done: Callable[[JoinResult | BrokerError], None],
    ) -> None:
        """Makes a group without members, in one write, and joins it when that is committed. The
        offsets of an empty group of another kind that it replaces stay."""

        def on_made(outcome: BrokerError | None) -> None:
            try:
                if outcome is not None:
                    raise outcome
                self.join(request, on_done)
            except BrokerError as error:
                on_done(error)

        group_id = request.group_id
        if replaced is not None:
            logger.info("group %s, which is empty, becomes a classic group", group_id)
        tombstones = () if replaced is None else replaced.tombstones()
        empty = CoordinatedGroup(group_id, self._services.clock.wall_ms()).to_value()
        record = CoordinatorRecord(GroupMetadataKey(group_id), empty)
        self._services.execute(
            group_id, lambda: CoordinatorResult([*tombstones, record], None), on_made
        )

    def sync(self, request: SyncRequest, on_synced: OnSynced) -> None:
        """See `ClassicProtocol`."""
        self._group(request.group_id).sync(request, on_synced)

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> None:
        """See `ClassicProtocol`."""
        self._group(group_id).heartbeat(member_id, group_instance_id, generation_id)

    def on_arrival(self, group_id: str, member_id: str) -> None:
        """A member's request has arrived, and others of the group come first: it lives."""
        group = self._registry.get(group_id)
        if isinstance(group, CoordinatedGroup) and member_id in group.members:
            group.reschedule_heartbeat(group.members[member_id])

    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        on_done: OnLeft,
    ) -> None:
        """See `ClassicProtocol`: only the last member that leaves causes a write."""
        try:
            group = self._group(group_id)
        except BrokerError as error:
            on_done([error.code] * len(members))
            return
        group.leave(members, on_done)

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

    def _group(self, group_id: str) -> CoordinatedGroup:
        group = self._registry.get(group_id)
        if isinstance(group, CoordinatedGroup):
            return group
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)

    def _new_group(self, group_id: str) -> CoordinatedGroup:
        group = CoordinatedGroup(group_id, self._services.clock.wall_ms()).attach(self._services)
        self._registry.put(group)
        return group

    # The log

    def replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Applies a record. While the log is loaded groups are made from it; afterwards the
        group that wrote it takes it over. A generation of a group that has become a consumer group
        meanwhile is skipped."""
        group = self._registry.get(key.group_id)
        now_ms = self._services.clock.wall_ms()
        if value is None:
            if isinstance(group, ClassicGroup):
                self._registry.remove(key.group_id)
        elif group is not None and group.type is GroupType.CONSUMER and not group.is_empty:
            return
        elif not self._is_loaded or group is None:
            made = CoordinatedGroup.from_value(key.group_id, value)
            self._registry.put(made.attach(self._services))
            if self._is_loaded:
                self._take_over(made)
        elif isinstance(group, ClassicGroup):
            group.replay(value, now_ms)

    def _take_over(self, group: CoordinatedGroup) -> None:
        """Takes over a consumer group that has become a classic one: its members rebalance."""
        for member in list(group.members.values()):
            group.reschedule_heartbeat(member)
        if group.members:
            group.prepare_rebalance("it was a consumer group")

    def ensure_offset_group(self, group_id: str) -> None:
        """Makes a group that only has offsets, if there is none."""
        if self._registry.get(group_id) is None:
            self._new_group(group_id)

    def on_loaded(self) -> None:
        """Starts the sessions of all members again: they had no coordinator to send heartbeats
        to."""
        self._is_loaded = True
        for group in self._registry:
            if isinstance(group, CoordinatedGroup):
                for member in list(group.members.values()):
                    group.reschedule_heartbeat(member)
