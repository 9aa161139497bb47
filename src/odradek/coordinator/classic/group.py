"""`ClassicGroup`: the state of a group whose members assign partitions among themselves.

It answers questions and changes its own state; it never waits, answers or writes. `rebalance` does
that, and `coordinated_group` has the members' requests: three layers of one object.

Unlike a consumer group's, this state is not all made by replay; Kafka's is not either.

    by replay   that a generation has its assignments, and is stable with that; all of a group
                that is loaded, or was a consumer group; that a group is gone
    volatile    who joins, which number the generation gets, its protocol and its leader, until
                the record of that generation is committed; ids that were handed out; waiting
                joins and syncs; every timer

A record is written of a group without members when it begins, and of a generation as a whole: when
its leader's SyncGroup brings the assignments, when nobody is left, and when a static member comes
back under a new id. A coordinator that loads the log falls back to the last one, and members find
out by their heartbeats: they are still in that generation, or they rejoin. No member relies on it
earlier: only SyncGroup tells a member what to read, and it is answered when the record is
committed.
"""

from collections.abc import Iterable, Sequence
from typing import Self

from odradek.background import do_each
from odradek.coordinator.classic.member import ClassicMember
from odradek.coordinator.classic.requests import (
    NO_MEMBER_ID,
    GroupDescription,
    JoinedMember,
    JoinResult,
    MemberDescription,
    OnJoined,
    Protocols,
    SyncResult,
)
from odradek.coordinator.classic.states import GroupEvent, GroupState, transition
from odradek.coordinator.group import CONSUMER_PROTOCOL_TYPE, CheckPartition, Group, GroupType
from odradek.coordinator.records.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadataValue,
)
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.errors import BrokerError, ErrorCode
from odradek.model import NO_TIMESTAMP
from odradek.protocol.consumer_protocol import decode_subscribed_topics
from odradek.protocol.primitives import ProtocolError


