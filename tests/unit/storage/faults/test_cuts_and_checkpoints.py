"""The checkpoints of a log that was cut, when nothing could correct them before the end."""

import errno
import os
from uuid import UUID

import pytest
from tests.late_background import LateBackground
from tests.unit.storage.cleaner.compacted import (
    BACKOFF_MS,
    COMPACT,
    append,
    batch,
    clean,
    contents,
)
from tests.unit.storage.conftest import ORDERS

from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.storage import names
from odradek.testing.faulty_files import FaultyFileSystem
from odradek.timer import MockTimer

ANOTHER_ID = UUID(int=(1 << 128) - 1)
SETTINGS = {"segment_bytes": "300", "index_interval_bytes": "100"}


def truncated(log):
    log.truncate_to(9)


def begun_anew(log):
    log.truncate_fully_and_start_at(9)


def on_the_disk(world, manager):
    """A log of 24 records, all of them on the disk by its checkpoint."""
    log = world.log(manager, **SETTINGS)
    for n in range(24):
        append(world, log, (b"k", b"old %d" % n))
    log.local.flush()
    manager.checkpoints.write_recovery_points()
    return log


def write_again(world, log, count=24):
    for n in range(count):
        append(world, log, (b"k", b"new %d" % n))


def lose_what_was_not_synced(segment):
    """As a power failure may: the file has its length, and zeros."""
    with open(segment.file.path, "r+b") as file:
        file.write(bytes(segment.size_bytes))


def ends_where_it_was_damaged(world, manager, at):
    world.crash(manager)
    world.timer = MockTimer()
    log = world.log(world.start(), **SETTINGS)
    assert log.log_end_offset == at


@pytest.mark.leaves_damage
@pytest.mark.parametrize(
    ("hindrance", "shrink"), [("kill", truncated), ("kill", begun_anew), ("full disk", truncated)]
)
def test_what_is_written_after_a_cut_is_recovered(world, hindrance, shrink):
    """Segments below the recovery point of before would not be checked: a hole in the log, which
    a power failure has left, would be served. Apache Kafka writes the checkpoint before
    anything else (`truncateTo` in its `LogManager`).
    """
    files, background = FaultyFileSystem(), LateBackground(is_late=False)
    manager = world.start(files, background=background)
    log = on_the_disk(world, manager)
    background.is_late = hindrance == "kill"
    files.is_full = hindrance == "full disk"
    shrink(log)
    background.is_late = True
    files.is_full = False
    write_again(world, log)
    lost = log.segments.floor(13)
    assert log.local.recovery_point <= 9 < lost.base_offset < log.segments.floor(24).base_offset
    lose_what_was_not_synced(lost)
    ends_where_it_was_damaged(world, manager, lost.base_offset)


@pytest.mark.leaves_damage
def test_a_write_that_was_under_way_does_not_undo_the_correction(world):
    """Its write began before the log was cut, and ends after it."""
    background = LateBackground(is_late=False)
    manager = world.start(background=background)
    log = on_the_disk(world, manager)
    append(world, log, (b"k", b"one more"))
    log.local.flush()
    background.is_late = True
    manager.checkpoints.write_recovery_points()
    truncated(log)
    write_again(world, log)
    background.step()
    lost = log.segments.floor(13)
    lose_what_was_not_synced(lost)
    ends_where_it_was_damaged(world, manager, lost.base_offset)


@pytest.mark.leaves_damage
@pytest.mark.parametrize("end", ["killed", "closed", "closed and torn"])
def test_what_is_written_after_a_loss_is_recovered(world, end):
    """As above: the first start after the loss of the end knows that the checkpoint says more."""
    manager = world.start()
    log = on_the_disk(world, manager)
    if end != "killed":
        manager.shutdown()
    kept = log.segments.floor(9)
    path = kept.file.path
    for each in log.segments.all():
        if each.base_offset > kept.base_offset:
            os.remove(each.file.path)
    if end == "closed and torn":
        os.truncate(path, kept.size_bytes - 1)
    world.crash(manager)
    world.timer = MockTimer()
    background = LateBackground()
    manager = world.start(background=background)
    log = world.log(manager, **SETTINGS)
    assert log.segments.active.file.path == path
    write_again(world, log)
    lost = log.segments.floor(13)
    lose_what_was_not_synced(lost)
    ends_where_it_was_damaged(world, manager, lost.base_offset)


@pytest.mark.parametrize("name", [names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT])
def test_a_checkpoint_for_which_there_is_no_room_goes(world, name):
    """A full disk would let it say more than is true; without it a start has more to do."""
    files = FaultyFileSystem()
    (directory,) = world.start(files).directories
    offsets = {ORDERS: 20}
    directory.checkpoint(name).prepare(offsets)()
    files.is_full = True
    directory.limit_offset(name, ORDERS, 20)
    assert directory.read_offsets(name) == {ORDERS: 20}
    directory.limit_offset(name, ORDERS, 19)
    assert directory.read_offsets(name) == {}
    assert not directory.checkpoint(name).says(offsets), "asked for again, they have to be written"
    files.is_full = False
    directory.write_offsets(name, {ORDERS: 18})
    assert directory.read_offsets(name) == {ORDERS: 18}


