"""The files that a crash leaves, and what the next start makes of them."""

import itertools
import os
from contextlib import suppress

import pytest
from tests.unit.storage.cleaner.compacted import append, committed, contents, marker

from odradek.errors import BrokerError
from odradek.model import AppendOrigin
from odradek.records.builder import build_end_marker
from odradek.testing.faulty_files import Crashed, FaultyFileSystem
from odradek.timer import MockTimer

SMALL = {"segment_bytes": "300", "index_interval_bytes": "100"}


def fill(log, batches, count: int) -> list[bytes]:
    sent = [b"%03d" % n for n in range(count)]
    for n, value in enumerate(sent):
        log.appender.append_as_leader([batches(value, producer_id=9, base_sequence=n)], n // 5)
    return sent


def test_a_clean_restart_keeps_everything(world, batches, values):
    """A restart would lose records, producers, epochs or watermarks."""
    manager = world.start()
    log = world.log(manager, **SMALL)
    sent = fill(log, batches, 12)
    log.update_high_watermark(9)
    manager.shutdown()
    log = world.log(**SMALL)
    assert values(log) == sent
    assert log.high_watermark == 9
    assert log.local.recovery_point == 12
    assert log.leader_epochs.entries == [(0, 0), (1, 5), (2, 10)]
    assert log.appender.append_as_leader([batches(b"x", producer_id=9, base_sequence=11)], 2)[
        0
    ].duplicate


def test_a_crash_loses_nothing_that_is_in_the_files(world, batches, values):
    """`kill -9` would lose acknowledged records, or let a retry in twice."""
    manager = world.start()
    sent = fill(world.log(manager, **SMALL), batches, 12)
    world.crash(manager)
    log = world.log(**SMALL)
    assert values(log) == sent
    assert log.leader_epochs.entries == [(0, 0), (1, 5), (2, 10)]
    retries = [batches(b"x", producer_id=9, base_sequence=n) for n in (9, 10, 11)]
    assert [r.duplicate for r in log.appender.append_as_leader(retries, 2)] == [True] * 3
    for n in range(12):
        assert log.fetch_offset_by_timestamp(world.clock.wall_ms(), 12).offset == 0
        assert log.convert_offset(n) is not None


def test_a_tail_cut_at_every_byte(world, batches, values):
    """A torn write would be served, or take whole records with it."""
    manager = world.start()
    log = world.log(manager)
    sent = fill(log, batches, 3)
    path = log.segments.active.file.path
    boundaries = [log.convert_offset(n).position for n in range(4)]
    world.crash(manager)
    with open(path, "rb") as file:
        data = file.read()
    for size_bytes in range(len(data), -1, -1):
        with open(path, "wb") as file:
            file.write(data[:size_bytes])
        manager = world.start()
        log = world.log(manager)
        whole = sum(1 for end in boundaries[1:] if end <= size_bytes)
        assert values(log) == sent[:whole], size_bytes
        assert log.log_end_offset == whole
        world.crash(manager)


def test_every_byte_of_a_batch_flipped(world, batches, values):
    """A damaged batch would be served, or break the start."""
    manager = world.start()
    log = world.log(manager)
    sent = fill(log, batches, 3)
    path = log.segments.active.file.path
    start, end = (log.convert_offset(n).position for n in (1, 2))
    world.crash(manager)
    with open(path, "rb") as file:
        data = file.read()
    # The leader epoch (12..15) is outside the checksum and not needed to trust the records.
    for position in [p for p in range(start, end) if not 12 <= p - start < 16]:
        flipped = bytearray(data)
        flipped[position] ^= 0x41
        with open(path, "wb") as file:
            file.write(flipped)
        manager = world.start()
        assert values(world.log(manager)) == sent[:1], position - start
        world.crash(manager)


def test_zeros_at_the_end_are_cut(world, batches, values):
    """A file system that extends before it writes would leave a log that cannot be read."""
    manager = world.start()
    log = world.log(manager)
    sent = fill(log, batches, 3)
    path = log.segments.active.file.path
    world.crash(manager)
    with open(path, "ab") as file:
        file.write(bytes(5000))
    assert values(world.log()) == sent


def test_what_lies_behind_a_damaged_segment_is_dropped(world, batches, values):
    """Offsets would have a hole that nobody knows of."""
    manager = world.start()
    log = world.log(manager, **SMALL)
    sent = fill(log, batches, 12)
    path = log.segments.at(1).file.path
    base_offset = log.segments.at(1).base_offset
    world.crash(manager)
    with open(path, "r+b") as file:
        file.seek(70)
        file.write(b"\xff\xff")
    log = world.log(**SMALL)
    assert values(log) == sent[:base_offset]
    assert len(log.segments) == 2
    log.appender.append_as_leader([batches(b"new")], 9)
    assert values(log) == [*sent[:base_offset], b"new"]


@pytest.mark.leaves_damage
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "garbage"])
def test_damaged_indexes_after_a_clean_end(world, batches, values, suffix, damage):
    """A lost index would lose records, or the start."""
    manager = world.start()
    log = world.log(manager, **SMALL)
    sent = fill(log, batches, 12)
    paths = [segment.file.path.replace(".log", suffix) for segment in log.segments.all()]
    manager.shutdown()
    for path in paths:
        if damage == "missing":
            os.unlink(path)
        elif damage == "empty":
            os.truncate(path, 0)
        else:
            with open(path, "ab") as file:
                file.write(b"abc" if damage == "torn" else b"\x11" * 24)
    manager = world.start()
    log = world.log(manager, **SMALL)
    assert values(log) == sent
    assert log.reader.find_max_timestamp().timestamp == world.clock.wall_ms()
    manager.shutdown()
    assert values(world.log(**SMALL)) == sent


