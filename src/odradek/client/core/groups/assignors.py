"""The assignors for the leader of a classic group, with Kafka's names and bytes.

`range` and the algorithm of both sticky ones are the coordinator's, which uses them for the newer
protocol. Only here are round-robin, and a member's claims (user data of `sticky`, owned partitions
of `cooperative-sticky`). A cooperative group moves a partition in two steps: it is revoked in one
rebalance and assigned in the next.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID

from odradek.coordinator.assignors import (
    AssignmentSpec,
    MemberSpec,
    PartitionAssignor,
    RangeAssignor,
    UniformAssignor,
)
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    read_partitions,
    write_partitions,
)
from odradek.protocol.primitives import ProtocolError, Reader, Writer

Assignments = dict[str, tuple[TopicPartition, ...]]


class Assignor:
    """A way to assign partitions: pure, the same for the same members."""

    name: str
    is_cooperative = False

    def user_data(self, owned: tuple[TopicPartition, ...], generation_id: int) -> bytes | None:
        """The bytes a member adds about itself, beside its topics."""
        del owned, generation_id
        return None

    def assign(
        self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignments:
        """The partitions of every member."""
        raise NotImplementedError


class Range(Assignor):
    """Each topic's partitions in runs, members in the same order every time."""

    name = "range"

    def assign(
        self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignments:
        """See `Assignor`."""
        return _by_spec(RangeAssignor(), members, partition_counts, {})


class RoundRobin(Assignor):
    """All partitions one after the other to the members one after the other."""

    name = "roundrobin"

    def assign(
        self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignments:
        """See `Assignor`."""
        order = sorted(members, key=lambda member_id: _rank(member_id, members[member_id]))
        found: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        at = 0
        for topic in sorted({topic for each in members.values() for topic in each.topics}):
            for index in range(partition_counts.get(topic, 0)):
                while topic not in members[order[at % len(order)]].topics:
                    at += 1
                found[order[at % len(order)]].append(TopicPartition(topic, index))
                at += 1
        return {member_id: tuple(partitions) for member_id, partitions in found.items()}


class Sticky(Assignor):
    """As even as possible, and members keep their previous partitions, which they report in user
    data."""

    name = "sticky"

    def user_data(self, owned: tuple[TopicPartition, ...], generation_id: int) -> bytes | None:
        """See `Assignor`; nothing for a member that had nothing yet."""
        if generation_id == NO_GENERATION:
            return None
        writer = Writer()
        write_partitions(writer, owned)
        writer.int32(generation_id)
        return writer.to_bytes()

    def assign(
        self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignments:
        """See `Assignor`."""
        return _by_spec(UniformAssignor(), members, partition_counts, self._owned(members))

    def _owned(self, members: Mapping[str, Subscription]) -> dict[str, set[TopicPartition]]:
        """The partitions each member owned, by the member that owned them last."""
        claims = {
            member_id: _Claim(*_read_sticky(each.user_data)) for member_id, each in members.items()
        }
        return _undisputed(claims)


class CooperativeSticky(Sticky):
    """Like `sticky`, by owned partitions; no partition is assigned before it was given up."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, owned: tuple[TopicPartition, ...], generation_id: int) -> bytes | None:
        """The generation alone."""
        del owned
        return generation_id.to_bytes(4, "big", signed=True)

    def assign(
        self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignments:
        """See `Assignor`."""
        wanted = super().assign(members, partition_counts)
        owners = {
            partition: member_id for member_id, each in members.items() for partition in each.owned
        }
        return {
            member_id: tuple(
                partition
                for partition in partitions
                if owners.get(partition, member_id) == member_id
            )
            for member_id, partitions in wanted.items()
        }

    def _owned(self, members: Mapping[str, Subscription]) -> dict[str, set[TopicPartition]]:
        return _undisputed(
            {
                member_id: _Claim(frozenset(each.owned), _cooperative_generation(each))
                for member_id, each in members.items()
            }
        )


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    each.name: each for each in (Range(), RoundRobin(), Sticky(), CooperativeSticky())
}
_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."


def assignor_of(name: str) -> Assignor:
    """The assignor of a name in `partition.assignment.strategy`: its own, or that of Kafka's
    class."""
    if name.startswith(_JAVA_PACKAGE):
        by_class = {f"{type(each).__name__}Assignor": each for each in ASSIGNORS.values()}
        return by_class[name.removeprefix(_JAVA_PACKAGE)]
    return ASSIGNORS[name]


class _Claim(NamedTuple):
    """The partitions that a member claims to own, and its generation."""

    partitions: frozenset[TopicPartition]
    generation_id: int


def _rank(member_id: str, member: Subscription) -> tuple[bool, str]:
    """Static members first, by instance id: they stay in their place through restarts."""
    return member.instance_id is None, member.instance_id or member_id


def _undisputed(claims: Mapping[str, _Claim]) -> dict[str, set[TopicPartition]]:
    """Claims without those that a later generation contradicts; of two alike neither counts."""
    latest: dict[TopicPartition, int] = {}
    for partitions, generation_id in claims.values():
        for partition in partitions:
            latest[partition] = max(latest.get(partition, generation_id), generation_id)
    found: dict[str, set[TopicPartition]] = {member_id: set() for member_id in claims}
    holders: dict[TopicPartition, list[str]] = {}
    for member_id, (partitions, generation_id) in claims.items():
        for partition in partitions:
            if latest[partition] == generation_id:
                holders.setdefault(partition, []).append(member_id)
    for partition, members in holders.items():
        if len(members) == 1:
            found[members[0]].add(partition)
    return found


def _cooperative_generation(member: Subscription) -> int:
    data = member.user_data
    if member.generation_id != NO_GENERATION or data is None or len(data) < 4:
        return member.generation_id
    return int.from_bytes(data[:4], "big", signed=True)


def _read_sticky(data: bytes | None) -> tuple[frozenset[TopicPartition], int]:
    """The user data of `sticky`; malformed data counts as none."""
    if data is None:
        return frozenset(), NO_GENERATION
    reader = Reader(memoryview(data))
    try:
        partitions = read_partitions(reader)
        generation_id = reader.int32() if reader.remaining >= 4 else NO_GENERATION
    except ProtocolError:
        return frozenset(), NO_GENERATION
    return frozenset(partitions), generation_id


def _by_spec(
    assignor: PartitionAssignor,
    members: Mapping[str, Subscription],
    partition_counts: Mapping[str, int],
    owned: Mapping[str, set[TopicPartition]],
) -> Assignments:
    """Asks an assignor of the coordinator, which knows topics by ids: by their rank here."""
    names = sorted(set(chain.from_iterable(each.topics for each in members.values())))
    known = [name for name in names if name in partition_counts]
    ids = {name: UUID(int=rank + 1) for rank, name in enumerate(known)}
    by_id = {topic_id: name for name, topic_id in ids.items()}
    spec = AssignmentSpec(
        {
            member_id: MemberSpec(
                each.instance_id,
                frozenset(ids[topic] for topic in each.topics if topic in ids),
                _by_topic_id(owned.get(member_id, set()), ids),
            )
            for member_id, each in members.items()
        },
        {topic_id: partition_counts[name] for name, topic_id in ids.items()},
    )
    return {
        member_id: tuple(
            TopicPartition(by_id[topic_id], index)
            for topic_id in sorted(partitions)
            for index in sorted(partitions[topic_id])
        )
        for member_id, partitions in assignor.assign(spec).items()
    }


def _by_topic_id(
    partitions: set[TopicPartition], ids: Mapping[str, UUID]
) -> dict[UUID, frozenset[int]]:
    found: dict[UUID, set[int]] = {}
    for topic, index in partitions:
        if topic in ids:
            found.setdefault(ids[topic], set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}
