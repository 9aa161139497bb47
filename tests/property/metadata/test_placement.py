"""Whatever the brokers and racks, placements keep what operators rely on."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.topics.placement import PlacementBroker, place_replicas


@given(
    racks=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=12),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 12),
    start=st.integers(0, 50),
    shift=st.integers(0, 50),
)
def test_placements(
    racks: list[str | None], partitions: int, factor: int, start: int, shift: int
) -> None:
    """Replicas are distinct, leaders are even, and every rack is used that can be."""
    brokers = [PlacementBroker(number, rack) for number, rack in enumerate(racks)]
    factor = min(factor, len(brokers))
    placed = place_replicas(brokers, partitions, factor, start=start, shift=shift)
    assert len(placed) == partitions
    assert all(len(set(replicas)) == len(replicas) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[broker.id] for broker in brokers]
    assert max(counts) - min(counts) <= 1
    if None not in racks:
        for replicas in placed:
            assert len({racks[replica] for replica in replicas}) == min(factor, len(set(racks)))
