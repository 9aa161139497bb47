"""Counters, rates and distributions as Kafka keeps them, and the names that it gives them.

Parts of the broker own the ones that are about them and say how much happened, with the time that
they are handed; who shows them reads them from there. No clock, no registry, no I/O.
"""

from odradek.metrics.histogram import Histogram
from odradek.metrics.meter import Meter, Rates
from odradek.metrics.sample import Sample, Value

__all__ = ["Histogram", "Meter", "Rates", "Sample", "Value"]
