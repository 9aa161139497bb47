"""Lists of names that users give: one name alone would be read letter by letter."""

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def each_once(items: Iterable[T]) -> list[T]:
    """Returns the items in order, without repetitions.

    Raises:
        TypeError: it is one string, and no list of them.
    """
    if isinstance(items, str):
        raise TypeError(f"{items!r} is one name, where a list of names is asked for")
    return list(dict.fromkeys(items))
