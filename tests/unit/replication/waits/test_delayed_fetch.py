"""DelayedFetch against a made-up cluster (row R7).

If it errs, consumers hang on records that are there, or poll in circles.
"""

from collections.abc import Callable

import pytest

from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.delayed.fetch import AwaitedFetch, DelayedFetch
from odradek.replication.delayed.replica_states import EpochEndOffset
from odradek.replication.fetch import FetchInfo, FetchParams
from odradek.storage.log.offset_metadata import LogOffsetMetadata
from odradek.timer import MockTimer

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)
CONSUMER = -1
FOLLOWER = 2


@pytest.fixture
def park(replicas, new_purgatory: Callable[[str], DelayedOperationPurgatory]):
    """Parks a fetch that begins where the partitions end now; answers are counted."""
    purgatory = new_purgatory("Fetch")

    def start(
        *partitions: TopicPartition,
        min_bytes: int = 30,
        replica_id: int = CONSUMER,
        isolation_level: int = 0,
        max_bytes: int = 1000,
        at: LogOffsetMetadata | None = None,
        last_fetched_epoch: int = -1,
    ) -> DelayedFetch:
        params = FetchParams(replica_id, 500, min_bytes, 10_000, isolation_level)
        awaited = []
        for each in partitions:
            partition = replicas.partitions[each]
            place = at or partition.place(partition.log_end_offset)
            info = FetchInfo(
                each, place.message_offset, max_bytes, last_fetched_epoch=last_fetched_epoch
            )
            awaited.append(AwaitedFetch(info, place))
        operation = DelayedFetch(params, awaited, replicas, lambda results: None)
        purgatory.try_complete_else_watch(operation, partitions)
        return operation

    start.wake = purgatory.check_and_complete
    start.purgatory = purgatory
    return start


def test_it_waits_for_min_bytes(replicas, park):
    partition = replicas.add(A, 5)
    fetch = park(A)
    partition.append(2)
    assert park.wake(A) == 0
    partition.append(1)
    assert park.wake(A) == 1
    assert fetch.is_completed
    assert [[info.topic_partition for info in read] for read in replicas.reads] == [[A]]


def test_bytes_of_several_partitions_add_up(replicas, park):
    first, second = replicas.add(A), replicas.add(B)
    fetch = park(A, B)
    first.append(1)
    second.append(1)
    park.wake(A)
    assert not fetch.is_completed
    second.append(1)
    park.wake(B)
    assert fetch.is_completed


def test_a_partition_counts_at_most_its_own_limit(replicas, park):
    """The client will not get more of it, so more of it does not help."""
    first, second = replicas.add(A), replicas.add(B)
    fetch = park(A, B, max_bytes=20)
    first.append(50)
    park.wake(A)
    assert not fetch.is_completed
    second.append(1)
    park.wake(B)
    assert fetch.is_completed


def test_a_consumer_waits_for_the_high_watermark_and_a_follower_does_not(replicas, park):
    partition = replicas.add(A)
    partition.log_ends[2] = 0
    partition.in_sync = {1, 2}
    consumer = park(A)
    follower = park(A, replica_id=FOLLOWER)
    partition.append(3)
    park.wake(A)
    assert follower.is_completed
    assert not consumer.is_completed
    partition.log_ends[2] = 3
    park.wake(A)
    assert consumer.is_completed


def test_a_reader_of_committed_records_waits_for_the_last_stable_offset(replicas, park):
    partition = replicas.add(A)
    partition.last_stable_offset = 0
    fetch = park(A, isolation_level=1)
    partition.append(3)
    park.wake(A)
    assert not fetch.is_completed
    partition.last_stable_offset = 3
    park.wake(A)
    assert fetch.is_completed


def test_a_leader_that_moves_away_completes_it(replicas, park):
    partition = replicas.add(A)
    fetch = park(A)
    partition.is_leader = False
    park.wake(A)
    assert fetch.is_completed


def test_a_deleted_partition_completes_it(replicas, park):
    replicas.add(A)
    fetch = park(A)
    del replicas.partitions[A]
    park.wake(A)
    assert fetch.is_completed


def test_even_a_partition_of_unknown_position_notices_that_the_leader_moved(replicas, park):
    partition = replicas.add(A, 3)
    fetch = park(A, at=LogOffsetMetadata(3))
    partition.append(30)
    park.wake(A)
    assert not fetch.is_completed
    partition.is_leader = False
    park.wake(A)
    assert fetch.is_completed


