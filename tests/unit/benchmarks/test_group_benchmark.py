"""How long the newer protocol takes to settle, on a clock that is moved."""

import pytest
from benchmarks.groups import measure_consumer_settling


@pytest.mark.parametrize(("rest_ms", "settled_ms"), [(0, 200), (1_000, 1_000)])
def test_a_hundred_members_settle_within_a_second_of_heartbeats(rest_ms, settled_ms):
    """Fails when a thousand partitions take more heartbeats to find their readers: one round of
    them without a rest between assignments, and no more than Kafka's rest with it."""
    figures = measure_consumer_settling(rest_ms)
    assert figures[f"consumer_settle_rest_{rest_ms}_ms"] == settled_ms
