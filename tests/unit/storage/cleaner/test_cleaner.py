"""Compaction: what stays, what goes and when, and what a crash in the middle leaves."""

import itertools
import os
from pathlib import Path
from uuid import UUID

import pytest
from tests.late_background import LateBackground
from tests.unit.storage.cleaner.compacted import (
    BACKOFF_MS,
    COMPACT,
    all_records,
    append,
    batch,
    batches_of,
    clean,
    contents,
    marker,
)
from tests.unit.storage.conftest import ORDERS, read_records

from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder
from odradek.records.legacy import build_message_set
from odradek.records.reader import iter_records
from odradek.storage import OsFileSystem
from odradek.storage.cleaner.batch_cleaner import BatchCleaner, Retention
from odradek.storage.cleaner.cleanable import assess
from odradek.storage.cleaner.cleaned_transactions import CleanedTransactions
from odradek.storage.cleaner.cleaning import group_segments
from odradek.storage.cleaner.offset_map import OffsetMap
from odradek.testing.faulty_files import Crashed, FaultyFileSystem
from odradek.timer import MockTimer

DAY_MS = 86_400_000


def test_the_newest_record_of_each_key_stays(world):
    """A table read from a compacted topic would have wrong or missing rows."""
    log = world.log(**COMPACT)
    for n in range(40):
        append(world, log, (b"k%d" % (n % 3), b"%d" % n))
    before = log.segments.size_bytes
    clean(world, log)
    assert contents(log) == [(37, b"k1", b"37"), (38, b"k2", b"38"), (39, b"k0", b"39")]
    assert log.segments.size_bytes < before / 5
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_offset) == (0, 40, 40)
    assert [r.offset for r in read_records(log)] == [37, 38, 39]
    append(world, log, (b"k1", b"new"))
    clean(world, log)
    assert [value for _, _, value in contents(log)] == [b"38", b"39", b"new"]
    assert len(log.segments) == 2, "what is left fits into one, beside the active one"


def test_the_active_segment_and_unreplicated_records_are_left_alone(world):
    """A record that another replica has yet to fetch would be gone."""
    log = world.log(**COMPACT)
    for n in range(20):
        log.appender.append_as_leader([batch(world, (b"k", b"%d" % n))], 0)
    log.update_high_watermark(7)
    clean(world, log)
    assert [offset for offset, _, _ in contents(log)] == list(range(6, 20))
    log.update_high_watermark(20)
    world.advance(BACKOFF_MS)
    assert [offset for offset, _, _ in contents(log)] == [19]


def test_the_active_segment_is_left_alone_though_it_is_on_the_disk(world):
    """A round would count on records that a truncation takes, and replace the file that is being
    written."""
    log = world.log(**COMPACT)
    append(world, log, (b"k", b"1"))
    log.appender.roll()
    append(world, log, (b"k", b"2"))
    log.local.flush()
    world.advance(BACKOFF_MS)
    assert [value for _, _, value in contents(log)] == [b"1", b"2"]
    assert log.cleaned_offset == log.segments.active.base_offset == 1


def test_what_may_not_be_on_the_disk_replaces_nothing(world):
    """A power failure would take the newer record, and compaction has taken the older one."""
    background = LateBackground(is_late=False)
    log = world.log(world.start(background=background), **COMPACT)
    append(world, log, (b"k", b"1"))
    log.local.flush()
    append(world, log, (b"k", b"2"))
    background.is_late = True
    log.appender.roll()
    found = assess(log, world.clock.wall_ms())
    assert found.first_uncleanable_offset == log.local.recovery_point == 1


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_records_keep_all_that_they_are(world, codec):
    """Offsets, timestamps, headers or the codec would change under the readers."""
    log = world.log(**COMPACT)
    headers = [("trace", b"1"), ("none", None)]
    then_ms = world.clock.wall_ms() - 5000
    pairs = [(b"a", b"1"), (b"b", b"2" * 50), (b"a", b"3"), (b"c", b"4")]
    append(world, log, *pairs, codec=codec, headers=headers, timestamp_ms=then_ms)
    append(world, log, (b"c", b"5"))
    clean(world, log)
    assert contents(log) == [(1, b"b", b"2" * 50), (2, b"a", b"3"), (4, b"c", b"5")]
    first = batches_of(log)[0]
    assert (first.base_offset, first.last_offset, first.codec) == (0, 3, codec)
    assert first.max_timestamp == then_ms
    record = all_records(log)[0]
    assert record.timestamp == then_ms
    assert list(record.headers) == headers


