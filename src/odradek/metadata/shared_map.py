"""An immutable mapping whose changed copies share the unchanged parts.

An image of the metadata is replaced, never edited, and a cluster may gain ten thousand topics
one by one; copying a whole dictionary each time would make that quadratic. Here the entries
lie in 256 buckets by hash, and a changed copy replaces only the buckets that it touches: a
change costs O(n / 256), a look-up two steps. Order is that of the buckets, hence none.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_BUCKETS: Final = 256
_MASK: Final = _BUCKETS - 1
_EMPTY: Final[tuple[dict[Any, Any], ...]] = tuple({} for _ in range(_BUCKETS))


class SharedMap(Mapping[K, V]):
    """A mapping that is changed by making a copy."""

    __slots__ = ("_buckets", "_size")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._buckets: tuple[dict[K, V], ...] = _EMPTY
        self._size = 0
        if entries:
            changed = self.replaced(entries)
            self._buckets, self._size = changed._buckets, changed._size

    def __getitem__(self, key: K) -> V:
        return self._buckets[hash(key) & _MASK][key]

    def __iter__(self) -> Iterator[K]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._size

    def replaced(self, put: Mapping[K, V], removed: Iterable[K] = ()) -> "SharedMap[K, V]":
        """This mapping without the `removed` keys and with the entries of `put`."""
        buckets = list(self._buckets)
        copied: set[int] = set()
        size = self._size
        for key in removed:
            bucket = _own(buckets, copied, hash(key) & _MASK)
            size -= key in bucket
            bucket.pop(key, None)
        for key, value in put.items():
            bucket = _own(buckets, copied, hash(key) & _MASK)
            size += key not in bucket
            bucket[key] = value
        result: SharedMap[K, V] = SharedMap.__new__(SharedMap)
        result._buckets = tuple(buckets)
        result._size = size
        return result


def _own(buckets: list[dict[K, V]], copied: set[int], index: int) -> dict[K, V]:
    """The bucket, copied once per change before it may be written to."""
    if index not in copied:
        copied.add(index)
        buckets[index] = dict(buckets[index])
    return buckets[index]
