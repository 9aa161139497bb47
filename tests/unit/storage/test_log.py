"""`Log`: appending what one socket read brought, reading it back, cutting at both ends."""

import errno
import os

import pytest

from odradek.errors import BrokerError, ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import split_batches
from odradek.records.builder import build_end_marker
from odradek.storage import LogAppendInfo
from odradek.testing.faulty_files import FaultyFileSystem


def codes(results) -> list[ErrorCode]:
    return [r.code if isinstance(r, BrokerError) else ErrorCode.NONE for r in results]


def test_one_call_appends_many_requests(world, batches, values):
    """Requests of one socket read would get wrong offsets or lose records."""
    log = world.log()
    results = log.appender.append_as_leader(
        [batches(b"a", b"b"), batches(b"c"), batches(b"d", b"e")], 4
    )
    assert [(r.first_offset, r.last_offset) for r in results] == [(0, 1), (2, 2), (3, 4)]
    assert log.log_end_offset == 5
    assert values(log) == [b"a", b"b", b"c", b"d", b"e"]
    assert log.leader_epochs.entries == [(4, 0)]
    data = log.read(0, 1000, 5, True).records[0]
    assert [h.partition_leader_epoch for h in split_batches(data)] == [4, 4, 4]


def test_a_bad_request_does_not_hold_up_the_others(world, batches, values):
    """One broken client would cost its neighbours their records."""
    log = world.log()
    broken = batches(b"x")
    broken[-1] ^= 1
    results = log.appender.append_as_leader(
        [batches(b"a"), broken, memoryview(bytearray()), batches(b"b")], 0
    )
    assert codes(results) == [
        ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.NONE,
    ]  # fmt: skip
    assert values(log) == [b"a", b"b"]


def test_append_info_names_the_record_with_the_largest_timestamp(world, batches):
    """ListOffsets by time would answer wrong offsets."""
    log = world.log()
    now_ms = world.clock.wall_ms()
    info = log.appender.append_as_leader([batches(b"a", b"b", timestamp_ms=now_ms)], 0)[0]
    assert isinstance(info, LogAppendInfo)
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (now_ms, 0)
    assert (info.record_count, info.log_append_time_ms) == (2, -1)


def test_log_append_time_is_the_brokers(world, batches, read_all):
    """The topic's timestamps would be the producer's."""
    log = world.log(message_timestamp_type="LogAppendTime")
    info = log.appender.append_as_leader([batches(b"a", timestamp_ms=5)], 0)[0]
    assert info.log_append_time_ms == world.clock.wall_ms()
    assert read_all(log)[0].timestamp == world.clock.wall_ms()


def test_rolls_by_size_and_reads_across(world, batches, values):
    """Records would be lost at the border between two segments."""
    log = world.log(segment_bytes="300", index_interval_bytes="100")
    for number in range(20):
        log.appender.append_as_leader([batches(b"%03d" % number)], 0)
    assert len(log.segments) > 3
    assert all(s.size_bytes <= 300 for s in log.segments.all())
    assert values(log) == [b"%03d" % n for n in range(20)]


def test_one_call_may_roll_in_the_middle(world, batches, values):
    """Batches of one call would land in a segment that has no room."""
    log = world.log(segment_bytes="300")
    log.appender.append_as_leader([batches(b"%03d" % number) for number in range(20)], 0)
    assert all(s.size_bytes <= 300 for s in log.segments.all())
    assert values(log) == [b"%03d" % n for n in range(20)]
    assert log.segments.active.next_offset() == 20


def test_rolls_by_time(world, batches):
    """A quiet log would keep its old records for ever."""
    log = world.log(segment_ms="1000")
    log.appender.append_as_leader([batches(b"a")], 0)
    world.clock.advance(1000)
    log.appender.append_as_leader([batches(b"b")], 0)
    assert len(log.segments) == 1
    world.clock.advance(1)
    log.appender.append_as_leader([batches(b"c")], 0)
    assert [s.base_offset for s in log.segments.all()] == [0, 2]


def test_rolls_when_an_index_is_full(world, batches, values):
    """Look-ups would slow down without limit."""
    log = world.log(segment_index_bytes="40", index_interval_bytes="0")
    for number in range(20):
        log.appender.append_as_leader([batches(b"%d" % number)], 0)
    assert [s.base_offset for s in log.segments.all()] == [0, 6, 12, 18]
    assert values(log) == [b"%d" % n for n in range(20)]


