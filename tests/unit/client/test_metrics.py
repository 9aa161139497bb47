"""If these fail, what clients say of themselves is not so."""

from math import isnan

from odradek.client.core.metrics import ClientMetrics
from odradek.client.core.network.traffic import Traffic
from odradek.clock import ManualClock


def test_totals_stay_and_rates_fade() -> None:
    clock = ManualClock()
    metrics = ClientMetrics(clock, "producer-metrics")
    metrics.meter("record-send").add(60)
    metrics.meter("record-send").add(30)
    assert metrics.snapshot() == {
        "producer-metrics": {"record-send-total": 90, "record-send-rate": 3}
    }
    clock.advance(90_000)
    assert metrics.snapshot()["producer-metrics"]["record-send-rate"] == 0
    assert metrics.snapshot()["producer-metrics"]["record-send-total"] == 90


def test_what_is_rare_is_counted_by_the_hour() -> None:
    metrics = ClientMetrics(ManualClock(), "consumer-metrics")
    metrics.meter("rebalance", is_rare=True).add(3)
    assert metrics.snapshot() == {
        "consumer-metrics": {"rebalance-total": 3, "rebalance-rate-per-hour": 360}
    }


def test_averages_and_maxima_are_of_late() -> None:
    clock = ManualClock()
    metrics = ClientMetrics(clock, "producer-metrics")
    latency = metrics.average("request-latency")
    assert isnan(latency.mean())
    latency.add(10)
    clock.advance(30_000)
    latency.add(2)
    assert (latency.mean(), latency.largest()) == (6, 10)
    clock.advance(30_000)
    assert (latency.mean(), latency.largest()) == (2, 2)
    clock.advance(30_000)
    assert isnan(latency.largest())
    metrics.average("records-per-request", has_maximum=False)
    names = set(metrics.snapshot()["producer-metrics"])
    assert names == {"request-latency-avg", "request-latency-max", "records-per-request-avg"}


def test_what_is_of_a_topic_has_a_group_of_its_own() -> None:
    metrics = ClientMetrics(ManualClock(), "producer-metrics")
    metrics.meter("byte", "producer-topic-metrics.orders").add(7)
    metrics.gauge("connection-count", lambda: 2)
    assert metrics.snapshot() == {
        "producer-topic-metrics.orders": {"byte-total": 7, "byte-rate": 7 / 30},
        "producer-metrics": {"connection-count": 2},
    }


def test_traffic_is_counted_of_each_broker_and_of_all() -> None:
    clock = ManualClock()
    whole = Traffic(clock)
    one, other = Traffic(clock, whole), Traffic(clock, whole)
    sent_ms = one.sent(60)
    clock.advance(40)
    one.received(600, sent_ms)
    other.sent(30)
    of_one, of_all = one.values(), whole.values()
    assert (of_one["outgoing-byte-total"], of_one["incoming-byte-total"]) == (60, 600)
    assert (of_one["request-latency-avg"], of_one["request-latency-max"]) == (40, 40)
    assert (of_all["request-total"], of_all["response-total"]) == (2, 1)
    assert (of_all["request-size-avg"], of_all["request-size-max"]) == (45, 60)
    assert "request-latency-avg" not in of_all
