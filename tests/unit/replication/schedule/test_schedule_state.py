"""The state of a log of schedules, record by record and mark by mark."""

from uuid import UUID

import pytest

from odradek.records.builder import RecordBatchBuilder, build_end_marker
from odradek.replication.schedule.marks import Entry, Mark, MarkKind, Target, build_marks
from odradek.replication.schedule.state import ScheduleListener, ScheduleState

NOW_MS = 1_700_000_000_000
TARGET = Target("t", UUID(int=1), 0)
NEVER = -1


class Log:
    """A log that is written and replayed at once."""

    def __init__(self) -> None:
        self.state = ScheduleState(ScheduleListener())

    def append(self, batch: bytes) -> int:
        offset = self.state.position
        moved = bytearray(batch)
        moved[:8] = offset.to_bytes(8, "big")
        self.state.replay(bytes(moved))
        return offset

    def schedule(self, key: bytes | None, value: bytes | None = b"v", producer_id: int = -1) -> int:
        builder = RecordBatchBuilder(
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
        )
        builder.append(NOW_MS, key, value, [] if value is None else [("deliver-after", b"0")])
        return self.append(builder.build())

    def cancel(self, key: bytes, producer_id: int = -1) -> int:
        return self.schedule(key, None, producer_id)

    def end(self, producer_id: int, is_commit: bool = True) -> None:
        marker = build_end_marker(
            commit=is_commit,
            base_offset=0,
            timestamp_ms=NOW_MS,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        self.append(marker)

    def mark(self, kind: MarkKind, *offsets: int) -> None:
        entries = [Entry(each, NOW_MS, NEVER) for each in offsets]
        target = Target("", UUID(int=0), -1) if kind is MarkKind.EXPIRED else TARGET
        self.append(build_marks([Mark(kind, target, 7, 0, entries)], NOW_MS))

    def release(self, offset: int) -> None:
        self.mark(MarkKind.RELEASE, offset)
        self.mark(MarkKind.RELEASED)

    @property
    def pending(self) -> list[int]:
        return sorted(self.state.pending)


@pytest.fixture
def log():
    return Log()


class TestAnOlderRecordInATransaction:
    """It became pending by the commit, and was delivered after what had taken its place."""

    def test_of_what_was_released(self, log):
        """Fails when the place of a record is forgotten with its release."""
        log.schedule(b"k", producer_id=1)
        log.release(log.schedule(b"k"))
        log.end(1)
        assert log.pending == []

    def test_of_what_expired(self, log):
        """Fails when the place of a record is forgotten with its expiry."""
        log.schedule(b"k", producer_id=1)
        log.mark(MarkKind.EXPIRED, log.schedule(b"k"))
        log.end(1)
        assert log.pending == []

    def test_of_what_was_cancelled(self, log):
        """Fails when a cancel holds only for what is pending."""
        log.schedule(b"k", producer_id=1)
        log.cancel(b"k")
        log.end(1)
        assert log.pending == []

    def test_of_what_another_transaction_cancelled(self, log):
        """Fails when a cancel counts from its commit, and not from its place."""
        log.schedule(b"k", producer_id=1)
        log.cancel(b"k", producer_id=2)
        log.end(2)
        log.end(1)
        assert log.pending == []

    def test_of_what_was_released_while_several_are_open(self, log):
        """Fails when the first that ends has the place forgotten for the others."""
        log.schedule(b"k", producer_id=1)
        log.schedule(b"k", producer_id=2)
        log.release(log.schedule(b"k"))
        log.end(1)
        log.end(2)
        assert log.pending == []

    def test_a_newer_one_is_pending(self, log):
        """Fails when a key is dead for what comes after."""
        log.schedule(b"k", producer_id=1)
        log.release(log.schedule(b"k"))
        newer = log.schedule(b"k", producer_id=2)
        log.end(2)
        log.end(1)
        assert log.pending == [newer]

    def test_an_aborted_one_changes_nothing(self, log):
        """Fails when what was never committed takes the place of something."""
        kept = log.schedule(b"k")
        log.schedule(b"k", producer_id=1)
        log.end(1, is_commit=False)
        assert log.pending == [kept]


def test_an_open_transaction_keeps_nothing_of_other_keys(log):
    """Every key that was cancelled while a transaction was open was kept until none was."""
    log.schedule(b"k", producer_id=1)
    for number in range(20):
        key = b"%d" % number
        log.schedule(key)
        log.cancel(key)
        log.release(log.schedule(key))
    log.cancel(b"k")
    assert set(log.state._over) == {b"k"}
    log.end(1)
    assert (log.state._over, log.state._undecided) == ({}, {})


def test_records_of_transactions_below_the_start_are_deleted_ones(log):
    """Fails when a batch that begins before the log start brings back what was deleted in it."""
    builder = RecordBatchBuilder(
        producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    for key in (b"a", b"b"):
        builder.append(NOW_MS, key, b"v", [("deliver-after", b"0")])
    log.state.position = 1
    log.state.replay(builder.build())
    log.end(1)
    assert log.pending == [1]
