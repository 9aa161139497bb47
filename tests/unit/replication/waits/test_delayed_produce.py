"""DelayedProduce against a made-up cluster (row R7). If it errs, acks=all lies to producers."""

from collections.abc import Callable

import pytest

from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.append import AppendResult
from odradek.replication.delayed.produce import DelayedProduce
from odradek.timer import MockTimer

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)


def appended(topic_partition: TopicPartition, last_offset: int) -> AppendResult:
    result = AppendResult(topic_partition)
    result.base_offset = result.last_offset = last_offset
    return result


class Waiting:
    """A parked produce and what it was answered."""

    def __init__(self, purgatory: DelayedOperationPurgatory, replicas, *results: AppendResult):
        self.answers: list[dict[TopicPartition, ErrorCode]] = []
        self.purgatory = purgatory
        self.operation = DelayedProduce(500, list(results), replicas, self._on_done)
        keys = [each.topic_partition for each in results if each.last_offset >= 0]
        purgatory.try_complete_else_watch(self.operation, keys)

    def _on_done(self, results: list[AppendResult]) -> None:
        self.answers.append({each.topic_partition: each.error_code for each in results})

    @property
    def answer(self) -> dict[TopicPartition, ErrorCode]:
        assert len(self.answers) == 1, self.answers
        return self.answers[0]


@pytest.fixture
def park(replicas, new_purgatory: Callable[[str], DelayedOperationPurgatory]):
    purgatory = new_purgatory("Produce")
    return lambda *results: Waiting(purgatory, replicas, *results)


def with_follower(replicas, topic_partition: TopicPartition, end: int, follower_end: int):
    partition = replicas.add(topic_partition, end)
    partition.log_ends[2] = follower_end
    partition.in_sync = {1, 2}
    return partition


def test_it_waits_for_every_member_of_the_isr(replicas, park):
    partition = with_follower(replicas, A, end=3, follower_end=2)
    waiting = park(appended(A, 2))
    assert waiting.answers == []
    partition.log_ends[2] = 3
    assert waiting.purgatory.check_and_complete(A) == 1
    assert waiting.answer == {A: ErrorCode.NONE}


def test_one_offset_short_is_not_enough(replicas, park):
    """`required_offset` is the last offset plus one: a log end, not a record."""
    partition = with_follower(replicas, A, end=3, follower_end=0)
    waiting = park(appended(A, 2))
    partition.log_ends[2] = 2
    assert waiting.purgatory.check_and_complete(A) == 0
    assert waiting.answers == []


def test_it_waits_for_the_slowest_of_several_replicas(replicas, park):
    """A record that one of three does not have is lost when that one becomes the leader."""
    partition = with_follower(replicas, A, end=3, follower_end=1)
    partition.log_ends[3] = 0
    partition.in_sync = {1, 2, 3}
    waiting = park(appended(A, 2))
    partition.log_ends[2] = 3
    assert waiting.purgatory.check_and_complete(A) == 0
    partition.log_ends[3] = 3
    assert waiting.purgatory.check_and_complete(A) == 1
    assert waiting.answer == {A: ErrorCode.NONE}


def test_a_replica_that_is_not_in_sync_is_not_waited_for(replicas, park):
    partition = with_follower(replicas, A, end=3, follower_end=3)
    partition.log_ends[3] = 0
    assert park(appended(A, 2)).answer == {A: ErrorCode.NONE}


def test_a_log_that_was_truncated_waits_until_the_records_are_everywhere_again(replicas, park):
    """The leader's own end counts like any other: what it lost is not acknowledged."""
    partition = with_follower(replicas, A, end=3, follower_end=2)
    waiting = park(appended(A, 2))
    partition.log_ends = {1: 1, 2: 1}
    assert waiting.purgatory.check_and_complete(A) == 0
    partition.log_ends = {1: 3, 2: 3}
    assert waiting.purgatory.check_and_complete(A) == 1


