"""`LogManager`: directories, identities, housekeeping, deletion, failing disks."""

import errno
import json
import os
import re
from uuid import UUID

import pytest
from tests.late_background import LateBackground
from tests.unit.storage.conftest import ORDERS_ID

from odradek.config.topic import LogConfig
from odradek.errors import BrokerError, ErrorCode, LogDirFailure
from odradek.model import TopicPartition
from odradek.storage import names
from odradek.testing.faulty_files import FaultyFileSystem

SMALL = {"segment_bytes": "300", "index_interval_bytes": "100"}
OTHER_ID = UUID("bf2ad2cb-8a7e-4a55-a4d1-3c2f0d1de6a8")


def files_of(log) -> list[str]:
    return sorted(os.listdir(log.local.path))


def fill(log, batches, count: int) -> None:
    for n in range(count):
        log.appender.append_as_leader([batches(b"%03d" % n)], 0)
    log.update_high_watermark(count)


def test_the_directory_looks_like_kafkas(world, batches):
    """Kafka's tools and brokers could not use the directory."""
    manager = world.start()
    log = world.log(manager)
    fill(log, batches, 3)
    manager.shutdown(broker_epoch=11)
    (path,) = world.directories
    assert sorted(os.listdir(path)) == [
        ".kafka_cleanshutdown",
        ".lock",
        "log-start-offset-checkpoint",
        "meta.properties",
        "orders-0",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]
    assert files_of(log) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    with open(os.path.join(path, ".kafka_cleanshutdown")) as file:
        assert json.load(file) == {"version": 0, "brokerEpoch": 11}
    with open(os.path.join(path, "meta.properties")) as file:
        lines = file.read().splitlines()
    assert lines[:3] == ["version=1", "cluster.id=cluster", "node.id=1"]
    with open(os.path.join(path, "replication-offset-checkpoint")) as file:
        assert file.read() == "0\n1\norders 0 3\n"


def test_a_directory_in_use_is_refused(world):
    """Two brokers would write into one log."""
    world.start()
    with pytest.raises(BlockingIOError, match="in use"):
        world.start()


def test_a_directory_of_another_broker_is_refused(world):
    """A mixed-up mount would be taken for this broker's data."""
    world.start().shutdown()
    with pytest.raises(ValueError, match="belongs to broker 1"):
        world.start(node_id=2)


@pytest.mark.leaves_damage
@pytest.mark.parametrize("version", ["7", "2", "-1", "", "x"])
def test_a_directory_of_an_unknown_version_is_refused(world, version):
    """A later Kafka may have written what this broker does not know to be there."""
    world.start().shutdown()
    path = os.path.join(world.directories[0], names.META_PROPERTIES)
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace("version=1", f"version={version}"))
    with pytest.raises(ValueError, match=re.escape(path)):
        world.start()


def test_a_directory_without_a_version_is_of_the_first(world):
    """Kafka reads it so."""
    world.start().shutdown()
    path = os.path.join(world.directories[0], names.META_PROPERTIES)
    with open(path, "w") as file:
        file.write("cluster.id=cluster\nbroker.id=1\n")
    world.start().shutdown()


@pytest.mark.parametrize("is_new_first", [True, False])
def test_a_broker_of_another_number_leaves_nothing_behind(world, batches, tmp_path, is_new_first):
    """A wrong broker.id would be written into a directory that is new, and the broker be refused
    again when its number is put right."""
    manager = world.start()
    fill(world.log(manager), batches, 3)
    manager.shutdown()
    (old,) = world.directories
    # The marker of an orderly end goes with any start: the next one looks at the logs again.
    before = set(os.listdir(old)) - {names.CLEAN_SHUTDOWN_FILE}
    new = str(tmp_path / "added")
    os.makedirs(new)
    world.directories[:] = [new, old] if is_new_first else [old, new]
    with pytest.raises(ValueError, match="belongs to broker 1"):
        world.start(node_id=2)
    world.crash(world.managers[-1])
    assert set(os.listdir(old)) == before
    assert names.META_PROPERTIES not in os.listdir(new)
    manager = world.start()
    assert world.log(manager).log_end_offset == 3
    assert names.META_PROPERTIES in os.listdir(new)
    manager.shutdown()


