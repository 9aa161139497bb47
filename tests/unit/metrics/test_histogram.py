"""Distributions: exact below 128, close above, the newest counting most."""

from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.metrics import Histogram
from odradek.metrics.histogram import QUANTILES


@given(st.lists(st.integers(0, 1 << 40), min_size=2, max_size=200))
def test_all_values_are_in_the_moments(values):
    """Fails when count, least, most, mean or deviation is of some values only."""
    histogram = Histogram()
    for value in values:
        histogram.update(0, value)
    assert (histogram.count, histogram.least, histogram.most) == (
        len(values),
        min(values),
        max(values),
    )
    assert histogram.mean == pytest.approx(mean(values))
    assert histogram.deviation == pytest.approx(stdev(values), rel=1e-9, abs=1e-6)


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=200))
def test_quantiles_are_within_one_percent(values):
    """Fails when a board would show a time that nothing has taken."""
    histogram = Histogram()
    for value in values:
        histogram.update(0, value)
    ordered = sorted(values)
    for share, found in zip(QUANTILES, histogram.quantiles(), strict=True):
        # Rounding may move a share that falls between two values to either.
        place = share * len(ordered)
        near = {ordered[max(min(int(place) + step, len(ordered) - 1), 0)] for step in (-1, 0)}
        assert any(abs(found - value) <= value * 0.01 for value in near)


def test_many_at_once_are_as_many_one_by_one():
    """Fails when requests that took no time are counted differently."""
    one_by_one, at_once = Histogram(), Histogram()
    for _ in range(5):
        one_by_one.update(0, 3)
    at_once.update(0, 3, 5)
    for each in ("count", "total", "least", "most", "mean", "deviation"):
        assert getattr(one_by_one, each) == getattr(at_once, each), each
    assert one_by_one.quantiles() == at_once.quantiles()


def test_newer_values_count_more():
    """Fails when what was slow an hour ago hides that it is quick now."""
    histogram = Histogram()
    for _ in range(1000):
        histogram.update(0, 100)
    assert histogram.quantiles()[0] == 100
    for _ in range(100):
        histogram.update(600_000, 1)
    assert histogram.quantiles()[0] == 1
    assert histogram.most == 100


def test_weights_are_brought_back_after_an_hour():
    """Fails when weights grow until they are infinite, after some days."""
    histogram = Histogram()
    for hour in range(24 * 30):
        histogram.update(hour * 3_600_000, 7)
    assert histogram.quantiles() == [7.0] * 6
    assert histogram.count == 720


def test_without_values_there_is_nothing():
    """Fails when an API that nobody has asked breaks a scrape."""
    histogram = Histogram()
    assert histogram.quantiles() == [0.0] * 6
    assert (histogram.mean, histogram.deviation) == (0.0, 0.0)


def test_a_clock_that_went_back_gives_no_negative_times():
    """Fails when a negative value breaks the buckets."""
    histogram = Histogram()
    histogram.update(0, -5)
    assert (histogram.least, histogram.most, histogram.quantiles()[0]) == (0, 0, 0.0)
