"""`PushedMetrics`: the newest values of the metrics that clients push (KIP-714).

Each client has the values of its last push: gauges as they are, sums with their growth since the
client's first push. They are dropped when the client has been silent for three of its intervals, or
a minute after its last push. A client chooses its names, attributes and id: so they are bounded in
number and in size, and further ones are counted, but not kept. Values of several clients under one
name share it.
"""

from collections.abc import Collection, Iterator
from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from odradek.clock import LONG_AGO_MS, Clock
from odradek.protocol.otlp_metrics import MetricsData, NumberPoint, is_short, read_metrics

if TYPE_CHECKING:
    from odradek.handlers.telemetry.client_metrics import Client

MOST_OF_A_PUSH: Final = 1000
MOST_VALUES: Final = 200_000
MOST_NAMES: Final = 10_000
KEPT_INTERVALS: Final = 3
KEPT_AFTER_LAST_MS: Final = 60_000
"""So that who looks once a minute still sees a client that lived for a few seconds."""
_LOOKS_FOR_ROOM_MS: Final = 1000

# The attributes of its resource that tell a client from others; each may be missing.
RESOURCE: Final = ("client_rack", "group_id", "group_instance_id", "transactional_id")

Tags = tuple[tuple[str, str], ...]


class MetricName:
    """A metric's name with its attributes, and how many clients have a value of it."""

    __slots__ = ("attributes", "name", "users")

    def __init__(self, name: str, attributes: Tags) -> None:
        self.name: Final = name
        self.attributes: Final = attributes
        self.users = 0


class PushingClient:
    """A client and its values, which expire at `until_ms`."""

    __slots__ = ("client", "id", "resource", "until_ms", "values")

    def __init__(self, id: UUID, client: "Client") -> None:
        self.id: Final = id
        self.client = client
        self.resource: Tags = ()
        self.values: dict[MetricName, float] = {}
        self.until_ms = 0


class Counts(NamedTuple):
    """The numbers of kept clients and values, and of values that were not kept since the start."""

    clients: int
    values: int
    names: int
    left_out: int


class PushedMetrics:
    """The kept values."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clients: dict[UUID, PushingClient] = {}
        self._names: dict[tuple[str, Tags], MetricName] = {}
        self._value_count = 0
        self._left_out = 0
        self._looked_ms = LONG_AGO_MS

    def counts(self) -> Counts:
        """The present counts."""
        return Counts(len(self._clients), self._value_count, len(self._names), self._left_out)

    @staticmethod
    def read(data: bytes) -> MetricsData:
        """Reads a push, on any thread.

        Raises:
            ProtocolError: it is no valid push.
        """
        return read_metrics(data, MOST_OF_A_PUSH)

    def take(
        self, id: UUID, client: "Client", data: MetricsData, interval_ms: int, *, is_last: bool
    ) -> None:
        """Replaces the client's earlier push."""
        now_ms = self._clock.monotonic_ms()
        known = self._clients.get(id)
        if known is None:
            known = self._clients[id] = PushingClient(id, client)
        known.client = client
        if is_short(data.resource):
            known.resource = tuple(
                pair for pair in data.resource if pair[0] in RESOURCE and pair[1]
            )
        known.until_ms = now_ms + (KEPT_AFTER_LAST_MS if is_last else KEPT_INTERVALS * interval_ms)
        self._left_out += data.left_out
        if self._value_count + len(data.points) > MOST_VALUES:
            self._look_for_room(now_ms)
        known.values = self._values(known.values, data.points)

    def forget(self, id: UUID) -> None:
        """Drops a client's push, if it has one."""
        known = self._clients.pop(id, None)
        if known is not None:
            self._let_go(known.values.keys())

    def clients(self) -> Iterator[PushingClient]:
        """The clients, the least recent push first; other code may run between two of them."""
        self._drop_old(self._clock.monotonic_ms())
        yield from tuple(self._clients.values())

    def _values(
        self, before: dict[MetricName, float], points: list[NumberPoint]
    ) -> dict[MetricName, float]:
        """The values after a push. Known series keep their places; the others are dropped first."""
        # The mean of no values is not a number.
        finite = [each for each in points if isfinite(each.value)]
        told = {(each.name, each.attributes) for each in finite}
        self._let_go([each for each in before if (each.name, each.attributes) not in told])
        values: dict[MetricName, float] = {}
        for name, attributes, value, is_delta in finite:
            metric = self._names.get((name, attributes))
            if metric is not None and metric in values:
                values[metric] = values[metric] + value if is_delta else value
            elif metric is not None and metric in before:
                values[metric] = before[metric] + value if is_delta else value
            else:
                metric = self._with_room(name, attributes)
                if metric is not None:
                    values[metric] = value
        return values

    def _with_room(self, name: str, attributes: Tags) -> MetricName | None:
        """Takes a place for one more value under a name; None if all are taken."""
        key = name, attributes
        metric = self._names.get(key)
        has_room = metric is not None or len(self._names) < MOST_NAMES
        if not has_room or self._value_count >= MOST_VALUES:
            self._left_out += 1
            return None
        if metric is None:
            metric = self._names[key] = MetricName(name, attributes)
        metric.users += 1
        self._value_count += 1
        return metric

    def _let_go(self, metrics: Collection[MetricName]) -> None:
        self._value_count -= len(metrics)
        for metric in metrics:
            metric.users -= 1
            if metric.users == 0:
                del self._names[metric.name, metric.attributes]

    def _look_for_room(self, now_ms: int) -> None:
        """Drops expired clients; not at every push, since mostly none has expired."""
        if now_ms - self._looked_ms >= _LOOKS_FOR_ROOM_MS:
            self._looked_ms = now_ms
            self._drop_old(now_ms)

    def _drop_old(self, now_ms: int) -> None:
        for old in [each for each in self._clients.values() if each.until_ms <= now_ms]:
            self.forget(old.id)