@pytest.mark.leaves_damage
def test_an_older_topic_of_the_name_goes(world, batches, values):
    """A topic made anew would show the records of the one before."""
    manager = world.start()
    fill(world.log(manager), batches, 3)
    manager.shutdown()
    manager = world.start()
    log = manager.get_or_create(world.orders, OTHER_ID, LogConfig())
    assert values(log) == []
    assert log.topic_id == OTHER_ID


def test_a_topic_id_with_a_damaged_byte_is_still_the_topics(world, batches, values):
    """A flipped bit in `partition.metadata` would take a partition's records out of use."""
    manager = world.start()
    fill(world.log(manager), batches, 3)
    manager.shutdown()
    path = f"{world.directories[0]}/orders-0/partition.metadata"
    with open(path) as file:
        kept = file.read()
    with open(path, "w") as file:
        file.write(kept.replace("topic_id: A", "topic_id: _"))
    manager = world.start()
    assert values(world.log(manager)) == [b"000", b"001", b"002"]
    with open(path) as file:
        assert file.read() == kept


def test_delete_renames_now_and_removes_later(world, batches):
    """A topic of the same name could not be made, or the space never be freed."""
    manager = world.start()
    log = world.log(manager, file_delete_delay_ms="1000")
    fill(log, batches, 3)
    manager.delete(world.orders)
    assert manager.get(world.orders) is None
    (path,) = world.directories
    (deleted,) = [name for name in os.listdir(path) if name.endswith("-delete")]
    assert deleted.startswith("orders-0.")
    assert len(log.appender.append_as_leader([batches(b"x")], 0)) == 1
    world.log(manager)
    world.advance(1001)
    assert not [name for name in os.listdir(path) if name.endswith("-delete")]
    manager.delete(TopicPartition("unknown", 0))


@pytest.mark.leaves_damage
def test_a_log_with_another_topics_id_is_set_aside_not_deleted(world, batches):
    """One flipped bit in `partition.metadata` would cost every record of the partition."""
    manager = world.start()
    log = world.log(manager, file_delete_delay_ms="1")
    fill(log, batches, 3)
    other = manager.get_or_create(world.orders, OTHER_ID, LogConfig())
    assert (other.topic_id, other.log_end_offset) == (OTHER_ID, 0)
    world.advance(10)
    (path,) = world.directories
    (stray,) = [name for name in os.listdir(path) if name.endswith("-stray")]
    assert stray.startswith("orders-0.")
    assert os.path.getsize(f"{path}/{stray}/{0:020d}.log") > 0
    world.crash(manager)
    assert [each.topic_partition for each in world.start().logs()] == [world.orders]


@pytest.mark.parametrize("is_deleted", [True, False])
@pytest.mark.leaves_damage
def test_no_topic_begins_with_the_records_of_an_earlier_one(world, batches, is_deleted):
    """A full disk that refuses to rename the old log would give its records to the new topic."""
    files = FaultyFileSystem()
    manager = world.start(files)
    fill(world.log(manager), batches, 3)
    files.is_full = True
    if is_deleted:
        with pytest.raises(BrokerError, match="renaming"):
            manager.delete(world.orders)
    for _ in range(2):
        with pytest.raises(BrokerError, match="renaming"):
            manager.get_or_create(world.orders, OTHER_ID, LogConfig())
    files.is_full = False
    log = manager.get_or_create(world.orders, OTHER_ID, LogConfig())
    assert (log.topic_id, log.log_end_offset) == (OTHER_ID, 0)
    fill(log, batches, 1)
    assert world.failed == []


@pytest.mark.parametrize("operation", [2, 3, 4])
def test_a_log_that_could_not_be_made_leaves_no_folder(world, batches, operation):
    """Made in another directory a moment later it would lie in both: no later start succeeds."""
    files = FaultyFileSystem()
    world.directories.append(world.directories[0] + "2")
    manager = world.start(files)
    files.errno = errno.ENOSPC
    files.fail_at = files.operations + operation
    with pytest.raises(BrokerError, match="creating orders-0"):
        world.log(manager)
    manager.get_or_create(TopicPartition("other", 0), OTHER_ID, LogConfig())
    fill(world.log(manager), batches, 1)
    assert [log.log_directory.path for log in manager.logs()] == world.directories
    manager.shutdown()
    assert len(world.start().logs()) == 2


