"""`ShareGroups`: the share groups of one partition, as commands.

A member does everything by heartbeats: it joins (epoch 0), renews its session, changes its
subscription, and leaves (-1). It gets its target at once. It is assigned only partitions that have
a state. Missing states are made before the heartbeat (`share_group_coordinator`), so a joining
member gets its partitions in the first answer.
"""

import logging
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.group import GroupRegistry
from odradek.coordinator.modern.deadlines import (
    Deadlines,
    DelayedSession,
    MemberDeadline,
    SessionKey,
)
from odradek.coordinator.modern.member_state import JOIN_EPOCH, LEAVE_EPOCH
from odradek.coordinator.modern.partitions import difference, intersection, union
from odradek.coordinator.modern.topic_metadata import topics_hash
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.records.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from odradek.coordinator.runtime.shard import CoordinatorResult
from odradek.coordinator.services import ShardServices
from odradek.coordinator.share_groups.group import ShareGroup, member_tombstones
from odradek.coordinator.share_groups.member import ShareMember
from odradek.coordinator.share_groups.requests import (
    DescribedShareGroup,
    ShareHeartbeatRequest,
    ShareHeartbeatResult,
)
from odradek.coordinator.share_groups.simple_assignor import assign_simply
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.group_settings import GroupSettings
from odradek.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

RETRY_MS: Final = 500
"""When a member that is out is dropped once more, after the log has refused it."""


