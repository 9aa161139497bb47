"""From bounds to tasks: the start and the end of a read, and its pieces."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.model import TopicPartition
from odradek.tables.errors import DataLoss
from odradek.tables.plan.bounds import Bounds
from odradek.tables.plan.identity import Identity
from odradek.tables.plan.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    AtTimes,
    EndOfLog,
    ExactOffsets,
    OffsetBound,
    PartitionOffsets,
    require_same_partitions,
)
from odradek.tables.plan.options import ReadOptions
from odradek.tables.plan.ranges import (
    OffsetRange,
    cut_at,
    cut_by_size,
    cut_into_at_least,
    ranges_between,
)
from odradek.tables.plan.wanted import WantedRows
from odradek.tables.scan.directory import DataDirectory


class BatchPlan(NamedTuple):
    """The ranges to read, and the ids of their topics."""

    ranges: list[OffsetRange]
    identity: Identity


def plan_batch(bounds: Bounds, options: ReadOptions) -> BatchPlan:
    """The ranges of a batch read; segments begin new ones when files are read.

    Raises:
        ValueError: the offsets given do not fit the topics, or begin after they end. DataLoss: the
            end is beyond the topic's end. WrongPath: the directories are not there, or not of the
            cluster that was asked.
    """
    partitions = bounds.partitions(options.selection)
    identity = bounds.identity({partition.topic for partition in partitions})
    start = starting_offsets(bounds, options, partitions)
    end = ending_offsets(bounds, options, partitions)
    for partition in partitions:
        if start[partition] > end[partition]:
            raise ValueError(
                f"the read of {partition} would begin at offset {start[partition]}, after its end "
                f"{end[partition]}"
            )
    ranges = _wanted(bounds, options.wanted, ranges_between(start, end))
    if options.log_dirs:
        ranges = cut_at(ranges, _segment_starts(options, ranges))
    return BatchPlan(cut(ranges, options), identity)


def cut(ranges: Sequence[OffsetRange], options: ReadOptions) -> list[OffsetRange]:
    """Cuts ranges as `maxRecordsPerPartition` and `minPartitions` ask: by offsets alone."""
    pieces = list(ranges)
    if options.max_records_per_partition is not None:
        pieces = cut_by_size(pieces, options.max_records_per_partition)
    if options.min_partitions is not None:
        pieces = cut_into_at_least(pieces, options.min_partitions)
    return pieces


def starting_offsets(
    bounds: Bounds, options: ReadOptions, partitions: Sequence[TopicPartition]
) -> PartitionOffsets:
    """The start offsets of a read.

    Raises:
        ValueError: an option names other partitions, or a time that no record has reached.
    """
    by_time = _times(options.starting, partitions, "startingOffsetsByTimestamp")
    if by_time is None:
        return _resolve(bounds, options.starting, partitions, "startingOffsets")
    found = bounds.at_times(by_time)
    unmatched = sorted(partition for partition in by_time if found[partition] is None)
    if unmatched and options.fail_without_match:
        raise ValueError(
            f"{', '.join(map(str, unmatched))}: no record is as late as the starting time; set "
            "startingOffsetsByTimestampStrategy to latest to begin at the end there"
        )
    return _fill(found, bounds.latest(unmatched))


def ending_offsets(
    bounds: Bounds, options: ReadOptions, partitions: Sequence[TopicPartition]
) -> PartitionOffsets:
    """The end offsets of a batch read; partitions without a record as late as a given time are read
    whole.

    Raises:
        ValueError: an option names other partitions.
        DataLoss: an offset lies beyond the end of its partition.
    """
    by_time = _times(options.ending, partitions, "endingOffsetsByTimestamp")
    latest = bounds.latest(partitions)
    if by_time is not None:
        return _fill(bounds.at_times(by_time), latest)
    end = _resolve(bounds, options.ending, partitions, "endingOffsets")
    for partition, offset in end.items():
        if offset > latest[partition]:
            if options.fail_on_data_loss:
                raise DataLoss(f"{partition} should reach {offset} and ends at {latest[partition]}")
            end[partition] = latest[partition]
    return end


def _times(
    bound: OffsetBound, partitions: Sequence[TopicPartition], name: str
) -> Mapping[TopicPartition, int] | None:
    """The time for every partition, if times bound the read."""
    if isinstance(bound, AtTime):
        return dict.fromkeys(partitions, bound.timestamp_ms)
    if isinstance(bound, AtTimes):
        require_same_partitions(name, bound.timestamps_ms, partitions)
        return bound.timestamps_ms
    return None


def _resolve(
    bounds: Bounds, bound: OffsetBound, partitions: Sequence[TopicPartition], name: str
) -> PartitionOffsets:
    if isinstance(bound, EndOfLog):
        offsets: Mapping[TopicPartition, int] = dict.fromkeys(partitions, bound.which)
    else:
        assert isinstance(bound, ExactOffsets), "times are looked up, not resolved"
        offsets = bound.offsets
        require_same_partitions(name, offsets, partitions)
    return {
        **offsets,
        **bounds.earliest([part for part, offset in offsets.items() if offset == EARLIEST]),
        **bounds.latest([part for part, offset in offsets.items() if offset == LATEST]),
    }


def _fill(
    found: Mapping[TopicPartition, int | None], fallback: PartitionOffsets
) -> PartitionOffsets:
    return {
        partition: fallback[partition] if offset is None else offset
        for partition, offset in found.items()
    }


def _wanted(bounds: Bounds, wanted: WantedRows, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Cuts ranges by partition and offset, and where no record is as late before.

    An upper bound of times ends nothing: later records may have earlier times.
    """
    left = wanted.narrow(ranges)
    earliest_ms = wanted.timestamp_ms.lowest
    # Below are the numbers by which brokers are asked for the ends of a log.
    if earliest_ms is None or earliest_ms < 0 or not left:
        return left
    found = bounds.at_times({piece.topic_partition: earliest_ms for piece in left})
    pieces = (
        OffsetRange(piece.topic_partition, max(piece.start, begin), piece.end)
        for piece in left
        if (begin := found[piece.topic_partition]) is not None
    )
    return [piece for piece in pieces if piece.size > 0]


def _segment_starts(
    options: ReadOptions, ranges: Sequence[OffsetRange]
) -> dict[TopicPartition, list[int]]:
    directory = DataDirectory(options.log_dirs)
    return {
        piece.topic_partition: directory.partition(piece.topic_partition).base_offsets()
        for piece in ranges
    }