def test_what_could_not_be_deleted_is_there(world, batches, values):
    """A replica that is wanted again would be closed, or begin anew in the folder of the other."""
    files = FaultyFileSystem()
    manager = world.start(files)
    fill(world.log(manager), batches, 3)
    files.is_full = True
    with pytest.raises(BrokerError, match="renaming"):
        manager.delete(world.orders)
    files.is_full = False
    log = world.log(manager)
    fill(log, batches, 1)
    assert values(log) == [b"000", b"001", b"002", b"000"]
    manager.delete(world.orders)
    assert manager.get(world.orders) is None


@pytest.mark.leaves_damage
def test_a_log_whose_disk_fails_in_its_deletion_is_out_of_use(world, batches):
    """It would be handed out on a dead disk, or the partition be made nowhere else."""
    files = FaultyFileSystem()
    manager = world.start(files)
    fill(world.log(manager), batches, 3)
    files.fail_at = files.operations + 1
    with pytest.raises(BrokerError, match="renaming"):
        manager.delete(world.orders)
    assert world.failed == world.directories
    with pytest.raises(BrokerError, match="offline"):
        world.log(manager)
    manager.delete(world.orders)
    assert manager.get(world.orders) is None


def test_a_deletion_that_a_crash_interrupted_is_finished(world, batches):
    """Deleted topics would keep their space for ever."""
    manager = world.start()
    fill(world.log(manager), batches, 3)
    manager.delete(world.orders)
    world.crash(manager)
    manager = world.start()
    assert manager.logs() == []
    world.advance(1)
    assert not [name for name in os.listdir(world.directories[0]) if "-delete" in name]


def deleted_directories(world) -> list[str]:
    return [name for name in os.listdir(world.directories[0]) if name.endswith("-delete")]


def log_in_the_checkpoints(world, background, batches, **settings):
    """A manager whose checkpoints speak of `orders-0`."""
    manager = world.start(background=background)
    log = world.log(manager, **settings)
    fill(log, batches, 3)
    manager.flusher.flush(log.local)
    log.maybe_increment_log_start_offset(2)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks()
    (directory,) = manager.directories
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_OFFSET_CHECKPOINT):
        assert directory.read_offsets(name)[world.orders] > 0
    return manager


def test_checkpoints_of_a_deleted_log_prove_nothing_of_its_successor(world, batches, values):
    """A topic made anew just before a crash would hide records by its forerunner's log start,
    or go unchecked up to its recovery point."""
    background = LateBackground(is_late=False)
    manager = log_in_the_checkpoints(world, background, batches)
    background.is_late = True
    manager.delete(world.orders)
    successor = manager.get_or_create(world.orders, OTHER_ID, LogConfig())
    successor.appender.append_as_leader(
        [batches(b"new 0"), batches(b"new 1"), batches(b"new 2")], 0
    )
    for _ in range(2):
        world.crash(manager)
        manager = world.start(background=background)
        (found,) = manager.logs()
        assert values(found) == [b"new 0", b"new 1", b"new 2"]
        assert found.local.recovery_point == 0
        world.advance(1)
        assert deleted_directories(world), "they tell that the checkpoints are stale"
    background.catch_up()
    world.advance(1)
    assert not deleted_directories(world)
    assert manager.directories[0].read_offsets(names.LOG_START_OFFSET_CHECKPOINT) == {}


def test_a_deleted_log_goes_after_it_has_left_the_checkpoints(world, batches):
    """A crash in between would have a log made anew judged by its forerunner's offsets."""
    background = LateBackground(is_late=False)
    manager = log_in_the_checkpoints(world, background, batches, file_delete_delay_ms="0")
    background.is_late = True
    manager.delete(world.orders)
    world.advance(1)
    assert deleted_directories(world)
    background.catch_up()
    world.advance(1)
    assert not deleted_directories(world)


def test_records_deleted_from_a_log_made_anew_stay_deleted(world, batches, values):
    """A crash would bring them back as long as the log's forerunner waits for its removal."""
    manager = log_in_the_checkpoints(world, LateBackground(is_late=False), batches)
    manager.delete(world.orders)
    successor = manager.get_or_create(world.orders, OTHER_ID, LogConfig())
    fill(successor, batches, 3)
    successor.maybe_increment_log_start_offset(1)
    assert deleted_directories(world)
    world.crash(manager)
    (found,) = world.start().logs()
    assert values(found) == [b"001", b"002"]


