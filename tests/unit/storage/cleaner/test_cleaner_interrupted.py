"""A round of compaction in which the log becomes another one: cut, emptied, set otherwise."""

import itertools
from pathlib import Path
from uuid import UUID

import pytest
from tests.late_background import LateBackground
from tests.unit.storage.cleaner.compacted import (
    BACKOFF_MS,
    COMPACT,
    append,
    clean,
    committed,
    contents,
    marker,
)
from tests.unit.storage.conftest import ORDERS

from odradek.model import TopicPartition
from odradek.storage import names
from odradek.testing.faulty_files import FaultyFileSystem
from odradek.timer import MockTimer

SETTINGS = {**COMPACT, "segment_bytes": "300", "delete_retention_ms": "1000"}
LAG_MS = 3_600_000


def cut(world, manager, log):
    """The log loses its end below the last segment, as a follower's after an unclean election."""
    log.truncate_to(9)
    for n in range(9, 16):
        append(world, log, (b"k%d" % (n % 3), b"new %d" % n))


def cut_all_of_a_segment(world, manager, log):
    """The last segment that is left is empty, and a step may just be reading it."""
    log.truncate_to(log.segments.floor(9).base_offset)


def start_over(world, manager, log):
    """The log begins anew, as a follower's that was left far behind."""
    log.truncate_fully_and_start_at(5)
    for n in range(5, 16):
        append(world, log, (b"k%d" % (n % 3), b"new %d" % n))


def lose_its_beginning(world, manager, log):
    """Somebody deletes all records that there are."""
    log.maybe_increment_log_start_offset(log.high_watermark)
    log.delete_old_segments(world.clock.wall_ms())


def no_longer_compact(world, manager, log):
    log.update_config(world.config(**{**SETTINGS, "cleanup_policy": "delete"}))


def with_a_lag(world, manager, log):
    log.update_config(world.config(**SETTINGS, min_compaction_lag_ms=str(LAG_MS)))


def with_tombstones_for_longer(world, manager, log):
    log.update_config(world.config(**{**SETTINGS, "delete_retention_ms": str(LAG_MS)}))


def made_anew(world, manager, log):
    """The topic is deleted, and another one of its name created."""
    manager.delete(ORDERS)
    log = manager.get_or_create(ORDERS, UUID(int=8), world.config(**SETTINGS))
    for n in range(30):
        append(world, log, (b"k%d" % (n % 3), b"new %d" % n))


def interrupted(world, number, change):
    """The log after a round into whose steps the change came behind the first `number`; whether
    there were as many."""
    world.directories = [f"{world.directories[0].split('@')[0]}@{number}"]
    background = LateBackground(is_late=False)
    manager = world.start(background=background)
    log = world.log(manager, **SETTINGS)
    for n in range(24):
        append(world, log, (b"k%d" % (n % 3), b"old %d" % n))
    log.appender.roll()
    background.is_late = True
    manager.cleaner.look()
    is_under_way = all(background.try_step() for _ in range(number))
    before = contents(log)
    change(world, manager, log)
    changed = manager.get(ORDERS)
    written = contents(changed)
    background.catch_up()
    assert manager.cleaner.uncleanable == frozenset()
    assert manager.cleaner.running == 0
    return is_under_way, before, written, changed


@pytest.mark.parametrize(
    ("change", "start"),
    [
        (cut, 9),
        (cut_all_of_a_segment, 9),
        (start_over, 5),
        (made_anew, 0),
        (lose_its_beginning, 24),
    ],
)
def test_a_log_that_becomes_another_one_keeps_nothing_of_the_earlier(world, change, start):
    """Records that were cut would come back, and acknowledged ones vanish; or the log would pass
    for damaged, and never be compacted again. Apache Kafka ends the round before it truncates a log
    (`abortAndPauseCleaning` in its `LogManager`).
    """
    for number in itertools.count():
        is_under_way, _, written, log = interrupted(world, number, change)
        assert contents(log) == written, f"after {number} steps"
        assert log.cleaned_offset <= start
        if not is_under_way:
            break
    assert number > 10


@pytest.mark.parametrize("change", [no_longer_compact, with_a_lag, with_tombstones_for_longer])
def test_a_round_ends_when_the_settings_forbid_it(world, change):
    """Records would go of which the topic says that they are to stay. Apache Kafka ends the
    round when `compact` leaves `cleanup.policy` (`updateTopicConfig` in its `LogManager`), and goes
    on by a lag that its beginning found; the differential `test_compaction.py` asks it.
    """
    for number in itertools.count():
        is_under_way, before, _, log = interrupted(world, number, change)
        assert contents(log) == before, f"after {number} steps"
        # `findings` would wonder about the gaps of a log that is not compacted.
        log.update_config(world.config(**SETTINGS))
        if not is_under_way:
            break
    assert number > 10


def truncated(log):
    log.truncate_to(9)


def begun_anew(log):
    log.truncate_fully_and_start_at(9)


