"""`Meter`: how often something happened, and how often it does, as Kafka's meters tell.

The rates of one, five and fifteen minutes are moving averages of five-second steps that weigh the
newest most. Kafka's have a thread that steps all of them. Here a meter steps when it is marked or
read: the first step that is due has all that was counted since the last, the others had nothing.
"""

from math import exp
from typing import Final, NamedTuple

STEP_MS: Final = 5000
_STEPS_A_SECOND: Final = 1000 / STEP_MS
_MINUTES: Final = (1, 5, 15)


class Rates(NamedTuple):
    """Events a second, by the length of the time that counts most; the last since the start."""

    one_minute: float
    five_minutes: float
    fifteen_minutes: float
    mean: float


class Meter:
    """A count that never falls, and its rates. All times come from one monotonic clock."""

    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self._began_ms = now_ms
        self._due_ms = now_ms + STEP_MS
        self._counted = 0
        # Events a second over one, five and fifteen minutes, once there was a step.
        self._rates: list[float] = []

    def mark(self, now_ms: int, amount: int = 1) -> None:
        """Counts what has happened."""
        if now_ms >= self._due_ms:
            self._step(now_ms)
        self.count += amount

    def rates(self, now_ms: int) -> Rates:
        """The rates now."""
        if now_ms >= self._due_ms:
            self._step(now_ms)
        elapsed_ms = now_ms - self._began_ms
        mean = self.count * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0
        if not self._rates:
            return Rates(0.0, 0.0, 0.0, mean)
        one, five, fifteen = self._rates
        return Rates(one, five, fifteen, mean)

    def _step(self, now_ms: int) -> None:
        """Takes the steps that are due."""
        idle_steps = (now_ms - self._due_ms) // STEP_MS
        self._due_ms += (idle_steps + 1) * STEP_MS
        latest = (self.count - self._counted) * _STEPS_A_SECOND
        self._counted = self.count
        before = self._rates or [latest] * len(_MINUTES)
        self._rates = []
        for minutes, rate in zip(_MINUTES, before, strict=True):
            kept = exp(-STEP_MS / (minutes * 60_000))
            self._rates.append((latest + (rate - latest) * kept) * kept**idle_steps)
