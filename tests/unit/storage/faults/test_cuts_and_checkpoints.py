"""The checkpoints of a log that was cut, when nothing could correct them before the end."""

import os

import pytest
from tests.late_background import LateBackground
from tests.unit.storage.cleaner.compacted import append
from tests.unit.storage.conftest import ORDERS

from odradek.errors import BrokerError
from odradek.storage import names
from odradek.testing.faulty_files import FaultyFileSystem
from odradek.timer import MockTimer

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


@pytest.mark.parametrize("name", [names.RECOVERY_POINT_CHECKPOINT, names.CLEANER_CHECKPOINT])
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