@pytest.mark.parametrize(
    ("hindrance", "shrink"), [("kill", truncated), ("kill", begun_anew), ("full disk", truncated)]
)
def test_what_is_written_where_compaction_has_been_is_compacted_after_a_restart(
    world, hindrance, shrink
):
    """The checkpoint says how far compaction came before the log was cut, and cannot be corrected
    before the end. The values before a tombstone would stay when it goes: a deleted key comes back.
    Apache Kafka corrects it before anything else is written (`truncateTo` in its `LogManager`).
    """
    files, background = FaultyFileSystem(), LateBackground(is_late=False)
    manager = world.start(files, background=background)
    settings = {**SETTINGS, "delete_retention_ms": "0"}
    log = world.log(manager, **settings)
    for n in range(24):
        append(world, log, (b"k%d" % n, b"old"))
    clean(world, log)
    assert log.cleaned_offset == 24
    background.is_late = hindrance == "kill"
    files.is_full = hindrance == "full disk"
    shrink(log)
    files.is_full = False
    write_and_delete(world, log)
    if hindrance == "full disk":
        manager.shutdown()
    goes_for_good(world, manager, settings)


@pytest.mark.parametrize("shrink", [truncated, begun_anew])
def test_a_round_that_a_cut_has_ended_knows_nothing_of_what_comes_after(world, shrink):
    """Records written where the round was to begin would pass for compacted: a deleted key comes
    back. Apache Kafka ends the round before it truncates a log (`abortAndPauseCleaning`)."""
    background = LateBackground(is_late=False)
    manager = world.start(background=background)
    settings = {**SETTINGS, "delete_retention_ms": "0"}
    log = world.log(manager, **settings)
    for n in range(24):
        append(world, log, (b"k%d" % n, b"old"))
    clean(world, log)
    assert log.cleaned_offset == 24
    append(world, log, (b"k0", b"dirty"))
    log.appender.roll()
    background.is_late = True
    world.advance(BACKOFF_MS)
    assert manager.cleaner.running == 1
    shrink(log)
    write_and_delete(world, log)
    background.catch_up()
    assert manager.cleaner.running == 0
    for n in range(3):
        append(world, log, (b"end", b"%d" % n))
        clean(world, log)
    assert [value for _, key, value in contents(log) if key == b"gone"] == []


@pytest.mark.parametrize("shrink", [truncated, begun_anew])
def test_the_active_segment_never_passes_for_compacted_after_a_restart(world, shrink):
    """As above: the log is killed before it begins another segment."""
    background = LateBackground(is_late=False)
    manager = world.start(background=background)
    settings = {**SETTINGS, "delete_retention_ms": "0"}
    log = world.log(manager, **settings)
    for n in range(24):
        append(world, log, (b"k%d" % n, b"old"))
    clean(world, log)
    background.is_late = True
    shrink(log)
    append(world, log, (b"gone", b"value"))
    world.crash(manager)
    world.timer = MockTimer()
    manager = world.start()
    log = world.log(manager, **settings)
    log.update_high_watermark(log.log_end_offset)
    append(world, log, (b"gone", None))
    goes_for_good(world, manager, settings)


@pytest.mark.parametrize("shrink", [truncated, begun_anew])
def test_a_checkpoint_that_was_being_written_does_not_undo_a_cut(world, shrink):
    """Its write began before the log was cut, and ends after it: a deleted key would come back."""
    background = LateBackground(is_late=False)
    manager = world.start(background=background)
    settings = {**SETTINGS, "delete_retention_ms": "0"}
    log = world.log(manager, **settings)
    for n in range(24):
        append(world, log, (b"k%d" % n, b"old"))
    log.appender.roll()
    background.is_late = True
    world.advance(BACKOFF_MS)
    while log.cleaned_offset < 24:
        background.step()
    shrink(log)
    write_and_delete(world, log)
    for _ in range(len(background.work)):
        # The write, and not the one that corrects it.
        background.step()
    assert log.log_directory.read_offsets(names.CLEANER_CHECKPOINT).get(ORDERS, 0) <= 9
    goes_for_good(world, manager, settings)


def test_a_cut_forgets_nothing_about_other_logs(world):
    """After a crash all logs of the directory would be compacted from their beginning."""
    background = LateBackground(is_late=False)
    manager = world.start(background=background)
    logs = [
        manager.get_or_create(each, UUID(int=each.partition), world.config(**SETTINGS))
        for each in (TopicPartition("t", 1), TopicPartition("t", 2))
    ]
    for log in logs:
        for n in range(24):
            append(world, log, (b"k%d" % n, b"old"))
        clean(world, log)
    background.is_late = True
    for log in logs[:1]:
        log.truncate_to(9)
        for n in range(12):
            append(world, log, (b"k%d" % n, b"new"))
    world.crash(manager)
    manager = world.start()
    cut, other = [manager.get(log.topic_partition).cleaned_offset for log in logs]
    assert (cut <= 9, other) == (True, 24)
    manager.shutdown()


