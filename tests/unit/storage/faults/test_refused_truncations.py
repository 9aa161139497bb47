"""A truncation of which the disk refuses one thing, whichever it is: a later attempt does the rest.

What is told of the log meanwhile is true, and no refusal is forgotten: an attempt that finds the
end where it should be looks for what else is missing.
"""

import errno
import itertools
from pathlib import Path

import pytest
from tests.late_background import LateBackground
from tests.unit.storage.cleaner.compacted import BACKOFF_MS, COMPACT, batch, marker
from tests.unit.storage.conftest import ORDERS

from odradek.errors import BrokerError
from odradek.protocol.direct.fetch import FetchPartitionResponse
from odradek.replication.follower.local_replica import append_fetched
from odradek.storage import names
from odradek.storage.producers.replay import snapshot_offsets
from odradek.testing.faulty_files import FaultyFileSystem
from odradek.timer import MockTimer

SETTINGS = {**COMPACT, "segment_bytes": "300", "delete_retention_ms": "0"}
FULL, BROKEN = errno.ENOSPC, errno.EIO


def truncated(log):
    log.truncate_to(14)


def truncated_without_snapshots(log):
    """The producers follow from the records alone, the ended transaction too."""
    path = log.local.path
    for offset in snapshot_offsets(log.log_directory.file_system, path):
        Path(names.segment_file(path, offset, names.SNAPSHOT_SUFFIX)).write_bytes(b"damaged")
    truncated(log)


def begun_anew(log):
    log.truncate_fully_and_start_at(9)


def truncated_below_its_start(log):
    log.truncate_to(5)


