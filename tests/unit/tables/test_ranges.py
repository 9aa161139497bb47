"""If these fail, Spark's tasks overlap, leave something out, or are not the same when repeated."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.model import TopicPartition
from odradek.tables.plan.ranges import (
    OffsetRange,
    cut_at,
    cut_by_size,
    cut_into_at_least,
    ranges_between,
    share_budget,
)

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))
RANGES = st.lists(
    st.tuples(st.integers(0, 10**12), st.integers(1, 10**6)), min_size=1, max_size=5
).map(
    lambda spans: [
        OffsetRange(TopicPartition("t", index), start, start + size)
        for index, (start, size) in enumerate(spans)
    ]
)


def joined(pieces: list[OffsetRange]) -> list[OffsetRange]:
    """The pieces of each partition put together again; fails on gaps and overlaps."""
    whole: dict[TopicPartition, OffsetRange] = {}
    for piece in pieces:
        assert piece.size > 0
        before = whole.get(piece.topic_partition)
        assert before is None or before.end == piece.start
        start = piece.start if before is None else before.start
        whole[piece.topic_partition] = OffsetRange(piece.topic_partition, start, piece.end)
    return list(whole.values())


def test_partitions_without_news_have_no_range() -> None:
    ranges = ranges_between({P0: 3, P1: 5, P2: 9}, {P0: 10, P1: 5, P2: 4})
    assert ranges == [OffsetRange(P0, 3, 10)]


def test_cuts_outside_a_range_do_nothing() -> None:
    pieces = cut_at([OffsetRange(P0, 10, 30), OffsetRange(P1, 0, 5)], {P0: [0, 10, 20, 30, 40]})
    assert pieces == [OffsetRange(P0, 10, 20), OffsetRange(P0, 20, 30), OffsetRange(P1, 0, 5)]


@given(RANGES, st.integers(1, 200))
def test_min_partitions_cuts_without_loss(ranges: list[OffsetRange], minimum: int) -> None:
    pieces = cut_into_at_least(ranges, minimum)
    assert joined(pieces) == ranges
    assert len(pieces) <= minimum + len(ranges)


def test_min_partitions_cuts_the_larger_ranges_more() -> None:
    pieces = cut_into_at_least([OffsetRange(P0, 0, 900), OffsetRange(P1, 0, 100)], 10)
    assert [piece.topic_partition for piece in pieces].count(P0) == 9
    assert len(pieces) == 10


@given(RANGES, st.integers(10**4, 10**7))
def test_no_piece_is_larger_than_the_maximum(ranges: list[OffsetRange], maximum: int) -> None:
    pieces = cut_by_size(ranges, maximum)
    assert joined(pieces) == ranges
    assert max(piece.size for piece in pieces) <= maximum


@given(
    st.dictionaries(st.sampled_from([P0, P1, P2]), st.integers(0, 10**9), min_size=1),
    st.integers(1, 10**6),
)
def test_a_budget_is_shared_and_nobody_starves(waiting: dict[TopicPartition, int], b: int) -> None:
    start = dict.fromkeys(waiting, 100)
    latest = {partition: 100 + count for partition, count in waiting.items()}
    end = share_budget(start, latest, b)
    taken = {partition: end[partition] - 100 for partition in waiting}
    assert all(0 <= taken[partition] <= waiting[partition] for partition in waiting)
    assert all(taken[partition] for partition in waiting if waiting[partition])
    assert sum(taken.values()) <= b + len(waiting)


def test_a_budget_larger_than_what_waits_takes_all() -> None:
    assert share_budget({P0: 0, P1: 7}, {P0: 10, P1: 7}, 1000) == {P0: 10, P1: 7}
