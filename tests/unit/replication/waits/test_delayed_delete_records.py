"""DelayedDeleteRecords against a made-up cluster. If it errs, deleted records come back."""

from collections.abc import Callable

import pytest

from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.delayed.delete_records import DelayedDeleteRecords, DeleteRecordsResult
from odradek.timer import MockTimer

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)


class Waiting:
    def __init__(self, purgatory: DelayedOperationPurgatory, replicas, *results):
        self.purgatory = purgatory
        self.answers: list[dict[TopicPartition, tuple[ErrorCode, int]]] = []
        self.operation = DelayedDeleteRecords(500, list(results), replicas, self._on_done)
        purgatory.try_complete_else_watch(
            self.operation, [each.topic_partition for each in results]
        )

    def _on_done(self, results: list[DeleteRecordsResult]) -> None:
        self.answers.append(
            {each.topic_partition: (each.error_code, each.low_watermark) for each in results}
        )


@pytest.fixture
def park(replicas, new_purgatory: Callable[[str], DelayedOperationPurgatory]):
    purgatory = new_purgatory("DeleteRecords")
    return lambda *results: Waiting(purgatory, replicas, *results)


def test_it_waits_until_the_last_replica_has_moved_its_start(replicas, park):
    partition = replicas.add(A, 10)
    partition.log_starts = {1: 7, 2: 0}
    waiting = park(DeleteRecordsResult(A, 7))
    assert waiting.answers == []
    assert (
        waiting.purgatory.waiting()[0].missing == "log starts of 1 partitions: orders-0 from 0 to 7"
    )
    partition.log_starts[2] = 7
    waiting.purgatory.check_and_complete(A)
    assert waiting.answers == [{A: (ErrorCode.NONE, 7)}]


def test_a_start_beyond_the_wanted_one_is_reported_as_it_is(replicas, park):
    partition = replicas.add(A, 10)
    partition.log_starts = {1: 9}
    assert park(DeleteRecordsResult(A, 7)).answers == [{A: (ErrorCode.NONE, 9)}]


def test_a_leader_that_moves_away_settles_it(replicas, park):
    partition = replicas.add(A, 10)
    partition.log_starts = {1: 7, 2: 0}
    waiting = park(DeleteRecordsResult(A, 7))
    partition.is_leader = False
    waiting.purgatory.check_and_complete(A)
    assert waiting.answers == [{A: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)}]


def test_a_deleted_partition_settles_it(replicas, park):
    partition = replicas.add(A, 10)
    partition.log_starts = {1: 7, 2: 0}
    waiting = park(DeleteRecordsResult(A, 7))
    del replicas.partitions[A]
    waiting.purgatory.check_and_complete(A)
    assert waiting.answers == [{A: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}]


def test_a_replica_that_went_away_is_not_waited_for(replicas, park):
    """Only live replicas count: one that is down cannot follow."""
    partition = replicas.add(A, 10)
    partition.log_starts = {1: 7, 2: 3, 3: 0}
    waiting = park(DeleteRecordsResult(A, 7))
    partition.log_starts[2] = 7
    assert waiting.purgatory.check_and_complete(A) == 0
    del partition.log_starts[3]
    assert waiting.purgatory.check_and_complete(A) == 1
    assert waiting.answers == [{A: (ErrorCode.NONE, 7)}]


def test_the_time_out_answers_only_what_is_pending(replicas, park, timer: MockTimer):
    replicas.add(A, 10).log_starts = {1: 7, 2: 3}
    replicas.add(B, 10).log_starts = {1: 5}
    waiting = park(DeleteRecordsResult(A, 7), DeleteRecordsResult(B, 5))
    timer.advance_clock(500)
    assert waiting.answers == [{A: (ErrorCode.REQUEST_TIMED_OUT, 3), B: (ErrorCode.NONE, 5)}]


def test_a_failed_partition_is_answered_beside_the_others(replicas, park):
    replicas.add(B, 10).log_starts = {1: 5}
    failed = DeleteRecordsResult(A, error=BrokerError(ErrorCode.POLICY_VIOLATION))
    waiting = park(failed, DeleteRecordsResult(B, 5))
    assert waiting.answers == [{A: (ErrorCode.POLICY_VIOLATION, -1), B: (ErrorCode.NONE, 5)}]