def test_records_without_a_key_go(world):
    """They could never be replaced, and would fill the disk."""
    log = world.log(**{**COMPACT, "cleanup_policy": "delete"})
    append(world, log, (None, b"1"), (b"k", b"2"), (None, b"3"))
    log = world.log(world.managers[0], **COMPACT)
    clean(world, log)
    assert contents(log) == [(1, b"k", b"2")]


def test_a_tombstone_stays_until_its_horizon(world):
    """A slow reader would never learn of the deletion, or the tombstone would stay for ever."""
    log = world.log(**COMPACT, delete_retention_ms="100000")
    append(world, log, (b"k", b"1"), (b"other", b"1"))
    append(world, log, (b"k", None))
    append(world, log, (b"last", b"1"))
    told_ms = world.clock.wall_ms()
    clean(world, log)
    assert [key for _, key, _ in contents(log)] == [b"other", b"k", b"last"]
    horizon = next(h for h in batches_of(log) if h.has_delete_horizon)
    assert horizon.base_timestamp == world.clock.wall_ms() + 100_000
    assert next(r for r in all_records(log) if r.value is None).timestamp == told_ms
    world.advance(60_000)
    append(world, log, (b"x", b"1"))
    clean(world, log)
    assert b"k" in [key for _, key, _ in contents(log)]
    world.advance(60_000)
    append(world, log, (b"x", b"2"))
    clean(world, log)
    assert [key for _, key, _ in contents(log)] == [b"other", b"last", b"x"]


def test_the_last_sequence_of_a_producer_survives_in_an_empty_batch(world):
    """After a restart without snapshots a producer would be refused or written twice."""
    manager = world.start()
    log = world.log(manager, **COMPACT)
    append(world, log, (b"k", b"1"), producer_id=9, producer_epoch=0, base_sequence=0)
    append(world, log, (b"k", b"2"), producer_id=9, producer_epoch=0, base_sequence=1)
    append(world, log, (b"k", b"3"))
    clean(world, log)
    assert contents(log) == [(2, b"k", b"3")]
    (empty,) = [h for h in batches_of(log) if h.record_count == 0]
    assert (empty.producer_id, empty.base_sequence, empty.last_offset) == (9, 1, 1)
    manager.shutdown()
    for name in os.listdir(log.local.path):
        if name.endswith(".snapshot"):
            os.unlink(os.path.join(log.local.path, name))
    log = world.log(**COMPACT)
    retry = batch(world, (b"k", b"2"), producer_id=9, producer_epoch=0, base_sequence=1)
    assert log.appender.append_as_leader([retry], 0)[0].duplicate


def test_transactions(world):
    """Aborted records would come back, or a marker would go while it is needed."""
    log = world.log(**COMPACT, delete_retention_ms="1000")
    common = {"producer_epoch": 0, "is_transactional": True}
    append(world, log, (b"k", b"good"), producer_id=1, base_sequence=0, **common)
    marker(world, log, 1, commit=True)
    append(world, log, (b"k", b"bad"), producer_id=2, base_sequence=0, **common)
    marker(world, log, 2, commit=False)
    append(world, log, (b"z", b"1"))
    clean(world, log)
    data = [(r.offset, r.value) for r in all_records(log) if not r.is_control]
    assert data == [(0, b"good"), (4, b"1")]
    assert [h.base_offset for h in batches_of(log) if h.is_control] == [1, 3]
    # The aborted batch is empty, but it stays for its producer, and so does the marker.
    assert log.reader.aborted_transactions(0, 5) == [(2, 2)]
    log.producers.remove_expired(world.clock.wall_ms() + DAY_MS, 1)
    for n in range(2, 5):
        world.advance(5000)
        append(world, log, (b"z", b"%d" % n))
        clean(world, log)
    assert [h.base_offset for h in batches_of(log) if h.is_control] == [1]
    assert log.reader.aborted_transactions(0, log.log_end_offset) == []


