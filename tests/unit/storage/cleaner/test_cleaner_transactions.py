"""Compaction of transactions that end where a round does not come: behind each of its limits."""

from pathlib import Path

import pytest
from tests.unit.storage.cleaner.compacted import (
    BACKOFF_MS,
    COMPACT,
    append,
    batches_of,
    clean,
    committed,
    contents,
    marker,
    write_marker,
)

from odradek.storage.leases import Lease, release_lease, write_lease
from odradek.storage.log.local_log import LogListener
from odradek.timer import MockTimer

LAG_MS = 60_000


def in_transaction(world, log, producer_id, *pairs, sequence=0):
    append(
        world,
        log,
        *pairs,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


class Limit:
    """The limits of a round: put behind a transaction's batch, and lifted later."""

    settings: dict[str, str] = {}

    def begin(self, world, log):
        """Puts it where the log ends."""

    def clean(self, world, log):
        """Lets the cleaner have its turn."""
        clean(world, log)

    def lift(self, world, log):
        """Takes it away."""


class ActiveSegment(Limit):
    """The marker begins the active segment."""

    def begin(self, world, log):
        log.appender.roll()

    def clean(self, world, log):
        world.advance(BACKOFF_MS)


class OpenTransaction(Limit):
    """Another transaction begins before the marker, in its segment."""

    def begin(self, world, log):
        in_transaction(world, log, 2, (b"other", b"1"))

    def lift(self, world, log):
        marker(world, log, 2, commit=True)


class CompactionLag(Limit):
    """The marker's segment is younger than the lag."""

    settings = {"min_compaction_lag_ms": str(LAG_MS)}

    def begin(self, world, log):
        log.appender.roll()
        world.clock.advance(LAG_MS)

    def lift(self, world, log):
        world.clock.advance(LAG_MS)


class HeldByLease(Limit):
    """A reader holds what follows the batch."""

    def begin(self, world, log):
        expires_ms = world.clock.wall_ms() + LAG_MS
        lease = Lease("query", "spark", log.log_end_offset, expires_ms)
        path = log.local.path
        write_lease(log.log_directory.file_system, path, lease, world.clock.wall_ms())

    def lift(self, world, log):
        release_lease(log.log_directory.file_system, log.local.path, "query")


class NotOnDisk(Limit):
    """The records behind the batch are not on the disk for certain."""

    def begin(self, world, log):
        log.local.flush()
        self._listener = log.local.listener
        log.local.listener = LogListener()

    def lift(self, world, log):
        log.local.listener = self._listener


LIMITS = [ActiveSegment, OpenTransaction, CompactionLag, HeldByLease, NotOnDisk]


def cleaned_around(world, limit, *, commit, segment_bytes="400"):
    """A log with a transaction that was cleaned up to its batch, then beyond its marker."""
    log = world.log(**{**COMPACT, "segment_bytes": segment_bytes}, **limit.settings)
    append(world, log, (b"A", b"v1"))
    in_transaction(world, log, 1, (b"A", b"v2"))
    limit.begin(world, log)
    marker(world, log, 1, commit=commit)
    limit.clean(world, log)
    yield log
    limit.lift(world, log)
    append(world, log, (b"z", b"1"))
    clean(world, log)
    yield log
    world.advance(BACKOFF_MS)
    append(world, log, (b"z", b"2"))
    clean(world, log)
    yield log


@pytest.mark.parametrize("segment_bytes", ["200", "1048576"])
@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_transaction_that_ends_behind_the_round_is_worth_what_its_marker_says(
    world, limit, commit, segment_bytes
):
    """A committed record would go for the sake of an aborted one, which readers would be shown.
    Apache Kafka 4.3 shows v1 to readers of committed data when v2 was aborted.
    """
    for log in cleaned_around(world, limit(), commit=commit, segment_bytes=segment_bytes):
        shown = [value for key, value in committed(log) if key == b"A"]
        assert shown == ([b"v2"] if commit else [b"v1"])


@pytest.mark.parametrize("limit", LIMITS)
def test_an_aborted_transaction_is_forgotten_once_nothing_of_it_is_left(world, limit):
    """Readers of committed data would be told of it for ever."""
    *_, log = cleaned_around(world, limit(), commit=False)
    log.producers.remove_expired(world.clock.wall_ms() + 10 * LAG_MS, 1)
    for n in range(3):
        world.clock.advance(log.config.delete_retention_ms)
        append(world, log, (b"z", b"%d" % n))
        clean(world, log)
    assert log.reader.aborted_transactions(0, log.log_end_offset) == []


def test_a_marker_stays_where_a_snapshot_says_that_its_transaction_is_open(world):
    """A replay from that snapshot would take the transaction for open for ever: readers would wait,
    and nothing be compacted any more."""
    log = world.log(**COMPACT, delete_retention_ms="0")
    in_transaction(world, log, 1, (b"A", b"1"))
    append(world, log, (b"B", b"1" * 200))
    log.appender.roll()
    marker(world, log, 1, commit=True)
    append(world, log, (b"A", b"2" * 200))
    append(world, log, (b"C", b"3"))
    clean(world, log)
    log.producers.remove_expired(world.clock.wall_ms() + LAG_MS, 1)
    for n in range(3):
        append(world, log, (b"z", b"%d" % n))
        clean(world, log)
    assert [header.base_offset for header in batches_of(log)][:2] == [1, 2]
    log.truncate_to(4)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4


def test_no_snapshot_stays_within_what_was_compacted(world):
    """One of an orderly end in the middle of a segment: as above, but its marker may have gone."""
    settings = {**COMPACT, "delete_retention_ms": "0"}
    manager = world.start()
    log = world.log(manager, **settings)
    in_transaction(world, log, 1, (b"A", b"1"))
    manager.shutdown()
    log = world.log(world.start(), **settings)
    marker(world, log, 1, commit=True)
    append(world, log, (b"A", b"2"))
    append(world, log, (b"C", b"3"))
    append(world, log, (b"D", b"4"))
    clean(world, log)
    log.producers.remove_expired(world.clock.wall_ms() + LAG_MS, 1)
    for n in range(3):
        append(world, log, (b"z", b"%d" % n))
        clean(world, log)
    log.truncate_to(4)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4


def test_fsck_knows_what_compaction_may_have_taken(world):
    """A sound log would be said to be damaged: nothing is left of a transaction that was open when
    another one was aborted."""
    log = world.log(**COMPACT)
    in_transaction(world, log, 2, (b"A", b"1"))
    in_transaction(world, log, 1, (b"B", b"1"))
    marker(world, log, 1, commit=False)
    marker(world, log, 2, commit=True)
    in_transaction(world, log, 2, (b"A", b"2"), sequence=1)
    marker(world, log, 2, commit=True)
    clean(world, log)
    assert [header.base_offset for header in batches_of(log)] == [1, 2, 3, 4, 5]
    assert world.findings() == []


def test_fsck_knows_what_retention_may_have_taken(world):
    """As with compaction."""
    log = world.log(segment_bytes="200")
    in_transaction(world, log, 2, (b"A", b"1"))
    log.appender.roll()
    in_transaction(world, log, 1, (b"B", b"1"))
    marker(world, log, 1, commit=False)
    marker(world, log, 2, commit=True)
    log.maybe_increment_log_start_offset(1)
    assert log.delete_old_segments(world.clock.wall_ms()) == 1
    assert world.findings() == []


def with_an_emptied_marker(world, manager):
    """A log in which nothing is left of a producer but the marker of its next epoch, emptied."""
    log = world.log(manager, **COMPACT, delete_retention_ms="0")
    in_transaction(world, log, 1, (b"A", b"1"))
    write_marker(world, log, 1, commit=True, producer_epoch=1)
    log.update_high_watermark(log.log_end_offset)
    for n in range(4):
        world.clock.advance(1)
        append(world, log, (b"A", b"%d" % n))
        clean(world, log)
    header = batches_of(log)[0]
    assert (header.is_control, header.record_count, header.producer_epoch) == (True, 0, 1)
    return log


def epochs_of(log):
    return {state.producer_id: state.epoch for state in log.producers.active()}


def test_a_follower_takes_in_what_is_left_of_a_marker(world):
    """It would pass for damage: the replica would never come into the in-sync set again, a log
    could not move to another directory."""
    log = with_an_emptied_marker(world, world.start())
    world.directories = [f"{world.directories[0]}-of-the-follower"]
    follower = world.log(**COMPACT)
    for segment in log.segments.all():
        follower.appender.append_as_follower(memoryview(segment.read(0, segment.size_bytes)))
    assert follower.log_end_offset == log.log_end_offset
    assert contents(follower) == contents(log)
    assert epochs_of(follower) == epochs_of(log) == {1: 1}


def test_what_is_left_of_a_marker_tells_of_its_producer(world):
    """A producer that was fenced would write again after a crash."""
    manager = world.start()
    log = with_an_emptied_marker(world, manager)
    manager.checkpoints.write_recovery_points()
    for snapshot in Path(log.local.path).glob("*.snapshot"):
        snapshot.unlink()
    world.crash(manager)
    world.timer = MockTimer()
    assert epochs_of(world.log(**COMPACT)) == {1: 1}
