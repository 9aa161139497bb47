"""Charges clients as long as there are quotas: without one nothing of it is imported, and no
request is asked about."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from odradek.client_quota import DEFAULT, QuotaEntity, QuotaKey, Quotas, plain_ip
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.handlers.request import RequestQuotas
from odradek.metadata.image import MetadataDelta

if TYPE_CHECKING:
    from odradek.security.quotas import QuotaLimits

_LOG: Final = logging.getLogger(__name__)


class ClientQuotas:
    """Follows the metadata; `charge` gets the object that charges requests from now on, or None,
    and `limit_addresses` the rates at which all addresses, and single ones, may connect."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        charge: Callable[[RequestQuotas | None], None],
        limit_addresses: Callable[[int | None, Mapping[str, int]], None],
    ) -> None:
        self._config: Final = config
        self._clock: Final = clock
        self._charge: Final = charge
        self._limit_addresses: Final = limit_addresses
        self._limits: QuotaLimits | None = None
        self._throttling: RequestQuotas | None = None

    def apply(self, delta: MetadataDelta) -> None:
        """Follows a published change."""
        if not delta.client_quotas_changed:
            return
        if any(entity.ip is not None for entity in delta.client_quotas_changed):
            self._limit_addresses(*_connection_rates(delta.image.client_quotas))
        if self._limits is None:
            self._begin()
        assert self._limits is not None, "it has just begun"
        self._limits.apply(delta)
        self._charge(self._throttling if self._limits else None)

    def _begin(self) -> None:
        from odradek.handlers.client_throttling import ClientThrottling
        from odradek.security.quotas import ClientRates, MutationBuckets, QuotaLimits

        self._limits = QuotaLimits()
        self._throttling = ClientThrottling(
            self._limits,
            ClientRates(
                self._clock,
                self._config["quota.window.num"],
                self._config["quota.window.size.seconds"] * 1000,
            ),
            MutationBuckets(
                self._clock,
                self._config["controller.quota.window.num"],
                self._config["controller.quota.window.size.seconds"] * 1000,
            ),
            self._busy_ns,
        )

    def _busy_ns(self) -> int:
        # Most handlers take less than a millisecond. One in many crosses a tick of this clock and
        # counts as a whole one: the average is right.
        return self._clock.monotonic_ms() * 1_000_000


def _connection_rates(
    quotas: Mapping[QuotaEntity, Quotas],
) -> tuple[int | None, Mapping[str, int]]:
    """The default limit of addresses, and those of single ones."""
    default: int | None = None
    limits: dict[str, int] = {}
    for entity, values in quotas.items():
        rate = values.get(QuotaKey.CONNECTION_CREATION)
        if entity.ip is None or rate is None:
            continue
        if entity.ip == DEFAULT:
            default = int(rate)
            continue
        try:
            limits[plain_ip(entity.ip)] = int(rate)
        except ValueError as error:
            _LOG.warning("A connection quota has no effect: %s", error)
    return default, limits
