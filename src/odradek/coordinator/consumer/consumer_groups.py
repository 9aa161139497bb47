"""`ConsumerGroups`: the consumer groups of one partition, as requests reach them.

A member does everything by heartbeats: it joins (epoch 0), renews its session, changes its
subscription, reports partitions given back, and leaves (-1; a static member that will be back: -2).
Each heartbeat is a command: it looks at the group, decides in a `GroupChange`, and returns records
and an answer.

Sessions begin with signs of life, at their arrival; those of classic members begin when the log has
them, since their heartbeats go to the classic group until then. All other deadlines follow from
committed records: a change that is refused leaves them as they were.
"""

import logging
from typing import Final

from odradek.coordinator.assignors import Partitions, assignor_names
from odradek.coordinator.classic.group import ClassicGroup
from odradek.coordinator.consumer.conversion import (
    downgrade_records,
    may_downgrade,
    may_upgrade,
    upgrade_records,
)
from odradek.coordinator.consumer.group import ConsumerGroup, preferred_assignor
from odradek.coordinator.consumer.group_change import GroupChange
from odradek.coordinator.consumer.member import STATIC_LEAVE_EPOCH, ConsumerMember
from odradek.coordinator.consumer.replay import replayed
from odradek.coordinator.consumer.requests import (
    DescribedGroup,
    HeartbeatRequest,
    HeartbeatResult,
)
from odradek.coordinator.consumer.revocation import DelayedRevocation, RevocationKey
from odradek.coordinator.group import GroupRegistry
from odradek.coordinator.modern.deadlines import (
    Deadlines,
    DelayedSession,
    MemberDeadline,
    SessionKey,
)
from odradek.coordinator.modern.member_state import JOIN_EPOCH, LEAVE_EPOCH
from odradek.coordinator.modern.partitions import is_subset
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.shard import CoordinatorResult
from odradek.coordinator.services import ShardServices
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.group_settings import GroupSettings
from odradek.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

RETRY_MS: Final = 500
"""When a member that is out is dropped once more, after the log has refused it."""