def test_a_question_that_fails_settles_it(replicas, park):
    """A directory that broke while the produce waited: its error is the partition's answer."""
    with_follower(replicas, A, end=3, follower_end=0)
    waiting = park(appended(A, 2))

    def broken(topic_partition: TopicPartition, required_offset: int) -> bool:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk has gone")

    replicas.has_enough_replicas = broken
    waiting.purgatory.check_and_complete(A)
    assert waiting.answer == {A: ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_shrinking_isr_completes_it(replicas, park):
    """The one it waited for has left, and everybody who counts has the records."""
    partition = with_follower(replicas, A, end=3, follower_end=0)
    waiting = park(appended(A, 2))
    partition.in_sync = {1}
    waiting.purgatory.check_and_complete(A)
    assert waiting.answer == {A: ErrorCode.NONE}


def test_too_few_left_is_said(replicas, park):
    partition = with_follower(replicas, A, end=3, follower_end=0)
    partition.min_insync_replicas = 2
    waiting = park(appended(A, 2))
    # The follower has them, and leaves before anybody looks.
    partition.log_ends[2] = 3
    assert partition.high_watermark == 3
    partition.in_sync = {1}
    waiting.purgatory.check_and_complete(A)
    assert waiting.answer == {A: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


def test_who_waits_below_the_minimum_waits_on(replicas, park):
    """Records that only one replica has would be called committed (KIP-966)."""
    partition = with_follower(replicas, A, end=3, follower_end=0)
    partition.min_insync_replicas = 2
    waiting = park(appended(A, 2))
    partition.in_sync = {1}
    waiting.purgatory.check_and_complete(A)
    assert waiting.answers == []


def test_a_leader_that_moves_away_settles_it(replicas, park):
    partition = with_follower(replicas, A, end=3, follower_end=0)
    waiting = park(appended(A, 2))
    partition.is_leader = False
    waiting.purgatory.check_and_complete(A)
    assert waiting.answer == {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_deleted_partition_settles_it(replicas, park):
    with_follower(replicas, A, end=3, follower_end=0)
    waiting = park(appended(A, 2))
    del replicas.partitions[A]
    waiting.purgatory.check_and_complete(A)
    assert waiting.answer == {A: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_the_answer_carries_every_partition_once_none_is_pending(replicas, park):
    first = with_follower(replicas, A, end=3, follower_end=0)
    second = with_follower(replicas, B, end=5, follower_end=0)
    waiting = park(appended(A, 2), appended(B, 4))
    first.log_ends[2] = 3
    waiting.purgatory.check_and_complete(A)
    assert waiting.answers == []
    second.is_leader = False
    waiting.purgatory.check_and_complete(B)
    assert waiting.answer == {A: ErrorCode.NONE, B: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_settled_partition_is_not_asked_again(replicas, park):
    """Acknowledged records stay so, whatever happens to the leadership afterwards."""
    first = with_follower(replicas, A, end=3, follower_end=3)
    second = with_follower(replicas, B, end=5, follower_end=0)
    waiting = park(appended(A, 2), appended(B, 4))
    first.is_leader = False
    second.log_ends[2] = 5
    waiting.purgatory.check_and_complete(B)
    assert waiting.answer == {A: ErrorCode.NONE, B: ErrorCode.NONE}


def test_a_failed_append_keeps_its_own_error_and_is_not_waited_for(replicas, park):
    with_follower(replicas, A, end=3, follower_end=3)
    failed = AppendResult(B)
    failed.fail(BrokerError(ErrorCode.CORRUPT_MESSAGE))
    waiting = park(appended(A, 2), failed)
    assert waiting.answer == {A: ErrorCode.NONE, B: ErrorCode.CORRUPT_MESSAGE}


def test_the_time_out_answers_only_what_is_still_pending(replicas, park, timer: MockTimer):
    with_follower(replicas, A, end=3, follower_end=3)
    with_follower(replicas, B, end=5, follower_end=4)
    waiting = park(appended(A, 2), appended(B, 4))
    timer.advance_clock(499)
    assert waiting.answers == []
    timer.advance_clock(1)
    assert waiting.answer == {A: ErrorCode.NONE, B: ErrorCode.REQUEST_TIMED_OUT}


def test_it_says_what_it_waits_for(replicas, park):
    with_follower(replicas, A, end=3, follower_end=0)
    waiting = park(appended(A, 2))
    assert waiting.purgatory.waiting()[0].missing == "acks of 1 partitions: orders-0 to 3"
