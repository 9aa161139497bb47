"""An answer given again without a look is the same as with one, whatever has happened meanwhile."""

import pytest
from tests.unit.replication.fakes import Cluster

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.replication.fetch import FetchInfo, FetchParams, FetchResult

A = TopicPartition("orders", 0)
FOLLOWER = FetchParams(2, 0, 1, 1 << 20)


def shown(result: FetchResult) -> tuple[object, ...]:
    return (
        result.error_code,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        result.log_end_offset,
        b"".join(result.records),
        result.diverging_epoch,
    )


def fetch(cluster: Cluster, info: FetchInfo, params: FetchParams = FOLLOWER) -> FetchResult:
    answers: list[FetchResult] = []
    cluster.replicas.fetch_messages(params, [info], answers.extend)
    return answers[0]


def kept(cluster: Cluster) -> FetchInfo:
    """A wish of a follower that has everything, which is answered without a look by now."""
    cluster.create("orders", (1, 2, 3))
    cluster.produce(A, b"a", b"b")
    for replica_id in (2, 3):
        cluster.fetch(A, 2, replica_id=replica_id)
    info = FetchInfo(A, 2, 1 << 20, 0, 0)
    first = fetch(cluster, info)
    assert fetch(cluster, info) is first
    return info


def move_leadership(cluster: Cluster) -> None:
    cluster.change("orders", leader_epoch=1)


def lose_leadership(cluster: Cluster) -> None:
    cluster.change("orders", leader=2, leader_epoch=1)


def lose_the_disk(cluster: Cluster) -> None:
    cluster.replicas.on_log_dir_failure(cluster.replicas.partition(A).log.log_directory.path)


def shrink(cluster: Cluster) -> None:
    cluster.change("orders", isr=(1, 3))


def reassign(cluster: Cluster) -> None:
    cluster.change("orders", replicas=(1, 3), isr=(1, 3))


def delete_records(cluster: Cluster) -> None:
    cluster.replicas.partition(A).delete_records(1)


MOVES = {
    "records come": lambda cluster: cluster.produce(A, b"c"),
    "records are deleted": delete_records,
    "a leadership begins": move_leadership,
    "another leads": lose_leadership,
    "nobody leads": lambda cluster: cluster.replicas.resign(),
    "the disk is lost": lose_the_disk,
    "the topic is deleted": lambda cluster: cluster.delete("orders"),
    "the follower leaves the ISR": shrink,
    "the follower has no replica any more": reassign,
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_what_moves_is_seen(cluster, move):
    """A follower would stand still for ever."""
    info = kept(cluster)
    before = fetch(cluster, info)
    move(cluster)
    seen = cluster.replicas.partitions.read(FOLLOWER, [info])[0]
    assert seen is not before
    assert shown(seen) == shown(cluster.replicas.partitions.read(FOLLOWER, [_fresh(info)])[0])


def _fresh(info: FetchInfo) -> FetchInfo:
    return FetchInfo(A, info.fetch_offset, info.max_bytes, 0, info.current_leader_epoch)


def test_a_move_of_the_high_watermark_is_told(cluster):
    """A follower would not know what is committed when it comes to lead."""
    info = kept(cluster)
    cluster.produce(A, b"c")
    cluster.fetch(A, 3, replica_id=3)
    behind = FetchInfo(A, 3, 1 << 20, 0, 0)
    assert fetch(cluster, behind).high_watermark == 2
    assert fetch(cluster, behind).high_watermark == 3
    assert info.fetch_offset == 2


def test_records_wake_a_fetch_that_is_answered_without_a_look(cluster):
    info = kept(cluster)
    answers: list[FetchResult] = []
    cluster.replicas.fetch_messages(FetchParams(2, 500, 1, 1 << 20), [info], answers.extend)
    assert answers == []
    cluster.produce(A, b"c")
    assert [result.size_bytes > 0 for result in answers] == [True]


def test_a_follower_that_asks_for_nothing_new_stays_in_the_isr(cluster):
    """It has just asked, and cannot have what was written a moment ago."""
    info = kept(cluster)
    for _ in range(20):
        cluster.wait(5_000)
        fetch(cluster, info)
        cluster.fetch(A, 2, replica_id=3)
    cluster.produce(A, b"c")
    cluster.wait(15_000)
    assert cluster.store.proposals == []


def test_a_follower_that_asks_no_longer_leaves_the_isr(cluster):
    info = kept(cluster)
    cluster.wait(20_000)
    fetch(cluster, info)
    cluster.produce(A, b"c")
    cluster.wait(45_000)
    (change, _) = cluster.store.proposals[0]
    assert change.isr == (1,)


def test_only_the_same_life_of_the_same_follower_is_answered_without_a_look(cluster):
    """A follower that was replaced would pass for one that has what its successor lacks."""
    info = kept(cluster)
    partition = cluster.replicas.partition(A)
    partition.record_follower_fetch(2, 2, 0, 7)
    assert fetch(cluster, info).error_code is ErrorCode.STALE_BROKER_EPOCH
    assert fetch(cluster, _fresh(info), FetchParams(4, 0, 1, 1)).error_code is (
        ErrorCode.UNKNOWN_LEADER_EPOCH
    )


def test_a_refused_answer_is_not_given_again(cluster):
    info = kept(cluster)
    result = fetch(cluster, info)
    result.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert fetch(cluster, info).error_code is ErrorCode.NONE


def test_what_a_session_was_told_is_told_again_after_an_error(cluster):
    """Its client would take the error for the last word."""
    info = kept(cluster)
    result = fetch(cluster, info)
    assert [info.tells_again(result) for _ in range(3)] == [False, True, True]
    result.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert not info.tells_again(result)
    assert not info.tells_again(fetch(cluster, info))
