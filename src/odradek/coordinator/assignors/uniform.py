"""`UniformAssignor`: as many partitions to everyone, moving as few as possible.

When all members read the same topics, the numbers of their partitions differ by one at most, and no
partition moves that could stay. Otherwise partitions go to the least loaded reader, and are moved
from loaded readers to idle ones until no single move makes the group more even; that is not always
the most even assignment there is, since a chain of moves may be better.
"""

from heapq import heapify, heapreplace
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from odradek.coordinator.assignors.assignor import AssignmentSpec, PartitionAssignor, Partitions


class TopicPartitionId(NamedTuple):
    """One partition."""

    topic_id: UUID
    partition: int


Owned = dict[str, list[TopicPartitionId]]


class UniformAssignor(PartitionAssignor):
    """Gives all members the same number of partitions, if possible those that they had before."""

    name = "uniform"

    def assign(self, spec: AssignmentSpec) -> dict[str, Partitions]:
        """See `PartitionAssignor`."""
        if not spec.members:
            return {}
        subscriptions = {member.topic_ids for member in spec.members.values()}
        owned = _kept(spec)
        if len(subscriptions) == 1:
            _share_evenly(spec, owned, next(iter(subscriptions)))
        else:
            _share_greedily(spec, owned)
        return {member_id: _by_topic(partitions) for member_id, partitions in owned.items()}


def _kept(spec: AssignmentSpec) -> Owned:
    """The partitions members keep: they exist, are subscribed to, and had one owner."""
    taken: set[TopicPartitionId] = set()
    owned: Owned = {}
    for member_id in sorted(spec.members):
        member = spec.members[member_id]
        kept = owned[member_id] = []
        for topic_id in sorted(member.partitions.keys() & member.topic_ids):
            for partition in sorted(member.partitions[topic_id]):
                one = TopicPartitionId(topic_id, partition)
                if partition < spec.partition_counts.get(topic_id, 0) and one not in taken:
                    taken.add(one)
                    kept.append(one)
    return owned


def _unassigned(
    spec: AssignmentSpec, owned: Owned, topic_ids: list[UUID]
) -> list[TopicPartitionId]:
    taken = set(chain.from_iterable(owned.values()))
    return [
        one
        for topic_id in topic_ids
        for partition in range(spec.partition_counts[topic_id])
        if (one := TopicPartitionId(topic_id, partition)) not in taken
    ]


def _share_evenly(spec: AssignmentSpec, owned: Owned, topic_ids: frozenset[UUID]) -> None:
    """All members read the same topics: they keep partitions up to their share, and the rest fills
    up."""
    total = sum(spec.partition_counts[topic_id] for topic_id in topic_ids)
    share, extra = divmod(total, len(owned))
    quotas: dict[str, int] = {}
    # Members that had more than the share get the remaining ones first: fewer moves.
    for member_id in sorted(owned, key=lambda each: (-len(owned[each]), each)):
        quotas[member_id] = share + (extra > 0)
        extra -= 1
        del owned[member_id][quotas[member_id] :]
    free = iter(_unassigned(spec, owned, sorted(topic_ids)))
    for member_id, partitions in owned.items():
        while len(partitions) < quotas[member_id]:
            partitions.append(next(free))


def _share_greedily(spec: AssignmentSpec, owned: Owned) -> None:
    """Members read different topics."""
    readers: dict[UUID, list[str]] = {topic_id: [] for topic_id in spec.partition_counts}
    for member_id in sorted(spec.members):
        for topic_id in spec.members[member_id].topic_ids:
            readers[topic_id].append(member_id)
    topic_ids = sorted(
        (topic_id for topic_id, each in readers.items() if each),
        key=lambda topic_id: (len(readers[topic_id]), topic_id),
    )
    free: dict[UUID, list[TopicPartitionId]] = {topic_id: [] for topic_id in topic_ids}
    for one in _unassigned(spec, owned, topic_ids):
        free[one.topic_id].append(one)
    for topic_id in topic_ids:  # fewest readers first: they have the least choice
        _give_to_least_loaded(owned, readers[topic_id], free[topic_id])
    while sum(_level(owned, readers[topic_id], topic_id) for topic_id in topic_ids):
        pass  # a move within one topic may have made another uneven


def _give_to_least_loaded(owned: Owned, readers: list[str], free: list[TopicPartitionId]) -> None:
    loads = [(len(owned[member_id]), member_id) for member_id in readers]
    heapify(loads)
    for one in free:
        load, member_id = loads[0]
        owned[member_id].append(one)
        heapreplace(loads, (load + 1, member_id))


def _level(owned: Owned, readers: list[str], topic_id: UUID) -> bool:
    """Moves a topic's partitions from its most loaded readers to its least loaded ones;
    whether anything moved. Every move makes the loads more even, so it comes to an end."""
    moved = False
    movable = {
        member_id: [one for one in owned[member_id] if one.topic_id == topic_id]
        for member_id in readers
    }
    while True:
        givers = [member_id for member_id in readers if movable[member_id]]
        if not givers:
            return moved
        giver = max(givers, key=lambda member_id: len(owned[member_id]))
        taker = min(readers, key=lambda member_id: len(owned[member_id]))
        if len(owned[giver]) - len(owned[taker]) < 2:
            return moved
        one = movable[giver].pop()
        owned[giver].remove(one)
        owned[taker].append(one)
        movable[taker].append(one)
        moved = True


def _by_topic(partitions: list[TopicPartitionId]) -> Partitions:
    found: dict[UUID, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(each) for topic_id, each in found.items()}
