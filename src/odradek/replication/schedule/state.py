"""Everything that is pending in one schedule partition, from its log alone.

Records and marks are replayed in the order of the log, and nothing else changes the state: a
restarted broker, another leader and a tool that reads the topic get the same state. A record of a
transaction counts when that is committed, in its place in the order of its key. A release that has
begun and has not ended is in flight: its target may have the records or not.

    records ──► pending ──RELEASE──► in flight ──RELEASED──► gone, or pending again (repeat)
                   ▲                     │
                   └───────RETURNED──────┘
"""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Final

from odradek.clock import LONG_AGO_MS
from odradek.records.batch import BatchHeader, Buffer, split_batches
from odradek.records.reader import read_batch
from odradek.records.record import Record
from odradek.replication.schedule.instructions import (
    Instructions,
    delivered_key,
    read_instructions,
)
from odradek.replication.schedule.marks import Entry, Mark, MarkKind, Target, parse_marks
from odradek.replication.schedule.repeats import NEVER
from odradek.replication.schedule.times import Unreadable
from odradek.storage.producers.end_marker import parse_end_marker
from odradek.timer import TimerTask

NO_PRODUCER: Final = -1
_SEQUENCE_MASK: Final = 0x7FFFFFFF

logger = logging.getLogger(__name__)


class ScheduledRecord(TimerTask):
    """One pending schedule; as a task of the timer it waits until it is due.

    `alone` says that a target has refused it together with others. A record that was refused alone
    is not tried again before `not_before_ms` (by the monotonic clock, which is never set back).
    """

    __slots__ = (
        "alone",
        "delivered_key",
        "due_ms",
        "instructions",
        "key",
        "listener",
        "not_before_ms",
        "offset",
        "size_bytes",
    )

    def __init__(
        self, record: Record, instructions: Instructions, listener: "ScheduleListener"
    ) -> None:
        super().__init__(0)
        self.offset = record.offset
        self.key = record.key
        self.delivered_key = delivered_key(record.key, record.headers)
        self.instructions = instructions
        self.due_ms = instructions.due_ms
        self.size_bytes = _size(record)
        self.listener = listener
        self.alone = False
        self.not_before_ms = LONG_AGO_MS

    def run(self) -> None:
        """Tells the listener that it is due."""
        self.listener.on_due(self)

    def describe(self) -> str:
        """Describes the schedule for people."""
        name = "" if self.key is None else f" {self.key.decode('utf-8', 'replace')}"
        return f"the schedule{name} at offset {self.offset} of {self.listener.name}"

    def next_due_ms(self, now_ms: int) -> int:
        """The first due time after this moment, even if several were missed; `NEVER` after the
        last."""
        repeat = self.instructions.repeat
        if repeat is None:
            return NEVER
        next_ms = repeat(self.due_ms, now_ms)
        expires_ms = self.instructions.expires_ms
        return NEVER if expires_ms != NEVER and next_ms > expires_ms else next_ms

    def is_expired(self, now_ms: int) -> bool:
        """Whether the record must not be delivered any more."""
        return self.instructions.expires_ms != NEVER and now_ms > self.instructions.expires_ms


class Release:
    """A release in flight: its records, each with when it was due, under one sequence.

    `is_in_doubt` says that its target may have them; the leader that has begun it may know better.
    """

    __slots__ = ("is_in_doubt", "items", "producer_id", "sequence", "target")

    def __init__(
        self,
        target: Target,
        producer_id: int,
        sequence: int,
        items: list[tuple[ScheduledRecord, int]],
    ) -> None:
        self.target = target
        self.producer_id = producer_id
        self.sequence = sequence
        self.items = items
        self.is_in_doubt = True

    def has_expired(self, now_ms: int) -> bool:
        """Whether one of its records must not be delivered any more."""
        return any(pending.is_expired(now_ms) for pending, _ in self.items)

    def has_sequence(self, sequence: int) -> bool:
        """Whether that is the sequence of one of its records."""
        return sequence >= 0 and (sequence - self.sequence & _SEQUENCE_MASK) < len(self.items)

    @property
    def next_sequence(self) -> int:
        """The sequence of the record after its last."""
        return self.sequence + len(self.items) & _SEQUENCE_MASK


class ScheduleListener:
    """Receives the changes that the replay makes. This implementation ignores them."""

    name = "a schedule topic"

    def on_pending(self, pending: ScheduledRecord) -> None:
        """A schedule has come, or is due at another time."""

    def on_gone(self, pending: ScheduledRecord) -> None:
        """A schedule was released, replaced, cancelled, or has expired."""

    def on_due(self, pending: ScheduledRecord) -> None:
        """A schedule that its owner has put into a timer is due."""

    def on_release(self, release: Release) -> None:
        """A release has begun."""


