"""The metrics of a client, under the groups and names of Kafka's own clients.

As there, rates, averages and maxima are of the last half to whole minute, totals of the whole life;
an average of nothing is NaN. A group that Kafka tags with a topic or a node has it behind a dot:
`producer-topic-metrics.orders`.
"""

from collections import deque
from collections.abc import Callable
from math import nan
from typing import Final

from odradek.clock import Clock
from odradek.windowed_rate import WindowedRate

_WINDOWS: Final = 2
_WINDOW_MS: Final = 30_000
_SECONDS_AN_HOUR: Final = 3_600


class Meter:
    """Counts: how many, and how many a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate = WindowedRate(_WINDOWS, _WINDOW_MS)
        self._total = 0

    def add(self, amount: int = 1) -> None:
        """Adds a count."""
        self._total += amount
        self._rate.record(self._clock.monotonic_ms(), amount)

    def total(self) -> int:
        """The total count."""
        return self._total

    def rate(self) -> float:
        """The rate a second."""
        return self._rate.per_second(self._clock.monotonic_ms())

    def rate_per_hour(self) -> float:
        """How many an hour there are."""
        return self.rate() * _SECONDS_AN_HOUR


class Average:
    """Values with their mean and maximum."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The beginning, the sum, the count and the maximum of each window that has any.
        self._windows: deque[tuple[int, float, int, float]] = deque(maxlen=_WINDOWS)

    def add(self, value: float) -> None:
        """Records a value."""
        now_ms = self._clock.monotonic_ms()
        start_ms = now_ms - now_ms % _WINDOW_MS
        total, count, largest = 0.0, 0, value
        if self._windows and self._windows[-1][0] == start_ms:
            _, total, count, largest = self._windows.pop()
        self._windows.append((start_ms, total + value, count + 1, max(largest, value)))

    def mean(self) -> float:
        """Their mean."""
        windows = self._current()
        count = sum(window[2] for window in windows)
        return sum(window[1] for window in windows) / count if count else nan

    def largest(self) -> float:
        """The largest of them."""
        return max((window[3] for window in self._current()), default=nan)

    def _current(self) -> list[tuple[int, float, int, float]]:
        begin_ms = self._clock.monotonic_ms() - _WINDOWS * _WINDOW_MS
        return [window for window in self._windows if window[0] > begin_ms]


class ClientMetrics:
    """All that one client measures. The same name returns the same object."""

    def __init__(self, clock: Clock, group: str) -> None:
        self.group: Final = group
        """The group of the client's own metrics."""
        self._clock = clock
        self._meters: dict[tuple[str, str], Meter] = {}
        self._averages: dict[tuple[str, str], Average] = {}
        self._groups: dict[str, dict[str, Callable[[], float]]] = {}
        self._readers: list[Callable[[], dict[str, dict[str, float]]]] = []

    def meter(self, name: str, group: str = "", *, is_rare: bool = False) -> Meter:
        """Makes the counter behind `name-total` and `name-rate`; of what is rare
        `name-rate-per-hour`."""
        key = group or self.group, name
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = Meter(self._clock)
            self.gauge(f"{name}-total", meter.total, group)
            if is_rare:
                self.gauge(f"{name}-rate-per-hour", meter.rate_per_hour, group)
            else:
                self.gauge(f"{name}-rate", meter.rate, group)
        return meter

    def average(self, name: str, group: str = "", *, has_maximum: bool = True) -> Average:
        """Makes the sensor behind `name-avg` and `name-max`."""
        key = group or self.group, name
        average = self._averages.get(key)
        if average is None:
            average = self._averages[key] = Average(self._clock)
            self.gauge(f"{name}-avg", average.mean, group)
            if has_maximum:
                self.gauge(f"{name}-max", average.largest, group)
        return average

    def gauge(self, name: str, read: Callable[[], float], group: str = "") -> None:
        """Calls `read` whenever the metric is read."""
        self._groups.setdefault(group or self.group, {})[name] = read

    def reader(self, read: Callable[[], dict[str, dict[str, float]]]) -> None:
        """Calls `read` whenever the metrics are read, for values of groups that come and go."""
        self._readers.append(read)

    def snapshot(self) -> dict[str, dict[str, float]]:
        """Every value as it is now, by group and name."""
        found = {
            group: {name: read() for name, read in gauges.items()}
            for group, gauges in self._groups.items()
        }
        for read_groups in self._readers:
            for group, values in read_groups().items():
                found.setdefault(group, {}).update(values)
        return found
