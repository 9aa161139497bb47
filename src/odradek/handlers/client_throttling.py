"""`ClientThrottling`: charges requests against the quotas of their clients (KIP-13, KIP-219).

The network mutes the connection of a client over its quota for as long as the response says. A
fetch over its quota is answered without records, which are not charged then; any fetch reads at
most what its client may have in one go. Records for a member of a share group are locked for it
when they are charged: it gets them, as a producer over its quota has its records written.

A handler's time is charged when it has finished, like that of Kafka's network threads: the client
sees it in the next response. Requests of brokers are exempt. The larger of two throttle times
applies.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.client_quota import QuotaKey
from odradek.handlers.api import Cost
from odradek.handlers.request import Request, RequestQuotas
from odradek.handlers.request_metrics import FETCH_FOLLOWER
from odradek.model import AclOperation
from odradek.security.quotas import ClientRates, Limit, MutationBuckets, QuotaLimits

if TYPE_CHECKING:
    from odradek.handlers.api import Api

SHARE_FETCH_KEY: Final = 78
NS_PER_PERCENT: Final = 10_000_000
"""A hundredth of a second of each second."""


class ClientThrottling(RequestQuotas):
    """Charges by the quotas in `limits`; `rates` and `buckets` remember the use. `busy_ns` is the
    clock for the time of handlers."""

    def __init__(
        self,
        limits: QuotaLimits,
        rates: ClientRates,
        buckets: MutationBuckets,
        busy_ns: Callable[[], int],
    ) -> None:
        self._limits: Final = limits
        self._rates: Final = rates
        self._buckets: Final = buckets
        self._busy_ns: Final = busy_ns

    def throttle_time_ms(self, request: Request, api: "Api") -> int:
        """See `RequestQuotas`."""
        limit = self._time_limit(request, api)
        for_time_ms = 0 if limit is None else self._rates.owed_ms(limit)
        if api.cost is Cost.PRODUCED_BYTES:
            limit = self._limit(request, QuotaKey.PRODUCER_BYTES)
            for_bytes_ms = 0 if limit is None else self._rates.charge(limit, request.size_bytes)
            return max(for_bytes_ms, for_time_ms)
        if api.cost is Cost.FETCHED_BYTES and request.used:
            return self._charge_fetch(request, for_time_ms, is_shared=api.key == SHARE_FETCH_KEY)
        if api.cost is Cost.CONTROLLER_MUTATIONS:
            return max(request.used, for_time_ms)
        return for_time_ms

    def busy_ns(self) -> int:
        """See `RequestQuotas`."""
        return self._busy_ns()

    def took(self, request: Request, api: "Api", time_ns: int) -> None:
        """See `RequestQuotas`."""
        limit = self._time_limit(request, api)
        if limit is not None:
            self._rates.charge(limit, time_ns)

    def may_mutate(self, request: Request, count: int, is_strict: bool) -> bool:
        """See `RequestQuotas`; `used` becomes the time for which the client is throttled."""
        limit = self._limit(request, QuotaKey.CONTROLLER_MUTATIONS)
        if limit is None:
            return True
        wait_ms = self._buckets.wait_ms(limit)
        if wait_ms and is_strict:
            request.used = wait_ms
            return False
        self._buckets.take(limit, count)
        if not is_strict:
            request.used = self._buckets.wait_ms(limit)
        return True

    def most_to_fetch(self, request: Request) -> int | None:
        """See `RequestQuotas`."""
        limit = self._limit(request, QuotaKey.CONSUMER_BYTES)
        return None if limit is None else self._rates.most_at_once(limit)

    def _charge_fetch(self, request: Request, for_time_ms: int, *, is_shared: bool) -> int:
        limit = self._limit(request, QuotaKey.CONSUMER_BYTES)
        if limit is None:
            return for_time_ms
        wait_ms = max(self._rates.charge(limit, request.used), for_time_ms)
        if wait_ms and not is_shared:
            self._rates.give_back(limit, request.used)
        return wait_ms

    def _time_limit(self, request: Request, api: "Api") -> Limit | None:
        permission = api.permission
        is_of_broker = permission is not None and (
            permission.operation is AclOperation.CLUSTER_ACTION
        )
        if is_of_broker or request.variant == FETCH_FOLLOWER:
            return None
        limit = self._limit(request, QuotaKey.REQUEST_TIME)
        return limit and limit._replace(per_second=limit.per_second * NS_PER_PERCENT)

    def _limit(self, request: Request, key: QuotaKey) -> Limit | None:
        user = request.exchange.principal.name
        return self._limits.find(key, user, request.client_id or "")
