"""The rates of new connections: `max.connection.creation.rate`, of the broker and of a listener,
and the quotas of addresses.

Kafka's rules: a connection counts when its turn comes; when that is over a rate it waits, and all
that come after it over the same listener wait behind it. A listener that is kept for brokers has no
rate but its own. Kafka leaves those that wait in the backlog of the socket; here they are accepted,
and nothing that they send is handled, not even a handshake of TLS. Their clients see no difference.

An address that is over its quota does not delay others: its connection is ignored as long as it
would have to wait, and closed then; it does not count.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.clock import Clock
from odradek.network.connection import Connection
from odradek.network.connection_quotas import UNLIMITED
from odradek.timer import Timer, TimerTask
from odradek.windowed_rate import WindowedRate


class CreationRate:
    """The rate of new connections, and its limit."""

    def __init__(self, clock: Clock, measured: WindowedRate) -> None:
        self.limit = UNLIMITED
        self._clock: Final = clock
        self._measured: Final = measured

    def count(self) -> int:
        """Counts a connection; returns how many milliseconds it has to wait."""
        now_ms = self._clock.monotonic_ms()
        self._measured.record(now_ms, 1)
        return self._measured.wait_ms(now_ms, self.limit)


class CreationRates:
    """The rate of a broker and those of its listeners, which may change at run time."""

    def __init__(
        self, clock: Clock, windows: int, window_ms: int, listener_names: Iterable[str]
    ) -> None:
        def rate() -> CreationRate:
            return CreationRate(clock, WindowedRate(windows, window_ms))

        self._of_broker: Final = rate()
        self._of_listeners: Final = {name: rate() for name in listener_names}

    def limit(self, of_broker: int, of_listeners: Mapping[str, int]) -> None:
        """Sets the limits for the connections to come; a listener without one has none."""
        self._of_broker.limit = of_broker
        for name, rate in self._of_listeners.items():
            rate.limit = of_listeners.get(name, UNLIMITED)

    def that_hold(self, listener_name: str, *, is_protected: bool) -> list[CreationRate]:
        """The rates that bound a listener."""
        own = self._of_listeners[listener_name]
        return [own] if is_protected else [self._of_broker, own]


class AddressRates:
    """The rates of new connections from single addresses: `connection_creation_rate`."""

    def __init__(self, clock: Clock, windows: int, window_ms: int) -> None:
        self._clock: Final = clock
        self._windows: Final = windows
        self._window_ms: Final = window_ms
        self._default: int | None = None
        self._limits: Mapping[str, int] = {}
        # With the time of their last use, the least recently used first.
        self._rates: Final[dict[str, tuple[WindowedRate, int]]] = {}

    def __len__(self) -> int:
        return len(self._rates)

    def limit(self, default: int | None, limits: Mapping[str, int]) -> None:
        """Sets the limits for the connections to come; None is no limit."""
        self._default = default
        self._limits = limits

    def count(self, address: str) -> int:
        """Counts a connection, or says for how many milliseconds it would have to wait."""
        now_ms = self._clock.monotonic_ms()
        self._forget_idle(now_ms)
        limit = self._limits.get(address, self._default)
        if limit is None:
            return 0
        found = self._rates.pop(address, None)
        rate = WindowedRate(self._windows, self._window_ms) if found is None else found[0]
        self._rates[address] = rate, now_ms
        rate.record(now_ms, 1)
        wait_ms = rate.wait_ms(now_ms, limit)
        if wait_ms:
            rate.record(now_ms, -1)
        return wait_ms

    def _forget_idle(self, now_ms: int) -> None:
        """An address counts no more once all windows are over."""
        while self._rates:
            address = next(iter(self._rates))
            if now_ms - self._rates[address][1] < self._windows * self._window_ms:
                return
            del self._rates[address]


class ConnectionPace:
    """Lets the connections of one listener in, in order, no faster than any of its rates."""

    def __init__(self, timer: Timer, rates: Sequence[CreationRate]) -> None:
        self._timer: Final = timer
        self._rates: Final = rates
        self._is_waiting = False
        self._held: Final[dict[Connection, None]] = {}

    def enter(self, connection: Connection) -> None:
        """Admits a new connection, or makes it wait."""
        if self._is_waiting or self._must_wait():
            connection.hold()
            self._held[connection] = None

    def leave(self, connection: Connection) -> None:
        """Handles the end of a connection; if it was waiting, the next one has its turn."""
        self._held.pop(connection, None)

    def _must_wait(self) -> bool:
        wait_ms = max(rate.count() for rate in self._rates)
        if wait_ms:
            self._is_waiting = True
            self._timer.add(TimerTask(wait_ms, self._let_in))
        return bool(wait_ms)

    def _let_in(self) -> None:
        """Admits the connection that has waited, and the next ones until one has to wait."""
        self._is_waiting = False
        while self._held:
            connection = next(iter(self._held))
            del self._held[connection]
            connection.let_in()
            if self._held and self._must_wait():
                return
