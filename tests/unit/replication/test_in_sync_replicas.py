"""The arithmetic of in-sync replicas. If it is wrong, acknowledged records can be lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.replication.in_sync_replicas import InSyncReplicas

LAG_MS = 30_000


def isr(
    replicas: tuple[int, ...] = (1, 2, 3), members: tuple[int, ...] | None = None, end: int = 0
):
    return InSyncReplicas(1, replicas, members or replicas, now_ms=0, leader_log_end_offset=end)


def fetch(replicas: InSyncReplicas, broker: int, offset: int, leader_end: int, now_ms: int) -> None:
    replicas.followers[broker].record_fetch(offset, 0, leader_end, now_ms)


def test_a_lone_leader_commits_what_it_has():
    """A broker without followers must not wait for anybody."""
    assert isr((1,)).high_watermark(17, 0, LAG_MS) == 17


def test_the_slowest_member_decides():
    """A high watermark above a member's log end calls records safe that one crash can lose."""
    replicas = isr()
    fetch(replicas, 2, 10, 12, 1)
    fetch(replicas, 3, 7, 12, 1)
    assert replicas.high_watermark(12, 1, LAG_MS) == 7


def test_a_member_that_has_not_fetched_yet_holds_everything_back():
    """A new leader knows nothing of its followers; it must not guess."""
    assert isr().high_watermark(12, 0, LAG_MS) == -1


def test_a_lagging_outsider_does_not_count_and_a_caught_up_one_does():
    """The first would stop the partition; without the second nobody ever rejoins under load."""
    replicas = isr(members=(1, 2), end=10)
    fetch(replicas, 2, 12, 12, 1)
    fetch(replicas, 3, 4, 12, 1)
    assert replicas.high_watermark(12, 1, LAG_MS) == 12
    fetch(replicas, 3, 12, 12, 2)
    fetch(replicas, 2, 15, 15, 3)
    assert replicas.high_watermark(15, 3, LAG_MS) == 12
    assert replicas.high_watermark(15, 3 + LAG_MS, LAG_MS) == 15


def test_a_proposed_member_counts_before_the_store_has_agreed():
    """Either set may turn out to be the true one, so both must have the records."""
    replicas = isr(members=(1, 2))
    fetch(replicas, 2, 12, 12, 1)
    fetch(replicas, 3, 9, 12, 1)
    replicas.propose(frozenset({1, 2, 3}))
    assert replicas.maximal == {1, 2, 3}
    assert replicas.high_watermark(12, 1, LAG_MS) == 9


def test_a_member_proposed_to_leave_counts_until_it_has_left():
    replicas = isr((1, 2))
    fetch(replicas, 2, 3, 9, 1)
    replicas.propose(frozenset({1}))
    assert replicas.high_watermark(9, LAG_MS + 2, LAG_MS) == 3
    replicas.complete_proposal({1})
    assert replicas.high_watermark(9, LAG_MS + 2, LAG_MS) == 9


def test_time_and_not_distance_makes_a_replica_lag():
    """A burst puts every follower far behind at once; none of them is slow for that."""
    replicas = isr((1, 2))
    fetch(replicas, 2, 0, 0, 0)
    assert replicas.out_of_sync(1_000_000, LAG_MS, LAG_MS) == frozenset()
    assert replicas.out_of_sync(1_000_000, LAG_MS + 1, LAG_MS) == {2}


def test_a_follower_at_the_end_never_lags_however_long_nothing_is_written():
    replicas = isr((1, 2))
    fetch(replicas, 2, 5, 5, 0)
    assert replicas.out_of_sync(5, 10 * LAG_MS, LAG_MS) == frozenset()