def test_a_full_disk_gets_the_room_of_a_deleted_log(world, batches, values):
    """Checkpoints cannot be written there: nothing would ever be freed."""
    files = FaultyFileSystem()
    manager = world.start(files)
    log = world.log(manager, file_delete_delay_ms="5")
    fill(log, batches, 3)
    manager.flusher.flush(log.local)
    manager.checkpoints.write_recovery_points()
    files.full_at = files.operations + 2
    manager.delete(world.orders)
    assert files.is_full
    world.advance(6)
    (deleted,) = deleted_directories(world)
    assert os.listdir(os.path.join(world.directories[0], deleted)) == ["partition.metadata"]
    assert world.failed == []
    files.full_at = None
    files.is_full = False
    successor = manager.get_or_create(world.orders, OTHER_ID, LogConfig())
    fill(successor, batches, 3)
    world.crash(manager)
    (found,) = world.start().logs()
    assert (found.local.recovery_point, len(values(found))) == (0, 3)
    world.advance(1)
    assert not deleted_directories(world)


def test_a_deletion_that_was_committed_is_carried_out(world, batches):
    """The log of a topic deleted just before a crash would never go, and `fsck` complain."""
    manager = world.start()
    fill(world.log(manager), batches, 3)
    world.crash(manager)
    manager = world.start()
    manager.finish_deletions_of({OTHER_ID})
    assert len(manager.logs()) == 1
    manager.finish_deletions_of({ORDERS_ID})
    assert manager.logs() == []
    assert len(deleted_directories(world)) == 1


@pytest.mark.parametrize("topic", ["a.b-1", "x" * 249])
def test_a_deleted_directory_tells_whose_it_was(topic):
    """A log made anew would be taken for the deleted one, or another for one made anew."""
    partition = TopicPartition(topic, 12)
    name = names.deleted_directory(partition, OTHER_ID)
    assert names.is_deleted_directory_of(name, partition)
    assert not names.is_deleted_directory_of(name, TopicPartition("a.b", 12))
    assert not names.is_deleted_directory_of(names.partition_directory(partition), partition)


def test_retention_by_time_runs_on_the_timer(world, batches):
    """Old records would never go, or go too early."""
    manager = world.start()
    log = world.log(manager, retention_ms="600000", file_delete_delay_ms="1000", **SMALL)
    fill(log, batches, 12)
    world.advance(300_000)
    assert log.log_start_offset == 0
    world.advance(300_001)
    assert log.log_start_offset == log.log_end_offset == 12
    assert [s.base_offset for s in log.segments.all()] == [12]
    assert any(name.endswith(".deleted") for name in files_of(log))
    world.advance(1001)
    assert not any(name.endswith(".deleted") for name in files_of(log))
    fill(log, batches, 1)


def test_retention_by_size_keeps_what_was_asked_for(world, batches):
    """A log would grow beyond its limit, or lose more than it has to."""
    manager = world.start()
    log = world.log(manager, retention_bytes="600", **SMALL)
    fill(log, batches, 20)
    manager.housekeeping.delete_old_segments()
    assert 600 <= log.segments.size_bytes < 900
    assert log.log_start_offset == log.segments.first.base_offset > 0


def test_no_bytes_at_all_are_kept_of_the_active_segment_either(world, batches):
    """Records of which nothing was to be kept would stay until the segment is full. Apache Kafka
    4.3 rolls, and removes what it has rolled.
    """
    manager = world.start()
    log = world.log(manager, retention_bytes="0")
    fill(log, batches, 3)
    manager.housekeeping.delete_old_segments()
    assert log.log_start_offset == log.log_end_offset == 3
    assert [segment.base_offset for segment in log.segments.all()] == [3]
    fill(log, batches, 1)


def test_retention_does_not_touch_what_is_not_replicated(world, batches):
    """Records would go before every replica has them."""
    manager = world.start()
    log = world.log(manager, retention_bytes="0", **SMALL)
    fill(log, batches, 12)
    log.update_high_watermark(5)
    manager.housekeeping.delete_old_segments()
    assert log.log_start_offset <= 5


