"""`Histogram`: how values are distributed, the last five minutes counting most, as Kafka's.

Kafka keeps a sample of a thousand values, drawn so that newer ones are likelier. Here every value
is kept, as a weight that grows with time at the same rate, in the bucket of its size: nothing is
drawn, and quantiles are exact below 128 and within 1 % above. Count, least, most, mean and standard
deviation are of all values there ever were, as in Kafka.
"""

from math import exp, sqrt
from typing import Final

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

# By which a value's weight grows with each second that it is newer: that of Kafka's sampling.
_ALPHA: Final = 0.015
# After this long the weights are scaled back to their values at the beginning.
_RESCALE_S: Final = 3600
_EXACT_BITS: Final = 7
_EXACT: Final = 1 << _EXACT_BITS
_HALF: Final = _EXACT // 2
_FORGOTTEN: Final = 1e-9


class Histogram:
    """The distribution of values of at least 0. All times come from one monotonic clock."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.least = 0
        self.most = 0
        self._squares = 0
        self._weights: dict[int, float] = {}
        self._origin_s = -1
        self._second = -1
        self._weight = 1.0

    def update(self, now_ms: int, value: int, times: int = 1) -> None:
        """Takes a value in, so many times."""
        second = now_ms // 1000
        if second != self._second:
            self._turn_to(second)
        if value < 0:
            value = 0
        if self.count == 0 or value < self.least:
            self.least = value
        if value > self.most:
            self.most = value
        self.count += times
        self.total += value * times
        self._squares += value * value * times
        bucket = value if value < _EXACT else _bucket_of(value)
        weights = self._weights
        weights[bucket] = weights.get(bucket, 0.0) + self._weight * times

    @property
    def mean(self) -> float:
        """The mean of all values."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of all values."""
        if self.count < 2:
            return 0.0
        # Whole numbers, so exact at any size.
        squared = self._squares * self.count - self.total * self.total
        return sqrt(squared / (self.count * (self.count - 1)))

    def quantiles(self) -> list[float]:
        """The values that `QUANTILES` of the others are below of; 0 where there are none."""
        found: list[float] = []
        ordered = sorted(self._weights.items())
        whole = sum(weight for _, weight in ordered)
        index = 0
        passed = ordered[0][1] if ordered else 0.0
        for share in QUANTILES:
            while index < len(ordered) - 1 and passed < share * whole:
                index += 1
                passed += ordered[index][1]
            found.append(min(_value_of(ordered[index][0]), self.most) if ordered else 0.0)
        return found

    def _turn_to(self, second: int) -> None:
        """Finds what a value weighs in this second."""
        if self._origin_s < 0:
            self._origin_s = second
        elif second - self._origin_s >= _RESCALE_S:
            shrink = exp(-_ALPHA * (second - self._origin_s))
            self._weights = {
                bucket: weight * shrink
                for bucket, weight in self._weights.items()
                if weight * shrink > _FORGOTTEN
            }
            self._origin_s = second
        self._second = second
        self._weight = exp(_ALPHA * (second - self._origin_s))


def _bucket_of(value: int) -> int:
    """For values from 128 on: 64 buckets for each power of two."""
    dropped_bits = value.bit_length() - _EXACT_BITS
    return _HALF * dropped_bits + (value >> dropped_bits)


def _value_of(bucket: int) -> float:
    """The middle of a bucket."""
    if bucket < _EXACT:
        return float(bucket)
    dropped_bits = bucket // _HALF - 1
    return ((bucket - _HALF * dropped_bits) << dropped_bits) + ((1 << dropped_bits) - 1) / 2
