"""Full and failing disks: every operation of a log's life is refused once, none is sampled.

What was acknowledged is there afterwards, what was refused is not, and where only room was
missing the same broker goes on as soon as there is some.
"""

import errno
import itertools
import os
import shutil
from pathlib import Path

import pytest
from tests.unit.storage.cleaner.compacted import batch
from tests.unit.storage.conftest import ORDERS_ID, World
from tests.unit.storage.faults.lives import PROPERTIES, Life, findings

from odradek.errors import BrokerError, ErrorCode, LogDirFailure
from odradek.model import TopicPartition
from odradek.testing.faulty_files import FaultyFileSystem


def begin(path: Path, number: int) -> tuple[Life, FaultyFileSystem]:
    """A life in a directory of its own."""
    files = FaultyFileSystem()
    return Life(World([str(path / str(number))]), files), files


def check_what_is_left(life: Life, *, in_order: bool = False, may_return: bool = False) -> None:
    """Compares what `kill -9`, or an orderly end, leaves now with the model."""
    world = life.world
    manager = world.managers[-1]
    if in_order:
        manager.shutdown()
    world.crash(manager)
    manager = world.start(properties=PROPERTIES)
    life.check(manager, may_return=may_return)
    manager.shutdown()
    world.timer.advance_clock(1)
    (directory,) = world.directories
    assert findings(directory, life.ids) == []
    shutil.rmtree(directory)


def live_through_a_full_disk(life: Life, files: FaultyFileSystem) -> bool:
    """Lives; the disk gets room when a step was refused twice. Returns whether one was."""
    was_refused = False
    for step in life.steps():
        for attempt in range(3):
            try:
                step()
                break
            except (BrokerError, LogDirFailure):
                assert files.is_full, "a disk with room was refused"
                assert attempt < 2
                was_refused = True
                if attempt == 1:
                    files.full_at = None
                    files.is_full = False
                if life.manager is not None:
                    life.check(life.manager)
    files.full_at = None
    files.is_full = False
    assert life.manager is not None
    life.check(life.manager)
    return was_refused


@pytest.mark.slow
def test_a_disk_that_fills_at_every_operation(tmp_path):
    """A record would be acknowledged and not there, or the log be lost with the space."""
    refused = 0
    for number in itertools.count(1):
        life, files = begin(tmp_path, number)
        files.full_at = number
        files.half_write = number % 2 == 0
        try:
            refused += live_through_a_full_disk(life, files)
            assert life.world.failed == [], "no disk has failed"
            check_what_is_left(life)
        except Exception as error:
            error.add_note(f"operation {number}, {files.log[-3:]}")
            raise
        if files.operations < number:
            break
    assert refused > 40


def live_on_a_failing_disk(life: Life) -> int:
    """Lives until the disk is said to have failed; a step that was only refused comes again.

    Returns how often a step was refused.
    """
    refusals = 0
    for step in life.steps():
        for attempts_left in (2, 1, 0):
            try:
                step()
                break
            except (BrokerError, LogDirFailure):
                refusals += 1
                assert attempts_left, "refused by a disk that works"
            if life.world.failed:
                return refusals
    return refusals


def promise_nothing_more(life: Life, manager) -> None:
    """A directory that is offline takes nothing and gives nothing."""
    for log in manager.logs():
        (refused,) = log.appender.append_as_leader([life.batch([(None, b"late")])], 9)
        assert isinstance(refused, BrokerError)
        assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR
        if log.log_start_offset < log.log_end_offset:
            with pytest.raises(BrokerError, match="offline"):
                log.read(log.log_start_offset, 1000, log.log_end_offset, True)


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("count", [1, 2])
def test_every_operation_fails_once(tmp_path, code, count):
    """A disk that fails would lose or change what was acknowledged, or be trusted again."""
    for number in itertools.count(1):
        life, files = begin(tmp_path, number)
        files.errno = code
        files.fail_at = number
        files.fail_count = count
        files.half_write = number % 2 == 0
        try:
            live_on_a_failing_disk(life)
            if life.manager is not None and life.manager.offline_dirs:
                syncs = [line for line in files.log if line.startswith("sync")]
                promise_nothing_more(life, life.manager)
                life.manager.checkpoints.write_recovery_points()
                life.manager.shutdown()
                assert syncs == [line for line in files.log if line.startswith("sync")]
            files.fail_at = None
            # What could not be taken back is there: nobody was told that it is not.
            check_what_is_left(life, in_order=True, may_return=count > 1)
        except Exception as error:
            error.add_note(f"operation {number}, {files.log[-3:]}")
            raise
        if files.operations < number:
            break
    assert number > 200


def test_every_read_fails_once(tmp_path):
    """Records that cannot be read would be taken for damaged ones, and cut off."""
    for number in itertools.count(1):
        life, files = begin(tmp_path, number)
        files.fail_read_at = number
        try:
            refusals = live_on_a_failing_disk(life)
            assert refusals or life.world.failed or files.reads < number
            check_what_is_left(life)
        except Exception as error:
            error.add_note(f"read {number}, {files.log[-3:]}")
            raise
        if files.reads < number:
            break
    assert number > 20


def test_what_a_full_disk_refuses_is_in_the_log_every_ten_seconds(world, caplog):
    """Producers try again for two minutes, and nobody else would say why nothing is written."""
    files = FaultyFileSystem()
    log = world.log(world.start(files))
    files.is_full = True
    for waited_ms in (0, 9_999, 1):
        world.clock.advance(waited_ms)
        log.appender.append_as_leader([batch(world, (b"key", b"value"))], 0)
    first, second = (record.message for record in caplog.records)
    path = log.local.segments.active.file.path
    assert first == f"appending to {path} failed: No space left on device"
    assert second == f"{first} (1 similar lines left out)"


@pytest.mark.parametrize(
    "settings",
    [
        {"retention_bytes": "0"},
        {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"},
    ],
    ids=["retention", "compaction"],
)
def test_the_upkeep_of_all_logs_on_a_full_disk_is_one_line(world, caplog, settings):
    """A thousand partitions would have a line each, again and again."""
    files = FaultyFileSystem()
    manager = world.start(files)
    for number in range(5):
        where = TopicPartition("orders", number)
        log = manager.get_or_create(where, ORDERS_ID, world.config(**settings))
        for value in (b"old", b"new"):
            log.appender.append_as_leader([batch(world, (b"key", value))], 0)
            if "cleanup_policy" in settings:
                log.appender.roll()
        log.update_high_watermark(log.log_end_offset)
    files.is_full = True
    world.advance(300_000)
    (told,) = caplog.messages
    assert told.endswith(": No space left on device")


def test_the_log_tells_of_a_disk_that_fails_without_numbers(world, caplog):
    """A user who looks for the file and the reason would read of an `[Errno 13]`."""
    (directory,) = world.start().directories
    directory.fail(OSError(errno.EACCES, os.strerror(errno.EACCES), "orders-0/00.timeindex"))
    (told,) = caplog.messages
    assert told == f"{directory.path} is offline: orders-0/00.timeindex: Permission denied"