@pytest.mark.parametrize("name", [names.LOG_START_OFFSET_CHECKPOINT, names.CLEANER_CHECKPOINT])
def test_a_checkpoint_that_is_needed_stays_though_there_is_no_room(world, name):
    """Without it deleted records would be back, or copies keep keys whose tombstones are gone."""
    files = FaultyFileSystem()
    (directory,) = world.start(files).directories
    directory.checkpoint(name).prepare({ORDERS: 20})()
    files.is_full = True
    with pytest.raises(OSError, match="No space left"):
        directory.limit_offset(name, ORDERS, 19)
    assert directory.read_offsets(name) == {ORDERS: 20}
    files.is_full = False
    directory.limit_offset(name, ORDERS, 19)
    assert directory.read_offsets(name) == {ORDERS: 19}


@pytest.mark.leaves_damage
def test_a_roll_that_cannot_correct_a_checkpoint_is_refused(world):
    """The records behind it would be written where nobody checks them."""
    files, background = FaultyFileSystem(), LateBackground(is_late=False)
    log = on_the_disk(world, world.start(files, background=background))
    background.is_late = True
    truncated(log)
    append(world, log, (b"k", b"new"))
    files.fail_at = files.operations + 3  # behind the two of the producers' snapshot
    with pytest.raises(BrokerError, match="rolling"):
        log.appender.roll()
    assert files.log[-1] == f"write {names.RECOVERY_POINT_CHECKPOINT}.tmp"
    assert world.failed == world.directories


def test_a_flush_syncs_what_a_cut_has_taken_before_what_came_after(world):
    """Segments that were cut off would come back, by a power failure, behind other records."""
    files = FaultyFileSystem()
    log = on_the_disk(world, world.start(files))
    truncated(log)
    append(world, log, (b"k", b"new"))
    begin = len(files.log)
    log.local.flush()
    synced = [each for each in files.log[begin:] if each.startswith("sync")]
    active = f"sync {log.segments.active.base_offset:020d}.log"
    assert synced.index("sync orders-0") < synced.index(active)


def starts_above(world, manager, log_start_offset=20):
    """A log of 24 records whose first ones were deleted, by its checkpoint too."""
    log = on_the_disk(world, manager)
    log.update_high_watermark(24)
    log.maybe_increment_log_start_offset(log_start_offset)
    manager.checkpoints.write_log_start_offsets()
    written = manager.directories[0].read_offsets(names.LOG_START_OFFSET_CHECKPOINT)
    assert written == {ORDERS: log_start_offset}
    return log


def begun_again(world, manager):
    world.crash(manager)
    world.timer = MockTimer()
    return world.log(world.start(background=LateBackground()), **SETTINGS)


@pytest.mark.leaves_damage
@pytest.mark.parametrize("count", [0, 1, 4, 24])
@pytest.mark.parametrize("shrink", [truncated, begun_anew])
def test_a_cut_below_the_log_start_hides_nothing_that_follows(world, shrink, count, values):
    """The checkpoint has the log start of before: what is written below it, and acknowledged,
    would be hidden after a kill, also where no segment was begun. Apache Kafka has this fault.
    """
    background = LateBackground(is_late=False)
    manager = world.start(background=background)
    log = starts_above(world, manager)
    background.is_late = True
    shrink(log)
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    write_again(world, log, count)
    log = begun_again(world, manager)
    assert log.log_start_offset <= 9
    assert log.log_end_offset == 9 + count
    assert values(log)[-count or 99 :] == [b"new %d" % n for n in range(count)]


@pytest.mark.leaves_damage
def test_a_log_that_a_crash_has_cut_below_its_start_hides_nothing_that_follows(world, values):
    """As above: its end was lost, and the checkpoint says that it begins behind it."""
    manager = world.start()
    log = starts_above(world, manager)
    for each in log.segments.all():
        if each.base_offset > 9:
            os.remove(each.file.path)
    log = begun_again(world, manager)
    end_offset = log.log_end_offset
    assert log.log_start_offset == end_offset < 20
    write_again(world, log)
    log = begun_again(world, world.managers[-1])
    assert values(log)[-24:] == [b"new %d" % n for n in range(24)]
    assert log.log_start_offset <= end_offset


@pytest.mark.leaves_damage
def test_an_append_is_refused_that_the_next_start_would_hide(world):
    """A disk without room for the checkpoint: it cannot be removed, since deleted records of other
    logs would be back.
    """
    files, background = FaultyFileSystem(), LateBackground(is_late=False)
    manager = world.start(files, background=background)
    log = starts_above(world, manager)
    background.is_late = True
    truncated(log)
    files.errno = errno.ENOSPC
    files.fail_at = files.operations + 1
    with pytest.raises(AssertionError, match="appending"):
        write_again(world, log, 1)
    assert files.log[-1] == f"write {names.LOG_START_OFFSET_CHECKPOINT}.tmp"
    assert (log.log_end_offset, world.failed) == (9, [])
    write_again(world, log, 1)
    assert begun_again(world, manager).log_start_offset <= 9


