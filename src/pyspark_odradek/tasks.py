"""Reads of one Spark task, and how ranges are divided among tasks.

A task costs tens of milliseconds before its first record, in Spark and in the Python process that
it starts. That would dominate for a topic of hundreds of nearly empty partitions, so small ranges
share a task. Packing depends on the ranges alone: a batch that Spark repeats is packed the same
way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from odradek.tables.plan.identity import Identity
from odradek.tables.plan.ranges import OffsetRange

if TYPE_CHECKING:
    from odradek.tables.scan.leases import ReadLease

# Up to this number every range has its own task.
FEW_TASKS: Final = 16
# A task of several ranges spans no more offsets than that, however many tasks it takes.
PACKED_OFFSETS: Final = 20_000


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """Ranges that are read one after the other, as they were planned for `identity`."""

    ranges: tuple[OffsetRange, ...]
    identity: Identity = field(default=Identity(), compare=False)
    lease: "ReadLease | None" = field(default=None, compare=False)


def tasks_for(
    ranges: Sequence[OffsetRange],
    identity: Identity,
    min_tasks: int | None = None,
    lease: "ReadLease | None" = None,
) -> list[ReadTask]:
    """Divides ranges among tasks, in their order; `min_tasks` is the user's minimum."""
    few = max(FEW_TASKS, min_tasks or 0)
    if len(ranges) <= few:
        return [_task((piece,), identity, lease) for piece in ranges]
    share = -(-sum(piece.size for piece in ranges) // few)
    packs = _packed(ranges, min(share, PACKED_OFFSETS))
    return [_task(pack, identity, lease) for pack in packs]


def _task(ranges: Sequence[OffsetRange], identity: Identity, lease: "ReadLease | None") -> ReadTask:
    """A task, with the ids of its topics only: a plan may have thousands of both."""
    topic_ids = {
        piece.topic_partition.topic: identity.topic_ids[piece.topic_partition.topic]
        for piece in ranges
        if piece.topic_partition.topic in identity.topic_ids
    }
    return ReadTask(tuple(ranges), replace(identity, topic_ids=topic_ids), lease)


def _packed(ranges: Iterable[OffsetRange], limit: int) -> list[list[OffsetRange]]:
    """Groups neighbouring ranges as long as they span no more than `limit` offsets."""
    packs: list[list[OffsetRange]] = []
    room = 0
    for piece in ranges:
        if piece.size > room:
            packs.append([])
            room = limit
        packs[-1].append(piece)
        room -= piece.size
    return packs
