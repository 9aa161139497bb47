"""The traffic of connections, counted by the names that Kafka's clients have for it: of a client as
a whole, and of each broker."""

from odradek.client.core.metrics import Average, Meter
from odradek.clock import Clock


class Traffic:
    """With one broker; also added to `whole`."""

    def __init__(self, clock: Clock, whole: "Traffic | None" = None) -> None:
        self._clock = clock
        self._whole = whole
        self._outgoing = Meter(clock)
        self._incoming = Meter(clock)
        self._requests = Meter(clock)
        self._responses = Meter(clock)
        self._sizes = Average(clock)
        self._latency = Average(clock)

    def sent(self, size_bytes: int) -> int:
        """A request leaves; returns the time for `received`."""
        self._requests.add()
        self._outgoing.add(size_bytes)
        self._sizes.add(size_bytes)
        if self._whole is not None:
            self._whole.sent(size_bytes)
        return self._clock.monotonic_ms()

    def received(self, size_bytes: int, sent_ms: int) -> None:
        """The answer to a request that left at that time."""
        self._responses.add()
        self._incoming.add(size_bytes)
        self._latency.add(self._clock.monotonic_ms() - sent_ms)
        if self._whole is not None:
            self._whole.received(size_bytes, sent_ms)

    def values(self) -> dict[str, float]:
        """All of it as it is now."""
        meters = {
            "outgoing-byte": self._outgoing,
            "incoming-byte": self._incoming,
            "request": self._requests,
            "response": self._responses,
        }
        averages = {"request-size": self._sizes}
        if self._whole is not None:  # of a client as a whole it is something else's
            averages["request-latency"] = self._latency
        return {
            **{f"{name}-total": meter.total() for name, meter in meters.items()},
            **{f"{name}-rate": meter.rate() for name, meter in meters.items()},
            **{f"{name}-avg": average.mean() for name, average in averages.items()},
            **{f"{name}-max": average.largest() for name, average in averages.items()},
        }