@pytest.mark.leaves_damage
def test_a_log_under_the_name_of_one_that_was_set_aside_begins_at_its_own_start(world, values):
    """A kill finds the checkpoints of the other log: they would hide the records of this one."""
    background = LateBackground(is_late=False)
    manager = world.start(background=background)
    starts_above(world, manager)
    background.is_late = True
    log = manager.get_or_create(ORDERS, ANOTHER_ID, world.config(**SETTINGS))
    write_again(world, log)
    world.crash(manager)
    log = world.start(background=LateBackground()).get(ORDERS)
    assert log.local.recovery_point <= 0
    assert values(log) == [b"new %d" % n for n in range(24)]


def test_a_deleted_log_goes_once_a_checkpoint_that_was_refused_is_there(world):
    """Its folder would stay until the next start: what the disk had refused was written by another
    way, as a segment was begun, so that nothing is left to write."""
    files = FaultyFileSystem()
    manager = world.start(files)
    (directory,) = manager.directories
    table = world.log(manager, **SETTINGS, cleanup_policy="compact")
    write_again(world, table)
    table.cleaned_offset = table.segments.active.base_offset
    manager.checkpoints.write_all_of(directory)
    files.is_full = True
    table.truncate_to(table.segments.at(1).base_offset)
    files.is_full = False
    append(world, table, (b"k", b"v"))
    table.appender.roll()
    other = TopicPartition("other", 0)
    manager.get_or_create(other, ANOTHER_ID, world.config(file_delete_delay_ms="0"))
    manager.delete(other)
    world.advance(1)
    assert [name for name in os.listdir(directory.path) if name.startswith("other")] == []


def refuse_to_note_what_is_compacted(files):
    change = files.change

    def refuse(what, path, *, writes=False):
        if path.endswith(f"{names.CLEANER_CHECKPOINT}.tmp"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        change(what, path, writes=writes)

    files.change = refuse


@pytest.mark.leaves_damage
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_table_that_was_cut_while_its_checkpoint_had_no_room_is_compacted_rightly(
    world, is_killed
):
    """The checkpoint of compaction says more than is true until there is room for another: a
    tombstone in what passes for compacted would go, and the value before it stay. Batches that
    need another segment are refused meanwhile; Apache Kafka takes the directory offline.
    """
    settings = {**COMPACT, **SETTINGS, "delete_retention_ms": "0"}
    files, background = FaultyFileSystem(), LateBackground(is_late=False)
    manager = world.start(files, background=background)
    log = world.log(manager, **settings)
    held: dict[bytes, bytes] = {}
    for n in range(24):
        append(world, log, (b"old %d" % n, b"old"))
        held.update({b"old %d" % n: b"old"} if n < 9 else {})
    clean(world, log)
    (directory,) = manager.directories
    assert directory.read_offsets(names.CLEANER_CHECKPOINT) == {ORDERS: 24}
    background.is_late = True
    log.truncate_to(9)

    def write(key, value):
        (info,) = log.appender.append_as_leader([batch(world, (key, value))], 0)
        log.update_high_watermark(log.log_end_offset)
        if not isinstance(info, BrokerError):
            held[key] = value
        return info

    refuse_to_note_what_is_compacted(files)
    taken = [write(b"k%d" % (n % 2), None if n % 2 else b"new") for n in range(9)]
    taken.append(write(b"k1", b"value before its tombstone"))
    refused = [each for each in taken if isinstance(each, BrokerError)]
    assert 0 < len(refused) < len(taken)
    assert not world.failed
    assert directory.read_offsets(names.CLEANER_CHECKPOINT) == {ORDERS: 24}
    del files.change
    if is_killed:
        world.crash(manager)
        world.timer = MockTimer()
        log = world.log(world.start(), **settings)
        assert log.cleaned_offset <= 9
    else:
        background.catch_up()
    assert log.log_end_offset == 9 + len(taken) - len(refused)
    write(b"k1", b"value before its tombstone")
    for n in range(9):
        write(b"k%d" % (n % 2), None if n % 2 else b"newer")
    for _ in range(3):
        clean(world, log)
    found = [(key, value) for _, key, value in contents(log) if value is not None]
    assert sorted(found) == sorted((k, v) for k, v in held.items() if v is not None)


def test_what_was_compacted_is_noted_at_the_end_if_a_full_disk_refused_it(world):
    """The next start would compact it once more."""
    files = FaultyFileSystem()
    manager = world.start(files)
    log = world.log(manager, **COMPACT)
    write_again(world, log)
    log.appender.roll()
    refuse_to_note_what_is_compacted(files)
    world.advance(BACKOFF_MS)
    assert log.cleaned_offset == 24
    assert manager.directories[0].read_offsets(names.CLEANER_CHECKPOINT) == {}
    del files.change
    manager.shutdown()
    world.timer = MockTimer()
    assert world.log(world.start(), **COMPACT).cleaned_offset == 24
