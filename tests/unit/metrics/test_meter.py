"""Counts and their moving averages, as Kafka's meters have them."""

from math import exp

import pytest

from odradek.metrics import Meter


def test_a_count_never_needs_the_time_to_be_right():
    """Fails when events are lost between two steps."""
    meter = Meter(0)
    for now_ms in range(0, 20_000, 7):
        meter.mark(now_ms, 3)
    assert meter.count == 3 * len(range(0, 20_000, 7))


def test_rates_follow_the_published_averages():
    """Fails when rates are others than Kafka's: steps of 5 s, the first one whole."""
    meter = Meter(0)
    meter.mark(1000, 50)
    assert meter.rates(4999)[:3] == (0.0, 0.0, 0.0)
    assert meter.rates(5000)[:3] == (10.0, 10.0, 10.0)
    meter.mark(6000, 100)
    kept = exp(-5 / 60)
    assert meter.rates(10_000).one_minute == pytest.approx(10 * kept + 20 * (1 - kept))


def test_idle_steps_decay_as_if_each_had_been_taken():
    """Fails when a meter that nobody marks keeps an old rate."""
    stepped, left_alone = Meter(0), Meter(0)
    for meter in (stepped, left_alone):
        meter.mark(100, 600)
    for now_ms in range(5000, 120_001, 5000):
        stepped.rates(now_ms)
    assert left_alone.rates(120_000) == pytest.approx(stepped.rates(120_000))
    assert 0 < left_alone.rates(120_000).one_minute < 120 * 0.2


def test_the_mean_is_that_of_its_life():
    """Fails when the mean forgets, or divides by nothing at the start."""
    meter = Meter(1000)
    meter.mark(1000, 10)
    assert meter.rates(1000).mean == 0.0
    assert meter.rates(3000).mean == 5.0
