"""Cuts offset ranges into pieces, packs small ones, and divides a trigger's budget.

The records between two offsets never change, so a plan that is a pure function of the offsets has
the same tasks when Spark repeats a batch. That is why a stream is cut by offsets only, while a
batch may also be cut where segments begin.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from odradek.model import TopicPartition
from odradek.tables.plan.offsets import PartitionOffsets


@dataclass(frozen=True)
class OffsetRange:
    """The records of one partition from `start` up to, and without, `end`."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets it spans; compaction may have left fewer records."""
        return self.end - self.start


def ranges_between(start: PartitionOffsets, end: PartitionOffsets) -> list[OffsetRange]:
    """One range for every partition in which there is something to read."""
    return [
        OffsetRange(partition, start[partition], end[partition])
        for partition in sorted(end)
        if end[partition] > start[partition]
    ]


def cut_at(
    ranges: Iterable[OffsetRange], cuts: Mapping[TopicPartition, Sequence[int]]
) -> list[OffsetRange]:
    """Cuts ranges at the given offsets, which are sorted within a partition."""
    pieces: list[OffsetRange] = []
    for whole in ranges:
        start = whole.start
        for cut in cuts.get(whole.topic_partition, ()):
            if start < cut < whole.end:
                pieces.append(OffsetRange(whole.topic_partition, start, cut))
                start = cut
        pieces.append(OffsetRange(whole.topic_partition, start, whole.end))
    return pieces


def cut_into_at_least(ranges: Sequence[OffsetRange], minimum: int) -> list[OffsetRange]:
    """Cuts ranges until there are about `minimum`, larger ones into more pieces.

    Ranges are never joined, and rounding may leave a piece more or less than asked for, as
    with the connector's `minPartitions`.
    """
    total = sum(piece.size for piece in ranges)
    if len(ranges) >= minimum or total == 0:
        return list(ranges)
    return [
        part
        for piece in ranges
        for part in _equal_parts(piece, max(1, round(piece.size / total * minimum)))
    ]


def cut_by_size(ranges: Iterable[OffsetRange], maximum: int) -> list[OffsetRange]:
    """Cuts ranges so that none spans more than `maximum` offsets."""
    return [part for piece in ranges for part in _equal_parts(piece, -(-piece.size // maximum))]


def share_budget(
    start: PartitionOffsets, latest: PartitionOffsets, budget: int
) -> PartitionOffsets:
    """The end of a trigger of at most `budget` offsets in every partition.

    Partitions get a share in proportion to their waiting records, and at least one record if any
    waits, so none starves beside a large one: that may exceed the budget by one record per
    partition.
    """
    waiting = {partition: latest[partition] - start[partition] for partition in latest}
    total = sum(max(0, count) for count in waiting.values())
    if total <= budget:
        return dict(latest)
    end: PartitionOffsets = {}
    for partition, count in waiting.items():
        share = max(1, budget * count // total) if count > 0 else 0
        end[partition] = start[partition] + share
    return end


def _equal_parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [
        OffsetRange(whole.topic_partition, start, end)
        for start, end in pairwise(edges)
        if end > start
    ]