def test_keeping_up_one_fetch_behind_is_keeping_up():
    """Under a steady load a follower is never at the end, yet it is in sync."""
    replicas = isr((1, 2))
    for step in range(1, 10):
        fetch(replicas, 2, (step - 1) * 100, step * 100, step * LAG_MS // 2)
        assert replicas.out_of_sync(step * 100, step * LAG_MS // 2, LAG_MS) == frozenset()


def test_nobody_is_thrown_out_while_a_proposal_is_open():
    replicas = isr((1, 2, 3), members=(1, 2))
    replicas.propose(frozenset({1, 2, 3}))
    assert replicas.out_of_sync(10, 10 * LAG_MS, LAG_MS) == frozenset()


@pytest.mark.parametrize(
    ("log_end", "high_watermark", "epoch_start", "may_join"),
    [(10, 10, 0, True), (9, 10, 0, False), (10, 10, 10, True), (10, 5, 11, False)],
)
def test_who_may_join(log_end: int, high_watermark: int, epoch_start: int, may_join: bool):
    """A member below the high watermark, or with another leader's tail, could lead to loss."""
    replicas = isr((1, 2), members=(1,))
    fetch(replicas, 2, log_end, 20, 1)
    assert replicas.may_join(2, high_watermark, epoch_start) is may_join


def test_members_and_strangers_do_not_join():
    replicas = isr((1, 2))
    fetch(replicas, 2, 10, 10, 1)
    assert not replicas.may_join(2, 0, 0)
    assert not replicas.may_join(7, 0, 0)


def test_min_insync_replicas_cannot_ask_for_more_than_there_are():
    """Otherwise a topic with one replica and a cluster-wide setting of 2 could not be written."""
    assert isr((1,)).effective_min_in_sync(2) == 1
    assert isr((1, 2, 3)).effective_min_in_sync(2) == 2


def test_the_low_watermark_counts_live_replicas_only():
    replicas = isr()
    replicas.followers[2].record_fetch(10, 4, 10, 1)
    replicas.followers[3].record_fetch(10, 2, 10, 1)
    assert replicas.low_watermark(5, None) == 2
    assert replicas.low_watermark(5, {1, 2}) == 4
    assert replicas.low_watermark(5, {1}) == 5


def test_reassignment_keeps_what_is_known_and_forgets_who_left():
    replicas = isr()
    fetch(replicas, 2, 8, 9, 1)
    replicas.assign((1, 2, 4), (1, 2), now_ms=5, leader_log_end_offset=9)
    assert replicas.followers[2].log_end_offset == 8
    assert set(replicas.followers) == {2, 4}
    assert replicas.replica_count == 3
    assert replicas.high_watermark(9, 5, LAG_MS) == 8


def test_a_leader_outside_of_its_isr_is_a_bug():
    with pytest.raises(AssertionError, match="not in its ISR"):
        isr(members=(2, 3))


@given(
    st.lists(st.tuples(st.sampled_from([2, 3]), st.integers(0, 5)), max_size=40),
    st.sets(st.sampled_from([2, 3])),
)
def test_the_high_watermark_is_never_above_a_members_end(
    steps: list[tuple[int, int]], members: set[int]
):
    """The one property that durability rests on, whatever followers do."""
    replicas = isr((1, 2, 3), members=(1, *members))
    end = 0
    for now_ms, (broker, lag) in enumerate(steps):
        end += 2
        fetch(replicas, broker, max(end - lag, 0), end, now_ms)
        high_watermark = replicas.high_watermark(end, now_ms, 3)
        ends = [replicas.followers[member].log_end_offset for member in members]
        assert high_watermark <= min([end, *ends])


def test_a_caught_up_outsider_that_is_offline_holds_nothing_back():
    """After a broker has stopped in good order acks=all would wait for it, for half a minute."""
    replicas = isr(members=(1, 2), end=10)
    fetch(replicas, 2, 12, 12, 1)
    fetch(replicas, 3, 10, 10, 1)
    assert replicas.high_watermark(12, 1, LAG_MS) == 10
    replicas.note_offline((3,))
    assert replicas.high_watermark(12, 1, LAG_MS) == 12
    fetch(replicas, 3, 12, 12, 2)
    assert not replicas.may_join(3, 12, 0)
    replicas.note_offline(())
    assert replicas.may_join(3, 12, 0)
