"""The replica manager over real logs: appending, waiting, roles. The broker's promises are here."""

import logging
import os
from uuid import UUID

import pytest
from tests.unit.replication.fakes import Cluster

from odradek.errors import BrokerError, ErrorCode
from odradek.model import GROUP_METADATA_TOPIC, AppendOrigin, TopicPartition
from odradek.purgatory import DelayedOperation
from odradek.replication.append import AppendRequest
from odradek.replication.delayed.delete_records import DeleteRecordsResult
from odradek.replication.delayed.keys import operation_key
from odradek.replication.delayed.replica_states import EpochEndOffset
from odradek.replication.fetch import FetchInfo, FetchParams
from odradek.replication.offset_lookup import (
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    find_offset,
    find_segment_starts,
)
from odradek.testing.faulty_files import FaultyFileSystem

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)


def codes(results) -> list[ErrorCode]:
    return [each.error_code for each in results]


def log_of(cluster, topic_partition=A):
    return cluster.replicas.partition(topic_partition).leader_log()


# Appending


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_one_replica_acknowledges_at_once(cluster, acks):
    """With one replica the append is the commit; nobody may wait for a time-out."""
    cluster.create("orders")
    assert codes(cluster.produce(A, b"a", b"b", acks=acks)) == [ErrorCode.NONE]
    assert log_of(cluster).high_watermark == 2
    assert cluster.replicas.purgatories.produce.delayed == 0


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_append_nothing(cluster, acks):
    cluster.create("orders")
    (result,) = cluster.produce(A, b"a", acks=acks)
    assert result.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert (result.base_offset, result.log_append_time_ms) == (-1, -1)
    assert log_of(cluster).log_end_offset == 0


def test_several_requests_are_one_append_and_keep_their_order(cluster, batch):
    """Replies and offsets of pipelined requests must match, whatever fails in between."""
    cluster.create("orders", partitions=2)
    answers: list[list[tuple[ErrorCode, int]]] = []

    def request(*entries, acks=1):
        return AppendRequest(
            acks,
            500,
            AppendOrigin.CLIENT,
            entries,
            lambda results: answers.append([(r.error_code, r.base_offset) for r in results]),
        )

    broken = batch(b"x")
    broken[30] ^= 1
    cluster.replicas.append_records(
        [
            request((A, batch(b"1")), (B, batch(b"2"))),
            request((A, broken)),
            request((A, batch(b"3", b"4")), acks=7),
            request((A, batch(b"5"))),
            request(),
        ]
    )
    assert answers == [
        [(ErrorCode.NONE, 0), (ErrorCode.NONE, 0)],
        [(ErrorCode.CORRUPT_MESSAGE, -1)],
        [(ErrorCode.INVALID_REQUIRED_ACKS, -1)],
        [(ErrorCode.NONE, 1)],
        [],
    ]


def test_unknown_and_foreign_partitions_are_told_apart(cluster):
    cluster.create("orders", (2, 3), leader=2)
    assert codes(cluster.produce(A, b"a")) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert codes(cluster.produce(B, b"a")) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_follower_does_not_take_records(cluster):
    cluster.create("orders", (2, 1), leader=2)
    assert codes(cluster.produce(A, b"a")) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_internal_topics_are_for_the_broker_alone(cluster):
    """A client that could write offsets there could move any group."""
    cluster.create(GROUP_METADATA_TOPIC)
    internal = TopicPartition(GROUP_METADATA_TOPIC, 0)
    assert codes(cluster.produce(internal, b"a")) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert codes(cluster.produce(internal, b"a", origin=AppendOrigin.COORDINATOR)) == [
        ErrorCode.NONE
    ]


def test_too_few_in_sync_replicas_refuse_acks_all_only(cluster):
    cluster.create("orders", (1, 2, 3), isr=(1,), min_insync_replicas="2")
    assert codes(cluster.produce(A, b"a", acks=-1)) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert log_of(cluster).log_end_offset == 0
    assert codes(cluster.produce(A, b"a", acks=1)) == [ErrorCode.NONE]


