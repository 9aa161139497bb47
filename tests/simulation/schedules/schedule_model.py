"""The simplest model of a schedule topic there is: it walks the log, and looks through all of it
for every question.

From the records alone it knows what may be delivered at all; from the marks, what was. It is held
against the target's log, and against the clock by which each mark was written.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.records.batch import BatchHeader, split_batches
from odradek.records.reader import read_batch
from odradek.records.record import Record
from odradek.replication.schedule.marks import Mark, MarkKind, parse_marks
from odradek.storage.log.log import Log
from odradek.storage.producers.end_marker import parse_end_marker

NEVER: Final = -1

# A value, and when it was due.
Delivery = tuple[bytes, int]


class Schedule(NamedTuple):
    """A record of the log, and what its headers say."""

    offset: int
    key: bytes | None
    value: bytes | None
    due_ms: int
    expires_ms: int
    every_ms: int

    @property
    def is_cancel(self) -> bool:
        return self.value is None

    def takes_place_of(self, other: "Schedule") -> bool:
        return self.key is not None and self.key == other.key and self.offset > other.offset

    def has_expired(self, now_ms: int) -> bool:
        return self.expires_ms != NEVER and now_ms > self.expires_ms

    def may_be_due(self, due_ms: int) -> bool:
        late_ms = due_ms - self.due_ms
        return late_ms == 0 or (self.every_ms > 0 and late_ms > 0 and late_ms % self.every_ms == 0)


def read_schedule(record: Record) -> Schedule:
    """Reads the headers that the simulation writes."""
    told = {name: int(content) for name, content in record.headers if name != "repeat"}
    every_ms = next((int(each[1][7:-2]) for each in record.headers if each[0] == "repeat"), 0)
    after_ms, expires_ms = told.get("deliver-after", 0), told.get("expire-after")
    return Schedule(
        record.offset,
        record.key,
        record.value,
        record.timestamp + after_ms,
        NEVER if expires_ms is None else record.timestamp + expires_ms,
        every_ms,
    )


class ScheduleModel:
    """The deliveries that the committed part of a log comes to."""

    def __init__(self, log: Log) -> None:
        self.decided: list[Schedule] = []
        self.delivered: list[Delivery] = []
        self.in_flight: list[tuple[Schedule, int]] = []
        self._open: dict[int, list[Schedule]] = {}
        # When each is due next, once that is not what its headers say; NEVER once it is over.
        self._next_ms: dict[int, int] = {}
        for header, records, batch in batches(log):
            self._take(header, records, batch)

    def _take(self, header: BatchHeader, records: list[Record], batch: bytes) -> None:
        if not header.is_control:
            read = [read_schedule(record) for record in records]
            if header.is_transactional:
                self._open.setdefault(header.producer_id, []).extend(read)
            else:
                self.decided += read
            return
        marker = parse_end_marker(memoryview(batch))
        if marker is not None:
            ended = self._open.pop(header.producer_id, [])
            self.decided += ended if marker.is_commit else []
            return
        for record in records:
            for mark in parse_marks([record]):
                self._apply(mark, record.timestamp)

    def _apply(self, mark: Mark, now_ms: int) -> None:
        if mark.kind is MarkKind.RELEASE:
            assert not self.in_flight, "two releases to one partition at once"
            for entry in mark.entries:
                found = self._pending(entry.offset)
                if found is None or self._due_ms(found) != entry.due_ms:
                    continue
                assert entry.due_ms <= now_ms, f"{found} is taken at {now_ms}"
                assert not found.has_expired(now_ms), f"{found} is taken at {now_ms}"
                self.in_flight.append((found, entry.due_ms))
                self._next_ms[found.offset] = entry.next_due_ms
        elif mark.kind is MarkKind.RELEASED:
            self.delivered += [(each.value or b"", due_ms) for each, due_ms in self.in_flight]
            self.in_flight = []
        elif mark.kind is MarkKind.RETURNED:
            for each, due_ms in self.in_flight:
                self._next_ms[each.offset] = due_ms
            self.in_flight = []
        else:
            for entry in mark.entries:
                found = self._pending(entry.offset)
                if found is not None and self._due_ms(found) == entry.due_ms:
                    assert found.has_expired(now_ms), f"{found} is given up at {now_ms}"
                    self._next_ms[entry.offset] = NEVER

    def _due_ms(self, schedule: Schedule) -> int:
        return self._next_ms.get(schedule.offset, schedule.due_ms)

    def _pending(self, offset: int) -> Schedule | None:
        return next((each for each in self.pending if each.offset == offset), None)

    @property
    def pending(self) -> list[Schedule]:
        """The schedules that are still to come, without those that another has replaced."""
        return [
            each
            for each in self.decided
            if not each.is_cancel
            and self._due_ms(each) != NEVER
            and not any(other.takes_place_of(each) for other in self.decided)
        ]

    def check_settled(self, found: list[Delivery]) -> None:
        """Checks that each came once, in the order of the marks, and nothing else; what is missing
        was cancelled, replaced, or has expired.
        """
        assert not self.pending, f"still pending: {self.pending}"
        assert not self.in_flight, f"in doubt: {self.in_flight}"
        assert found == self.delivered, f"delivered: {found}\nexpected: {self.delivered}"
        assert len(set(found)) == len(found), f"delivered twice: {found}"
        by_value = {each.value: each for each in self.decided}
        for value, due_ms in found:
            assert by_value[value].may_be_due(due_ms), f"{by_value[value]} came as of {due_ms}"
        values = {value for value, _ in found}
        for each in self.decided:
            if each.is_cancel or each.value in values or each.expires_ms != NEVER:
                continue
            replaced = any(other.takes_place_of(each) for other in self.decided)
            assert replaced, f"{each} is lost"


def release_epoch(log: Log, producer_id: int, sequence: int) -> int:
    """The epoch of the leader that has begun a release; -1 where there is none."""
    epochs = [
        header.partition_leader_epoch
        for header, records, _ in batches(log)
        if header.is_control
        for mark in parse_marks(records)
        if (mark.kind, *mark[2:4]) == (MarkKind.RELEASE, producer_id, sequence)
    ]
    return epochs[-1] if epochs else -1


def batches(log: Log) -> Iterator[tuple[BatchHeader, list[Record], bytes]]:
    """The batches below the high watermark, from the log start on."""
    offset = log.log_start_offset
    while offset < log.high_watermark:
        read = log.read(offset, 1 << 20, log.high_watermark, True)
        data = b"".join(bytes(each) for each in read.records)
        for header in split_batches(data, drop_partial_tail=True):
            yield header, read_batch(data, header), data[header.position : header.end_position]
            offset = header.next_offset
