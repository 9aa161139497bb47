"""`RequestMetrics`: how many requests of each API, how long each stage of theirs took, how they
ended; Kafka's `kafka.network:type=RequestMetrics`.

The stages of a request, as far as a broker with one loop has them:

    RequestQueueTimeMs  read from the socket, until it is handled
    LocalTimeMs         handled, until it is answered or has to wait
    RemoteTimeMs        waits: for bytes, replicas, members of a group
    ThrottleTimeMs      how long its client is muted afterwards

Responses do not queue and the broker does not wait for their sending, so ResponseQueueTimeMs and
ResponseSendTimeMs are 0. Times are whole milliseconds: a request that took 0 ms took 0 ms in every
stage, as most do.

The cost per request has to be minimal. So a request only adds to plain numbers of its API and
version, and once a second these are added to the meters and distributions (`fold`), with those of
other parts.

A fetch is counted as `FetchConsumer` or `FetchFollower` as well. A request without an error is
counted under NONE once, where Kafka counts each of its partitions.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.handlers.request import Request, RequestObserver
from odradek.metrics import Histogram, Meter, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.handlers.api import Api

FETCH: Final = "Fetch"
FETCH_CONSUMER: Final = "FetchConsumer"
FETCH_FOLLOWER: Final = "FetchFollower"
ALWAYS_SHOWN: Final = ("Produce", FETCH, FETCH_CONSUMER, FETCH_FOLLOWER, "Metadata")

_VARIANTS: Final = {"": 0, FETCH_CONSUMER: 1, FETCH_FOLLOWER: 2}
_NETWORK: Final = "kafka.network"
_TYPE: Final = "RequestMetrics"
MOST_THROTTLED: Final = 1000


class _Distributions:
    """The distributions of the requests of one name."""

    def __init__(self) -> None:
        self.total = Histogram()
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.throttle = Histogram()
        self.sizes = Histogram()
        # For stages that do not exist here.
        self.none = Histogram()

    def record(self, now_ms: int, request: Request) -> None:
        """Counts a request that ends now and took at least 1 ms."""
        received_ms, began_ms = request.exchange.received_ms, request.began_ms
        left_ms = now_ms if request.left_ms is None else request.left_ms
        self.total.update(now_ms, now_ms - received_ms)
        self.queue.update(now_ms, began_ms - received_ms)
        self.local.update(now_ms, left_ms - began_ms)
        self.remote.update(now_ms, now_ms - left_ms)
        self.throttle.update(now_ms, request.throttled_ms)
        self.none.update(now_ms, 0)

    def record_instant(self, now_ms: int, count: int) -> None:
        """Counts requests that took 0 ms."""
        for each in (self.total, self.queue, self.local, self.remote, self.throttle, self.none):
            each.update(now_ms, 0, count)

    def samples(self, name: str) -> Iterator[Sample]:
        """Its metrics under Kafka's names."""
        tags = (("request", name),)
        for what, histogram in (
            ("TotalTimeMs", self.total),
            ("RequestQueueTimeMs", self.queue),
            ("LocalTimeMs", self.local),
            ("RemoteTimeMs", self.remote),
            ("ThrottleTimeMs", self.throttle),
            ("ResponseQueueTimeMs", self.none),
            ("ResponseSendTimeMs", self.none),
            ("RequestBytes", self.sizes),
        ):
            yield Sample(_NETWORK, _TYPE, what, histogram, tags)


class _Row:
    """The requests of one API and version, counted since the last fold."""

    def __init__(self, name: str, kept_in: list[_Distributions], meter: Meter) -> None:
        self.name = name
        self.kept_in = kept_in
        self.meter = meter
        self.requests = 0
        self.sound = 0
        self.instant = 0
        self.sizes: dict[int, int] = {}


