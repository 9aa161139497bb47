"""Client quotas: the quota of a request, and how much of it is used up. Pure; imported with the
first quota that is set."""

from odradek.security.quotas.buckets import MutationBuckets
from odradek.security.quotas.limits import Limit, QuotaLimits
from odradek.security.quotas.rates import ClientRates

__all__ = ["ClientRates", "Limit", "MutationBuckets", "QuotaLimits"]