def test_an_open_transaction_holds_compaction_back(world):
    """Records that are not decided yet would replace decided ones."""
    log = world.log(**COMPACT)
    append(world, log, (b"k", b"1"))
    append(
        world,
        log,
        (b"k", b"2"),
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    append(world, log, (b"k", b"3"))
    clean(world, log)
    assert [value for _, _, value in contents(log)] == [b"1", b"2", b"3"]


def test_lags_and_ratio(world):
    """Compaction would come too early, too late, or for every record again."""
    manager = world.start()
    settings = {**COMPACT, "min_cleanable_dirty_ratio": "0.5", "min_compaction_lag_ms": "60000"}
    log = world.log(manager, **settings)
    append(world, log, (b"k", b"1"), (b"k", b"2"))
    clean(world, log)
    assert len(contents(log)) == 2, "younger than the lag"
    world.advance(61_000)
    assert len(contents(log)) == 1
    for n in range(30):
        append(world, log, (b"key %d" % n, b"v" * 50))
    log.appender.roll()
    world.advance(100_000)
    append(world, log, (b"key 1", b"v"))
    log.appender.roll()
    world.advance(100_000)
    found = assess(log, world.clock.wall_ms())
    assert not found.is_due, found.ratio
    log = world.log(manager, **{**settings, "max_compaction_lag_ms": "120000"})
    world.advance(100_000)
    assert log.cleaned_offset == log.log_end_offset


def test_max_compaction_lag_rolls_the_active_segment(world):
    """Records in the active segment would never become compactable."""
    log = world.log(**COMPACT, max_compaction_lag_ms="5000")
    append(world, log, (b"k", b"1"))
    world.advance(6000)
    append(world, log, (b"k", b"2"))
    assert len(log.segments) == 2


def test_compact_and_delete_together(world):
    """Old segments of a compacted topic with retention would stay for ever."""
    manager = world.start()
    log = world.log(
        manager, **{**COMPACT, "cleanup_policy": "compact,delete"}, retention_ms="100000"
    )
    append(world, log, (b"old", b"1"))
    clean(world, log)
    world.advance(200_000)
    append(world, log, (b"new", b"1"))
    manager.housekeeping.delete_old_segments()
    assert contents(log) == [(1, b"new", b"1")]
    clean(world, log)
    assert contents(log) == [(1, b"new", b"1")]


def test_a_map_too_small_for_the_log(world):
    """A topic with more keys than memory would never be compacted, or lose records."""
    manager = world.start(properties={"log.cleaner.dedupe.buffer.size": "256"})
    log = world.log(manager, **COMPACT)
    for n in range(120):
        append(world, log, *((b"key %d" % (k % 50), b"%d" % k) for k in (3 * n, 3 * n + 1)))
    expected = {}
    for record in all_records(log):
        expected[record.key] = (record.offset, record.value)
    clean(world, log)
    found = {r.key: (r.offset, r.value) for r in all_records(log)}
    assert found == expected
    assert log.cleaned_offset == log.log_end_offset


def test_old_formats_are_compacted(world):
    """Topics of old clients would grow for ever."""
    offsets = OffsetMap(4096, 0.9, 0)
    offsets.clear_some()
    builder = RecordBatchBuilder()
    for key in (b"a", b"b", b"a", b"c"):
        builder.append(1000, key, None if key == b"c" else b"v", [])
    records = list(iter_records(builder.build()))
    for record in records:
        offsets.put(record.key, record.offset)
    offsets.latest_offset = 3
    cleaner = BatchCleaner(offsets, CleanedTransactions([]), Retention(5000, 100, {}))
    for magic, codec in itertools.product((0, 1), (0, 1, 2, 3)):
        data = build_message_set(records, magic, codec)
        for drop in (False, True):
            parts = [
                cleaner.clean(data, header, drop_legacy_tombstones=drop)
                for header in split_batches(data)
            ]
            kept = list(iter_records(b"".join(part for part in parts if part is not None)))
            assert [r.offset for r in kept] == ([1, 2] if drop else [1, 2, 3]), (magic, codec)


@pytest.mark.leaves_damage
@pytest.mark.parametrize("position", [66, 70])
def test_a_damaged_batch_stops_the_cleaning_of_its_log(world, caplog, position):
    """The damage would get a valid checksum, and the cleaner would try for ever."""
    manager = world.start()
    log = world.log(manager, **COMPACT)
    for n in range(20):
        append(world, log, (b"k", b"%d" % n))
    with open(log.segments.at(1).file.path, "r+b") as file:
        file.seek(position)
        file.write(b"\xff")
    before = contents_by_size(log)
    clean(world, log)
    assert contents_by_size(log) == before
    assert manager.cleaner.uncleanable == {ORDERS}
    assert "position" in caplog.text
    assert not [name for name in os.listdir(log.local.path) if name.endswith(".cleaned")]


def contents_by_size(log):
    return [(s.base_offset, s.size_bytes) for s in log.segments.all() if s.size_bytes]


def slowly_cleaned(world):
    """A manager whose cleaner may take 100 bytes a second, and a log that it has to clean."""
    manager = world.start(properties={"log.cleaner.io.max.bytes.per.second": "100"})
    log = world.log(manager, **COMPACT)
    for n in range(20):
        append(world, log, (b"k", b"%d" % n))
    log.appender.roll()
    return manager, log


def test_a_throttled_cleaner_takes_its_time(world):
    """Compaction would take the disk from everybody else."""
    _, log = slowly_cleaned(world)
    size_bytes = log.segments.size_bytes
    world.advance(BACKOFF_MS)
    assert log.segments.size_bytes == size_bytes
    for _ in range(60):
        world.advance(1000)
    assert log.cleaned_offset == 20


def test_an_orderly_end_leaves_no_half_cleaned_segment(world):
    """`fsck` would find the work of a crash where there was none."""
    manager, log = slowly_cleaned(world)
    half_done = []
    world.advance(BACKOFF_MS)
    for _ in range(600):
        world.advance(100)
        half_done = [name for name in os.listdir(log.local.path) if name.endswith(".cleaned")]
        if half_done:
            break
    assert half_done
    manager.shutdown()
    assert world.findings() == []


def test_a_reader_keeps_the_segment_that_it_holds(world):
    """A fetch in flight would read another file's bytes."""
    log = world.log(**COMPACT)
    append(world, log, (b"k", b"1"))
    append(world, log, (b"k", b"2"))
    segment = log.segments.first
    handle = segment.file.duplicate()
    before = handle.read(0, segment.size_bytes)
    clean(world, log)
    world.advance(1000)
    assert log.segments.first is not segment
    assert handle.read(0, len(before)) == before
    handle.close()
    assert not [name for name in os.listdir(log.local.path) if name.endswith(".deleted")]


def test_the_checkpoint_spares_the_next_start_the_work(world):
    """Every start would compact everything again."""
    manager = world.start()
    log = world.log(manager, **COMPACT)
    for n in range(20):
        append(world, log, (b"k", b"%d" % n))
    clean(world, log)
    manager.shutdown()
    assert world.log(**COMPACT).cleaned_offset == 20


def test_a_full_disk_ends_the_round_and_nothing_else(world):
    """A full disk would lose records or take the directory offline."""
    files = FaultyFileSystem()
    manager = world.start(files)
    log = world.log(manager, **COMPACT)
    for n in range(20):
        append(world, log, (b"k", b"%d" % n))
    log.appender.roll()
    before = contents(log)
    files.is_full = True
    world.advance(BACKOFF_MS)
    assert contents(log) == before
    assert not world.failed
    files.is_full = False
    world.advance(BACKOFF_MS)
    assert len(contents(log)) == 1


def test_whoever_reads_the_files_meanwhile_misses_nothing(world):
    """A reader beside the broker, as Spark is, would skip records while segments are replaced."""

    class Watched(FaultyFileSystem):
        """Reads the files after each change of a name, as another process may."""

        def rename(self, path: str, target: str) -> None:
            super().rename(path, target)
            look()

        def link(self, path: str, target: str) -> None:
            super().link(path, target)
            look()

        def remove(self, path: str) -> None:
            super().remove(path)
            look()

    looks = []

    def look() -> None:
        if not newest:
            return
        names = sorted(n for n in os.listdir(log.local.path) if n.endswith(".log"))
        data = [Path(log.local.path, name).read_bytes() for name in names]
        found = {record.offset for each in data for record in iter_records(each)}
        assert newest <= found, os.listdir(log.local.path)
        looks.append(names)

    newest: set[int] = set()
    log = world.log(world.start(Watched()), **COMPACT)
    for n in range(40):
        append(world, log, (b"k%d" % (n % 7), b"%d" % n))
    newest.update(range(33, 40))
    # One segment by another at first, and what is left of them merged in the second round.
    clean(world, log)
    assert len(looks) > len(log.segments) > 4
    newest.discard(35)
    append(world, log, (b"k0", b"new"))
    clean(world, log)
    assert [segment.base_offset for segment in log.segments.all()] == [0, 35, 40, 41]
    assert not [name for name in os.listdir(log.local.path) if name.endswith(".swap")]


@pytest.mark.parametrize("where", ["between steps", "in a step"])
@pytest.mark.parametrize("rate", ["1e300", "10000"])
def test_a_mistake_costs_one_log_its_cleaning_and_no_other(world, caplog, where, rate):
    """The only thread of the cleaner would be taken for ever, and every table grow; behind a pause
    the mistake ended the broker, at each start of it."""
    told = []
    world.timer = MockTimer(on_error=lambda _, error: told.append(error))

    class Mistaken(OsFileSystem):
        """Fails as code does that has a mistake, for the files of one log."""

        def modified_ms(self, path: str) -> int:
            if where == "between steps" and "orders-0" in path:
                raise ZeroDivisionError("a mistake")
            return super().modified_ms(path)

        def set_modified_ms(self, path: str, modified_ms: int) -> None:
            if where == "in a step" and "orders-0" in path:
                raise ZeroDivisionError("a mistake")
            super().set_modified_ms(path, modified_ms)

        def for_thread(self) -> "Mistaken":
            return self

    properties = {"log.cleaner.io.max.bytes.per.second": rate}
    manager = world.start(Mistaken(64, durable=False), properties)
    config = world.config(**COMPACT)
    broken = world.log(manager, **COMPACT)
    sound = manager.get_or_create(TopicPartition("other", 0), UUID(int=8), config)
    for log in (broken, sound):
        for n in range(20):
            append(world, log, (b"k", b"%d" % n))
        log.appender.roll()
    world.advance(BACKOFF_MS)
    for _ in range(14):
        world.advance(1000)
    assert len(contents(sound)) == 1
    assert len(contents(broken)) == 20
    assert manager.cleaner.uncleanable == {ORDERS}
    assert not any(isinstance(error, AssertionError) for error in told)
    assert "ZeroDivisionError: a mistake" in caplog.text


def test_a_failed_sync_takes_the_directory_offline(world):
    """Pages that the kernel dropped would take the place of what was safe."""
    files = FaultyFileSystem()
    # Checkpoints are synced too; here the cleaner is to be the first.
    manager = world.start(files, {"replica.high.watermark.checkpoint.interval.ms": "3600000"})
    log = world.log(manager, **COMPACT)
    for n in range(20):
        append(world, log, (b"k", b"%d" % n))
    log.appender.roll()
    files.sync_fails = True
    world.advance(BACKOFF_MS)
    assert world.failed
    with pytest.raises(BrokerError):
        log.read(0, 1000, 20, True)


@pytest.mark.parametrize("kind", ["crash", "fail"])
def test_a_crash_or_failure_at_every_operation_of_a_round(world, kind):
    """Some moment of compaction would lose the newest record of a key."""
    for number in itertools.count(1):
        world.directories = [f"{world.directories[0].split('@')[0]}@{number}"]
        files = FaultyFileSystem()
        manager = world.start(files)
        log = world.log(manager, **COMPACT)
        for n in range(30):
            append(world, log, (b"k%d" % (n % 4), b"%d" % n))
        log.appender.roll()
        log.local.flush()
        expected = {r.key: (r.offset, r.value) for r in all_records(log)}
        files.half_write = number % 2 == 0
        if kind == "crash":
            files.crash_at = files.operations + number
        else:
            files.fail_at = files.operations + number
        last = files.operations + number
        try:
            world.advance(BACKOFF_MS)
            world.advance(100)
            manager.checkpoints.write_recovery_points()
        except Crashed:
            pass
        done = files.operations < last
        world.crash(manager)
        # Its housekeeping is gone with the process.
        world.timer = MockTimer()
        manager = world.start()
        log = world.log(manager, **COMPACT)
        where = (number, files.log[-3:])
        assert {r.key: (r.offset, r.value) for r in all_records(log)} == expected, where
        offsets = [r.offset for r in all_records(log)]
        assert offsets == sorted(set(offsets)), where
        assert log.log_end_offset == 30, where
        names = os.listdir(log.local.path)
        assert not [n for n in names if n.endswith((".cleaned", ".swap"))], where
        log.update_high_watermark(30)
        world.timer.advance_clock(0)
        world.advance(BACKOFF_MS)
        assert len(all_records(log)) == 4, where
        manager.shutdown()
        if done:
            break
    assert number > 30


def test_groups_stay_within_what_an_index_can_say(world):
    """A cleaned segment would hold offsets that its index cannot name."""
    log = world.log(**COMPACT)
    for n in range(12):
        append(world, log, (b"k", b"%d" % n))
    segments = log.segments.all()[:2]
    first = segments[0].base_offset
    assert len(group_segments(segments, first + 2**31, 10_000, 10_000)) == 1
    assert len(group_segments(segments, first + 2**31 + 1, 10_000, 10_000)) == 2
    assert len(group_segments(segments, 12, 500, 10_000)) == 2


def test_epochs_that_compaction_has_thinned_out_are_not_rebuilt(world, caplog):
    """Each start would tell of damage, and read all of the log, where there is none."""
    manager = world.start()
    log = world.log(manager, **COMPACT)
    for epoch in range(3):
        data = batch(world, (b"k", b"%d" % epoch), (b"k%d" % epoch, b"v"))
        log.appender.append_as_leader([data], epoch)
        data = batch(world, (b"k", b"%d" % epoch))
        log.appender.append_as_leader([data], epoch)
    log.update_high_watermark(log.log_end_offset)
    clean(world, log)
    epochs = log.leader_epochs.entries
    manager.shutdown()
    assert world.log(**COMPACT).leader_epochs.entries == epochs
    assert "rebuilding" not in caplog.text


def cut_where_it_was_compacted(world, offset):
    """The manager of a log that lost what lies from `offset` on after it was compacted, and it."""
    world.directories = [f"{world.directories[0].split('@')[0]}@{offset}"]
    manager = world.start()
    log = world.log(manager, **COMPACT)
    for n in range(30):
        append(world, log, (b"%d" % n if n % 10 < 3 else b"k", b"v" * 20))
    clean(world, log)
    log.truncate_to(offset)
    return manager, log


def test_a_cut_where_nothing_is_left_keeps_the_end(world, caplog):
    """Offsets would be given out twice: a restart looked for the end behind the last batch."""
    for offset in range(30):
        manager, log = cut_where_it_was_compacted(world, offset)
        end, left = log.log_end_offset, contents(log)
        manager.shutdown()
        world.timer = MockTimer()
        log = world.log(**COMPACT)
        assert (log.log_end_offset, contents(log)) == (end, left), f"cut at {offset}"
        append(world, log, (b"k", b"new"))
        assert contents(log) == [*left, (end, b"k", b"new")], f"cut at {offset}"
    assert "records are missing" not in caplog.text
