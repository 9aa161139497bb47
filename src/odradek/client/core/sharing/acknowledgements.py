"""A share consumer's acknowledgements, in the form of requests."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from odradek.model import TopicPartition


class AcknowledgeType(IntEnum):
    """The answer to a record."""

    ACCEPT = 1
    """It was dealt with."""
    RELEASE = 2
    """It could not be dealt with now: somebody is to try again."""
    REJECT = 3
    """It cannot be dealt with, by nobody."""
    RENEW = 4
    """It is still being processed: its lock starts again (KIP-1222)."""


# For acquired offsets without a record: compacted away, aborted, or end markers.
GAP: Final = 0


class SharePartition(NamedTuple):
    """A partition, with the id that its topic has at the time."""

    topic_id: UUID
    where: TopicPartition


Acknowledgements = dict[int, int]
"""By offset what is to be said."""


def acknowledgement_batches(types: Mapping[int, int]) -> list[dict[str, object]]:
    """One batch for offsets that follow one another and have one answer."""
    batches: list[dict[str, object]] = []
    first = last = -1
    for offset in sorted(types):
        if batches and offset == last + 1 and types[offset] == types[first]:
            batches[-1]["last_offset"] = last = offset
            continue
        first = last = offset
        batches.append(
            {"first_offset": offset, "last_offset": offset, "acknowledge_types": [types[offset]]}
        )
    return batches


def by_topic_id(
    partitions: Iterable[SharePartition], said: Mapping[SharePartition, Acknowledgements] = {}
) -> list[dict[str, object]]:
    """The topics of a request, with the acknowledgements of their partitions."""
    found: dict[UUID, list[dict[str, object]]] = {}
    for each in sorted({*partitions, *said}):
        found.setdefault(each.topic_id, []).append(
            {
                "partition_index": each.where.partition,
                "acknowledgement_batches": acknowledgement_batches(said.get(each, {})),
            }
        )
    return [{"topic_id": each, "partitions": found[each]} for each in found]