@pytest.mark.parametrize("content", [None, b"", b"0\n9\n", b"\xff\xff", b"0\n1\n7 x\n"])
def test_a_damaged_epoch_checkpoint_is_rebuilt(world, batches, content):
    """Kafka refuses to start on a flipped byte here; what the records say is not lost."""
    manager = world.start()
    log = world.log(manager, **SMALL)
    fill(log, batches, 12)
    path = os.path.join(log.local.path, "leader-epoch-checkpoint")
    manager.shutdown()
    if content is None:
        os.unlink(path)
    else:
        with open(path, "wb") as file:
            file.write(content)
    assert world.log(**SMALL).leader_epochs.entries == [(0, 0), (1, 5), (2, 10)]


@pytest.mark.parametrize("content", [None, b"", b"\x00\x01garbage"])
def test_a_damaged_snapshot_is_rebuilt(world, batches, content):
    """A producer would be refused, or its retry written twice."""
    manager = world.start()
    log = world.log(manager, **SMALL)
    fill(log, batches, 12)
    manager.shutdown()
    for name in os.listdir(log.local.path):
        if name.endswith(".snapshot"):
            path = os.path.join(log.local.path, name)
            os.unlink(path)
            if content is not None:
                with open(path, "wb") as file:
                    file.write(content)
    log = world.log(**SMALL)
    retries = [batches(b"x", producer_id=9, base_sequence=n) for n in (8, 11)]
    assert [r.duplicate for r in log.appender.append_as_leader(retries, 2)] == [True] * 2


@pytest.mark.leaves_damage
def test_producers_that_damage_hides_are_told(world, batches, caplog):
    """A producer would be refused, or believed twice, for a reason that nobody knows."""
    manager = world.start()
    log = world.log(manager, index_interval_bytes="100")
    fill(log, batches, 12)
    file = log.segments.active.file.path
    place = log.segments.active.locate(3)
    manager.shutdown()
    for name in os.listdir(os.path.dirname(file)):
        if name.endswith(".snapshot"):
            os.remove(os.path.join(os.path.dirname(file), name))
    with open(file, "r+b") as data:
        data.seek(place.position + 8)
        data.write(b"\xff" * 4)
    log = world.log(index_interval_bytes="100")
    assert log.log_end_offset == 12
    assert log.producers.get(9).last_offset == 2
    (told,) = [line for line in caplog.messages if "what producers have sent" in line]
    assert told.startswith(f"{file}: ")
    assert told.endswith("from offset 3 on is not known")


def test_an_aborted_transaction_within_another_is_no_damage(world, batches):
    """Sound transaction indexes would be made anew, and `fsck` cry wolf."""
    manager = world.start()
    log = world.log(manager)
    for producer_id in (1, 2):
        log.appender.append_as_leader(
            [batches(b"x", producer_id=producer_id, base_sequence=0, is_transactional=True)], 0
        )
    marker = build_end_marker(
        commit=False,
        base_offset=0,
        timestamp_ms=1000,
        producer_id=2,
        producer_epoch=0,
        coordinator_epoch=5,
    )
    log.appender.append_as_leader([memoryview(bytearray(marker))], 0, AppendOrigin.COORDINATOR)
    manager.shutdown()
    assert world.findings() == []


def test_open_transactions_survive_a_crash(world, batches):
    """Readers of committed data would see a transaction that is not decided."""
    manager = world.start()
    log = world.log(manager)
    for producer_id in (1, 2):
        log.appender.append_as_leader(
            [batches(b"x", producer_id=producer_id, base_sequence=0, is_transactional=True)], 0
        )
    marker = build_end_marker(
        commit=False,
        base_offset=0,
        timestamp_ms=1000,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=5,
    )
    log.appender.append_as_leader([memoryview(bytearray(marker))], 0, AppendOrigin.COORDINATOR)
    path = log.segments.active.file.path.replace(".log", ".txnindex")
    for damage in (b"", b"\xff" * 34, bytes(35), None):
        world.crash(manager)
        if damage is None:
            os.unlink(path)
        else:
            with open(path, "wb") as file:
                file.write(damage)
        manager = world.start()
        log = world.log(manager)
        log.update_high_watermark(3)
        assert log.last_stable_offset == 1
        assert log.reader.aborted_transactions(0, 3) == [(1, 0)]


