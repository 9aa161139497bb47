"""`RangeAssignor`: each topic's partitions in runs, in the same order of members every time.

Topics with the same number of partitions and the same readers are divided alike, so that a member
with partition 3 of one has partition 3 of the other: they can be joined. That is its purpose; over
many small topics it is less even than `uniform`.
"""

from uuid import UUID

from odradek.coordinator.assignors.assignor import AssignmentSpec, PartitionAssignor, Partitions


class RangeAssignor(PartitionAssignor):
    """Runs of partitions. With 7 partitions and 3 members: 0-2, 3-4, 5-6.

    Members are ordered by their instance ids, then those without one by member id, so a static
    member has the same run after a restart.
    """

    name = "range"

    def assign(self, spec: AssignmentSpec) -> dict[str, Partitions]:
        """See `PartitionAssignor`."""
        ranks = [
            (member.instance_id is None, member.instance_id or member_id, member_id)
            for member_id, member in spec.members.items()
        ]
        readers: dict[UUID, list[str]] = {topic_id: [] for topic_id in spec.partition_counts}
        for _, _, member_id in sorted(ranks):
            for topic_id in spec.members[member_id].topic_ids:
                readers[topic_id].append(member_id)
        assigned: dict[str, dict[UUID, frozenset[int]]] = {each: {} for each in spec.members}
        for topic_id, count in spec.partition_counts.items():
            for member_id, run in _runs(readers[topic_id], count):
                assigned[member_id][topic_id] = frozenset(run)
        return dict(assigned)


def _runs(readers: list[str], count: int) -> list[tuple[str, range]]:
    """Splits partitions into runs, one a reader; the first readers get one more if the division
    leaves a rest."""
    if not readers:
        return []
    size, extra = divmod(count, len(readers))
    runs = []
    first = 0
    for index, member_id in enumerate(readers[:count]):
        end = first + size + (index < extra)
        runs.append((member_id, range(first, end)))
        first = end
    return runs