class ShareGroups:
    """Heartbeats, descriptions, and which partitions have states. Called on the broker's loop."""

    def __init__(self, registry: GroupRegistry, services: ShardServices) -> None:
        self._registry = registry
        self._services = services
        self._topics = services.topics
        self._sessions = Deadlines(services.heartbeats)

    # Finding

    def find(self, group_id: str) -> ShareGroup | None:
        """The group, if there is one of the kind."""
        group = self._registry.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def group(self, group_id: str) -> ShareGroup:
        """The group.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND, there is none, or it is of another kind.
        """
        group = self._registry.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        raise BrokerError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a share group.",
        )

    def describe(self, group_id: str) -> DescribedShareGroup:
        """The group for ShareGroupDescribe; raises as `group`."""
        return self.group(group_id).describe()

    @property
    def image(self) -> MetadataImage:
        """The current metadata."""
        return self._topics.image

    # States

    def missing_states(self, request: ShareHeartbeatRequest) -> Partitions:
        """The partitions without a state that a member is about to read.

        Raises:
            BrokerError: the member may not read at all.
        """
        group = self._registry.get(request.group_id)
        if group is None and request.member_epoch == JOIN_EPOCH:
            group = ShareGroup(request.group_id)
        if not isinstance(group, ShareGroup) or request.member_epoch == LEAVE_EPOCH:
            return {}
        if request.member_epoch == JOIN_EPOCH:
            self._check_size(group, request.member_id)
        names = group.topic_names_read() | (request.subscribed_topic_names or frozenset())
        return group.uninitialized(names, self.image)

    def begin_states(
        self, group_id: str, partitions: Partitions
    ) -> CoordinatorResult[tuple[int, Partitions]]:
        """Records that the missing states are being made; answers with their epoch, and with these
        partitions."""
        group = self.find(group_id) or ShareGroup(group_id)
        missing = difference(partitions, group.initialized)
        if not missing:
            return CoordinatorResult((), (group.epoch, missing))
        return CoordinatorResult([self._making_record(group, missing)], (group.epoch, missing))

    def _making_record(self, group: ShareGroup, partitions: Partitions) -> CoordinatorRecord:
        deleting = {each: name for each, name in group.deleting.items() if each not in partitions}
        return group.states_record(
            union(group.initializing, partitions), group.initialized, deleting, self.image
        )

    def end_states(self, group_id: str, made: Partitions) -> CoordinatorResult[None]:
        """Records the states that were made, so that they can be assigned. Another state may exist
        as well, if its answer was lost: it stays recorded as being made, so that it is deleted with
        the group. The epoch of a group without members does not rise before the next member."""
        group = self.find(group_id)
        if group is None or not made:
            return CoordinatorResult((), None)
        record = group.states_record(
            difference(group.initializing, made),
            union(group.initialized, made),
            group.deleting,
            self.image,
        )
        if not group.members:
            return CoordinatorResult([record], None)
        return CoordinatorResult([record, self._epoch_record(group, group.epoch + 1)], None)

    def begin_deletion(
        self, group_id: str, topic_ids: Iterable[UUID] | None = None
    ) -> CoordinatorResult[Partitions]:
        """Records that the states of topics, by default of all, are being deleted; answers with
        them.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.
        """
        group = self.group(group_id)
        group.check_delete()
        known = union(group.with_states(), self._all_of(group.deleting))
        wanted = known if topic_ids is None else topic_ids
        leaving = {each: known[each] for each in wanted if each in known}
        if not leaving:
            return CoordinatorResult((), leaving)
        names = {each: group.topic_names.get(each, "") for each in leaving}
        record = group.states_record(
            difference(group.initializing, leaving),
            difference(group.initialized, leaving),
            {**group.deleting, **names},
            self.image,
        )
        return CoordinatorResult([record], leaving)

    def _all_of(self, topic_ids: Iterable[UUID]) -> Partitions:
        """All partitions of topics whose deletion may be incomplete."""
        topics = [self.image.topic_by_id(each) for each in topic_ids]
        return {
            topic.topic_id: frozenset(range(len(topic.partitions)))
            for topic in topics
            if topic is not None
        }

    def end_deletion(self, group_id: str, topic_ids: Iterable[UUID]) -> CoordinatorResult[None]:
        """Records that the states of topics are deleted."""
        group = self.find(group_id)
        if group is None:
            return CoordinatorResult((), None)
        gone = set(topic_ids)
        left = {each: name for each, name in group.deleting.items() if each not in gone}
        record = group.states_record(group.initializing, group.initialized, left, self.image)
        return CoordinatorResult([record], None)

    def begin_alteration(self, group_id: str, partitions: Partitions) -> CoordinatorResult[int]:
        """Raises the epoch before an operator's change of offsets, which fences the states before.
        Without partitions it only checks whether the change would be allowed.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND, it is of another kind; NON_EMPTY_GROUP.
        """
        is_new = self._registry.get(group_id) is None
        group = ShareGroup(group_id) if is_new else self.group(group_id)
        group.check_delete()
        if not partitions:
            return CoordinatorResult((), group.epoch)
        making = self._making_record(group, partitions)
        if is_new:
            records = [
                self._epoch_record(group, group.epoch),
                _target_epoch_record(group_id, group.epoch, timestamp_ms=0),
                making,
            ]
            return CoordinatorResult(records, group.epoch)
        epoch = group.epoch + 1
        return CoordinatorResult([self._epoch_record(group, epoch), making], epoch)

    # Heartbeats

    def heartbeat(self, request: ShareHeartbeatRequest) -> CoordinatorResult[ShareHeartbeatResult]:
        """Handles a heartbeat: a member joins, renews its session, or leaves.

        Raises:
            BrokerError: the member may not, or has to rejoin.
        """
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request)
        return self._live(request)

    def _live(self, request: ShareHeartbeatRequest) -> CoordinatorResult[ShareHeartbeatResult]:
        group, records = self._group_of(request), list[CoordinatorRecord]()
        known = self._known_member(group, request)
        member = known.described_by(request)
        if member != known or request.member_id not in group.members:
            key = ShareGroupMemberMetadataKey(group.group_id, member.member_id)
            records.append(CoordinatorRecord(key, member.metadata_value()))
        members = {**group.members, member.member_id: member}
        epoch = self._maybe_bump(group, known, members, records)
        targets, target_epoch = self._maybe_assign(group, members, epoch, records)
        readable = self._readable(member)
        target = intersection(targets.get(member.member_id, {}), readable)
        updated = member.at_epoch(target_epoch, target)
        if updated != member:
            records.append(_assignment_record(group.group_id, updated))
        settings = self._settings(group.group_id)
        self._start_session(group.group_id, member.member_id, settings.session_timeout_ms)
        # A member that has missed the last answer sends all fields again.
        is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
        tell = is_full or updated.assigned != known.assigned
        return CoordinatorResult(
            records,
            ShareHeartbeatResult(
                member.member_id,
                updated.member_epoch,
                settings.heartbeat_interval_ms,
                updated.assigned if tell else None,
            ),
        )

    def _group_of(self, request: ShareHeartbeatRequest) -> ShareGroup:
        """The group; for its first member a new one."""
        is_new = self._registry.get(request.group_id) is None
        if is_new and request.member_epoch == JOIN_EPOCH:
            return ShareGroup(request.group_id)
        return self.group(request.group_id)

    def _known_member(self, group: ShareGroup, request: ShareHeartbeatRequest) -> ShareMember:
        member = group.members.get(request.member_id)
        if request.member_epoch == JOIN_EPOCH:
            self._check_size(group, request.member_id)
            if member is None:
                logger.info("group %s: member %s joins", group.group_id, request.member_id)
            return member or ShareMember(request.member_id)
        if member is None:
            raise _unknown_member(group, request.member_id)
        if request.member_epoch not in (member.member_epoch, member.previous_member_epoch):
            raise BrokerError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"Member {member.member_id} is at epoch {member.member_epoch}, not at "
                f"{request.member_epoch}; it has to give up its partitions and join again.",
            )
        return member

    def _check_size(self, group: ShareGroup, member_id: str) -> None:
        limit: int = self._services.config["group.share.max.size"]
        if len(group.members) >= limit and member_id not in group.members:
            raise BrokerError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {limit} members.",
            )

    def _maybe_bump(
        self,
        group: ShareGroup,
        known: ShareMember,
        members: dict[str, ShareMember],
        records: list[CoordinatorRecord],
    ) -> int:
        """Raises the epoch when members, subscriptions or topics have changed."""
        member = members[known.member_id]
        is_new = known.member_id not in group.members
        changed = is_new or known.subscribed_topic_names != member.subscribed_topic_names
        version = self._topics.version
        if not changed and group.checked_metadata == version:
            return group.epoch
        names = {name for each in members.values() for name in each.subscribed_topic_names}
        metadata_hash = topics_hash(names, self.image)
        if not changed and metadata_hash == group.metadata_hash:
            # Only here: the log may refuse the records of another hash.
            group.checked_metadata = version
            return group.epoch
        records.append(self._epoch_record(group, group.epoch + 1, metadata_hash))
        return group.epoch + 1

    def _epoch_record(
        self, group: ShareGroup, epoch: int, metadata_hash: int | None = None
    ) -> CoordinatorRecord:
        if metadata_hash is None:
            metadata_hash = group.metadata_hash
        value = ShareGroupMetadataValue(epoch, metadata_hash)
        return CoordinatorRecord(ShareGroupMetadataKey(group.group_id), value)

    def _maybe_assign(
        self,
        group: ShareGroup,
        members: dict[str, ShareMember],
        epoch: int,
        records: list[CoordinatorRecord],
    ) -> tuple[dict[str, Partitions], int]:
        """Computes a target when the epoch is ahead, unless the last one is too young."""
        if epoch == group.assignment_epoch:
            return group.targets, epoch
        now_ms = self._services.clock.wall_ms()
        age_ms = now_ms - group.assignment_timestamp_ms
        interval_ms = self._settings(group.group_id).assignment_interval_ms
        if group.assignment_epoch and 0 <= age_ms < interval_ms:
            return group.targets, group.assignment_epoch
        targets = self._targets(group, members)
        for member_id, target in targets.items():
            if group.targets.get(member_id) != target:
                key = ShareGroupTargetAssignmentMemberKey(group.group_id, member_id)
                value = ShareGroupTargetAssignmentMemberValue(target)
                records.append(CoordinatorRecord(key, value))
        records.append(_target_epoch_record(group.group_id, epoch, now_ms))
        return targets, epoch

    def _targets(self, group: ShareGroup, members: dict[str, ShareMember]) -> dict[str, Partitions]:
        readable = {each: self._readable(member) for each, member in members.items()}
        there: Partitions = {}
        for partitions in readable.values():
            there = union(there, partitions)
        return assign_simply(
            {each: frozenset(partitions) for each, partitions in readable.items()},
            group.targets,
            intersection(group.initialized, there),
        )

    def _readable(self, member: ShareMember) -> Partitions:
        """All partitions of the topics that a member reads and that exist."""
        topics = [self.image.topic(name) for name in sorted(member.subscribed_topic_names)]
        return {
            topic.topic_id: frozenset(range(len(topic.partitions)))
            for topic in topics
            if topic is not None
        }

    # Leaving

    def _leave(self, request: ShareHeartbeatRequest) -> CoordinatorResult[ShareHeartbeatResult]:
        group = self.group(request.group_id)
        if request.member_id not in group.members:
            raise _unknown_member(group, request.member_id)
        logger.info("group %s: member %s leaves", group.group_id, request.member_id)
        return CoordinatorResult(
            self._removal(group, request.member_id),
            ShareHeartbeatResult(request.member_id, LEAVE_EPOCH),
        )

    def _removal(self, group: ShareGroup, member_id: str) -> list[CoordinatorRecord]:
        left = [each for each in group.members.values() if each.member_id != member_id]
        names = {name for each in left for name in each.subscribed_topic_names}
        epoch = self._epoch_record(group, group.epoch + 1, topics_hash(names, self.image))
        return [*member_tombstones(group.group_id, member_id), epoch]

    # Sessions

    def _start_session(self, group_id: str, member_id: str, session_ms: int) -> None:
        """Starts the member's session after a heartbeat."""
        key = SessionKey(group_id, member_id)

        def on_late(late: MemberDeadline) -> None:
            if self._services.is_present(group_id, member_id):
                self._start_session(group_id, member_id, session_ms)
            else:
                self._fence_late(key, late)

        self._sessions.start(key, DelayedSession(session_ms, on_late))

    def on_arrival(self, request: ShareHeartbeatRequest) -> None:
        """Renews the session of a member whose heartbeat has arrived and may wait behind others of
        the group, or for states."""
        group_id, member_id = request.group_id, request.member_id
        lives = request.member_epoch != LEAVE_EPOCH
        if lives and self._sessions.awaits(SessionKey(group_id, member_id)):
            settings = self._settings(group_id)
            self._start_session(group_id, member_id, settings.session_timeout_ms)

    def _fence_late(self, key: SessionKey, late: MemberDeadline) -> None:
        """Removes a late member, unless it sends a heartbeat before the command has its turn; tries
        again until the removal is written or another coordinator is in charge."""

        def command() -> CoordinatorResult[bool]:
            if not self._sessions.is_late(key, late):
                return CoordinatorResult((), False)
            group = self.find(key.group_id)
            if group is None or key.member_id not in group.members:
                self._sessions.met(key)
                return CoordinatorResult((), False)
            return CoordinatorResult(self._removal(group, key.member_id), True)

        def on_done(outcome: bool | BrokerError) -> None:
            if outcome is True:
                logger.info("group %s: member %s is out: no heartbeat", *_names(key))
            elif isinstance(outcome, BrokerError) and self._sessions.is_late(key, late):
                logger.warning("group %s: member %s is out, not stored yet", *_names(key))
                self._sessions.start(key, late.again(RETRY_MS))

        self._services.execute(key.group_id, command, on_done)

    def on_gone(self, group_id: str, member_id: str) -> None:
        """Ends the session of a member that the log has removed."""
        self._sessions.met(SessionKey(group_id, member_id))

    def on_loaded(self) -> None:
        """Starts the sessions of all members again: they had no coordinator to send heartbeats
        to."""
        for group in self._registry:
            if isinstance(group, ShareGroup):
                session_ms = self._settings(group.group_id).session_timeout_ms
                for member_id in group.members:
                    self._start_session(group.group_id, member_id, session_ms)

    def on_unloaded(self) -> None:
        """Ends all sessions."""
        self._sessions.clear()

    def _settings(self, group_id: str) -> GroupSettings:
        return GroupSettings("share", group_id, self._services.config, self._topics.image)


def _assignment_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    key = ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id)
    return CoordinatorRecord(key, member.assignment_value())


def _target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    value = ShareGroupTargetAssignmentMetadataValue(epoch, timestamp_ms)
    return CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id), value)


def _unknown_member(group: ShareGroup, member_id: str) -> BrokerError:
    return BrokerError(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {member_id} is not a member of group {group.group_id}.",
    )


def _names(key: SessionKey) -> tuple[str, str]:
    return key.group_id, key.member_id
