"""Chooses the partition of a record: by its key as Kafka's own producer does, else sticky.

The partition of a record with a key follows from murmur2 of the key, over all partitions, with a
leader or without, so that every producer in every language agrees. Records without a key stay with
a partition until `batch.size` bytes went there, then move on at random; partitions whose queues are
long get fewer (KIP-794).
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, Protocol

from librt.strings import read_i32_le
from mypy_extensions import i64

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


class PartitionRng(Protocol):
    """The source of randomness: a `random.Random`."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 up to, and without, `stop`."""
        ...


def murmur2(data: bytes) -> int:
    """The 32-bit hash that Kafka's producers use, as an unsigned number."""
    # A product of 32 bits and `_M` has 63: compiled, all of it is done in registers.
    length: i64 = len(data)
    h: i64 = _SEED ^ length
    position: i64 = 0
    byte: i64 = 0
    k: i64 = 0
    while position + 4 <= length:
        k = i64(read_i32_le(data, position)) & _MASK
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
        position += 4
    if position < length:
        k = data[position]
        if position + 1 < length:
            byte = data[position + 1]
            k |= byte << 8
        if position + 2 < length:
            byte = data[position + 2]
            k |= byte << 16
        h = (h ^ k) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """Chooses the partition of records without a key, for one topic."""

    def __init__(self, batch_bytes: int, rng: PartitionRng) -> None:
        self._batch_bytes = batch_bytes
        self._rng = rng
        self._current = -1
        self._produced_bytes = 0

    def choose(self, available: Sequence[int], queue_length: Callable[[int], int]) -> int:
        """The partition for the next record, one of those that have a leader."""
        if self._current not in available or self.is_due:
            self._current = self._next(available, queue_length)
            self._produced_bytes = 0
        return self._current

    @property
    def is_due(self) -> bool:
        """Whether the partition chosen last has got its share."""
        return self._produced_bytes >= self._batch_bytes

    def produced(self, size_bytes: int) -> None:
        """Counts a record that went to the partition chosen last."""
        self._produced_bytes += size_bytes

    def _next(self, available: Sequence[int], queue_length: Callable[[int], int]) -> int:
        lengths = [queue_length(index) for index in available]
        longest = max(lengths)
        # The longer a queue the less likely it is; all are alike when all are as long.
        likelihoods = list(accumulate(longest + 1 - length for length in lengths))
        drawn = self._rng.randrange(likelihoods[-1])
        return next(
            index
            for index, likelihood in zip(available, likelihoods, strict=True)
            if drawn < likelihood
        )
