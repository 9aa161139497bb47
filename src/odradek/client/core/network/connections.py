"""The connections of a client, by broker and purpose. The client opens a connection when it needs
one, pauses after a failure, and closes one that was idle before its broker does.

Responses come in the order of the requests, so requests that may wait long at the broker have a
separate connection, a channel: joining a group, and fetches. A broker may throttle its clients for
a while (KIP-219): that is kept here as well, since it applies to all requests to the broker.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from odradek.client.addresses import Address
from odradek.client.apis import ClientApi
from odradek.client.core.metrics import ClientMetrics
from odradek.client.core.network.traffic import Traffic
from odradek.client.core.retries import ExponentialBackoff, Rng
from odradek.client.core.waits import Gen, Pause
from odradek.client.errors import KafkaError
from odradek.client.settings import ClientSettings
from odradek.clock import LONG_AGO_MS, Clock
from odradek.log_limit import LimitedLog
from odradek.protocol.primitives import Buffer

_LOGGER: Final = logging.getLogger(__name__)
# The shortest interval of messages about an unreachable broker, as in librdkafka.
_TROUBLE_INTERVAL_MS: Final = 30_000
MAIN_CHANNEL: Final = "main"
GROUP_CHANNEL: Final = "group"
FETCH_CHANNEL: Final = "fetch"
_NO_FAILURES: Final = (0, LONG_AGO_MS)


class Connection(Protocol):
    """The interface of a connection of either shell."""

    @property
    def address(self) -> Address:
        """The address of its broker."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether no request can be sent any more."""
        ...

    @property
    def was_silent(self) -> bool:
        """Whether the connection was given up because a request timed out."""
        ...

    @property
    def in_flight_count(self) -> int:
        """How many requests wait for their answers."""
        ...

    @property
    def idle_ms(self) -> float:
        """The time since its last use."""
        ...

    def agree(self, api: ClientApi) -> int:
        """The version of an API to speak on it."""
        ...

    def request(self, api: ClientApi, version: int, body: Sequence[Buffer], timeout_ms: int) -> Any:
        """Sends a request; returns the answer, or an awaitable of it."""
        ...

    def close(self, cause: KafkaError | None = None) -> None:
        """Closes it; waiting callers get `cause`."""
        ...


C = TypeVar("C", bound=Connection)


class Connections(Generic[C]):
    """`connect` opens one, given an address and how long that may take in ms."""

    def __init__(
        self,
        settings: ClientSettings,
        clock: Clock,
        rng: Rng,
        client_id: str,
        metrics: ClientMetrics,
        connect: Callable[[Address, int], Any],
    ) -> None:
        self._clock = clock
        self._client_id = client_id
        self._connect = connect
        self._idle_max_ms = settings.number("connections.max.idle.ms")
        self._reconnects = ExponentialBackoff(
            settings.number("reconnect.backoff.ms"),
            settings.number("reconnect.backoff.max.ms"),
            rng,
        )
        self._setup_timeouts = ExponentialBackoff(
            settings.number("socket.connection.setup.timeout.ms"),
            settings.number("socket.connection.setup.timeout.max.ms"),
            rng,
        )
        self._known: dict[tuple[Address, str], C] = {}
        self._failures: dict[Address, tuple[int, int]] = {}
        self._throttled_until_ms: dict[Address, int] = {}
        self._trouble = LimitedLog(_LOGGER, clock, _TROUBLE_INTERVAL_MS)
        self._whole = Traffic(clock)
        self._traffic: dict[Address, Traffic] = {}
        self._opened = metrics.meter("connection-creation")
        metrics.gauge("connection-count", lambda: len(self.open))

    @property
    def open(self) -> list[C]:
        """Lists the open connections."""
        return [each for each in self._known.values() if not each.is_closed]

    def traffic_with(self, address: Address) -> Traffic:
        """The counters of a broker, for all its connections."""
        traffic = self._traffic.get(address)
        if traffic is None:
            traffic = self._traffic[address] = Traffic(self._clock, self._whole)
        return traffic

    def traffic(self, names: Mapping[Address, str], group: str) -> dict[str, dict[str, float]]:
        """All that was counted, by groups of Kafka's names: of the client, and of each broker by
        the name that its address has."""
        found = {f"{group}-metrics": self._whole.values()}
        for address, traffic in self._traffic.items():
            name = names.get(address, str(address))
            found[f"{group}-node-metrics.{name}"] = traffic.values()
        return found

    def at_hand(self, address: Address, channel: str) -> C | None:
        """The connection to a broker, if it can be used at once."""
        known = self._known.get((address, channel))
        return None if known is None or known.is_closed or self._is_idle(known) else known

    def least_loaded(self) -> C | None:
        """The connection at hand with the fewest requests in flight."""
        connections = [
            connection
            for address, channel in self._known
            if channel == MAIN_CHANNEL
            and (connection := self.at_hand(address, channel)) is not None
        ]
        return min(connections, key=lambda each: each.in_flight_count, default=None)

    def in_order(self, addresses: Iterable[Address]) -> list[Address]:
        """Sorts brokers in the order to try them: silent and unreachable ones come last."""
        silent = {address for (address, _), each in self._known.items() if each.was_silent}
        return sorted(
            dict.fromkeys(addresses),
            key=lambda address: (address in silent, self._not_before_ms(address)),
        )

    def open_gen(self, address: Address, channel: str) -> Gen[C]:
        """Opens a connection, which replaces an existing one.

        Raises:
            KafkaError: nobody answers there in time, or the broker refuses.
        """
        known = self._known.get((address, channel))
        if known is not None:
            known.close()
        failures, _ = self._failures.get(address, _NO_FAILURES)
        wait_ms = self._not_before_ms(address) - self._clock.monotonic_ms()
        if wait_ms > 0:
            yield Pause(wait_ms)
        try:
            setup_timeout_ms = self._setup_timeouts.wait_ms(failures)
            connection: C = yield lambda: self._connect(address, setup_timeout_ms)
        except KafkaError as error:
            not_before_ms = self._clock.monotonic_ms() + self._reconnects.wait_ms(failures)
            self._failures[address] = (failures + 1, not_before_ms)
            self._trouble.warning(f"{self._client_id}: a broker cannot be reached: {error.message}")
            raise
        self._failures.pop(address, None)
        self._known[address, channel] = connection
        self._opened.add()
        return connection

    def throttle(self, address: Address, throttle_time_ms: int) -> None:
        """Records that a broker throttles this client for so long."""
        until_ms = self._clock.monotonic_ms() + throttle_time_ms
        before_ms = self._throttled_until_ms.get(address, until_ms)
        self._throttled_until_ms[address] = max(until_ms, before_ms)

    def throttled_ms(self, address: Address) -> int:
        """How long to wait before the next request to a broker."""
        until_ms = self._throttled_until_ms.get(address)
        if until_ms is None:
            return 0
        left_ms = until_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            del self._throttled_until_ms[address]
        return max(0, left_ms)

    def close(self, cause: KafkaError | None = None) -> None:
        """Closes all connections; waiting callers get `cause`. Silent brokers stay known."""
        for connection in self._known.values():
            connection.close(cause)
        self._known = {key: each for key, each in self._known.items() if each.was_silent}

    def _is_idle(self, connection: C) -> bool:
        """Whether the connection was unused for so long that its broker may be about to close
        it."""
        is_long = 0 <= self._idle_max_ms <= connection.idle_ms
        return is_long and not connection.in_flight_count

    def _not_before_ms(self, address: Address) -> int:
        return self._failures.get(address, _NO_FAILURES)[1]
