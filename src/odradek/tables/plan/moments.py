"""Moments in a topic, as Python values, and the ranges between two of them.

A time means the first record in each partition that is not older, as in Kafka; so a time is a list
of offsets too, once it is looked up. Pure, except for the bounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from odradek.model import TopicPartition
from odradek.tables.plan.bounds import Bounds
from odradek.tables.plan.identity import Identity
from odradek.tables.plan.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    EndOfLog,
    ExactOffsets,
    OffsetBound,
    PartitionOffsets,
)
from odradek.tables.plan.options import ReadOptions
from odradek.tables.plan.planning import ending_offsets, starting_offsets
from odradek.tables.plan.ranges import OffsetRange, ranges_between

# `earliest` or `latest`, a time, or offsets by the number of the partition.
Moment: TypeAlias = str | datetime | Mapping[int, int]
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


class Stretch(NamedTuple):
    """The bounds of a read; `as_of` is an end that names all partitions."""

    start: Moment | None = None
    end: Moment | None = None
    as_of: Moment | None = None


class StretchPlan(NamedTuple):
    """The ranges to read, where every partition ends, and the ids of the topics."""

    ranges: list[OffsetRange]
    ends: PartitionOffsets
    identity: Identity


def plan_stretch(bounds: Bounds, options: ReadOptions, stretch: Stretch) -> StretchPlan:
    """The ranges of a stretch of the topics that the options select.

    Raises:
        TypeError: a moment is of a wrong kind.
        ValueError: a moment is none, names a partition that is not there, or both `end` and
            `as_of` are given.
        BrokerError, MissingData: there is no such topic, or nobody to ask. DataLoss: the end is
            beyond the topic's end. WrongPath: the directories are not there, or not of the cluster
            that was asked.
    """
    if stretch.end is not None and stretch.as_of is not None:
        raise ValueError("give end or as_of, which is an end itself")
    partitions = bounds.partitions(options.selection)
    if stretch.as_of is None:
        ending = _bound("end", stretch.end, partitions, LATEST)
    else:
        ending = _bound("as_of", stretch.as_of, partitions, EARLIEST)
    bounded = replace(
        options, starting=_bound("start", stretch.start, partitions, EARLIEST), ending=ending
    )
    begin = starting_offsets(bounds, bounded, partitions)
    end = ending_offsets(bounds, bounded, partitions)
    identity = bounds.identity({partition.topic for partition in partitions})
    return StretchPlan(ranges_between(begin, end), end, identity)


def _bound(
    name: str, moment: Moment | None, partitions: Sequence[TopicPartition], otherwise: int
) -> OffsetBound:
    """Converts a moment for planning; `otherwise` is for partitions that it does not name."""
    if moment is None:
        return EndOfLog(otherwise)
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{name}: {moment} has no time zone")
        return AtTime(round(moment.timestamp() * 1000))
    if isinstance(moment, str):
        if moment not in _WORDS:
            raise ValueError(f"{name}: {moment!r} is neither earliest nor latest")
        return EndOfLog(_WORDS[moment])
    if not isinstance(moment, Mapping):
        raise TypeError(
            f"{name} is a time, earliest, latest or offsets by partition, and not of type "
            f"{type(moment).__name__}"
        )
    unknown = sorted(moment.keys() - {part.partition for part in partitions})
    if unknown:
        raise ValueError(f"{name}: there is no partition {unknown[0]}")
    return ExactOffsets({part: moment.get(part.partition, otherwise) for part in partitions})
