"""`IsrMeters`: how often ISRs shrink and grow, and how often the store refuses that."""

from collections.abc import Iterator

from odradek.clock import Clock
from odradek.errors import BrokerError
from odradek.metadata.image import PartitionImage
from odradek.metrics import Meter, Sample


class IsrMeters:
    """Counts the outcome of each proposal that this broker makes as a leader."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now_ms = clock.monotonic_ms()
        self.shrinks = Meter(now_ms)
        self.expands = Meter(now_ms)
        self.failed = Meter(now_ms)

    def count(self, size_before: int, outcome: PartitionImage | BrokerError) -> None:
        """Counts an outcome; `size_before` is the size of the ISR when it was proposed."""
        meter = self.expands
        if isinstance(outcome, BrokerError):
            meter = self.failed
        elif len(outcome.isr) < size_before:
            meter = self.shrinks
        meter.mark(self._clock.monotonic_ms())

    def samples(self) -> Iterator[Sample]:
        """The meters under Kafka's names."""
        for name, meter in (
            ("IsrShrinksPerSec", self.shrinks),
            ("IsrExpandsPerSec", self.expands),
            ("FailedIsrUpdatesPerSec", self.failed),
        ):
            yield Sample("kafka.server", "ReplicaManager", name, meter)