def test_delete_records_survives_a_crash(world, batches):
    """Deleted records would come back."""
    manager = world.start()
    log = world.log(manager, **SMALL)
    fill(log, batches, 12)
    log.maybe_increment_log_start_offset(6)
    world.crash(manager)
    manager = world.start()
    log = world.log(manager, **SMALL)
    assert log.log_start_offset == 6
    log.update_high_watermark(12)
    manager.housekeeping.delete_old_segments()
    assert 0 < log.segments.first.base_offset <= 6
    manager.shutdown()
    assert world.log(**SMALL).log_start_offset == 6


def test_new_logs_go_where_the_fewest_are(world):
    """One disk would fill while another is empty."""
    world.directories.append(world.directories[0] + "2")
    manager = world.start()
    for n in range(6):
        manager.get_or_create(TopicPartition("t", n), UUID(int=1), LogConfig())
    homes = [log.log_directory.path for log in manager.logs()]
    assert homes.count(world.directories[0]) == homes.count(world.directories[1]) == 3


def homes_of_new_logs(manager, count):
    logs = [
        manager.get_or_create(TopicPartition("new", n), UUID(int=2), LogConfig())
        for n in range(count)
    ]
    return [manager.directories.index(log.log_directory) for log in logs]


def test_logs_that_have_gone_do_not_count(world):
    """The disk on which topics were deleted would stay empty."""
    world.directories.append(world.directories[0] + "2")
    manager = world.start()
    for n in range(6):
        manager.get_or_create(TopicPartition("t", n), UUID(int=1), LogConfig())
    for log in manager.logs():
        if log.log_directory is manager.directories[1]:
            manager.delete(log.topic_partition)
    assert homes_of_new_logs(manager, 4) == [1, 1, 1, 0]


def test_a_log_that_has_moved_counts_where_it_is(world):
    """The disk that was emptied by hand would get nothing, and the one it went to everything."""
    world.directories.append(world.directories[0] + "2")
    manager = world.start()
    for n in range(4):
        manager.get_or_create(TopicPartition("t", n), UUID(int=1), LogConfig())
    first, second = manager.directories
    for log in [log for log in manager.logs() if log.log_directory is first]:
        manager.futures.create(second, log, 0)
        manager.replace_current_with_future(log.topic_partition)
    assert homes_of_new_logs(manager, 5) == [0, 0, 0, 0, 0]


def test_logs_count_from_the_start(world):
    """After a restart all new logs would go to the first disk."""
    world.directories.append(world.directories[0] + "2")
    manager = world.start()
    for n in range(3):
        manager.get_or_create(TopicPartition("t", n), UUID(int=1), LogConfig())
    manager.shutdown()
    assert homes_of_new_logs(world.start(), 2) == [1, 0]


def test_a_failing_directory_goes_alone(world, batches, values):
    """One bad disk would take the broker down."""
    world.directories.append(world.directories[0] + "2")
    manager = world.start()
    logs = [manager.get_or_create(TopicPartition("t", n), UUID(int=1), LogConfig()) for n in (0, 1)]
    manager.directories[0].fail(OSError(5, "gone"))
    assert manager.offline_dirs == world.failed == [world.directories[0]]
    results = [log.appender.append_as_leader([batches(b"x")], 0)[0] for log in logs]
    assert results[0].code == ErrorCode.KAFKA_STORAGE_ERROR
    assert values(logs[1]) == [b"x"]
    third = manager.get_or_create(TopicPartition("t", 2), UUID(int=1), LogConfig())
    assert third.log_directory.path == world.directories[1]
    manager.shutdown()
    assert not os.path.exists(os.path.join(world.directories[0], ".kafka_cleanshutdown"))
    assert os.path.exists(os.path.join(world.directories[1], ".kafka_cleanshutdown"))


def test_a_directory_that_is_dead_at_the_start_may_have_any_log(world):
    """The broker would say that it has none of a topic whose logs lie there; of a disk that fails
    later it knows them."""
    world.directories.append(world.directories[0] + "2")
    manager = world.start()
    manager.directories[1].fail(OSError(5, "gone"))
    assert not manager.is_missing_logs
    manager.shutdown()
    os.rename(world.directories[1], world.directories[1] + "away")
    with open(world.directories[1], "w") as file:
        file.write("a file where a directory should be")
    assert world.start().is_missing_logs