class RequestMetrics(RequestObserver):
    """Told of every request by the dispatcher; `apis` is its table. `on_fold` is called once a
    second, for the same work of other parts."""

    def __init__(
        self, clock: Clock, apis: "Mapping[int, Api]", on_fold: Callable[[int], None]
    ) -> None:
        self._clock = clock
        self._names = {key: api.name for key, api in apis.items()}
        self._on_fold = on_fold
        self._distributions: dict[str, _Distributions] = {
            name: _Distributions() for name in ALWAYS_SHOWN
        }
        self._rows: dict[int, _Row] = {}
        self._requests: dict[tuple[str, int], Meter] = {}
        self._errors: dict[tuple[str, int], Meter] = {}
        # Until when clients are throttled, the latest one at the end.
        self._throttled: dict[str, int] = {}
        self._second = clock.monotonic_ms() // 1000

    def received(self, request: Request) -> None:
        """See `RequestObserver`."""
        request.began_ms = self._clock.monotonic_ms()
        request.size_bytes = len(request.exchange.frame)

    def left(self, request: Request) -> None:
        """See `RequestObserver`."""
        request.left_ms = self._clock.monotonic_ms()

    def completed(self, request: Request) -> None:
        """See `RequestObserver`."""
        now_ms = self._clock.monotonic_ms()
        if now_ms // 1000 != self._second:
            self.fold(now_ms)
        kind = _VARIANTS[request.variant]
        place = request.api_key << 10 | request.api_version << 2 | kind
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = self._new_row(request, now_ms)
        row.requests += 1
        size_bytes = request.size_bytes
        row.sizes[size_bytes] = row.sizes.get(size_bytes, 0) + 1
        if request.errors is None:
            row.sound += 1
        else:
            for code, count in request.errors.items():
                self._error(row.name, code, now_ms).mark(now_ms, count)
        if now_ms <= request.exchange.received_ms and not request.throttled_ms:
            row.instant += 1
        else:
            if request.throttled_ms:
                self._note_throttled(request.client_id or "", now_ms + request.throttled_ms)
            for each in row.kept_in:
                each.record(now_ms, request)

    def _note_throttled(self, client_id: str, until_ms: int) -> None:
        throttled = self._throttled
        throttled.pop(client_id, None)
        throttled[client_id] = until_ms
        if len(throttled) > MOST_THROTTLED:
            del throttled[next(iter(throttled))]

    def throttled(self, now_ms: int) -> list[tuple[str, int]]:
        """The clients that quotas throttle, with the remaining milliseconds."""
        left = [(client_id, until_ms - now_ms) for client_id, until_ms in self._throttled.items()]
        return [each for each in left if each[1] > 0]

    def _new_row(self, request: Request, now_ms: int) -> _Row:
        name = self._names[request.api_key]
        names = (name, request.variant) if request.variant else (name,)
        kept_in = [self._distributions.setdefault(each, _Distributions()) for each in names]
        # Fetches of consumers and of followers have separate rows, and this one for both.
        meter = self._requests.setdefault((name, request.api_version), Meter(now_ms))
        return _Row(name, kept_in, meter)

    def _error(self, name: str, code: int, now_ms: int) -> Meter:
        meter = self._errors.get((name, code))
        if meter is None:
            meter = self._errors[name, code] = Meter(now_ms)
        return meter

    def fold(self, now_ms: int) -> None:
        """Adds the counts of the last second to the meters and distributions."""
        at_ms = self._second * 1000
        self._second = now_ms // 1000
        for row in self._rows.values():
            if row.requests:
                row.meter.mark(at_ms, row.requests)
                if row.sound:
                    self._error(row.name, 0, at_ms).mark(at_ms, row.sound)
                for each in row.kept_in:
                    if row.instant:
                        each.record_instant(at_ms, row.instant)
                    for size_bytes, count in row.sizes.items():
                        each.sizes.update(at_ms, size_bytes, count)
                row.requests = row.sound = row.instant = 0
                row.sizes = {}
        self._on_fold(at_ms)

    def samples(self) -> Iterator[Sample]:
        """All metrics under Kafka's names."""
        self.fold(self._clock.monotonic_ms())
        for name, each in tuple(self._distributions.items()):
            yield from each.samples(name)
        for (name, version), meter in tuple(self._requests.items()):
            tags = (("request", name), ("version", str(version)))
            yield Sample(_NETWORK, _TYPE, "RequestsPerSec", meter, tags)
        for (name, code), meter in tuple(self._errors.items()):
            tags = (("request", name), ("error", ErrorCode(code).name))
            yield Sample(_NETWORK, _TYPE, "ErrorsPerSec", meter, tags)