def test_a_log_that_rolled_completes_it_at_once(replicas, park):
    """Positions on different files cannot be compared, and there is something to read."""
    partition = replicas.add(A, 5)
    fetch = park(A)
    partition.append(1)
    partition.roll()
    park.wake(A)
    assert fetch.is_completed


def test_a_roll_without_records_changes_nothing(replicas, park):
    """The end equals the fetch offset, wherever it lies now: there is nothing to read."""
    partition = replicas.add(A, 5)
    fetch = park(A)
    partition.roll()
    park.wake(A)
    assert not fetch.is_completed


def test_a_rolled_log_does_not_wake_a_throttled_follower(replicas, park):
    partition = replicas.add(A, 5)
    partition.throttled = True
    fetch = park(A, replica_id=FOLLOWER)
    partition.append(100)
    partition.roll()
    park.wake(A)
    assert not fetch.is_completed
    partition.throttled = False
    park.wake(A)
    assert fetch.is_completed


def test_throttled_bytes_do_not_count(replicas, park):
    partition = replicas.add(A)
    partition.throttled = True
    fetch = park(A, replica_id=FOLLOWER)
    partition.append(100)
    park.wake(A)
    assert not fetch.is_completed


def test_a_throttle_is_not_for_consumers(replicas, park):
    partition = replicas.add(A)
    partition.throttled = True
    fetch = park(A)
    partition.append(3)
    park.wake(A)
    assert fetch.is_completed


def test_a_truncated_log_completes_it_even_for_a_throttled_follower(replicas, park):
    """The reader stands beyond the end; it has to be told before it waits for ever."""
    partition = replicas.add(A, 8)
    partition.throttled = True
    fetch = park(A, replica_id=FOLLOWER)
    partition.log_ends[1] = 6
    park.wake(A)
    assert fetch.is_completed


def test_a_truncated_log_completes_it_whatever_the_other_partitions_say(replicas, park):
    """Of several partitions one is enough: the answer carries them all."""
    first, second = replicas.add(A, 8), replicas.add(B, 5)
    fetch = park(A, B)
    second.append(1)
    park.wake(B)
    assert not fetch.is_completed
    first.log_ends[1] = 6
    park.wake(A)
    assert fetch.is_completed
    assert len(replicas.reads[0]) == 2


def test_the_bytes_of_a_throttled_partition_count_again_when_the_quota_holds(replicas, park):
    """Of two partitions the throttled one adds nothing until then."""
    free, held = replicas.add(A), replicas.add(B)
    held.throttled = True
    fetch = park(A, B, replica_id=FOLLOWER)
    free.append(2)
    held.append(100)
    park.wake(A)
    assert not fetch.is_completed
    held.throttled = False
    park.wake(B)
    assert fetch.is_completed


def test_a_consumer_above_the_high_watermark_waits(replicas, park):
    """After a change of leaders the high watermark may be behind; that is no truncation."""
    partition = replicas.add(A, 8)
    partition.log_ends[2] = 5
    partition.in_sync = {1, 2}
    fetch = park(A)
    park.wake(A)
    assert not fetch.is_completed


def test_a_history_that_parted_completes_it(replicas, park):
    partition = replicas.add(A, 8)
    fetch = park(A, replica_id=FOLLOWER, last_fetched_epoch=4)
    assert not fetch.is_completed
    partition.diverging = EpochEndOffset(3, 6)
    park.wake(A)
    assert fetch.is_completed


def test_the_time_out_answers_with_what_there_is(replicas, park, timer: MockTimer):
    partition = replicas.add(A)
    fetch = park(A)
    partition.append(1)
    timer.advance_clock(500)
    assert fetch.is_completed
    assert len(replicas.reads) == 1


def test_an_abandoned_fetch_reads_nothing(replicas, park, timer: MockTimer):
    """Its client has gone: neither disk nor memory may be spent on it."""
    replicas.add(A)
    fetch = park(A)
    fetch.abandon()
    assert replicas.reads == []
    assert timer.size == 0


def test_it_says_what_it_waits_for(replicas, park):
    partition = replicas.add(A)
    park(A)
    partition.append(2)
    park.wake(A)
    assert park.purgatory.waiting()[0].missing == "10 of 30 bytes"


def test_only_a_follower_that_has_everything_waits_as_ever(replicas, park):
    """A report of what waits would be full of followers, or not tell of one that is held up."""
    partition = replicas.add(A)
    assert not park(A).is_routine()
    follower = park(A, replica_id=FOLLOWER)
    assert follower.is_routine()
    partition.append(2)
    park.wake(A)
    assert not follower.is_completed
    assert not follower.is_routine()