def test_without_any_directory_the_start_fails(world):
    """The broker would run without a place for its records."""
    with open(world.directories[0], "w") as file:
        file.write("a file where a directory should be")
    with pytest.raises(LogDirFailure):
        world.start()


def test_a_failed_fsync_is_final(world, batches):
    """The kernel drops what it could not write; a second fsync would pretend that it is there."""
    files = FaultyFileSystem()
    manager = world.start(files)
    log = world.log(manager, flush_messages="2")
    log.appender.append_as_leader([batches(b"a")], 0)
    assert log.local.recovery_point == 0
    log.appender.append_as_leader([batches(b"b")], 0)
    assert log.local.recovery_point == 2
    files.sync_fails = True
    log.appender.append_as_leader([batches(b"c", b"d")], 0)
    assert log.local.recovery_point == 2
    assert world.failed == world.directories
    files.sync_fails = False
    with pytest.raises(BrokerError):
        log.local.flush()


def test_flush_by_time(world, batches):
    """Records would stay off the disk longer than was asked for."""
    log = world.log(flush_ms="1000")
    log.appender.append_as_leader([batches(b"a")], 0)
    world.advance(500)
    log.appender.append_as_leader([batches(b"b")], 0)
    assert log.local.recovery_point == 0
    world.advance(501)
    assert log.local.recovery_point == 2


def test_a_rolled_segment_is_flushed(world, batches):
    """Recovery would read the whole log after every crash."""
    log = world.log(**SMALL)
    fill(log, batches, 12)
    assert log.local.recovery_point == log.segments.active.base_offset > 0


def test_creating_a_partition_is_cheap_in_descriptors(world):
    """A thousand partitions would use up the descriptors before one record is written."""
    manager = world.start()
    before = len(os.listdir("/proc/self/fd"))
    for n in range(200):
        manager.get_or_create(TopicPartition("many", n), UUID(int=1), LogConfig())
    assert len(os.listdir("/proc/self/fd")) <= before


def test_progress_is_reported(world, batches):
    """A long recovery would look like a broker that hangs."""
    manager = world.start()
    fill(world.log(manager, **SMALL), batches, 12)
    world.crash(manager)
    seen = []
    world.start(on_progress=lambda p: seen.append((p.loaded_logs, p.total_logs, p.checked_bytes)))
    assert seen[-1][:2] == (1, 1)
    assert seen[-1][2] > 0


def test_records_without_timestamps_age_from_the_last_append(world, batches):
    """A record acknowledged a second ago would go with a segment that was made days ago."""
    manager = world.start()
    log = world.log(manager, retention_ms="1000", segment_ms="3600000")
    log.appender.append_as_leader([batches(b"old", timestamp_ms=-1)], 0)
    world.clock.advance(5000)
    log.appender.append_as_leader([batches(b"new", timestamp_ms=-1)], 0)
    log.update_high_watermark(2)
    world.clock.advance(900)
    manager.housekeeping.delete_old_segments()
    assert log.log_start_offset == 0
    world.clock.advance(101)
    manager.housekeeping.delete_old_segments()
    assert log.log_start_offset == 2


def test_records_without_timestamps_age_with_their_file(world, batches):
    """Segments of old clients would be kept for ever, or lost at the first start."""
    manager = world.start()
    log = world.log(manager, segment_bytes="300", retention_ms="1000", file_delete_delay_ms="0")
    for n in range(6):
        log.appender.append_as_leader([batches(b"%d" % n, timestamp_ms=-1)], 0)
    log.update_high_watermark(6)
    now_ms = world.clock.wall_ms()
    young, old = log.segments.at(1).file.path, log.segments.first.file.path
    end_of_first = log.segments.at(1).base_offset
    manager.shutdown()
    os.utime(old, ns=((now_ms - 1001) * 1_000_000,) * 2)
    os.utime(young, ns=((now_ms - 999) * 1_000_000,) * 2)
    manager = world.start()
    log = world.log(manager, segment_bytes="300", retention_ms="1000", file_delete_delay_ms="0")
    manager.housekeeping.delete_old_segments()
    assert log.log_start_offset == end_of_first