def test_leftovers_are_removed(world, batches, values):
    """Files of segments that were deleted would pile up, or come back."""
    manager = world.start()
    log = world.log(manager)
    sent = fill(log, batches, 3)
    path = log.local.path
    manager.shutdown()
    stray = ["00000000000000000001.log.deleted", "00000000000000000009.index", "x.tmp"]
    for name in stray:
        with open(os.path.join(path, name), "wb") as file:
            file.write(b"x")
    assert values(world.log()) == sent
    assert not set(stray) & set(os.listdir(path))


def test_a_crash_after_every_operation(world, batches, values):
    """Some moment of rolling, checkpointing or deleting would lose records or the start."""
    crash_at = 0
    while True:
        crash_at += 1
        world.directories = [f"{world.directories[0].split('@')[0]}@{crash_at}"]
        files = FaultyFileSystem()
        files.crash_at = crash_at
        files.half_write = crash_at % 2 == 0
        acknowledged, deleted_below = _live_until_crash(world, batches, files)
        # What the start has made of it is sound before anything else happens to it.
        manager = world.start()
        world.log(manager, **SMALL)
        manager.shutdown()
        assert world.findings() == [], files.log[-3:]
        manager = world.start()
        log = world.log(manager, **SMALL)
        got = [int(value) for value in values(log)]
        assert got == list(range(log.log_start_offset, log.log_end_offset)), files.log[-3:]
        assert log.log_end_offset >= acknowledged, files.log[-3:]
        assert log.log_start_offset <= max(deleted_below, 0), files.log[-3:]
        log.appender.append_as_leader([batches(b"%d" % log.log_end_offset)], 9)
        assert len(values(log)) == len(got) + 1
        if not files.has_crashed:
            break
        world.crash(manager)
    assert crash_at > 60


TRANSACTIONS = 12


def by_retention(log):
    """Takes all but the active segment."""
    log.delete_old_segments(0)


def by_truncation(log):
    log.truncate_to(4)


@pytest.mark.parametrize("shrink", [by_retention, by_truncation])
def test_a_crash_while_segments_go_shows_nothing_that_was_aborted(world, shrink):
    """A segment would stay, and be believed, without its transaction index; or one in front of it
    would be gone. Apache Kafka renames the log of a segment first, and removes indexes without a
    log."""
    for number in itertools.count(1):
        world.directories = [f"{world.directories[0].split('@')[0]}@{number}"]
        files = FaultyFileSystem()
        log = world.log(world.start(files), segment_bytes="500", retention_bytes="1")
        for n in range(TRANSACTIONS):
            producer = {"producer_id": n % 2, "is_transactional": True, "base_sequence": n // 2 * 2}
            append(world, log, (b"k", b"%d" % n), producer_epoch=0, **producer)
            producer["base_sequence"] += 1
            append(world, log, (b"k", b"%d again" % n), producer_epoch=0, **producer)
            marker(world, log, n % 2, commit=n % 2 == 1)
        log.local.flush()
        world.managers[-1].checkpoints.write_recovery_points()
        written = {offset: value for offset, _, value in contents(log)}
        files.crash_at = files.operations + number
        with suppress(Crashed):
            shrink(log)
        world.crash(world.managers[-1])
        world.timer = MockTimer()
        log = world.log(segment_bytes="500", retention_bytes="1")
        log.update_high_watermark(log.log_end_offset)
        left = [offset for offset in written if log.log_start_offset <= offset < log.log_end_offset]
        assert [offset for offset, *_ in contents(log)] == left, files.log[-4:]
        ended = [n for n in range(TRANSACTIONS) if n * 3 + 2 < log.log_end_offset]
        shown = [written[each] for each in left if each % 3 < 2 and each // 3 in ended[1::2]]
        assert [value for _, value in committed(log)] == shown, files.log[-4:]
        world.managers[-1].shutdown()
        if not files.has_crashed:
            break
    assert number > 15


def _live_until_crash(world, batches, files):
    """Appends, rolls, forgets and closes; returns what was promised until the crash."""
    acknowledged = 0
    deleted_below = 0
    try:
        manager = world.start(files)
        log = world.log(manager, **SMALL, file_delete_delay_ms="10")
        for n in range(10):
            value = b"%d" % n
            results = log.appender.append_as_leader(
                [batches(value, producer_id=9, base_sequence=n)], n // 4
            )
            assert not isinstance(results[0], BrokerError)
            acknowledged = n + 1
        log.local.flush()
        log.update_high_watermark(10)
        deleted_below = 5
        log.maybe_increment_log_start_offset(5)
        manager.housekeeping.delete_old_segments()
        log.update_config(world.config(**SMALL, retention_bytes="0", file_delete_delay_ms="10"))
        deleted_below = 10
        manager.housekeeping.delete_old_segments()
        world.advance(20)
        manager.shutdown()
    except Crashed:
        world.crash(world.managers[-1])
    return acknowledged, deleted_below
