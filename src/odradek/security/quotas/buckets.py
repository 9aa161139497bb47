"""`MutationBuckets`: how many partitions clients may still make, grow or remove (KIP-599).

A bucket fills at the rate of the quota up to the amount of all windows. A client with tokens may
take as many as it wants, even more than there are; one in debt waits until the debt is paid.
"""

from math import ceil
from typing import Final

from odradek.clock import Clock
from odradek.security.quotas.limits import Limit
from odradek.windowed_rate import LONGEST_MS


class MutationBuckets:
    """The buckets of clients with a quota."""

    def __init__(self, clock: Clock, windows: int, window_ms: int) -> None:
        self._clock: Final = clock
        self._burst_s: Final = windows * window_ms / 1000
        # By user and client id: the tokens, the rate that they come at, and when that was so.
        self._buckets: Final[dict[tuple[str | None, str | None], tuple[float, float, int]]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_ms(self, limit: Limit) -> int:
        """How long a client has to wait; 0 when it may take tokens."""
        debt = -self._tokens(limit)
        return ceil(min(debt * 1000 / limit.per_second, LONGEST_MS)) if debt > 0 else 0

    def take(self, limit: Limit, count: int) -> None:
        """Takes tokens, for as many partitions."""
        now_ms = self._clock.monotonic_ms()
        tokens = self._tokens(limit) - count
        who = limit.user, limit.client_id
        self._buckets.pop(who, None)
        self._buckets[who] = (tokens, limit.per_second, now_ms)
        self._forget_full(now_ms)

    def _tokens(self, limit: Limit) -> float:
        full = limit.per_second * self._burst_s
        found = self._buckets.get((limit.user, limit.client_id))
        if found is None:
            return full
        tokens, _, then_ms = found
        elapsed_s = (self._clock.monotonic_ms() - then_ms) / 1000
        return min(tokens + elapsed_s * limit.per_second, full)

    def _forget_full(self, now_ms: int) -> None:
        """Forgets buckets that are full again."""
        while self._buckets:
            who = next(iter(self._buckets))
            tokens, per_second, then_ms = self._buckets[who]
            if tokens + (now_ms - then_ms) / 1000 * per_second < per_second * self._burst_s:
                return
            del self._buckets[who]