def test_a_batch_larger_than_a_segment_is_refused(world, batches):
    """It would make a segment larger than was asked for."""
    log = world.log(segment_bytes="100")
    assert codes(log.appender.append_as_leader([batches(b"x" * 100)], 0)) == [
        ErrorCode.RECORD_LIST_TOO_LARGE
    ]


def test_index_entries_follow_the_interval(world, batches):
    """Kafka's dump tool would find entries that are not where it expects them."""
    log = world.log(index_interval_bytes="100")
    sizes = [log.appender.append_as_leader([batches(b"x" * 10)], 0)[0].size_bytes for _ in range(6)]
    index = log.segments.active.offset_index
    assert sizes == [78] * 6
    # The first batch gets none; then every second one, when more than 100 bytes have passed.
    assert [index.entry(n) for n in range(index.entry_count)] == [(2, 156), (4, 312)]


def test_read_stops_below_the_upper_offset(world, batches):
    """A consumer would see records that are not committed."""
    log = world.log()
    log.appender.append_as_leader([batches(b"a"), batches(b"b"), batches(b"c")], 0)
    data = log.read(0, 1000, 2, True).records[0]
    assert [h.base_offset for h in split_batches(data)] == [0, 1]
    assert log.read(2, 1000, 2, True).records == []
    assert log.read(3, 1000, 3, True).records == []


def test_upper_offset_holds_on_an_older_segment(world, batches):
    """A consumer would see uncommitted records of a segment that has rolled."""
    log = world.log(segment_bytes="300")
    log.appender.append_as_leader([batches(b"%03d" % n) for n in range(8)], 0)
    for upper in range(1, 8):
        data = log.read(0, 10_000, upper, True).records[0]
        assert max(h.last_offset for h in split_batches(data)) < upper


def test_the_first_batch_is_whole_or_absent(world, batches):
    """A consumer would be stuck on a batch that is larger than its limit."""
    log = world.log()
    log.appender.append_as_leader([batches(b"x" * 1000), batches(b"y")], 0)
    assert log.read(0, 100, 2, False).records == []
    assert log.read(0, 0, 2, False).records == []
    for max_bytes in (0, 5, 100, 1060):
        data = log.read(0, max_bytes, 2, True).records[0]
        assert [h.base_offset for h in split_batches(data)] == [0]


def test_out_of_range(world, batches):
    """A consumer would wait for ever instead of starting over."""
    log = world.log()
    log.appender.append_as_leader([batches(b"a", b"b")], 0)
    log.update_high_watermark(2)
    log.maybe_increment_log_start_offset(1)
    for offset in (0, 3):
        with pytest.raises(BrokerError) as caught:
            log.read(offset, 100, 2, True)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    # The batch that holds the offset comes whole; the client drops what it did not ask for.
    assert split_batches(log.read(1, 100, 2, True).records[0])[0].base_offset == 0


def test_places_of_offsets(world, batches):
    """A waiting fetch would count the wrong bytes."""
    log = world.log(segment_bytes="300")
    for n in range(8):
        log.appender.append_as_leader([batches(b"%03d" % n)], 0)
    place = log.convert_offset(1)
    assert (place.segment_base_offset, place.position) == (0, 71)
    end = log.convert_offset(8)
    assert end.segment_base_offset == log.segments.active.base_offset
    assert end.position == log.segments.active.size_bytes
    assert log.convert_offset(9) is None
    assert log.convert_offset(log.log_end_offset).position_diff(log.convert_offset(7)) == 71


def test_retries_of_one_socket_read(world, batches, values):
    """A retry that came with its original would be written twice."""
    log = world.log()

    def send(first, *data):
        return batches(*data, producer_id=9, base_sequence=first)

    first, retry, gap = log.appender.append_as_leader(
        [send(0, b"a", b"b"), send(0, b"a", b"b"), send(3, b"d")], 0
    )
    assert (first.first_offset, first.duplicate) == (0, False)
    assert (retry.first_offset, retry.last_offset, retry.duplicate) == (0, 1, True)
    assert retry.log_append_time_ms == world.clock.wall_ms()
    assert gap.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values(log) == [b"a", b"b"]