class ClassicGroup(Group):
    """The state of a group: its members, in the order in which they came, and its generation.

    `leader_id` is a member or None; `static_members` names the member of each instance;
    `pending_members` have an id but have not joined with it yet; `pending_sync` have joined
    this generation and not sent their SyncGroup. `state_timestamp_ms` is -1 if an old record of the
    log has no time for the state.
    """

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id)
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = now_ms
        self.generation_id = 0
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: set[str] = set()
        self.pending_sync: set[str] = set()
        self.is_initial_rebalance = False
        self.new_member_added = False
        self.joining_count = 0
        """How many members wait in a JoinGroup."""
        self.uncommitted_count = 0
        """How many writes of the group are not committed yet."""
        self._protocol_type = ""
        self._speakers: dict[str, int] = {}  # how many members speak each protocol
        self._subscribed_topics: frozenset[str] | None = None

    @classmethod
    def from_value(cls, group_id: str, value: GroupMetadataValue) -> Self:
        """Returns the group as the log describes it: stable, or empty without members.

        Old records have no time for the state; it stays unknown.
        """
        group = cls(group_id, value.current_state_timestamp_ms)
        group.generation_id = value.generation_id
        group._protocol_type = value.protocol_type
        group.protocol_name = value.protocol_name
        for member in value.members:
            group.add(ClassicMember.from_value(member, value.protocol_name or ""))
        group.leader_id = value.leader_id
        if group.members:
            group.state = GroupState.STABLE
        group._subscribed_topics = group._find_subscribed_topics()
        return group

    # As any group

    @property
    def type(self) -> GroupType:
        """See `Group`."""
        return GroupType.CLASSIC

    @property
    def state_name(self) -> str:
        """See `Group`."""
        return self.state.value

    @property
    def protocol_type(self) -> str:
        """See `Group`."""
        return self._protocol_type

    @property
    def member_count(self) -> int:
        """See `Group`."""
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        """See `Group`; a client with an id that has not joined is no member yet."""
        return self.state is GroupState.EMPTY

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """See `Group`; none if the members are not consumers."""
        return self._subscribed_topics or frozenset()

    @property
    def is_dead(self) -> bool:
        """Whether the coordinator has dropped the group."""
        return self.state is GroupState.DEAD

    @property
    def is_consumer_group(self) -> bool:
        """Whether the members are consumers, whose subscriptions can be read."""
        return self._protocol_type == CONSUMER_PROTOCOL_TYPE

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        api_version: int,  # noqa: ARG002 - all versions speak of generations
        is_transactional: bool = False,
    ) -> CheckPartition | None:
        """See `Group`. Commits without a generation are allowed only while there are no members."""
        if generation_or_epoch < 0 and self.state is GroupState.EMPTY:
            return None
        if generation_or_epoch >= 0 or member_id or group_instance_id is not None:
            self.check_member(member_id, group_instance_id)
            self.check_generation(generation_or_epoch)
        else:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        # While the group prepares a rebalance members may still commit for their partitions; once
        # the new generation has begun these are no longer theirs.
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """See `Group`: any client may fetch the offsets of a classic group."""

    def check_offset_delete(self) -> None:
        """See `Group`: a group whose subscriptions cannot be read must have no members."""
        if self.state is not GroupState.EMPTY and not self.is_consumer_group:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        """See `Group`; an id that has not joined is no member yet."""
        if self.state is not GroupState.EMPTY:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        """See `Group`."""
        if self._subscribed_topics is None:
            return self.is_consumer_group
        return topic in self._subscribed_topics

    def offset_expiry_base_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """See `Group`."""
        if not self._protocol_type:
            return commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            known = self.state_timestamp_ms != NO_TIMESTAMP
            return self.state_timestamp_ms if known else commit_timestamp_ms
        known = self._subscribed_topics is not None and self.is_consumer_group
        if known and self.state is GroupState.STABLE and not self.is_subscribed_to(topic):
            return commit_timestamp_ms
        return None

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """See `Group`."""
        return [CoordinatorRecord(GroupMetadataKey(self.group_id), None)]

    def on_removed(self) -> None:
        """See `Group`: operations in a purgatory find the group dead and end without effect.

        Members that wait here belong to a group of another kind then, and have to join that.
        """
        self._end(ErrorCode.REBALANCE_IN_PROGRESS)

    def on_unloaded(self) -> None:
        """See `Group`."""
        self._end(ErrorCode.NOT_COORDINATOR)

    def _end(self, code: ErrorCode) -> None:
        if not self.is_dead:
            self.state = transition(self.state, GroupEvent.REMOVED)

        def answer(member: ClassicMember) -> None:
            self.answer_join(member, JoinResult(code, member.member_id))
            member.answer_sync(SyncResult(code))

        do_each(list(self.members.values()), answer)

    # Membership

    def check_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """The member of that id, if the request may act for it.

        Raises:
            BrokerError: FENCED_INSTANCE_ID, another process has taken the instance's place;
                UNKNOWN_MEMBER_ID.
        """
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise BrokerError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_generation(self, generation_id: int) -> None:
        """Raises BrokerError ILLEGAL_GENERATION for any but the current one."""
        if generation_id != self.generation_id:
            raise BrokerError(
                ErrorCode.ILLEGAL_GENERATION,
                f"generation {generation_id}, the group is in {self.generation_id}",
            )

    def add(self, member: ClassicMember, protocol_type: str = "") -> None:
        """Adds a member; the first one leads, and decides the group's protocol type."""
        if not self.members and protocol_type:
            self._protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Removes a member; if it led, the longest-standing of the others leads."""
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count_protocols(member, -1)
        instance_id = member.group_instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static(self, instance_id: str, new_member_id: str) -> ClassicMember:
        """Gives the member of an instance a new id; if it leads, it leads on."""
        old_member_id = self.static_members[instance_id]
        member = self.members.pop(old_member_id)
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_members[instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync:
            self.pending_sync.remove(old_member_id)
            self.pending_sync.add(new_member_id)
        return member

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance time-out of all members."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=1)

    def await_join(self, member: ClassicMember, on_joined: OnJoined) -> None:
        """Lets a member wait in a JoinGroup; an earlier one that still waits is answered."""
        self.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.awaiting_join = on_joined
        self.joining_count += 1

    def answer_join(self, member: ClassicMember, result: JoinResult) -> bool:
        """Answers a waiting JoinGroup; False when there is none."""
        on_joined, member.awaiting_join = member.awaiting_join, None
        if on_joined is None:
            return False
        self.joining_count -= 1
        on_joined(result)
        return True

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader has joined; False if no member has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    # Protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a client with these protocols can be a member: all others must support one of
        them."""
        names = frozenset(names)
        if not self.members:
            return bool(protocol_type) and bool(names)
        return protocol_type == self._protocol_type and bool(names & self.common_protocols())

    def common_protocols(self) -> frozenset[str]:
        """The protocols that all members support."""
        everybody = len(self.members)
        return frozenset(name for name, count in self._speakers.items() if count == everybody)

    def update_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        """Takes over a member's protocols."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def _count_protocols(self, member: ClassicMember, change: int) -> None:
        for name in {name for name, _ in member.protocols}:
            count = self._speakers.get(name, 0) + change
            if count:
                self._speakers[name] = count
            else:
                del self._speakers[name]

    def select_protocol(self) -> str:
        """The protocol with the most votes; among several, the one that got its vote first."""
        candidates = self.common_protocols()
        assert candidates, f"the members of {self.group_id} have no protocol in common"
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    # Generations

    def transition(self, event: GroupEvent, now_ms: int) -> None:
        """Changes the state, by the table."""
        self.state = transition(self.state, event)
        self.state_timestamp_ms = now_ms

    def enter_preparing_rebalance(self, now_ms: int) -> None:
        """Begins a rebalance."""
        self.is_initial_rebalance = self.state is GroupState.EMPTY
        self.new_member_added = False
        self.pending_sync.clear()
        self.transition(GroupEvent.REBALANCE, now_ms)

    def init_next_generation(self, now_ms: int) -> None:
        """Begins the next generation, with the joined members or without any."""
        self.generation_id += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition(GroupEvent.JOINED, now_ms)
        else:
            self.protocol_name = None
            self.leader_id = None
            self.transition(GroupEvent.DESERTED, now_ms)
        self._subscribed_topics = self._find_subscribed_topics()

    def _find_subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members; None where some subscription cannot be read."""
        if not self.is_consumer_group:
            return None
        found: set[str] = set()
        for member in self.members.values():
            try:
                found.update(decode_subscribed_topics(member.metadata(self.protocol_name or "")))
            except ProtocolError:
                return None
        return frozenset(found)

    def to_value(self, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        """The generation as it is stored, with given assignments or the present ones."""
        protocol_name = self.protocol_name or ""
        members = tuple(
            MemberMetadataValue(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(protocol_name),
                member.assignment if assignments is None else assignments[member.member_id],
            )
            for member in self.members.values()
        )
        return GroupMetadataValue(
            self._protocol_type,
            self.generation_id,
            self.protocol_name,
            self.leader_id,
            self.state_timestamp_ms,
            members,
        )

    def replay(self, value: GroupMetadataValue, now_ms: int) -> None:
        """Applies a committed generation. If the group still waits for it, it is stable.

        If members have come or gone meanwhile, another rebalance is under way, and only a
        coordinator that loads the log needs this generation.
        """
        waits = self.state is GroupState.COMPLETING_REBALANCE
        if not waits or value.generation_id != self.generation_id:
            return
        for stored in value.members:
            member = self.members.get(stored.member_id)
            if member is not None:
                member.assignment = stored.assignment
        self.transition(GroupEvent.ASSIGNED, now_ms)

    # Answers

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """The members, as their leader needs them to assign partitions."""
        name = self.protocol_name or ""
        return tuple(
            JoinedMember(each.member_id, each.group_instance_id, each.metadata(name))
            for each in self.members.values()
        )

    def joined(self, member: ClassicMember) -> JoinResult:
        """The answer to a member that is part of the current generation."""
        leads = member.member_id == self.leader_id
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self._protocol_type,
            self.protocol_name,
            self.leader_id or NO_MEMBER_ID,
            self.joined_members() if leads else (),
        )

    def synced(self, member: ClassicMember) -> SyncResult:
        """The answer to a member whose assignment is known."""
        return SyncResult(
            ErrorCode.NONE, self._protocol_type, self.protocol_name, member.assignment
        )

    def describe(self) -> GroupDescription:
        """The group for DescribeGroups; with the protocol, and the members' metadata for it, once
        the group is stable. Until then they have the assignments of the generation before."""
        stable = self.state is GroupState.STABLE
        name = (self.protocol_name or "") if stable else ""
        members = tuple(
            MemberDescription(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                each.metadata(name) if stable else b"",
                each.assignment,
            )
            for each in self.members.values()
        )
        return GroupDescription(self.group_id, self.state.value, self._protocol_type, name, members)
