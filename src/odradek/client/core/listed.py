"""Checks lists of names and of partitions from users: a single one would be iterated by its
parts."""

from collections.abc import Iterable
from typing import TypeVar

from odradek.model import TopicPartition

T = TypeVar("T")


def listed(items: Iterable[T]) -> Iterable[T]:
    """Returns the items.

    Raises:
        TypeError: it is one name or one partition, and no list of them.
    """
    if isinstance(items, str):
        raise TypeError(f"{items!r} is one name, where a list of names is asked for")
    if isinstance(items, TopicPartition):
        raise TypeError(f"{items!r} is one partition, where a list of partitions is asked for")
    return items


def each_once(items: Iterable[T]) -> list[T]:
    """Returns the items in order, without repetitions.

    Raises:
        TypeError: it is one name or one partition, and no list of them.
    """
    return list(dict.fromkeys(listed(items)))
