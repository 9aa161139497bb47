"""Operations on sets of partitions, which are kept by the ids of their topics.

A topic without partitions is not in such a set.
"""

from types import MappingProxyType
from typing import Final

from odradek.coordinator.assignors import Partitions

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})


def union(one: Partitions, other: Partitions) -> Partitions:
    """The partitions that are in one or the other."""
    if not other:
        return one
    result = dict(one)
    for topic_id, indexes in other.items():
        result[topic_id] = result.get(topic_id, frozenset()) | indexes
    return result


def intersection(one: Partitions, other: Partitions) -> Partitions:
    """The partitions that are in both."""
    return {
        topic_id: both
        for topic_id, indexes in one.items()
        if (both := indexes & other.get(topic_id, frozenset()))
    }


def difference(one: Partitions, other: Partitions) -> Partitions:
    """The partitions that are in the one and not in the other."""
    return {
        topic_id: rest
        for topic_id, indexes in one.items()
        if (rest := indexes - other.get(topic_id, frozenset()))
    }


def is_subset(partitions: Partitions, of: Partitions) -> bool:
    """Whether all of the partitions are among others."""
    return all(indexes <= of.get(topic_id, frozenset()) for topic_id, indexes in partitions.items())
