"""The checkpoints of logs, their flushes, and what the cleaner may take."""

import os
from uuid import UUID

import pytest
from tests.late_background import LateBackground

from odradek.config.topic import LogConfig, parse_topic_settings
from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.storage import LogManager, OsFileSystem, names
from odradek.storage.files import File, OsFile

SMALL = {"segment_bytes": "300", "index_interval_bytes": "100"}
COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", **SMALL}
OFF = str(2**31 - 1)


class NotingFileSystem(OsFileSystem):
    """Notes how many bytes each read of a file asks for."""

    def __init__(self) -> None:
        super().__init__(64, durable=False)
        self.asked: list[int] = []

    def open(self, path: str, *, create: bool = False) -> File:
        return NotingFile(self, path, super().open(path, create=create).size)


class NotingFile(OsFile):
    def __init__(self, files: NotingFileSystem, path: str, size_bytes: int) -> None:
        super().__init__(path, files.pool, size_bytes, False)
        self._files = files

    def read(self, position: int, size_bytes: int) -> bytes:
        self._files.asked.append(size_bytes)
        return super().read(position, size_bytes)

    def duplicate(self) -> File:
        return NotingFile(self._files, self.path, self.size)


def manager_with(world, background, **properties: str) -> LogManager:
    written = {name.replace("_", "."): value for name, value in properties.items()}
    return world.start(properties=written, background=background)


def checkpoint(world, name: str) -> str:
    path = os.path.join(world.directories[0], name)
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read()


def fill(world, log, count: int, keys: int = 3) -> None:
    for number in range(count):
        builder = RecordBatchBuilder(0)
        key = b"key-%d" % (number % keys)
        builder.append(world.clock.wall_ms(), key, b"value-%d" % number, [])
        log.appender.append_as_leader([memoryview(bytearray(builder.build()))], 0)
    log.update_high_watermark(log.log_end_offset)


def test_silent_producers_are_forgotten(world):
    """A log would remember every producer that it ever had."""
    manager = manager_with(world, LateBackground(), producer_id_expiration_ms="1000")
    log = world.log(manager)
    builder = RecordBatchBuilder(0, producer_id=9, producer_epoch=0, base_sequence=0)
    builder.append(world.clock.wall_ms(), b"key", b"value", [])
    log.appender.append_as_leader([memoryview(bytearray(builder.build()))], 0)
    assert log.producers.get(9) is not None
    world.advance(600_001)
    assert log.producers.get(9) is None


def test_syncs_never_run_on_the_event_loop(world, batches):
    """Producers of all partitions would wait for one disk."""
    background = LateBackground()
    manager = manager_with(world, background)
    log = world.log(manager, flush_messages="1", **SMALL)
    for n in range(12):
        log.appender.append_as_leader([batches(b"%03d" % n)], 0)
    assert log.local.recovery_point == 0
    assert len(log.segments) > 1
    background.run()
    assert log.local.recovery_point == 12


def test_records_that_come_during_a_flush_wait_no_longer_than_the_others(world, batches):
    """They would stay off the disk until the segment is full, whatever flush.ms says."""
    background = LateBackground()
    manager = manager_with(
        world, background, replica_high_watermark_checkpoint_interval_ms="3600000"
    )
    log = world.log(manager, flush_ms="1000")
    log.appender.append_as_leader([batches(b"a")], 0)
    world.advance(1001)
    log.appender.append_as_leader([batches(b"b")], 0)
    background.step()
    assert log.local.recovery_point == 1
    world.advance(1001)
    background.step()
    assert log.local.recovery_point == 2
    world.advance(5000)
    assert not background.work


def test_a_flush_at_a_roll_waits_for_the_one_under_way(world, batches):
    """A closed segment would stay off the disk until the next roll, and compaction wait for it."""
    background = LateBackground()
    manager = manager_with(world, background)
    log = world.log(manager)
    log.appender.append_as_leader([batches(b"a")], 0)
    log.appender.roll()
    log.appender.append_as_leader([batches(b"b")], 0)
    log.appender.roll()
    assert len(background.work) == 1
    background.step()
    assert log.local.recovery_point == 1
    background.step()
    assert log.local.recovery_point == 2
    assert not background.work