class ConsumerGroups:
    """Heartbeats and descriptions. Called on the broker's loop only."""

    def __init__(
        self,
        registry: GroupRegistry,
        services: ShardServices,
    ) -> None:
        self._registry = registry
        self.services = services
        self._topics = services.topics
        self._sessions = Deadlines(services.heartbeats)
        self._revocations = Deadlines(services.rebalances)
        self._unheard: set[RevocationKey] = set()
        """Members whose requests have waited for their turn, and had none since."""
        self._is_loaded = False

    # Requests

    def heartbeat(self, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResult]:
        """Handles a heartbeat: a member joins, renews its session, or leaves.

        Raises:
            BrokerError: the member may not, or has to rejoin.
        """
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(request)
        return self._live(request)

    def _assignor_names(self) -> list[str]:
        return assignor_names(self.services.config)

    def describe(self, group_id: str) -> DescribedGroup:
        """The group for ConsumerGroupDescribe.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND.
        """
        return self.group(group_id).describe(self._assignor_names()[0])

    def group(self, group_id: str) -> ConsumerGroup:
        """The group.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND, there is none, or it is of another kind.
        """
        group = self._registry.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        raise BrokerError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a consumer group.",
        )

    # Living

    def _live(self, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResult]:
        before: list[CoordinatorRecord] = []
        self.on_heard(request.group_id, request.member_id)
        if request.member_epoch == JOIN_EPOCH:
            group = self._group_to_join(request.group_id, before)
        else:
            group = self.group(request.group_id)
        self.check_size(group, request.member_id)
        member_id = request.member_id or str(self.services.new_uuid())
        change = self.change(group)
        member = self._find_member(change, member_id, request)
        updated = member.described_by(request)
        if updated != change.member(member_id):
            change.put(updated)
        reconciled = self.assign_and_reconcile(change, updated, request.owned)
        settings = self._settings(group.group_id)
        self.start_session(group.group_id, member_id, settings.session_timeout_ms)
        tell = request.member_epoch == JOIN_EPOCH or request.is_full
        return CoordinatorResult(
            [*before, *change.records],
            HeartbeatResult(
                member_id,
                reconciled.member_epoch,
                settings.heartbeat_interval_ms,
                reconciled.assigned if tell or reconciled.assigned != member.assigned else None,
            ),
        )

    def _group_to_join(self, group_id: str, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """The group, or a new one; one without members may change its kind."""
        group = self._registry.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if isinstance(group, ClassicGroup) and not group.is_empty:
            return self._upgraded(group, records)
        if group is not None:
            if not group.may_expire:
                raise BrokerError(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
                )
            records += group.tombstones()
            logger.info("group %s, which is empty, becomes a consumer group", group_id)
        return ConsumerGroup(group_id)

    def _upgraded(self, group: ClassicGroup, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """The group that a classic one becomes, with its members."""
        if not may_upgrade(group, self.services.config):
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group."
            )
        if group.uncommitted_count:
            # An assignment is on its way to the log, and must be known first.
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        logger.info("group %s and its members become a consumer group", group.group_id)
        try:
            records += upgrade_records(group, self.image)
        except BrokerError as error:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, error.message) from error
        return replayed(group.group_id, records)

    def check_size(self, group: ConsumerGroup, member_id: str) -> None:
        """Raises BrokerError GROUP_MAX_SIZE_REACHED when there is no room for the member."""
        limit: int = self.services.config["group.consumer.max.size"]
        if len(group.members) >= limit and member_id not in group.members:
            raise BrokerError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _find_member(
        self, change: GroupChange, member_id: str, request: HeartbeatRequest
    ) -> ConsumerMember:
        """Finds the member that sends the heartbeat: known, new, or a new process of a static
        member."""
        group = change.group
        instance_id = request.instance_id
        joins = request.member_epoch == JOIN_EPOCH
        holder = self.static_member(group, instance_id)
        if holder is not None and holder.member_id != member_id:
            if not joins:
                raise _fenced(holder, instance_id)
            return self._replace_static(change, holder, member_id)
        member = group.members.get(member_id)
        if member is None or (instance_id is not None and holder is None):
            if not joins:
                raise BrokerError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"Member {member_id} is not a member of group {group.group_id}.",
                )
            logger.info("group %s: member %s joins", group.group_id, member_id)
            return member or ConsumerMember(member_id)
        if not joins:
            _check_epoch(member, request)
        return member

    def static_member(self, group: ConsumerGroup, instance_id: str | None) -> ConsumerMember | None:
        """The member of an instance, if there is one."""
        holder_id = group.static_members.get(instance_id or "")
        return None if holder_id is None else group.members[holder_id]

    def _replace_static(
        self, change: GroupChange, holder: ConsumerMember, member_id: str
    ) -> ConsumerMember:
        # A classic static member never says that it will be back; its next process just comes.
        if not holder.is_classic and holder.member_epoch != STATIC_LEAVE_EPOCH:
            raise BrokerError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {holder.instance_id} cannot join "
                f"the group because the instance id is owned by {holder.member_id} member.",
            )
        logger.info(
            "group %s: member %s takes the place of %s, instance %s",
            change.group.group_id,
            member_id,
            holder.member_id,
            holder.instance_id,
        )
        return change.replace(holder, member_id)

    def assign_and_reconcile(
        self, change: GroupChange, member: ConsumerMember, owned: Partitions | None
    ) -> ConsumerMember:
        """Applies the consequences of a member's request: a new epoch, a new assignment, a step of
        the member towards it; returns the member after that."""
        self._maybe_bump_epoch(change)
        self._maybe_assign(change)
        return change.reconcile(member, owned)

    def _maybe_bump_epoch(self, change: GroupChange) -> None:
        """Raises the epoch when members, subscriptions or topics have changed."""
        group = change.group
        outdated = group.checked_metadata != self._topics.version
        if not change.subscription_changed and not outdated and group.epoch:
            return
        if change.check_metadata() or change.subscription_changed or not group.epoch:
            change.bump_epoch()
        else:
            group.checked_metadata = self._topics.version

    def _maybe_assign(self, change: GroupChange) -> None:
        """Computes a target when the epoch is ahead, unless the last one is too young."""
        group = change.group
        if change.epoch == change.target_epoch:
            return
        age_ms = self.services.clock.wall_ms() - group.assignment_timestamp_ms
        interval_ms = self._settings(group.group_id).assignment_interval_ms
        if change.target_epoch and 0 <= age_ms < interval_ms:
            return
        change.assign(preferred_assignor(change.members(), self._assignor_names()[0]))

    # Leaving

    def _leave(self, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResult]:
        group = self.group(request.group_id)
        if request.instance_id is None:
            member = group.members.get(request.member_id)
        else:
            member = self.static_member(group, request.instance_id)
        if member is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {request.member_id} is not a member of group {group.group_id}.",
            )
        if member.member_id != request.member_id:
            raise _fenced(member, request.instance_id)
        change = self.change(group)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            # The member will be back: it keeps its place for the rest of its session.
            change.set_assignment(member.released())
        else:
            logger.info("group %s: member %s leaves", group.group_id, member.member_id)
            self.fence(change, [member])
        return CoordinatorResult(
            change.records, HeartbeatResult(request.member_id, request.member_epoch)
        )

    def fence(self, change: GroupChange, members: list[ConsumerMember]) -> None:
        """Removes members; the others get their partitions."""
        gone = {member.member_id for member in members}
        others = [each for each in change.members() if each.member_id not in gone]
        if self.maybe_downgrade(change, others):
            return
        for member in members:
            change.remove(member)
        change.check_metadata()
        change.bump_epoch()

    def maybe_downgrade(self, change: GroupChange, members: list[ConsumerMember]) -> bool:
        """Makes a classic group of the remaining members, if they are all classic; the change's
        other decisions about the consumer group are dropped then."""
        if not may_downgrade(members, self.services.config):
            return False
        group = change.group
        logger.info("group %s, with classic members only, becomes a classic group", group.group_id)
        now_ms = self.services.clock.wall_ms()
        change.records[:] = downgrade_records(group, members, self.image, now_ms)
        return True

    # Deadlines

    def start_session(self, group_id: str, member_id: str, session_ms: int) -> None:
        """Starts the member's session after a sign of life."""
        key = SessionKey(group_id, member_id)

        def on_late(late: MemberDeadline) -> None:
            if self.services.is_present(group_id, member_id):
                self.start_session(group_id, member_id, session_ms)
            else:
                reason = f"no heartbeat in {session_ms} ms"
                self._fence_late(self._sessions, key, late, reason, RETRY_MS)

        self._sessions.start(key, DelayedSession(session_ms, on_late))

    def on_arrival(self, group_id: str, member_id: str) -> None:
        """Renews the session of a member whose request has arrived and waits behind others of the
        group. The request may also be what a revocation waits for."""
        if self._sessions.awaits(SessionKey(group_id, member_id)):
            self._unheard.add(RevocationKey(group_id, member_id))
            group = self._registry.get(group_id)
            member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
            self.start_session(group_id, member_id, self._session_ms(group_id, member))

    def on_heard(self, group_id: str, member_id: str) -> None:
        """Notes that a member's request has its turn."""
        self._unheard.discard(RevocationKey(group_id, member_id))

    def await_rejoin(self, group_id: str, member: ConsumerMember) -> None:
        """Waits for a classic member that was asked to join again; once."""
        key = RevocationKey(group_id, member.member_id)
        if not self._revocations.awaits(key):
            self._start_revocation(key, member)

    def end_revocation(self, group_id: str, member_id: str) -> None:
        """Ends that wait: the member has joined again."""
        self._revocations.met(RevocationKey(group_id, member_id))

    def _start_revocation(self, key: RevocationKey, member: ConsumerMember) -> None:
        timeout_ms = member.rebalance_timeout_ms
        reason = f"it did not give partitions back in {timeout_ms} ms"

        def on_late(late: MemberDeadline) -> None:
            self._fence_late(self._revocations, key, late, reason, timeout_ms)

        self._revocations.start(key, DelayedRevocation(timeout_ms, on_late))

    def on_member_replayed(
        self,
        group_id: str,
        member_id: str,
        before: ConsumerMember | None,
        after: ConsumerMember | None,
    ) -> None:
        """Sets a member's deadlines after a new record of it."""
        if not self._is_loaded:
            return
        key = RevocationKey(group_id, member_id)
        if after is None:
            self.on_heard(group_id, member_id)
            self._sessions.met(SessionKey(group_id, member_id))
            self._revocations.met(key)
        elif before is None and after.is_classic:
            # The member's heartbeats may have gone to a classic group until now.
            self.start_session(group_id, member_id, self._session_ms(group_id, after))
        elif before is not None and before.member_epoch != after.member_epoch:
            self._revocations.met(key)
        elif not after.is_classic:
            self._watch_revocation(key, before, after)

    def _watch_revocation(
        self, key: RevocationKey, before: ConsumerMember | None, after: ConsumerMember
    ) -> None:
        if not after.pending_revocation:
            self._revocations.met(key)
        elif before is None or before.pending_revocation != after.pending_revocation:
            self._start_revocation(key, after)

    def _fence_late(
        self,
        deadlines: Deadlines,
        key: SessionKey | RevocationKey,
        late: MemberDeadline,
        reason: str,
        stalled_ms: int,
    ) -> None:
        """Removes a late member, unless it meets the deadline before the command has its turn;
        tries again until the removal is written or another coordinator is in charge. A member whose
        requests could not be handled, because the replicas were slow, gets `stalled_ms` more."""

        who = (key.group_id, key.member_id)

        def command() -> CoordinatorResult[bool]:
            if not deadlines.is_late(key, late):
                return CoordinatorResult((), False)
            if key in self._unheard:
                self.on_heard(*who)  # once: it may send nothing but heartbeats from now on
                raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "it has not been heard yet")
            group = self._registry.get(key.group_id)
            if not isinstance(group, ConsumerGroup) or key.member_id not in group.members:
                deadlines.met(key)
                return CoordinatorResult((), False)
            change = self.change(group)
            self.fence(change, [group.members[key.member_id]])
            return CoordinatorResult(change.records, True)

        def on_done(outcome: bool | BrokerError) -> None:
            if outcome is True:
                logger.info("group %s: member %s is out: %s", *who, reason)
            elif isinstance(outcome, BrokerError) and deadlines.is_late(key, late):
                logger.warning("group %s: member %s is out, not stored yet: %s", *who, outcome)
                is_stalled = outcome.code is ErrorCode.REQUEST_TIMED_OUT
                deadlines.start(key, late.again(stalled_ms if is_stalled else RETRY_MS))

        self.services.execute(key.group_id, command, on_done)

    # Help

    @property
    def image(self) -> MetadataImage:
        """The current metadata."""
        return self._topics.image

    def group_with_members(self, group_id: str) -> ConsumerGroup:
        """The group, for a request of a member.

        Raises:
            BrokerError: UNKNOWN_MEMBER_ID, it has no members.
        """
        group = self._registry.get(group_id)
        if isinstance(group, ConsumerGroup) and group.members:
            return group
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)

    def change(self, group: ConsumerGroup) -> GroupChange:
        """Begins a change of the group."""
        now_ms = self.services.clock.wall_ms()
        return GroupChange(group, self._topics.image, self._topics.version, now_ms)

    def _settings(self, group_id: str) -> GroupSettings:
        return GroupSettings("consumer", group_id, self.services.config, self._topics.image)

    def _session_ms(self, group_id: str, member: ConsumerMember | None) -> int:
        if member is not None and member.classic is not None:
            return member.classic.session_timeout_ms
        return self._settings(group_id).session_timeout_ms

    # The log

    def on_loaded(self) -> None:
        """Starts the deadlines of all members again: they had no coordinator to send heartbeats
        to."""
        self._is_loaded = True
        for group in self._registry:
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    session_ms = self._session_ms(group.group_id, member)
                    self.start_session(group.group_id, member.member_id, session_ms)
                    if member.pending_revocation:
                        key = RevocationKey(group.group_id, member.member_id)
                        self._start_revocation(key, member)

    def on_unloaded(self) -> None:
        """Ends all deadlines."""
        self._sessions.clear()
        self._revocations.clear()
        self._unheard.clear()


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    """Checks that a member is at the epoch that it got last. The previous epoch is right as well,
    since the answer with the next may be lost, if the member owns only partitions that are assigned
    to it."""
    if request.member_epoch == member.member_epoch:
        return
    is_repeated = (
        request.member_epoch == member.previous_member_epoch
        and request.member_epoch < member.member_epoch
        and request.owned is not None
        and is_subset(request.owned, member.assigned)
    )
    if not is_repeated:
        raise BrokerError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member {member.member_id} is at epoch {member.member_epoch}, not at "
            f"{request.member_epoch}; it has to give up its partitions and join again.",
        )


def _fenced(holder: ConsumerMember, instance_id: str | None) -> BrokerError:
    return BrokerError(
        ErrorCode.FENCED_INSTANCE_ID,
        f"Instance {instance_id} has become member {holder.member_id}.",
    )
