"""Counters, rates and distributions as Kafka keeps them, and the names that it gives them.

Each part of the broker owns its metrics and records how much happened, with the time that it gets;
reporters read them from there. No clock, no registry, no I/O.
"""

from odradek.metrics.histogram import Histogram
from odradek.metrics.meter import Meter, Rates
from odradek.metrics.sample import Sample, Value

__all__ = ["Histogram", "Meter", "Rates", "Sample", "Value"]