def test_a_segment_may_go_while_its_index_is_about_to_be_synced(world, batches):
    """A healthy directory would go offline because a thread looked for a file that was renamed."""

    class Renaming(OsFileSystem):
        """Lets retention run between the look at a file and its sync."""

        def size(self, path: str) -> int:
            found = super().size(path)
            if self.is_syncing and path.endswith(".index"):
                self.is_syncing = False
                manager.housekeeping.delete_old_segments()
            return found

        is_syncing = False

    files = Renaming(64, durable=True)
    background = LateBackground()
    manager = world.start(files, background=background)
    log = world.log(manager, retention_ms="1000", index_interval_bytes="0")
    log.appender.append_as_leader([batches(b"a"), batches(b"b")], 0)
    log.appender.roll()
    log.appender.append_as_leader([batches(b"c")], 0)
    log.update_high_watermark(3)
    world.clock.advance(1001)
    files.is_syncing = True
    background.step()
    assert log.log_start_offset > 0
    assert world.failed == []
    assert log.local.recovery_point >= 2


def test_high_watermarks_are_written_down_while_the_broker_runs(world, batches):
    """After kill -9 a follower would show its readers less than they had seen."""
    background = LateBackground()
    manager = manager_with(world, background, replica_high_watermark_checkpoint_interval_ms="1000")
    log = world.log(manager)
    log.appender.append_as_leader([batches(b"a"), batches(b"b"), batches(b"c")], 0)
    log.update_high_watermark(2)
    world.advance(1000)
    assert checkpoint(world, "replication-offset-checkpoint") == ""
    background.step()
    assert "orders 0 2\n" in checkpoint(world, "replication-offset-checkpoint")
    log.update_high_watermark(3)
    world.advance(1000)
    background.step()
    world.crash(manager)
    again = world.start()
    assert world.log(again).high_watermark == 3


def test_the_brokers_flush_interval_is_the_topics_default(world, batches):
    """A broker's setting would do nothing."""
    manager = world.start(properties={"log.flush.scheduler.interval.ms": "2000"})
    config = LogConfig.from_settings({}, manager._config.topic_defaults())
    log = manager.get_or_create(world.orders, UUID(int=7), config)
    log.appender.append_as_leader([batches(b"a")], 0)
    world.advance(1999)
    assert log.local.recovery_point == 0
    world.advance(2)
    assert log.local.recovery_point == 1


def test_recovery_points_and_log_starts_are_written_at_their_own_intervals(world, batches):
    """One of two settings would be ignored: recovery reads too much, or deleted records return."""
    properties = {
        "log.flush.offset.checkpoint.interval.ms": "1000",
        "log.flush.start.offset.checkpoint.interval.ms": "5000",
    }
    manager = world.start(properties=properties)
    log = world.log(manager, flush_messages="1")
    log.appender.append_as_leader([batches(b"a")], 0)
    log.update_high_watermark(1)
    world.advance(999)
    assert checkpoint(world, names.RECOVERY_POINT_CHECKPOINT) == ""
    world.advance(2)
    assert checkpoint(world, names.RECOVERY_POINT_CHECKPOINT) == "0\n1\norders 0 1\n"
    # As when the write that belongs to the change was refused.
    log.local.log_start_offset = 1
    world.advance(3000)
    assert "orders" not in checkpoint(world, names.LOG_START_OFFSET_CHECKPOINT)
    world.advance(1001)
    assert checkpoint(world, names.LOG_START_OFFSET_CHECKPOINT) == "0\n1\norders 0 1\n"


@pytest.mark.parametrize("cut", ["truncate_to", "truncate_fully_and_start_at"])
def test_what_was_cleaned_is_corrected_when_the_log_is_cut(world, cut):
    """After the next start records would pass for compacted that never were."""
    manager = world.start()
    log = world.log(manager, **COMPACT)
    fill(world, log, 20, keys=20)
    manager.cleaner.look()
    assert log.cleaned_offset > 5
    assert checkpoint(world, names.CLEANER_CHECKPOINT) == f"0\n1\norders 0 {log.cleaned_offset}\n"
    getattr(log, cut)(5)
    assert log.cleaned_offset == log.log_end_offset <= 5
    assert checkpoint(world, names.CLEANER_CHECKPOINT) == f"0\n1\norders 0 {log.log_end_offset}\n"


