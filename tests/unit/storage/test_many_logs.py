"""A broker of thousands of logs looks after some of them in a turn of its loop."""

from collections import Counter
from uuid import UUID

import pytest
from tests.late_background import LateBackground
from tests.unit.storage.cleaner.compacted import COMPACT, append

from odradek.model import TopicPartition
from odradek.storage import Log, LogManager, names
from odradek.storage.cleaner import log_cleaner
from odradek.storage.log.log import SLICE_LOGS
from odradek.storage.manager.checkpoint_writer import CheckpointWriter

TOPIC_ID = UUID(int=7)


def logs_of(world, manager: LogManager, count: int, **settings: str) -> list[Log]:
    config = world.config(**settings)
    return [
        manager.get_or_create(TopicPartition("t", number), TOPIC_ID, config)
        for number in range(count)
    ]


def write(log: Log, data: memoryview) -> None:
    log.appender.append_as_leader([data], 0)
    log.update_high_watermark(log.log_end_offset)


@pytest.fixture
def old_logs(world, batches) -> tuple[LogManager, list[Log]]:
    """More than a slice of logs, each with a record that is too old, of a producer that is gone."""
    manager = world.start()
    logs = logs_of(world, manager, SLICE_LOGS + 1, retention_ms="1000")
    for log in logs:
        write(log, batches(b"old", producer_id=5, base_sequence=0))
    world.clock.advance(8 * 86_400_000)
    return manager, logs


def test_retention_takes_some_logs_in_a_turn(world, old_logs):
    """A broker whose records all become old at once would stand still for longer than its
    session."""
    manager, logs = old_logs
    manager.housekeeping.delete_old_segments()
    assert Counter(log.log_start_offset for log in logs) == {1: SLICE_LOGS, 0: 1}
    world.timer.advance_clock(0)
    assert Counter(log.log_start_offset for log in logs) == {1: len(logs)}


def test_a_log_may_go_before_its_turn_comes(world, old_logs):
    """A topic is deleted at any moment: its log has no files to look after any more."""
    manager, logs = old_logs
    manager.housekeeping.delete_old_segments()
    manager.delete(logs[-1].topic_partition)
    world.timer.advance_clock(0)
    assert logs[-1].log_start_offset == 0
    assert world.failed == []


def test_a_disk_may_fail_before_its_turn_comes(world, old_logs):
    """It would be written to again, and say so once for every log."""
    manager, logs = old_logs
    manager.housekeeping.delete_old_segments()
    logs[-1].log_directory.fail(OSError(5, "broken"))
    world.timer.advance_clock(0)
    assert logs[-1].log_start_offset == 0


def test_producers_are_forgotten_some_logs_in_a_turn(world, old_logs):
    """The same walk, over what each log remembers."""
    manager, logs = old_logs
    manager.housekeeping.remove_expired_producers()
    assert Counter(len(log.producers.active()) for log in logs) == {
        0: SLICE_LOGS,
        1: 1,
    }
    world.timer.advance_clock(0)
    assert Counter(len(log.producers.active()) for log in logs) == {0: len(logs)}


@pytest.fixture
def looked_at(monkeypatch) -> list[Log]:
    """The logs that the cleaner has looked at, in order."""
    logs: list[Log] = []
    assess = log_cleaner.assess

    def noting(log: Log, now_ms: int) -> object:
        logs.append(log)
        return assess(log, now_ms)

    monkeypatch.setattr(log_cleaner, "assess", noting)
    return logs


def dirty_logs(world, background: LateBackground, count: int) -> tuple[LogManager, list[Log]]:
    manager = world.start(background=background, properties={"log.cleaner.threads": "1"})
    logs = logs_of(world, manager, count, **COMPACT)
    for dirt, log in enumerate(logs):
        for number in range(5 + dirt % 3):
            append(world, log, (b"k", b"%100d" % number))
    background.run()
    for log in logs:
        log.local.flush()
    return manager, logs


def test_the_cleaner_looks_at_some_logs_in_a_turn(world, looked_at):
    """Compacted topics would hold up all others every fifteen seconds."""
    background = LateBackground()
    manager = world.start(background=background)
    logs = logs_of(world, manager, SLICE_LOGS + 1, **COMPACT)
    manager.cleaner.look()
    assert looked_at == logs[:-1]
    world.timer.advance_clock(0)
    assert looked_at == logs
    background.run()


def test_a_look_is_for_all_logs_that_are_due(world, looked_at):
    """A look at all logs after each that is cleaned costs their number squared."""
    background = LateBackground()
    manager, logs = dirty_logs(world, background, 12)
    manager.cleaner.look()
    background.run()
    assert all(log.cleaned_offset > 0 for log in logs)
    # When one is found, when its turn comes, and when there is nothing left to clean.
    assert max(Counter(looked_at).values()) <= 4


def test_the_dirtiest_is_cleaned_first(world, monkeypatch):
    """The log that gains most would wait for the others."""
    background = LateBackground()
    manager, logs = dirty_logs(world, background, 3)
    order: list[Log] = []
    monkeypatch.setattr(manager.cleaner, "_on_cleaned", order.append)
    append(world, logs[0], (b"k", b"more"))
    logs[0].cleaned_offset = 2
    manager.cleaner.look()
    background.run()
    assert order[-1] is logs[0]


def test_offsets_are_not_asked_for_while_a_file_is_written(world):
    """A topic of thousands of partitions that is deleted would look at all logs for each of them,
    also for files that have not changed."""
    background = LateBackground()
    manager = world.start(background=background)
    background.run()
    asked: Counter[str] = Counter()

    def write(name: str, offset: int) -> None:
        def offsets() -> dict[TopicPartition, int]:
            asked[name] += 1
            return {TopicPartition("t", 0): offset}

        writer.write(name, offsets)

    writer = CheckpointWriter(manager.directories[0])
    changed, unchanged = names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_OFFSET_CHECKPOINT
    write(unchanged, 0)
    background.run()
    idle: list[bool] = []
    for number in range(100):
        write(changed, number)
        write(unchanged, 0)
        writer.when_idle(idle.append)
    assert not idle
    background.run()
    assert idle == [True] * 100
    assert asked == {changed: 2, unchanged: 2}
    assert manager.directories[0].read_offsets(changed) == {TopicPartition("t", 0): 99}
