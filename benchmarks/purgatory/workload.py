"""Requests as the published benchmark draws them, and what must come of them.

Arrivals are a Poisson process: exponential gaps. Times to completion are log-normal, given by
their median and upper quartile. Both are drawn before a clock starts.
"""

import math
import random
from typing import NamedTuple

NORMAL_UPPER_QUARTILE = 0.67448975
NEVER_MS = 1_000_000
SAMPLES = 200_000
SEED = 20151029


class Workload(NamedTuple):
    """How long requests take, and how long they may."""

    name: str
    p50_ms: float
    p75_ms: float
    timeout_ms: int = 200

    @property
    def sigma(self) -> float:
        """Spread of the logarithm."""
        return (math.log(self.p75_ms) - math.log(self.p50_ms)) / NORMAL_UPPER_QUARTILE

    @property
    def expired_share(self) -> float:
        """Which share cannot complete in time, says the distribution."""
        score = (math.log(self.timeout_ms) - math.log(self.p50_ms)) / self.sigma
        return 0.5 * math.erfc(score / math.sqrt(2))


FEW = Workload("few", 20, 60)
MANY = Workload("many", 200, 400)


def draw_arrivals_ms(requests: int, rate: float) -> list[int]:
    """When each request comes, in whole milliseconds from the start; none without a rate."""
    if rate <= 0:
        return []
    draw, log, mean_ms = random.Random(SEED).random, math.log, 1000 / rate
    arrivals: list[int] = []
    at_ms = 0.0
    present = 0
    for _ in range(requests):
        at_ms -= log(1 - draw()) * mean_ms
        # The same object as before while the millisecond lasts: a million of them take room.
        present = present if int(at_ms) == present else int(at_ms)
        arrivals.append(present)
    return arrivals


def draw_latencies_ms(requests: int, workload: Workload) -> list[int]:
    """How long each request takes; all that cannot end in time take the same, very long."""
    rng = random.Random(SEED + 1)
    mean = math.log(workload.p50_ms)
    sigma = workload.sigma
    latencies = []
    for _ in range(min(requests, SAMPLES)):
        latency_ms = int(math.exp(rng.gauss(mean, sigma)))
        latencies.append(latency_ms if latency_ms < workload.timeout_ms else NEVER_MS)
    return latencies