def goes_for_good(world, manager, settings):
    """Starts anew, and lets the tombstone of a key go."""
    world.crash(manager)
    world.timer = MockTimer()
    log = world.log(world.start(), **settings)
    log.update_high_watermark(log.log_end_offset)
    for n in range(3):
        append(world, log, (b"end", b"%d" % n))
        clean(world, log)
    assert [(key, value) for _, key, value in contents(log) if key == b"gone"] == []


def write_and_delete(world, log):
    """A key and its tombstone, and enough for the log to end above where it ended before."""
    append(world, log, (b"gone", b"value"))
    log.appender.roll()
    append(world, log, (b"gone", None))
    for n in range(20):
        append(world, log, (b"k%d" % n, b"new"))


@pytest.mark.leaves_damage
def test_what_is_written_where_compacted_records_were_lost_is_compacted_after_a_restart(world):
    """As above: the log has lost its last segments, which an administrator has removed."""
    settings = {**SETTINGS, "delete_retention_ms": "0"}
    manager = world.start()
    log = world.log(manager, **settings)
    for n in range(24):
        append(world, log, (b"k%d" % n, b"old"))
    clean(world, log)
    assert log.cleaned_offset == 24
    kept = log.segments.first.base_offset
    world.crash(manager)
    for path in Path(log.local.path).glob("0*"):
        if int(path.name.partition(".")[0]) > kept:
            path.unlink()
    world.timer = MockTimer()
    manager = world.start()
    log = world.log(manager, **settings)
    assert log.log_end_offset < 10
    write_and_delete(world, log)
    goes_for_good(world, manager, settings)


@pytest.mark.parametrize("start", [12, 24])
def test_segments_that_are_gone_are_no_failure_of_the_disk(world, start):
    """The whole log directory would go offline: retention takes segments of the group that is being
    cleaned, and their files are removed before the round has opened them."""
    for number in itertools.count():
        world.directories = [f"{world.directories[0].split('@')[0]}@{number}"]
        background = LateBackground(is_late=False)
        manager = world.start(background=background)
        log = world.log(manager, **SETTINGS)
        for n in range(24):
            append(world, log, (b"k%d" % (n % 3), b"%d" % n))
        log.appender.roll()
        log.update_config(world.config(**{**SETTINGS, "segment_bytes": "100000"}))
        background.is_late = True
        manager.cleaner.look()
        is_under_way = all(background.try_step() for _ in range(number))
        log.maybe_increment_log_start_offset(start)
        log.delete_old_segments(world.clock.wall_ms())
        world.timer.advance_clock(log.config.file_delete_delay_ms)
        background.catch_up()
        assert world.failed == [], f"after {number} steps"
        assert manager.cleaner.uncleanable == frozenset()
        if not is_under_way:
            break
    assert number > 10


def test_what_a_producer_commits_outlives_what_it_aborted(world):
    """A committed record would go with the aborted ones before it, when retention takes the segment
    in which these end while a round is under way."""
    for number in itertools.count():
        world.directories = [f"{world.directories[0].split('@')[0]}@{number}"]
        background = LateBackground(is_late=False)
        manager = world.start(background=background)
        log = world.log(manager, **{**SETTINGS, "segment_bytes": "1000"})
        producer = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
        append(world, log, (b"a", b"aborted"), base_sequence=0, **producer)
        marker(world, log, 1, commit=False)
        log.appender.roll()
        append(world, log, (b"b", b"committed"), base_sequence=1, **producer)
        marker(world, log, 1, commit=True)
        log.appender.roll()
        background.is_late = True
        manager.cleaner.look()
        is_under_way = all(background.try_step() for _ in range(number))
        log.maybe_increment_log_start_offset(2)
        log.delete_old_segments(world.clock.wall_ms())
        background.catch_up()
        assert committed(log) == [(b"b", b"committed")], f"after {number} steps"
        if not is_under_way:
            break
    assert number > 5


def test_a_segment_that_is_being_appended_to_is_not_replaced(world):
    """The records that come next would be written to a file that is gone."""
    log = world.log(world.start(), **SETTINGS)
    append(world, log, (b"k", b"1"))
    with pytest.raises(AssertionError, match="is being appended to"):
        log.local.replace_segments([log.segments.active])
    append(world, log, (b"k", b"2"))
    assert [value for _, _, value in contents(log)] == [b"1", b"2"]


def test_a_topic_that_is_made_anew_does_not_inherit_damage(world):
    """Its log would never be compacted."""
    manager = world.start()
    log = world.log(manager, **SETTINGS)
    append(world, log, (b"k", b"1"))
    with open(log.segments.first.file.path, "r+b") as file:
        file.seek(66)
        file.write(b"\xff")
    clean(world, log)
    assert manager.cleaner.uncleanable == {ORDERS}
    made_anew(world, manager, log)
    clean(world, manager.get(ORDERS))
    assert manager.cleaner.uncleanable == frozenset()
    assert len(contents(manager.get(ORDERS))) == 3
