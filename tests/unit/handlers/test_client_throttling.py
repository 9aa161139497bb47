"""Requests are charged for the time of their handlers besides bytes."""

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.client_quota import QuotaEntity, QuotaKey
from odradek.clock import ManualClock
from odradek.handlers.api import Api
from odradek.handlers.client_throttling import ClientThrottling
from odradek.handlers.table import ZOOKEEPER_API_TABLE
from odradek.metadata.image import MetadataImage
from odradek.metadata.quota_changes import alter_client_quotas
from odradek.security.quotas import ClientRates, MutationBuckets, QuotaLimits

PRODUCE, FETCH, METADATA, UPDATE_METADATA, SHARE_FETCH = 0, 1, 3, 6, 78


class Broker:
    """One with quotas of `alice`, on a clock that stands."""

    def __init__(self, **quotas: float) -> None:
        self.clock = ManualClock(monotonic_ms=1_000_000)
        limits = QuotaLimits()
        values = {QuotaKey(key): value for key, value in quotas.items()}
        change = alter_client_quotas(MetadataImage("c"), {QuotaEntity(user="alice"): values})
        assert change.delta is not None
        limits.apply(change.delta)
        rates = ClientRates(self.clock, 11, 1000)
        buckets = MutationBuckets(self.clock, 11, 1000)
        self.quotas = ClientThrottling(limits, rates, buckets, lambda: 0)

    def ask(self, key: int, time_ms: int = 0, **fields: Any) -> int:
        """A request that takes so long; for how long its client is then left alone."""
        request: Any = SimpleNamespace(
            exchange=SimpleNamespace(principal=SimpleNamespace(name="alice")),
            client_id="app",
            variant="",
            used=0,
            size_bytes=0,
        )
        vars(request).update(fields)
        api: Api = ZOOKEEPER_API_TABLE[key]
        throttle_ms = self.quotas.throttle_time_ms(request, api)
        self.quotas.took(request, api, time_ms * 1_000_000)
        return throttle_ms


def test_time_over_the_quota_is_told_with_the_next_answer() -> None:
    """A client of slow requests would keep the thread to itself; told at once, what a request
    takes after its answer would be nobody's."""
    broker = Broker(request_percentage=1.0)
    assert broker.ask(METADATA, time_ms=100) == 0
    assert broker.ask(METADATA, time_ms=5) == 0, "a hundredth of ten seconds"
    assert broker.ask(METADATA) == 500, "(O - T) / T x W"
    broker.clock.advance(500)
    assert broker.ask(METADATA) == 0


def test_a_throttle_for_time_is_a_window_at_most() -> None:
    """As with Kafka: one slow request would shut a client out for minutes."""
    broker = Broker(request_percentage=1.0)
    broker.ask(METADATA, time_ms=60_000)
    assert broker.ask(METADATA) == 1000


@pytest.mark.parametrize(
    ("key", "fields"),
    [(UPDATE_METADATA, {}), (FETCH, {"variant": "FetchFollower"})],
)
def test_brokers_are_exempt(key: int, fields: dict[str, Any]) -> None:
    """A cluster would fall out of sync for a quota of its users."""
    broker = Broker(request_percentage=1.0)
    broker.ask(METADATA, time_ms=60_000)
    assert broker.ask(key, time_ms=60_000, **fields) == 0
    broker.clock.advance(11_000)
    assert broker.ask(METADATA) == 0, "their time is not counted either"


@pytest.mark.parametrize(
    ("size_bytes", "throttle_ms"), [(10_100, 500), (10_400, 500), (10_700, 700)]
)
def test_the_larger_of_two_throttles_holds(size_bytes: int, throttle_ms: int) -> None:
    """KIP-219: the sum of both would punish twice."""
    broker = Broker(request_percentage=1.0, producer_byte_rate=1000.0)
    broker.ask(METADATA, time_ms=105)
    assert broker.ask(PRODUCE, size_bytes=size_bytes) == throttle_ms


def test_a_fetch_that_is_throttled_for_time_is_not_charged_for_bytes() -> None:
    """It is answered without records: its bytes would be paid for and never come."""
    broker = Broker(request_percentage=1.0, consumer_byte_rate=1000.0)
    broker.ask(METADATA, time_ms=105)
    assert broker.ask(FETCH, used=9_000) == 500
    broker.clock.advance(500)
    assert broker.ask(FETCH, used=9_000) == 0


def test_records_that_were_handed_out_stay_charged() -> None:
    """They are locked for who has asked: left out of the answer, nobody would get them for a while,
    and given back, they would be free."""
    broker = Broker(consumer_byte_rate=1000.0)
    assert broker.ask(SHARE_FETCH, used=9_000) == 0
    assert broker.ask(SHARE_FETCH, used=6_000) == 5_000
    assert broker.ask(FETCH, used=100) == 5_100, "it is one quota for all that a client reads"


def test_partitions_that_are_owed_count_with_the_time() -> None:
    """Whichever is longer, as for bytes."""
    broker = Broker(request_percentage=1.0)
    broker.ask(METADATA, time_ms=105)
    assert broker.ask(19, used=700) == 700
    assert broker.ask(19, used=300) == 500