@pytest.mark.parametrize("is_transactional", [False, True])
def test_first_sequence_of_a_new_log(world, batches, is_transactional):
    """A producer would not outlive the topic that is deleted and made anew. Apache Kafka 4.3 takes
    any first sequence there (decision 0011).
    """
    log = world.log()
    going_on = batches(b"b", producer_id=9, base_sequence=77, is_transactional=is_transactional)
    assert codes(log.appender.append_as_leader([going_on], 0)) == [ErrorCode.NONE]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_first_sequence_of_a_replica_that_started_over(world, batches, is_restarted):
    """A healthy producer would get a fatal answer from a leader whose log was emptied elsewhere.
    Apache Kafka takes any first sequence of a producer of which a log knows nothing
    (decision 0011).
    """
    manager = world.start()
    log = world.log(manager)
    log.truncate_fully_and_start_at(7)
    if is_restarted:
        manager.shutdown()
        log = world.log()
    going_on = batches(b"x", producer_id=9, base_sequence=7)
    assert codes(log.appender.append_as_leader([going_on], 0)) == [ErrorCode.NONE]


def test_transactions_and_the_last_stable_offset(world, batches):
    """Readers of committed data would see aborted records, or miss decided ones."""
    log = world.log()

    def data(producer_id):
        return batches(b"x", producer_id=producer_id, base_sequence=0, is_transactional=True)

    def end(producer_id, is_commit):
        marker = build_end_marker(
            commit=is_commit,
            base_offset=0,
            timestamp_ms=1000,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=5,
        )
        return memoryview(bytearray(marker))

    log.appender.append_as_leader([data(1), data(2), batches(b"plain")], 0)
    log.update_high_watermark(3)
    assert log.last_stable_offset == 0
    log.appender.append_as_leader([end(1, False)], 0, AppendOrigin.COORDINATOR)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 1
    log.appender.append_as_leader([end(2, True)], 0, AppendOrigin.COORDINATOR)
    assert log.last_stable_offset == 1
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5
    assert log.reader.aborted_transactions(0, 5) == [(1, 0)]
    assert log.reader.aborted_transactions(4, 5) == []
    assert codes(log.appender.append_as_leader([end(1, True)], 0)) == [ErrorCode.INVALID_RECORD]


