"""Replica placement (R19): leaders and replicas spread evenly, racks apart."""

from collections import Counter

import pytest

from odradek.controller.topics.placement import PlacementBroker, place_replicas
from odradek.errors import BrokerError, ErrorCode


def _brokers(*racks: str | None) -> list[PlacementBroker]:
    return [PlacementBroker(number, rack) for number, rack in enumerate(racks)]


def test_the_example_of_the_specification() -> None:
    """3 brokers, 3 partitions, 2 replicas: everyone leads one and follows one."""
    placed = place_replicas(_brokers(None, None, None), 3, 2, start=0, shift=0)
    assert placed == ((0, 1), (1, 2), (2, 0))


def test_the_distance_grows_with_every_round() -> None:
    """Otherwise one broker would take over all partitions of one that failed."""
    placed = place_replicas(_brokers(*[None] * 5), 10, 3, start=0, shift=0)
    assert placed == (
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    )  # fmt: skip


def test_racks_alternate_and_every_rack_gets_a_replica() -> None:
    """Six brokers in three racks, three replicas: one in each rack, leaders even."""
    brokers = _brokers("a", "b", "b", "c", "c", "a")
    racks = {broker.id: broker.rack for broker in brokers}
    placed = place_replicas(brokers, 12, 3, start=1, shift=2)
    assert all({racks[replica] for replica in replicas} == {"a", "b", "c"} for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {2}


def test_more_replicas_than_racks_still_uses_every_rack() -> None:
    """Two racks, three replicas."""
    placed = place_replicas(_brokers("a", "a", "b", "b"), 8, 3, start=0, shift=0)
    for replicas in placed:
        assert len(set(replicas)) == 3
        assert {replica // 2 for replica in replicas} == {0, 1}


def test_racks_do_not_count_when_one_is_unknown() -> None:
    """A broker without a rack may share one with any of the others."""
    with_racks = place_replicas(_brokers("a", None, "a"), 3, 2, start=0, shift=0)
    assert with_racks == place_replicas(_brokers(None, None, None), 3, 2, start=0, shift=0)


def test_added_partitions_go_on_where_the_topic_ended() -> None:
    """Growing a topic step by step spreads it as creating it at once does."""
    brokers = _brokers(*[None] * 5)
    whole = place_replicas(brokers, 10, 3, start=2, shift=1)
    added = place_replicas(brokers, 6, 3, start=2, shift=1, first_partition=4)
    assert whole[4:] == added


@pytest.mark.parametrize("factor", [-2, 0, 4])
def test_refuses_a_factor_that_cannot_be(factor: int) -> None:
    """A partition with fewer replicas than asked for would look safe and not be."""
    with pytest.raises(BrokerError) as caught:
        place_replicas(_brokers(None, None, None), 1, factor, start=0, shift=0)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_no_broker_at_all_is_an_error_of_the_request() -> None:
    """Not a division by zero."""
    with pytest.raises(BrokerError):
        place_replicas([], 1, 1, start=0, shift=0)