def prepared(world, manager):
    """A log from 6 on, of two leaders, with producers; compaction has left nothing from 11 to
    16."""
    log = world.log(manager, **SETTINGS)
    for n in range(9):
        write(world, log, b"%d" % n, producer_id=n % 3, producer_epoch=0, base_sequence=n // 3)
    of_transaction = {"base_sequence": 0, "is_transactional": True}
    write(world, log, b"9", producer_id=7, producer_epoch=0, **of_transaction)
    marker(world, log, 7, commit=True)
    for _ in range(11, 16):
        write(world, log, b"k")
    log.appender.roll()
    write(world, log, b"k")
    log.appender.roll()
    world.advance(BACKOFF_MS)
    for n in range(17, 24):
        of_one = {"producer_id": 8, "producer_epoch": 0, "base_sequence": n - 17}
        write(world, log, b"%d" % n, epoch=3 if n > 19 else 0, **of_one)
    log.local.flush()
    log.maybe_increment_log_start_offset(6)
    manager.checkpoints.write_all_of(log.log_directory)
    return log


def write(world, log, key, epoch=0, **producer):
    (info,) = log.appender.append_as_leader([batch(world, (key, b"v"), **producer)], epoch)
    assert not isinstance(info, BrokerError), info
    log.update_high_watermark(log.log_end_offset)


def told(log):
    """All that a log says of itself."""
    return {
        "offsets": (log.log_start_offset, log.high_watermark, log.log_end_offset),
        "stable": log.last_stable_offset,
        "epochs": log.leader_epochs.entries,
        "producers": {
            each.producer_id: (each.last_sequence, each.last_offset)
            for each in log.producers.active()
        },
        "segments": [segment.base_offset for segment in log.segments.all()],
    }


def noted(log):
    """The values that it will have its checkpoints hold."""
    return log.local.recovery_point, log.cleaned_offset


def begin(world, number):
    """A manager in a directory of its own, whose background waits once the log is there."""
    world.directories = [f"{world.directories[0].split('@')[0]}@{number}"]
    world.failed.clear()
    world.timer = MockTimer()
    files, background = FaultyFileSystem(), LateBackground(is_late=False)
    manager = world.start(files, background=background)
    log = prepared(world, manager)
    background.is_late = True
    return manager, log, files, background


def after_a_kill(world, manager, shrink):
    """The log's own account once it was opened again, and cut again."""
    world.crash(manager)
    world.timer = MockTimer()
    log = world.log(world.start(), **SETTINGS)
    assert log.high_watermark <= log.log_end_offset
    shrink(log)
    return told(log)


def attempt(shrink, log):
    """Whether the truncation was refused."""
    try:
        shrink(log)
    except BrokerError:
        return True
    return False


SHRINKS = [truncated, truncated_without_snapshots, begun_anew, truncated_below_its_start]


@pytest.mark.leaves_damage
@pytest.mark.parametrize("code", [FULL, BROKEN], ids=errno.errorcode.get)
@pytest.mark.parametrize("shrink", SHRINKS)
def test_a_truncation_does_what_an_earlier_attempt_was_refused(world, shrink, code):
    """Producers, high watermark and checkpoints would stay those of records that have gone."""
    manager, log, files, background = begin(world, 0)
    before = files.operations
    shrink(log)
    wanted, wanted_notes, total = told(log), noted(log), files.operations - before
    if shrink in (truncated, truncated_without_snapshots):
        assert wanted["segments"][-1] == 14, "the end has no batch in front of it"
    assert wanted["stable"] == log.high_watermark, "the transaction has ended"
    background.catch_up()
    wanted_after_kill = after_a_kill(world, manager, shrink)
    refused = 0
    for number in range(1, total + 1):
        manager, log, files, background = begin(world, number)
        files.errno = code
        files.fail_at = files.operations + number
        was_refused = attempt(shrink, log)
        refused += was_refused
        note = f"change {number}: {files.log[-1]}"
        assert log.high_watermark <= log.log_end_offset, note
        assert log.last_stable_offset <= log.log_end_offset, note
        if not world.failed:
            assert code == FULL, note
            if log.log_end_offset == wanted["offsets"][2]:
                assert told(log)["producers"] == wanted["producers"], note
            assert not was_refused or not attempt(shrink, log), note
            assert (told(log), noted(log)) == (wanted, wanted_notes), note
            background.catch_up()
            assert after_a_kill(world, manager, shrink) == wanted_after_kill, note
        else:
            # Where compaction has left nothing the end may be behind the last batch.
            found = after_a_kill(world, manager, shrink)
            assert found["offsets"] <= wanted_after_kill["offsets"], note
            assert found["producers"] == wanted_after_kill["producers"], note
            assert found["epochs"] == wanted_after_kill["epochs"], note
    assert refused


@pytest.mark.leaves_damage
@pytest.mark.parametrize("shrink", SHRINKS)
def test_a_truncation_whose_reads_fail_leaves_nothing_untrue(world, shrink):
    """The directory is offline; what is told of the log until then, and after a start, is so."""
    for number in itertools.count(1):
        manager, log, files, _ = begin(world, number)
        files.fail_read_at = files.reads + number
        if not attempt(shrink, log):
            break
        assert world.failed == world.directories
        assert log.high_watermark <= log.log_end_offset
        after_a_kill(world, manager, shrink)


@pytest.mark.leaves_damage
def test_the_checkpoints_follow_a_truncation_that_was_refused(world):
    """The listener would never hear of it: the high watermark and the log start stay too high."""
    manager, log, files, background = begin(world, 0)
    files.is_full = True
    assert attempt(truncated, log)
    assert not world.failed
    files.is_full = False
    background.catch_up()
    directory = manager.directories[0]
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT):
        assert directory.read_offsets(name)[ORDERS] <= 14
    truncated(log)


@pytest.mark.leaves_damage
def test_a_follower_does_the_rest_of_a_truncation_before_it_goes_on(world):
    """Its leader has nothing more to cut: without a segment at the end the next start would find
    the log shorter, and a leader give offsets twice."""
    _, log, files, _ = begin(world, 0)
    files.is_full = True
    assert attempt(truncated, log)
    assert log.log_end_offset == 14
    assert log.segments.active.base_offset < 14
    answer = FetchPartitionResponse(0, 0, 14, 14, 0)
    with pytest.raises(BrokerError, match="rolling"):
        append_fetched(log, answer)
    files.is_full = False
    append_fetched(log, answer)
    assert log.segments.active.base_offset == 14