class ScheduleState:
    """See the module. `position` is the offset from which `replay` continues."""

    def __init__(self, listener: ScheduleListener) -> None:
        self._listener = listener
        self.position = 0
        self.pending: dict[int, ScheduledRecord] = {}
        self.in_flight: dict[Target, Release] = {}
        self.producer_id = NO_PRODUCER
        self._sequences: dict[tuple[int, Target], int] = {}
        # The newest schedule of each key, those in flight included.
        self._by_key: dict[bytes, int] = {}
        self._open: dict[int, list[Record]] = {}
        # The number of records of a key in open transactions, and for these keys the offset below
        # which records are obsolete: a committed record may be older than a cancelled or released
        # one.
        self._undecided: Counter[bytes] = Counter()
        self._over: dict[bytes, int] = {}

    def next_sequence(self, producer_id: int, target: Target) -> int:
        """The sequence of the next record for a target."""
        return self._sequences.get((producer_id, target), 0)

    def first_needed_offset(self) -> int:
        """The offset below which the log may forget everything."""
        return min(self._needed_offsets(), default=self.position)

    def _needed_offsets(self) -> Iterator[int]:
        yield from self.pending
        for release in self.in_flight.values():
            yield from (pending.offset for pending, _ in release.items)
        for records in self._open.values():
            yield from (record.offset for record in records)

    def replay(self, buffer: Buffer) -> None:
        """Takes in the batches that follow in the log.

        Raises:
            BrokerError: one is damaged.
        """
        for header in split_batches(buffer, drop_partial_tail=True):
            if header.last_offset < self.position:
                continue
            self._replay_batch(buffer, header)
            self.position = header.next_offset

    def _replay_batch(self, buffer: Buffer, header: BatchHeader) -> None:
        records = read_batch(buffer, header)
        if header.is_control:
            self._replay_control(buffer, header, records)
            return
        records = [record for record in records if record.offset >= self.position]
        if header.is_transactional:
            self._open.setdefault(header.producer_id, []).extend(records)
            self._undecided.update(each.key for each in records if each.key is not None)
        else:
            for record in records:
                self._take(record)

    def _replay_control(self, buffer: Buffer, header: BatchHeader, records: list[Record]) -> None:
        if not records:
            return
        whole = memoryview(buffer)[header.position : header.end_position]
        marker = parse_end_marker(whole)
        if marker is None:
            for mark in parse_marks(records):
                self._apply(mark)
            return
        decided = self._open.pop(header.producer_id, [])
        for record in decided if marker.is_commit else ():
            self._take(record)
        for record in decided:
            if record.key is not None:
                self._decide(record.key)

    def _decide(self, key: bytes) -> None:
        self._undecided[key] -= 1
        if self._undecided[key] == 0:
            del self._undecided[key]
            self._over.pop(key, None)

    # Records

    def _take(self, record: Record) -> None:
        if record.value is None:
            self._cancel(record)
            return
        try:
            instructions = read_instructions(
                record.key, record.value, record.headers, record.timestamp
            )
        except Unreadable as error:
            # The record is older than the topic's schedules, or a cron schedule without its extra.
            logger.warning("the record at offset %d schedules nothing: %s", record.offset, error)
            return
        assert instructions is not None, f"the record at {record.offset} has a value"
        key = record.key
        if key is not None:
            newest = max(self._by_key.get(key, -1), self._over.get(key, -1))
            if newest > record.offset:
                return
            self._forget(self._by_key.get(key, -1))
            self._by_key[key] = record.offset
        self._put(ScheduledRecord(record, instructions, self._listener))

    def _cancel(self, record: Record) -> None:
        key = record.key
        if key is None:
            return
        self._end_key(key, record.offset)
        offset = self._by_key.get(key, -1)
        if offset < record.offset:
            self._forget(offset)
            self._by_key.pop(key, None)

    def _put(self, pending: ScheduledRecord) -> None:
        self.pending[pending.offset] = pending
        self._listener.on_pending(pending)

    def _forget(self, offset: int) -> None:
        pending = self.pending.pop(offset, None)
        if pending is not None:
            self._listener.on_gone(pending)

    def _drop_key(self, pending: ScheduledRecord) -> None:
        key = pending.key
        if key is not None and self._by_key.get(key) == pending.offset:
            del self._by_key[key]
            self._end_key(key, pending.offset)

    def _end_key(self, key: bytes, offset: int) -> None:
        """Makes older records of a key obsolete, even if they are committed later."""
        if key in self._undecided:
            self._over[key] = max(offset, self._over.get(key, -1))

    # Marks

    def _apply(self, mark: Mark) -> None:
        match mark.kind:
            case MarkKind.RELEASE:
                self._begin(mark)
            case MarkKind.RELEASED:
                self._end(mark)
            case MarkKind.RETURNED:
                self._return(mark)
            case MarkKind.EXPIRED:
                for entry in mark.entries:
                    self._expire(entry)

    def _begin(self, mark: Mark) -> None:
        """Ignores records that were cancelled or replaced before the mark that names them."""
        items: list[tuple[ScheduledRecord, int]] = []
        for entry in mark.entries:
            pending = self.pending.get(entry.offset)
            if pending is None or pending.due_ms != entry.due_ms:
                continue
            items.append((pending, entry.due_ms))
            if entry.next_due_ms == NEVER:
                self._forget(entry.offset)
            else:
                pending.due_ms = entry.next_due_ms
                self._listener.on_pending(pending)
        self.producer_id = mark.producer_id
        release = Release(mark.target, mark.producer_id, mark.sequence, items)
        self._sequences[mark.producer_id, mark.target] = release.next_sequence
        if items:
            self.in_flight[mark.target] = release
            self._listener.on_release(release)

    def _end(self, mark: Mark) -> None:
        self._sequences[mark.producer_id, mark.target] = mark.sequence
        release = self.in_flight.pop(mark.target, None)
        if release is not None:
            for pending, _ in release.items:
                if pending.offset not in self.pending:
                    self._drop_key(pending)

    def _return(self, mark: Mark) -> None:
        # Batches of that producer still in flight must not count as the next ones.
        self.producer_id = NO_PRODUCER
        self._sequences.clear()
        release = self.in_flight.pop(mark.target, None)
        for pending, due_ms in release.items if release is not None else ():
            is_newest = pending.key is None or self._by_key.get(pending.key) == pending.offset
            if is_newest:
                pending.due_ms = due_ms
                self._put(pending)

    def _expire(self, entry: Entry) -> None:
        pending = self.pending.get(entry.offset)
        if pending is not None and pending.due_ms == entry.due_ms:
            self._forget(entry.offset)
            self._drop_key(pending)


def _size(record: Record) -> int:
    headers = sum(len(name) + len(content or b"") for name, content in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
