"""One run of a design under a load, and what its figures say.

A *design* is ours (`wheel`), the one before it (`queue`), or Apache Kafka's own (`kafka`). A
rate is *followed* when at least 97 % of it was reached, the 99th percentile of the lateness of
time-outs is at most 50 ms, and the share that expired is within one point of what the
distribution says: a design whose completing thread starves would else look fast.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks import native
from benchmarks.purgatory.workload import FEW, MANY, Workload

FOLLOWED_SHARE = 0.97
FOLLOWED_LATE_P99_MS = 50
FOLLOWED_EXPIRED_POINTS = 0.01

DESIGNS = ("wheel", "queue", "kafka")


@dataclass(frozen=True)
class Options:
    """A run. Rate 0: as fast as it goes. `seconds` ends a run early when it is not 0."""

    design: str = "wheel"
    requests: int = 1_000_000
    rate: float = 0
    seconds: float = 0
    timeout_ms: int = 200
    p50_ms: float = FEW.p50_ms
    p75_ms: float = FEW.p75_ms
    completions: str = "wheel"
    purge: str = "amortised"
    sweep: str = "iterator"
    purge_interval: int = 1000
    request_bytes: int = 100
    memory_mb: int = 200

    @property
    def workload(self) -> Workload:
        """The workload, with the name of the published ones."""
        for known in (FEW, MANY):
            if (known.p50_ms, known.p75_ms) == (self.p50_ms, self.p75_ms):
                return replace_timeout(known, self.timeout_ms)
        return Workload("own", self.p50_ms, self.p75_ms, self.timeout_ms)

    @property
    def label(self) -> str:
        """The design and the variant of it."""
        if self.design == "queue":
            return f"queue, sweep by {self.sweep}"
        if self.design == "wheel" and self.purge != "amortised":
            return "wheel, published purge"
        return self.design

    def at_rate(self, rate: float, seconds: float) -> "Options":
        """The same with a target rate, for so long."""
        return replace(self, rate=rate, requests=max(1000, round(rate * seconds)), seconds=0)


def replace_timeout(workload: Workload, timeout_ms: int) -> Workload:
    """The workload with another time-out; its name only fits the published one."""
    name = workload.name if timeout_ms == workload.timeout_ms else "own"
    return workload._replace(name=name, timeout_ms=timeout_ms)


def measure(options: Options) -> dict[str, Any]:
    """Runs it; the figures as `--json` prints them."""
    if options.design == "kafka":
        from benchmarks.peers import kafka_purgatory

        raw: dict[str, Any] = kafka_purgatory.run(asdict(options))
    else:
        raw = json.loads(native.run("benchmarks.purgatory.measure", json.dumps(asdict(options))))
    figures: dict[str, Any] = {
        "design": options.design,
        "label": options.label,
        "workload": options.workload.name,
        "completions": options.completions,
        "target_per_s": options.rate,
    }
    if "error" in raw:
        return {**figures, "error": raw["error"], "followed": False}
    lateness = raw.pop("lateness_ms")
    figures |= raw
    figures["late_p50_ms"] = quantile(lateness, 0.5)
    figures["late_p99_ms"] = quantile(lateness, 0.99)
    figures["expected_expired_share"] = round(options.workload.expired_share, 4)
    figures["expired_share"] = round(figures["expired"] / figures["requests"], 4)
    figures["followed"] = followed(figures)
    figures["lateness_ms"] = lateness
    return figures


def followed(figures: Mapping[str, Any]) -> bool:
    """Whether the design kept up with its target rate; there is none to follow at rate 0."""
    off = abs(figures["expired_share"] - figures["expected_expired_share"])
    late_ms = figures["late_p99_ms"]
    return bool(
        figures["target_per_s"] > 0
        and figures["enqueued_per_s"] >= FOLLOWED_SHARE * figures["target_per_s"]
        and (late_ms is None or late_ms <= FOLLOWED_LATE_P99_MS)
        and off <= FOLLOWED_EXPIRED_POINTS
    )


def quantile(histogram: Mapping[str, int], share: float) -> int | None:
    """A quantile of counts by milliseconds; None when there are none."""
    total = sum(histogram.values())
    seen = 0
    for milliseconds in sorted(histogram, key=int):
        seen += histogram[milliseconds]
        if seen >= share * total:
            return int(milliseconds)
    return None