def test_search_by_time(world, batches):
    """ListOffsets would answer an offset whose predecessors are newer too."""
    log = world.log(segment_bytes="400", index_interval_bytes="0")
    start_ms = world.clock.wall_ms()
    for n in range(20):
        log.appender.append_as_leader(
            [batches(b"%03d" % n, timestamp_ms=start_ms + n * 10)], n // 10
        )
    assert len(log.segments) > 2
    for n in range(20):
        for exact in (start_ms + n * 10, start_ms + n * 10 - 9):
            found = log.fetch_offset_by_timestamp(exact, 20)
            assert found == (start_ms + n * 10, n, n // 10)
    assert log.fetch_offset_by_timestamp(start_ms + 191, 20) is None
    assert log.fetch_offset_by_timestamp(start_ms + 100, 10) is None
    assert log.reader.find_max_timestamp().offset == 19


def test_search_by_time_when_time_goes_back(world, batches):
    """A record older than its predecessors would hide those that follow."""
    log = world.log(segment_bytes="400", index_interval_bytes="0")
    start_ms = world.clock.wall_ms()
    for n, late in enumerate([50, 10, 90, 20, 60, 90, 5]):
        log.appender.append_as_leader([batches(b"%d" % n, timestamp_ms=start_ms + late)], 0)
    assert log.fetch_offset_by_timestamp(start_ms + 51, 7).offset == 2
    assert log.fetch_offset_by_timestamp(start_ms, 7).offset == 0
    assert log.reader.find_max_timestamp().offset == 2


def test_truncate(world, batches, values):
    """A follower would keep what its leader does not have."""
    log = world.log(segment_bytes="300", index_interval_bytes="0")
    for n in range(12):
        one = batches(b"%03d" % n, producer_id=9, base_sequence=n)
        log.appender.append_as_leader([one], n // 4)
    log.update_high_watermark(12)
    assert not log.truncate_to(12)
    assert log.truncate_to(6)
    assert (log.log_end_offset, log.high_watermark) == (6, 6)
    assert values(log) == [b"%03d" % n for n in range(6)]
    assert log.leader_epochs.entries == [(0, 0), (1, 4)]
    # The producer's state is that of offset 6: 6 is next, and 5 is a retry.
    again = log.appender.append_as_leader(
        [batches(b"%03d" % n, producer_id=9, base_sequence=n) for n in (5, 6)], 3
    )
    assert [r.duplicate for r in again] == [True, False]
    assert values(log) == [b"%03d" % n for n in range(7)]


def test_truncate_everything(world, batches, values):
    """A follower that is far behind could not start at its leader's first offset."""
    log = world.log()
    log.appender.append_as_leader([batches(b"a", b"b")], 2)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert log.leader_epochs.entries == []
    log.appender.append_as_leader([batches(b"c")], 3)
    assert values(log) == [b"c"]


def test_truncating_everything_forgets_the_producers_for_good(world, batches):
    """A transaction of the records that are gone would hold up readers after a restart."""
    manager = world.start()
    log = world.log(manager)
    open_for_ever = batches(b"x", producer_id=1, base_sequence=0, is_transactional=True)
    log.appender.append_as_leader([open_for_ever], 0)
    manager.shutdown()
    manager = world.start()
    log = world.log(manager)
    log.truncate_fully_and_start_at(100)
    log.appender.append_as_leader([batches(b"c")], 3)
    world.crash(manager)
    again = world.log(world.start())
    again.update_high_watermark(101)
    assert again.last_stable_offset == 101


def test_what_retention_takes_away_is_not_written_twice(world, batches):
    """A producer whose answer was lost sends again, after all that it wrote is gone."""
    manager = world.start()
    log = world.log(manager, retention_ms="1000")
    log.appender.append_as_leader([batches(b"a", producer_id=9, base_sequence=0)], 0)
    log.update_high_watermark(1)
    assert log.delete_old_segments(world.clock.wall_ms() + 10_000) == 1
    world.crash(manager)
    again = world.log(world.start())
    assert again.log_start_offset == 1
    (result,) = again.appender.append_as_leader([batches(b"a", producer_id=9, base_sequence=0)], 0)
    assert result.duplicate


@pytest.mark.parametrize("is_empty", [False, True])
def test_what_retention_takes_away_after_a_recovery_is_not_written_twice(world, batches, is_empty):
    """The snapshots of before the crash are not believed, and the records behind them may go."""
    manager = world.start()
    log = world.log(manager)
    send = lambda: batches(b"a", producer_id=9, base_sequence=0)  # noqa: E731
    log.appender.append_as_leader([send()], 0)
    log.appender.roll()
    if not is_empty:
        log.appender.append_as_leader([batches(b"b")], 0)
    world.crash(manager)
    manager = world.start()
    recovered = world.log(manager)
    if is_empty:
        recovered.appender.append_as_leader([batches(b"b")], 0)
    recovered.update_high_watermark(2)
    recovered.maybe_increment_log_start_offset(1)
    assert recovered.delete_old_segments(world.clock.wall_ms()) == 1
    world.crash(manager)
    (result,) = world.log(world.start()).appender.append_as_leader([send()], 0)
    assert result.duplicate


def test_followers_keep_offsets_and_epochs(world, batches, values):
    """Replicas would differ."""
    manager = world.start()
    leader = world.log(manager)
    leader.appender.append_as_leader([batches(b"a", b"b"), batches(b"c")], 3)
    leader.appender.append_as_leader([batches(b"d")], 5)
    data = leader.read(0, 10_000, 4, True).records[0]
    follower = manager.get_or_create(TopicPartition("copy", 0), leader.topic_id, leader.config)
    info = follower.appender.append_as_follower(memoryview(bytearray(data) + data[:20]))
    assert (info.first_offset, info.last_offset) == (0, 3)
    assert values(follower) == [b"a", b"b", b"c", b"d"]
    assert follower.leader_epochs.entries == [(3, 0), (5, 3)]
    with pytest.raises(BrokerError):
        follower.appender.append_as_follower(memoryview(bytearray(data)))
    assert follower.log_end_offset == 4


def test_a_full_disk_refuses_one_append(world, batches, values):
    """An acknowledged record would not be in the file, or the log be lost with the space."""
    files = FaultyFileSystem()
    log = world.log(world.start(files), index_interval_bytes="0")

    def send(*sequences):
        return [batches(b"%d" % n, producer_id=9, base_sequence=n) for n in sequences]

    assert codes(log.appender.append_as_leader(send(0), 0)) == [ErrorCode.NONE]
    files.is_full = True
    results = log.appender.append_as_leader(send(1, 1), 0)
    assert codes(results) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert log.log_end_offset == 1
    assert world.failed == []
    files.is_full = False
    assert codes(log.appender.append_as_leader(send(1, 2, 3), 0)) == [ErrorCode.NONE] * 3
    assert values(log) == [b"0", b"1", b"2", b"3"]


def test_a_batch_is_not_written_without_the_one_that_it_follows(world, batches, values):
    """The log would have the second without the first, whose retry is then out of order."""
    files = FaultyFileSystem()
    log = world.log(world.start(files), segment_bytes="1000")

    def send(sequence, size_bytes):
        return batches(b"%d" % sequence * size_bytes, producer_id=9, base_sequence=sequence)

    log.appender.append_as_leader([send(0, 300)], 0)
    files.errno = errno.ENOSPC
    files.fail_at = files.operations + 1
    # The third does not fit beside the second, which the disk refuses, but without it.
    results = log.appender.append_as_leader([send(1, 300), send(2, 400)], 0)
    assert codes(results) == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ]
    assert (
        codes(log.appender.append_as_leader([send(1, 300), send(2, 400)], 0))
        == [ErrorCode.NONE] * 2
    )
    assert [value[:1] for value in values(log)] == [b"0", b"1", b"2"]


def test_nothing_is_acknowledged_after_the_disk_has_failed(world, batches):
    """A batch would be acknowledged on a directory that was just given up."""
    files = FaultyFileSystem()
    log = world.log(world.start(files), segment_bytes="1000")
    log.appender.append_as_leader([batches(b"x" * 300)], 0)
    files.fail_at = files.operations + 1
    results = log.appender.append_as_leader([batches(b"y" * 300), batches(b"z" * 400)], 0)
    assert codes(results) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert world.failed == world.directories


def test_a_coordinator_may_commit_twice_in_a_transaction(world, batches):
    """Offsets that a transaction commits a second time would be dropped as a retry."""
    log = world.log()
    commits = [
        batches(b"%d" % n, producer_id=9, base_sequence=-1, is_transactional=True) for n in range(2)
    ]
    results = log.appender.append_as_leader(commits, 0, AppendOrigin.COORDINATOR)
    assert [(each.first_offset, each.duplicate) for each in results] == [(0, False), (1, False)]


def test_a_full_disk_while_indexing_takes_the_append_back(world, batches, values):
    """The log would hold records that were answered with an error."""
    files = FaultyFileSystem()
    log = world.log(world.start(files), index_interval_bytes="0")
    log.appender.append_as_leader([batches(b"a")], 0)
    files.errno = errno.ENOSPC
    files.fail_at = files.operations + 2
    assert codes(log.appender.append_as_leader([batches(b"b")], 0)) == [
        ErrorCode.KAFKA_STORAGE_ERROR
    ]
    assert "extend" in files.log[files.fail_at - 1]
    assert values(log) == [b"a"]
    log.appender.append_as_leader([batches(b"c")], 0)
    assert values(log) == [b"a", b"c"]


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_full_disk_while_cutting_leaves_nothing_behind(world, batches, values, is_whole):
    """A producer would be told that what was cut is there: it never sends it again."""
    log = world.log()
    send = lambda: batches(b"b", producer_id=9, base_sequence=1)  # noqa: E731
    log.appender.append_as_leader([batches(b"a", producer_id=9, base_sequence=0)], 0)
    log.appender.append_as_leader([send()], 1)

    def refuse(path):
        raise OSError(errno.ENOSPC, "no space left", path)

    pool = log.log_directory.file_system.pool
    pool.trouble = lambda path: refuse(path) if "epoch" in path else None
    if is_whole:
        log.truncate_fully_and_start_at(1)
    else:
        log.truncate_to(1)
    pool.trouble = None
    assert log.leader_epochs.latest_epoch == (-1 if is_whole else 0)
    (result,) = log.appender.append_as_leader([send()], 1)
    assert not result.duplicate
    assert values(log)[-1] == b"b"
    assert log.log_end_offset == 2


def test_a_full_disk_leaves_no_segment_without_its_producers(world, batches):
    """A crash would let a producer write twice, when retention has taken what it wrote."""
    manager = world.start()
    log = world.log(manager)
    send = lambda: batches(b"a", producer_id=9, base_sequence=0)  # noqa: E731
    log.appender.append_as_leader([send()], 0)

    def refuse(path):
        if path.endswith(".snapshot"):
            raise OSError(errno.ENOSPC, "no space left", path)

    pool = log.log_directory.file_system.pool
    pool.trouble = refuse
    with pytest.raises(BrokerError):
        log.appender.roll()
    pool.trouble = None
    log.appender.append_as_leader([batches(b"b")], 0)
    log.update_high_watermark(2)
    log.maybe_increment_log_start_offset(1)
    log.delete_old_segments(world.clock.wall_ms())
    world.crash(manager)
    (result,) = world.log(world.start()).appender.append_as_leader([send()], 0)
    assert result.duplicate


def test_a_failing_disk_takes_its_directory_offline(world, batches):
    """The broker would go on acknowledging what the disk does not keep."""
    files = FaultyFileSystem()
    log = world.log(world.start(files))
    log.appender.append_as_leader([batches(b"a")], 0)
    files.fail_at = files.operations + 1
    assert codes(log.appender.append_as_leader([batches(b"b")], 0)) == [
        ErrorCode.KAFKA_STORAGE_ERROR
    ]
    assert world.failed == world.directories
    assert codes(log.appender.append_as_leader([batches(b"c")], 0)) == [
        ErrorCode.KAFKA_STORAGE_ERROR
    ]
    with pytest.raises(BrokerError) as caught:
        log.read(0, 100, 1, True)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failing_read_takes_the_directory_offline(world, batches):
    """A disk that cannot be read would be asked for ever."""
    files = FaultyFileSystem()
    log = world.log(world.start(files))
    log.appender.append_as_leader([batches(b"a")], 0)
    files.read_fails = True
    with pytest.raises(BrokerError) as caught:
        log.read(0, 100, 1, True)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.failed == world.directories


@pytest.mark.leaves_damage
def test_a_damaged_index_is_mended_when_it_is_used(world, batches, values):
    """A flipped bit in an index would hide records."""
    log = world.log(segment_bytes="2000", index_interval_bytes="100")
    for n in range(60):
        log.appender.append_as_leader([batches(b"%03d" % n)], 0)
    oldest = log.segments.first
    oldest.release()
    with open(oldest.offset_index.path, "r+b") as file:
        file.seek(8 * 5 + 2)
        file.write(b"\x01")
    assert values(log) == [b"%03d" % n for n in range(60)]
    for n in range(60):
        assert log.convert_offset(n) is not None


def test_a_damaged_time_index_is_mended_when_it_is_used(world, batches):
    """A wrong time would hide records from a search, or retention drop them."""
    manager = world.start()
    log = world.log(manager, segment_bytes="2000", index_interval_bytes="100")
    start_ms = world.clock.wall_ms()
    for n in range(60):
        log.appender.append_as_leader([batches(b"%03d" % n, timestamp_ms=start_ms + n)], 0)
    path = log.segments.first.time_index.path
    manager.shutdown()
    os.truncate(path, os.stat(path).st_size - 12)
    with open(path, "ab") as file:
        file.write(bytes(12))
    log = world.log()
    assert log.segments.first.max_timestamp > start_ms
    for n in range(60):
        assert log.fetch_offset_by_timestamp(start_ms + n, 60).offset == n


def test_watermarks_stay_in_bounds(world, batches):
    """The log would promise offsets that it does not hold."""
    log = world.log()
    log.appender.append_as_leader([batches(b"a", b"b", b"c")], 0)
    log.update_high_watermark(9)
    assert log.high_watermark == 3
    log.update_high_watermark(2)
    assert log.high_watermark == 2
    with pytest.raises(BrokerError):
        log.maybe_increment_log_start_offset(3)
    assert log.maybe_increment_log_start_offset(2)
    assert not log.maybe_increment_log_start_offset(1)
    log.update_high_watermark(0)
    assert log.high_watermark == 2


@pytest.mark.parametrize("kept", [0, 1])
def test_a_flush_says_nothing_of_what_was_written_again_meanwhile(world, batches, kept):
    """After a power failure records would be trusted that no sync has ever reached."""
    log = world.log()
    log.appender.append_as_leader([batches(b"%d" % n) for n in range(3)], 0)
    target, work = log.local.prepare_flush()
    log.truncate_to(kept)
    log.appender.append_as_leader([batches(b"again %d" % n) for n in range(5)], 0)
    work()
    log.local.on_flushed(target)
    assert log.local.recovery_point == kept
    log.local.flush()
    assert log.local.recovery_point == log.log_end_offset