def test_what_appends_nothing_does_not_wait(cluster):
    """Acks of all replicas for no record: nobody would ever wake it."""
    answers: list[list[ErrorCode]] = []
    nothing = AppendRequest(
        -1, 500, AppendOrigin.CLIENT, [], lambda each: answers.append(codes(each))
    )
    cluster.replicas.append_records([nothing])
    assert answers == [[]]
    assert codes(cluster.produce(B, b"a", acks=-1)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.replicas.purgatories.produce.delayed == 0


def test_an_append_wakes_fetches_before_it_moves_the_high_watermark(cluster):
    """A follower hears of the records at once, with the watermark of before them."""
    cluster.create("orders", (1, 2), isr=(1,))
    follower = cluster.fetch(A, 0, replica_id=2, max_wait_ms=600_000)
    cluster.answer_proposal(BrokerError(ErrorCode.INVALID_UPDATE_VERSION))
    cluster.wait(45_000)  # so long parked, it holds no watermark back any more
    cluster.produce(A, b"a")
    assert (follower[0].size_bytes > 0, follower[0].high_watermark) == (True, 0)
    assert log_of(cluster).high_watermark == 1
    assert cluster.replicas.purgatories.fetch.stats.completed_by_check == {"append": 1}


# Followers


def test_acks_all_waits_for_the_follower(cluster):
    cluster.create("orders", (1, 2))
    answer = cluster.produce(A, b"a", acks=-1)
    assert answer == []
    cluster.fetch(A, 0, replica_id=2)
    assert answer == []
    cluster.fetch(A, 1, replica_id=2)
    assert codes(answer) == [ErrorCode.NONE]
    assert log_of(cluster).high_watermark == 1


def test_the_follower_is_recorded_before_it_is_parked(cluster):
    """Otherwise every acks=all would wait until the follower's fetch times out."""
    cluster.create("orders", (1, 2))
    answer = cluster.produce(A, b"a", acks=-1)
    parked = cluster.fetch(A, 1, replica_id=2, max_wait_ms=500)
    assert codes(answer) == [ErrorCode.NONE]
    assert parked == []


class CountsTries(DelayedOperation):
    """Waits, and counts how often somebody looked whether it still has to."""

    def __init__(self):
        super().__init__(500)
        self.tries = 0

    def try_complete(self):
        self.tries += 1
        return False

    def on_complete(self):
        """Does nothing."""

    def on_expiration(self):
        """Does nothing."""


def test_a_change_of_many_partitions_wakes_who_waits_for_all_of_them_once(cluster):
    """A failover would cost the square of the partitions: each look is one at all of them."""
    indexes = range(20)
    cluster.create("orders", (1, 2), partitions=len(indexes))
    keys = [operation_key(TopicPartition("orders", index)) for index in indexes]
    waiting = CountsTries()
    cluster.replicas.purgatories.fetch.try_complete_else_watch(waiting, keys)
    before = waiting.tries
    cluster.change_each("orders", indexes, isr=(1,))
    assert waiting.tries - before == 1
    cluster.replicas.resign()
    assert waiting.tries - before == 2


def test_a_consumer_sees_a_record_when_it_is_committed_and_a_follower_before(cluster):
    cluster.create("orders", (1, 2))
    consumer = cluster.fetch(A, 0, max_wait_ms=500)
    follower = cluster.fetch(A, 0, replica_id=2, max_wait_ms=500)
    cluster.produce(A, b"a")
    assert follower[0].size_bytes > 0
    assert consumer == []
    cluster.fetch(A, 1, replica_id=2)
    assert consumer[0].size_bytes == follower[0].size_bytes
    assert consumer[0].high_watermark == 1


def test_acks_all_times_out_and_the_record_stays(cluster):
    cluster.create("orders", (1, 2))
    answer = cluster.produce(A, b"a", acks=-1, timeout_ms=500)
    cluster.wait(500)
    assert codes(answer) == [ErrorCode.REQUEST_TIMED_OUT]
    assert answer[0].base_offset == 0
    assert log_of(cluster).log_end_offset == 1


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_acks_all_without_patience_is_answered_at_once(cluster, timeout_ms):
    """A producer that gives replicas no time must not wait for a tick."""
    cluster.create("orders", (1, 2))
    answer = cluster.produce(A, b"a", acks=-1, timeout_ms=timeout_ms)
    assert codes(answer) == [ErrorCode.REQUEST_TIMED_OUT]
    assert log_of(cluster).log_end_offset == 1


def test_a_silent_follower_leaves_the_isr_and_the_producer_is_answered(cluster):
    cluster.create("orders", (1, 2))
    cluster.fetch(A, 0, replica_id=2)
    answer = cluster.produce(A, b"a", acks=-1, timeout_ms=600_000)
    cluster.wait(45_000)
    change = cluster.answer_proposal()
    assert change.isr == (1,)
    assert codes(answer) == [ErrorCode.NONE]


def test_a_partition_that_raises_keeps_no_other_from_shrinking_its_isr(cluster):
    """Producers of every partition behind it would wait for a follower that is gone."""
    cluster.create("orders", (1, 2), partitions=3)
    for index in range(3):
        cluster.produce(TopicPartition("orders", index), b"a")
    cluster.store.raises[A] = AssertionError("broken")
    cluster.clock.advance(45_000)
    with pytest.raises(AssertionError, match="broken"):
        cluster.replicas.maybe_shrink_isrs()
    assert [change.topic_partition.partition for change, _ in cluster.store.proposals] == [1, 2]


def test_nothing_is_committed_while_the_isr_is_below_the_minimum(cluster):
    """KIP-966: what the last replica of an ISR has could be lost with it, and had been read."""
    cluster.create("orders", (1, 2), min_insync_replicas="2")
    cluster.fetch(A, 0, replica_id=2)
    answer = cluster.produce(A, b"a", acks=-1, timeout_ms=100_000)
    cluster.wait(45_000)
    cluster.answer_proposal()
    assert cluster.replicas.partition(A).log.high_watermark == 0
    cluster.produce(A, b"b", acks=1)
    assert cluster.replicas.partition(A).log.high_watermark == 0
    assert answer == []
    cluster.wait(55_000)
    assert codes(answer) == [ErrorCode.REQUEST_TIMED_OUT]
    cluster.fetch(A, 2, replica_id=2)
    cluster.answer_proposal()
    assert cluster.replicas.partition(A).log.high_watermark == 2


def test_who_may_have_joined_counts_for_who_waits(cluster):
    """A client would be told of too few replicas although its record is safe on enough."""
    cluster.create("orders", (1, 2), min_insync_replicas="2")
    cluster.fetch(A, 0, replica_id=2)
    cluster.produce(A, b"a")
    cluster.fetch(A, 1, replica_id=2)
    cluster.change("orders", isr=(1,))
    partition = cluster.replicas.partition(A)
    with pytest.raises(BrokerError):
        partition.has_enough_replicas(1)
    cluster.fetch(A, 1, replica_id=2)
    assert partition.in_sync_replicas.proposed == {1, 2}
    assert partition.has_enough_replicas(1)


def test_a_refused_proposal_leaves_everything_as_it_was(cluster):
    cluster.create("orders", (1, 2))
    answer = cluster.produce(A, b"a", acks=-1, timeout_ms=600_000)
    cluster.wait(45_000)
    cluster.answer_proposal(BrokerError(ErrorCode.INVALID_UPDATE_VERSION))
    assert answer == []
    partition = cluster.replicas.partition(A)
    assert partition.in_sync_replicas.maximal == {1, 2}


@pytest.mark.parametrize("is_accepted", [False, True])
def test_an_outcome_of_an_earlier_leadership_settles_nothing(cluster, is_accepted):
    """The ISR would be taken for decided while the store still thinks about it."""
    cluster.create("orders", (1, 2))
    before = cluster.image.topics["orders"].partitions[0]
    cluster.produce(A, b"a")
    cluster.wait(45_000)
    cluster.change("orders", leader_epoch=1)
    cluster.wait(45_000)
    (_, answer), _ = cluster.store.proposals
    answer([before] if is_accepted else BrokerError(ErrorCode.INVALID_UPDATE_VERSION))
    partition = cluster.replicas.partition(A)
    assert partition.in_sync_replicas.proposed == {1}
    assert partition.partition_epoch == before.partition_epoch + 1


def test_an_outcome_settles_the_proposal_that_it_is_of(cluster):
    """The ISR would be taken for that of an epoch that is over, and the open one for decided."""
    cluster.create("orders", (1, 2, 3))
    cluster.produce(A, b"a")
    cluster.wait(45_000)
    cluster.change("orders", isr=(1, 2))
    cluster.wait(45_000)
    (_, answer_first), (second, _) = cluster.store.proposals
    before = cluster.image.topics["orders"].partitions[0]
    answer_first([before._replace(partition_epoch=0, isr=(1,))])
    partition = cluster.replicas.partition(A)
    assert partition.in_sync_replicas.proposed == {*second.isr}
    assert (partition.in_sync_replicas.committed, partition.partition_epoch) == ({1, 2}, 1)


def test_a_proposal_stays_open_while_its_state_stays(cluster):
    """The store may still accept it: the high watermark would be moved past a member of the ISR
    because some other replica went offline meanwhile."""
    cluster.create("orders", (1, 2, 3), isr=(1,))
    cluster.produce(A, b"a")
    cluster.fetch(A, 1, replica_id=2)
    assert len(cluster.store.proposals) == 1
    epoch = cluster.image.topics["orders"].partitions[0].partition_epoch
    cluster.change("orders", offline=(3,), partition_epoch=epoch)
    assert cluster.replicas.partition(A).in_sync_replicas.maximal == {1, 2}


def test_the_high_watermark_does_not_go_back_for_a_new_member(cluster):
    """Consumers would be told that what they have read is not there yet."""
    cluster.create("orders", (1, 2), isr=(1,))
    cluster.produce(A, b"a", b"b", b"c")
    log = cluster.replicas.partition(A).log
    assert log.high_watermark == 3
    cluster.change("orders", isr=(1, 2))
    assert log.high_watermark == 3
    cluster.fetch(A, 1, replica_id=2)
    assert log.high_watermark == 3


def test_a_follower_that_catches_up_rejoins(cluster):
    cluster.create("orders", (1, 2), isr=(1,))
    cluster.produce(A, b"a", b"b")
    cluster.fetch(A, 1, replica_id=2)
    assert cluster.store.proposals == []
    cluster.fetch(A, 2, replica_id=2)
    assert cluster.answer_proposal().isr == (1, 2)
    assert cluster.replicas.partition(A).in_sync_replicas.committed == {1, 2}


@pytest.mark.parametrize("offset", [0, 5])
def test_a_stranger_learns_that_it_is_no_replica(cluster, offset):
    """Fails when a new replica is told that it has diverged, or sent away, since its leader has not
    heard of it yet."""
    cluster.create("orders", (1, 2))
    assert codes(cluster.fetch(A, offset, replica_id=9)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    epoch = cluster.replicas.partition(A).leader_epoch
    early = cluster.fetch(A, offset, replica_id=9, current_leader_epoch=epoch)
    assert codes(early) == [ErrorCode.UNKNOWN_LEADER_EPOCH]


def test_an_older_incarnation_of_a_follower_is_refused(cluster):
    """A fetch of before its restart may claim records that the restart has lost (KIP-903)."""
    cluster.create("orders", (1, 2))
    partition = cluster.replicas.partition(A)
    partition.record_follower_fetch(2, 0, 0, 5)
    with pytest.raises(BrokerError) as refused:
        partition.record_follower_fetch(2, 0, 0, 4)
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_a_follower_of_an_unknown_partition_is_skipped_with_a_warning(cluster, caplog):
    with caplog.at_level(logging.WARNING):
        results = cluster.fetch(A, 0, replica_id=2)
    assert codes(results) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert "follower 2 fetches orders-0" in caplog.text


def test_a_throttled_follower_is_held_back_only_outside_of_the_isr(cluster_with_quota):
    cluster, quota = cluster_with_quota
    cluster.create("orders", (1, 2, 3), isr=(1, 2))
    cluster.produce(A, b"a")
    quota.exceeded = True
    assert cluster.fetch(A, 0, replica_id=3)[0].size_bytes == 0
    assert cluster.fetch(A, 0, replica_id=2)[0].size_bytes > 0
    quota.exceeded = False
    assert cluster.fetch(A, 0, replica_id=3)[0].size_bytes > 0
    assert quota.recorded_bytes > 0


# Fetching


def test_a_fetch_without_enough_waits_and_is_woken_by_the_append(cluster):
    cluster.create("orders")
    answer = cluster.fetch(A, 0, max_wait_ms=500)
    assert answer == []
    cluster.produce(A, b"a")
    assert answer[0].size_bytes > 0
    stats = cluster.replicas.purgatories.fetch.stats
    assert stats.completed_by_check == {"high watermark": 1}


@pytest.mark.parametrize("max_wait_ms", [0, -1])
def test_a_fetch_without_patience_is_answered_at_once(cluster, max_wait_ms):
    """A poll that does not want to wait must not be parked for a tick."""
    cluster.create("orders")
    assert codes(cluster.fetch(A, 0, max_wait_ms=max_wait_ms)) == [ErrorCode.NONE]
    assert cluster.replicas.purgatories.fetch.stats.watched == 0


def test_a_fetch_of_nothing_is_answered_at_once(cluster):
    """An empty incremental fetch has nothing to wait for, and no key to be woken by."""
    answers: list[object] = []
    cluster.replicas.fetch_messages(FetchParams(-1, 500, 1, 1000), [], answers.append)
    assert answers == [[]]


def test_a_fetch_that_waited_in_vain_is_answered_empty(cluster):
    cluster.create("orders")
    answer = cluster.fetch(A, 0, max_wait_ms=500)
    cluster.wait(500)
    assert codes(answer) == [ErrorCode.NONE]
    assert answer[0].size_bytes == 0
    assert answer[0].high_watermark == 0


def test_a_fetch_beyond_the_end_is_answered_at_once(cluster):
    cluster.create("orders")
    assert codes(cluster.fetch(A, 7, max_wait_ms=500)) == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_the_first_batch_goes_out_even_when_it_is_larger_than_the_limits(cluster):
    """A consumer with small limits would stand still for ever in front of a large batch."""
    cluster.create("orders", partitions=2)
    cluster.produce(A, b"a" * 1000)
    cluster.produce(B, b"b" * 1000)
    params = FetchParams(-1, 0, 1, 100)
    results = []
    infos = [FetchInfo(A, 0, 10), FetchInfo(B, 0, 10)]
    cluster.replicas.fetch_messages(params, infos, results.extend)
    assert results[0].size_bytes > 1000
    assert results[1].size_bytes == 0


def test_epochs_of_another_time_are_refused(cluster):
    cluster.create("orders")
    cluster.change("orders", leader_epoch=3)
    fenced = cluster.fetch(A, 0, current_leader_epoch=2)
    unknown = cluster.fetch(A, 0, current_leader_epoch=4)
    assert codes(fenced + unknown) == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]


def test_a_reader_with_another_history_is_told_where_it_parted(cluster):
    cluster.create("orders")
    cluster.produce(A, b"a", b"b")
    cluster.change("orders", leader_epoch=2)
    cluster.produce(A, b"c")
    (result,) = cluster.fetch(A, 3, last_fetched_epoch=1)
    assert (result.diverging_epoch, result.diverging_end_offset) == (0, 2)
    (fine,) = cluster.fetch(A, 2, last_fetched_epoch=0)
    assert fine.diverging_epoch == -1


def test_a_reader_with_another_history_below_the_log_start_starts_over(cluster):
    """It would truncate to an offset that is gone, and ask again for what nobody has."""
    cluster.create("orders")
    cluster.produce(A, b"a", b"b", b"c")
    cluster.change("orders", leader_epoch=2)
    cluster.produce(A, b"d")
    partition = cluster.replicas.partition(A)
    partition.delete_records(2)
    below = cluster.fetch(A, 1, last_fetched_epoch=1)
    within = cluster.fetch(A, 4, last_fetched_epoch=1)
    assert codes(below) == [ErrorCode.OFFSET_OUT_OF_RANGE]
    assert within[0].diverging_end_offset == 3


def test_an_id_of_an_earlier_topic_of_the_name_is_refused(cluster):
    topic = cluster.create("orders")
    other = topic.topic_id.__class__(int=topic.topic_id.int ^ 1)
    assert codes(cluster.fetch(A, 0, topic_id=other)) == [ErrorCode.INCONSISTENT_TOPIC_ID]


# Roles


def test_losing_the_leadership_answers_everybody_who_waits(cluster):
    cluster.create("orders", (1, 2))
    produce = cluster.produce(A, b"a", acks=-1)
    fetch = cluster.fetch(A, 1, max_wait_ms=500, min_bytes=100)
    cluster.change("orders", leader=2, leader_epoch=1)
    assert codes(produce) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert codes(fetch) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_deleting_a_topic_answers_everybody_who_waits(cluster):
    cluster.create("orders")
    fetch = cluster.fetch(A, 0, max_wait_ms=500)
    cluster.delete("orders")
    assert codes(fetch) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.log_manager.get(A) is None


def test_a_topic_made_again_is_empty(cluster):
    cluster.create("orders")
    cluster.produce(A, b"a")
    cluster.delete("orders")
    cluster.create("orders")
    assert log_of(cluster).log_end_offset == 0


def test_a_log_that_a_full_disk_does_not_let_go_goes_later(tmp_path):
    """Its space would be lost until the next start, or the next topic of the name stay offline."""
    files = FaultyFileSystem()
    cluster = Cluster(str(tmp_path / "data"), file_system=files)
    cluster.create("gone")
    cluster.create("orders")
    cluster.produce(A, b"a")
    files.is_full = True
    cluster.delete("gone")
    cluster.delete("orders")
    cluster.create("orders", topic_id=UUID(int=7))
    assert cluster.image.topics["orders"].partitions[0].offline == (1,)
    files.is_full = False
    cluster.create("gone", (2, 3), leader=2, topic_id=UUID(int=8))
    cluster.wait(2000)
    assert cluster.store.online == [A]
    assert [log.topic_partition for log in cluster.log_manager.logs()] == [A]
    assert not [name for name in os.listdir(tmp_path / "data") if name.endswith("-stray")]
    cluster.change("orders", leader=1, offline=())
    assert log_of(cluster).log_end_offset == 0
    cluster.close()


def test_a_replica_that_moves_away_takes_its_log_along(cluster):
    cluster.create("orders", (1, 2))
    cluster.change("orders", replicas=(2, 3), isr=(2,), leader=2, leader_epoch=1)
    assert cluster.log_manager.get(A) is None
    assert codes(cluster.produce(A, b"a")) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_settings_reach_the_log(cluster):
    cluster.create("orders", segment_bytes="2048")
    assert log_of(cluster).config.segment_bytes == 2048
    cluster.configure("orders", segment_bytes="4096")
    assert log_of(cluster).config.segment_bytes == 4096


def test_stored_settings_that_cannot_be_used_are_left_out_and_told_once(cluster, caplog):
    """A raise here would leave every broker of the cluster without the change, and keep a durable
    one from starting."""
    cluster.create("a", segment_bytes="many", message_downconversion_enable="true", flush_ms="7")
    config = cluster.replicas.partition(TopicPartition("a", 0)).log.config
    assert (config.segment_bytes, config.flush_ms) == (1 << 30, 7)
    cluster.configure("a", segment_bytes="many", message_downconversion_enable="true", flush_ms="8")
    assert cluster.replicas.partition(TopicPartition("a", 0)).log.config.flush_ms == 8
    assert [each.getMessage().split(":")[0] for each in caplog.records] == [
        "a setting of topic a is not used"
    ] * 2


def test_a_default_that_contradicts_a_topic_is_used(cluster):
    """Each of the two was a legal change; raised here, the second one wedged the whole cluster."""
    cluster.create("a", max_compaction_lag_ms="1000")
    lag = {"log.cleaner.min.compaction.lag.ms": "5000"}
    assert cluster.config.update_dynamic(cluster=lag, broker={}) == []
    config = cluster.replicas.partition(TopicPartition("a", 0)).log.config
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (5000, 1000)


def test_a_failed_directory_takes_its_partitions_offline(cluster):
    cluster.create("orders")
    fetch = cluster.fetch(A, 0, max_wait_ms=500)
    cluster.log_manager.directories[0].fail(OSError(5, "the disk has gone"))
    assert codes(fetch) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert codes(cluster.produce(A, b"a")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert cluster.store.offline == [A]


def test_a_log_that_cannot_be_made_is_published_as_offline(cluster):
    cluster.log_manager.directories[0].fail(OSError(5, "the disk has gone"))
    cluster.create("orders")
    assert cluster.image.topics["orders"].partitions[0].offline == (1,)
    assert codes(cluster.produce(A, b"a")) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_log_that_found_no_room_is_made_when_there_is_some(tmp_path):
    """A topic that was made on a full disk would be of no use until the broker is restarted."""
    files = FaultyFileSystem()
    cluster = Cluster(str(tmp_path / "data"), file_system=files)
    files.is_full = True
    cluster.create("orders")
    assert cluster.image.topics["orders"].partitions[0].offline == (1,)
    cluster.wait(2000)
    assert cluster.store.online_reports == 0, "a change of the metadata every second, for ever"
    files.is_full = False
    cluster.wait(2000)
    assert cluster.store.online == [A]
    cluster.change("orders", leader=1)
    assert codes(cluster.produce(A, b"a")) == [ErrorCode.NONE]
    cluster.close()


def test_a_log_that_is_there_again_is_said_to_be(cluster):
    """The word that it could not be made came late, and stayed true for ever: the replica followed
    nobody, and the reassignment that wanted it never ended."""
    cluster.create("orders")
    cluster.change("orders", leader=2, offline=(1,))
    cluster.wait(2000)
    assert cluster.store.online[:1] == [A]
    cluster.change("orders", leader=1, offline=())
    assert codes(cluster.produce(A, b"a")) == [ErrorCode.NONE]
    told = cluster.store.online_reports
    cluster.wait(2000)
    assert cluster.store.online_reports == told


def test_a_follower_that_is_offline_is_not_asked_for(cluster):
    """A replica on a dead disk would be one of those in sync again."""
    cluster.create("orders", (1, 2), isr=(1,))
    cluster.change("orders", offline=(2,))
    cluster.produce(A, b"a")
    cluster.fetch(A, 1, replica_id=2)
    assert cluster.store.proposals == []
    cluster.change("orders", offline=())
    cluster.fetch(A, 1, replica_id=2)
    ((change, _),) = cluster.store.proposals
    assert change.isr == (1, 2)


def test_a_failed_directory_hands_out_no_logs(tmp_path):
    """A leader on a dead disk would be told that it leads, and say yes: nobody elects another."""
    cluster = Cluster(str(tmp_path / "a"), more_directories=[str(tmp_path / "b")])
    cluster.create("orders")
    log_of(cluster).log_directory.fail(OSError(5, "the disk has gone"))
    cluster.change("orders", leader=1, offline=())
    assert cluster.image.topics["orders"].partitions[0].offline == (1,)
    assert codes(cluster.produce(A, b"a")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    cluster.wait(2000)
    assert cluster.store.online == []
    cluster.close()


def test_a_replica_that_was_not_here_is_made_beside_a_failed_directory(tmp_path):
    """Reassignments would never end, and added partitions be offline, on a broker that has lost
    one of its disks; what was here before may lie on that disk, and is not made anew."""
    cluster = Cluster(str(tmp_path / "a"), more_directories=[str(tmp_path / "b")])
    cluster.create("orders", (2, 3), leader=2)
    cluster.log_manager.directories[0].fail(OSError(5, "the disk has gone"))
    cluster.change("orders", replicas=(2, 3, 1))
    assert cluster.image.topics["orders"].partitions[0].offline == ()
    log = cluster.log_manager.get(A)
    assert log is not None
    assert log.log_directory is cluster.log_manager.directories[1]
    cluster.close()


# Offsets


def test_offsets_by_name_and_by_time(cluster, batch):
    cluster.create("orders")
    log_start = cluster.clock.wall_ms()
    for value in (b"a", b"b"):
        cluster.produce(A, value)

    def offset(timestamp: int) -> int:
        return find_offset(cluster.replicas.partition(A), timestamp, 1, -1, True).offset

    assert offset(EARLIEST_TIMESTAMP) == 0
    assert offset(LATEST_TIMESTAMP) == 2
    assert offset(MAX_TIMESTAMP) == 0
    assert offset(log_start - 1) == 0
    assert offset(log_start + 1) == -1
    assert offset(LATEST_TIERED_TIMESTAMP) == -1


def test_consumers_are_not_shown_offsets_that_are_not_committed(cluster):
    cluster.create("orders", (1, 2))
    cluster.produce(A, b"a")
    cluster.fetch(A, 0, replica_id=2)
    assert find_offset(cluster.replicas.partition(A), LATEST_TIMESTAMP, 1, -1, True).offset == 0
    assert find_offset(cluster.replicas.partition(A), LATEST_TIMESTAMP, 0, -1, True).offset == 1
    assert find_offset(cluster.replicas.partition(A), 0, 1, -1, True).offset == -1


def test_a_new_leader_does_not_guess_what_is_committed(cluster):
    cluster.create("orders", (1, 2))
    cluster.produce(A, b"a")
    cluster.change("orders", leader_epoch=1)
    with pytest.raises(BrokerError) as refused:
        find_offset(cluster.replicas.partition(A), LATEST_TIMESTAMP, 1, -1, True)
    assert refused.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
    cluster.fetch(A, 1, replica_id=2)
    assert find_offset(cluster.replicas.partition(A), LATEST_TIMESTAMP, 1, -1, True).offset == 1


def test_segment_starts_for_the_oldest_clients(cluster):
    cluster.create("orders", segment_bytes="1024")
    for _ in range(4):
        cluster.produce(A, b"x" * 600)
    partition = cluster.replicas.partition(A)
    starts = find_segment_starts(partition, LATEST_TIMESTAMP, 10, 1, True)
    assert starts == [4, 3, 2, 1, 0]
    assert find_segment_starts(partition, LATEST_TIMESTAMP, 2, 1, True) == [4, 3]
    assert find_segment_starts(partition, EARLIEST_TIMESTAMP, 10, 1, True) == [0]


def test_where_an_epoch_ends(cluster):
    cluster.create("orders")
    cluster.produce(A, b"a", b"b")
    cluster.change("orders", leader_epoch=5)
    cluster.produce(A, b"c")
    partition = cluster.replicas.partition(A)
    assert partition.end_offset_of_epoch(0, -1, True) == EpochEndOffset(0, 2)
    assert partition.end_offset_of_epoch(3, 5, True) == EpochEndOffset(0, 2)
    assert partition.end_offset_of_epoch(5, 5, True) == EpochEndOffset(5, 3)
    assert partition.end_offset_of_epoch(6, 5, True) == EpochEndOffset(-1, -1)


# Deleting


def delete(cluster, offset: int, timeout_ms: int = 500) -> list[DeleteRecordsResult]:
    answers: list[DeleteRecordsResult] = []
    cluster.replicas.delete_records(timeout_ms, False, [(A, offset)], answers.extend)
    return answers


def test_records_are_deleted_up_to_an_offset_or_the_high_watermark(cluster):
    cluster.create("orders")
    cluster.produce(A, b"a", b"b", b"c")
    assert delete(cluster, 2)[0].low_watermark == 2
    assert delete(cluster, -1)[0].low_watermark == 3
    assert codes(cluster.fetch(A, 0)) == [ErrorCode.OFFSET_OUT_OF_RANGE]


@pytest.mark.parametrize("offset", [4, -2])
def test_what_is_not_committed_cannot_be_deleted(cluster, offset):
    cluster.create("orders")
    cluster.produce(A, b"a", b"b", b"c")
    assert codes(delete(cluster, offset)) == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_a_refusal_to_delete_records_keeps_no_frames(cluster):
    """Of thousands in one request the collector would look at each frame."""
    answers = []
    cluster.replicas.delete_records(1000, False, [(A, 0)], answers.extend)
    (refused,) = answers
    assert refused.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused.error.__traceback__ is None


def test_a_compacted_topic_does_not_delete_records(cluster):
    cluster.create("orders", cleanup_policy="compact")
    assert codes(delete(cluster, 0)) == [ErrorCode.POLICY_VIOLATION]


def test_deleting_waits_for_live_followers(cluster):
    cluster.create("orders", (1, 2))
    cluster.produce(A, b"a")
    cluster.fetch(A, 1, replica_id=2, log_start_offset=0)
    answer = delete(cluster, 1)
    assert answer == []
    cluster.fetch(A, 1, replica_id=2, log_start_offset=1)
    assert [(each.error_code, each.low_watermark) for each in answer] == [(ErrorCode.NONE, 1)]


def test_shutdown_leaves_nothing_in_the_timer(cluster):
    cluster.create("orders")
    cluster.fetch(A, 0, max_wait_ms=500)
    cluster.close()
    assert cluster.replicas.purgatories.fetch.delayed == 0