def test_a_deleted_log_leaves_nothing_in_the_checkpoints(world):
    """A new topic of that name would begin with the old one's offsets."""
    manager = world.start()
    log = world.log(manager, flush_messages="1", **COMPACT)
    fill(world, log, 20)
    manager.cleaner.look()
    log.maybe_increment_log_start_offset(3)
    manager.checkpoints.write_recovery_points()
    found = [
        checkpoint(world, name)
        for name in (
            names.CLEANER_CHECKPOINT,
            names.LOG_START_OFFSET_CHECKPOINT,
            names.RECOVERY_POINT_CHECKPOINT,
        )
    ]
    assert all("orders" in text for text in found)
    manager.delete(world.orders)
    assert "orders" not in checkpoint(world, names.CLEANER_CHECKPOINT)
    assert "orders" not in checkpoint(world, names.LOG_START_OFFSET_CHECKPOINT)
    assert "orders" not in checkpoint(world, names.RECOVERY_POINT_CHECKPOINT)


def test_the_cleaner_looks_as_often_as_it_is_told(world):
    """Compaction would come late, or eat the processor."""
    manager = world.start(properties={"log.cleaner.backoff.ms": "3000"})
    log = world.log(manager, **COMPACT)
    fill(world, log, 20)
    world.advance(2999)
    assert log.cleaned_offset == 0
    world.advance(2)
    assert log.cleaned_offset > 0


def test_the_cleaners_rest_can_be_changed_while_the_broker_runs(world):
    """The change would be accepted and do nothing until the next start."""
    manager = world.start(properties={"log.cleaner.backoff.ms": "3000"})
    manager._config.update_dynamic(cluster={"log.cleaner.backoff.ms": "500"}, broker={})
    world.advance(3001)
    log = world.log(manager, **COMPACT)
    fill(world, log, 20)
    world.advance(501)
    assert log.cleaned_offset > 0


def test_the_cleaner_can_be_switched_off(world):
    """Switching it off would lose the history of the keys."""
    manager = world.start(properties={"log.cleaner.enable": "false"})
    log = world.log(manager, **COMPACT)
    fill(world, log, 20)
    world.advance(3_600_000)
    assert log.cleaned_offset == 0
    assert len(log.segments) > 1


@pytest.mark.parametrize(("threads", "rounds"), [("1", 1), ("2", 2), ("9", 3)])
def test_as_many_logs_are_compacted_side_by_side_as_there_are_threads(world, threads, rounds):
    """One large log would hold up all others, or more run than was asked for."""
    background = LateBackground()
    manager = manager_with(world, background, log_cleaner_threads=threads)
    config = LogConfig(
        parse_topic_settings({name.replace("_", "."): text for name, text in COMPACT.items()})
    )
    logs = [
        manager.get_or_create(TopicPartition("table", n), UUID(int=1), config) for n in range(3)
    ]
    for log in logs:
        fill(world, log, 20)
    background.run()
    for log in logs:
        log.local.flush()
    manager.cleaner.look()
    assert len(background.work) == rounds
    background.run()
    assert all(log.cleaned_offset > 0 for log in logs)


@pytest.mark.parametrize(
    ("buffer_bytes", "threads", "window"),
    [("524288", "1", 131072), ("16384", "1", 8192), ("16384", "4", 2048), ("0", "1", 1024)],
)
def test_the_cleaner_reads_no_more_at_once_than_its_buffers_hold(
    world, buffer_bytes, threads, window
):
    """The memory that was set aside for compaction would be exceeded."""
    files = NotingFileSystem()
    properties = {"log.cleaner.io.buffer.size": buffer_bytes, "log.cleaner.threads": threads}
    manager = world.start(files, properties)
    log = world.log(manager, **{**COMPACT, "segment_bytes": "100000"})
    fill(world, log, 3000)
    log.appender.roll()
    files.asked.clear()
    manager.cleaner.look()
    assert log.cleaned_offset == 3000
    asked = files.asked
    assert asked.count(window) > 2 * 3000 * 80 // window // 2
    assert max(asked) <= max(window, 8192)
