"""`ClientRates`: the use of quotas by clients, in the windows of `quota.window.*`."""

from typing import Final

from odradek.clock import Clock
from odradek.security.quotas.limits import Limit
from odradek.windowed_rate import WindowedRate

IDLE_MS: Final = 3_600_000
"""After so long without a request a client is forgotten, as with Kafka."""
MOST_BYTES: Final = 2**63 - 1
_Who = tuple[str, str | None, str | None]


class ClientRates:
    """The rates of clients with a quota."""

    def __init__(self, clock: Clock, windows: int, window_ms: int) -> None:
        self._clock: Final = clock
        self._windows: Final = windows
        self._window_ms: Final = window_ms
        # In the order of their last use, the least recently used first.
        self._rates: Final[dict[_Who, tuple[WindowedRate, int]]] = {}

    def __len__(self) -> int:
        return len(self._rates)

    def charge(self, limit: Limit, amount: int) -> int:
        """Counts a use; returns for how many milliseconds the client is throttled."""
        now_ms = self._clock.monotonic_ms()
        rate = self._rate(limit, now_ms)
        rate.record(now_ms, amount)
        return rate.excess_ms(now_ms, limit.per_second)

    def owed_ms(self, limit: Limit) -> int:
        """How long a client is throttled for earlier use: a window at most, as Kafka bounds it for
        the time of requests."""
        return min(self.charge(limit, 0), self._window_ms)

    def give_back(self, limit: Limit, amount: int) -> None:
        """Takes back a charge that was not used."""
        now_ms = self._clock.monotonic_ms()
        self._rate(limit, now_ms).record(now_ms, -amount)

    def most_at_once(self, limit: Limit) -> int:
        """The most that a client without earlier use may use at once."""
        most = limit.per_second * (self._windows - 1) * self._window_ms / 1000
        return max(int(min(most, MOST_BYTES)), 1)

    def _rate(self, limit: Limit, now_ms: int) -> WindowedRate:
        who = (limit.key.value, limit.user, limit.client_id)
        found = self._rates.pop(who, None)
        rate = WindowedRate(self._windows, self._window_ms) if found is None else found[0]
        self._rates[who] = (rate, now_ms)
        if found is None:
            self._forget_idle(now_ms)
        return rate

    def _forget_idle(self, now_ms: int) -> None:
        while self._rates:
            who = next(iter(self._rates))
            if now_ms - self._rates[who][1] < IDLE_MS:
                return
            del self._rates[who]
