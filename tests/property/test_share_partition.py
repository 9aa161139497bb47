"""A share partition against a naive model: each offset by itself, with its state, its count, who
holds it until when, and which write it is in.

Random members acquire, acknowledge, renew, release and go; time goes on, the log's start moves, and
writes succeed or fail, at once or later.
"""

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

from odradek.coordinator.share.state_batches import StateBatches
from odradek.errors import BrokerError, ErrorCode
from odradek.replication.share.acknowledgements import AcknowledgementBatch
from odradek.replication.share.acquisition import OffsetRange, Wanted
from odradek.replication.share.limits import ShareLimits
from odradek.replication.share.persister import ShareState
from odradek.replication.share.share_partition import SharePartition
from odradek.replication.share.states import FINAL_STATES, RecordEvent, RecordState
from odradek.timer import MockTimer

LIMITS = ShareLimits(lock_duration_ms=100, delivery_count_limit=3, max_record_locks=20)
BACKING_OFF = LIMITS._replace(backoff_ms=40, backoff_multiplier=2.0)
END = 60

MEMBERS = st.sampled_from("ab")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), MEMBERS, st.integers(1, 12), st.booleans()),
        st.tuples(
            st.just("ack"),
            MEMBERS,
            st.integers(-2, 14),
            st.lists(st.integers(0, 4), min_size=1, max_size=12),
        ),
        st.tuples(st.just("ack_all"), MEMBERS, st.integers(0, 4), st.booleans()),
        st.tuples(st.just("release"), MEMBERS, st.just(0), st.just(0)),
        st.tuples(st.just("move"), st.integers(0, 120), st.just(0), st.just(0)),
        st.tuples(st.just("log_start"), st.integers(0, 4), st.just(0), st.just(0)),
        st.tuples(st.just("stored"), st.booleans(), st.just(0), st.just(0)),
        st.tuples(st.just("defer"), st.booleans(), st.booleans(), st.just(0)),
    ),
    min_size=25,
    max_size=60,
)


@dataclass
class Record:
    """An offset of the model."""

    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str = ""
    deadline_ms: int = 0
    is_written: bool = False
    is_abandoned: bool = False
    due_ms: int = 0


class Story:
    """The partition under test beside the model."""

    def __init__(self, limits: ShareLimits) -> None:
        self.limits = limits
        self.timer = MockTimer()
        self.is_deferred = False
        self.is_stored = True
        self.writes = []
        self.coordinator = StateBatches()
        self.last = ShareState(3, 0)
        self.is_told = True
        self.partition = SharePartition(
            self.timer, lambda: limits, self.store, lambda: None, lambda: self.timer.now_ms
        )
        self.partition.begin(ShareState(3, 0))
        self.records: dict[int, Record] = {}
        self.start = 0
        self.unanswered = 0

    # The world

    def store(self, state, on_done) -> None:
        assert state.state_epoch == 3
        for batch in state.batches:
            assert batch.state is not RecordState.ACQUIRED, "a lock must never be stored"
            assert batch.delivery_count <= LIMITS.delivery_count_limit
        assert not self.writes, "one write at a time"
        self.writes.append((state, on_done))
        if not self.is_deferred:
            self.stored(succeeds=self.is_stored)

    def stored(self, succeeds: bool) -> None:
        if not self.writes:
            return
        state, on_done = self.writes.pop()
        self.is_told = succeeds
        if not succeeds:
            on_done(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        for batch in state.batches:
            self.coordinator.put(batch)
        self.last = state
        on_done(None)

    def defer(self, is_deferred: bool, is_stored: bool) -> None:
        self.is_deferred, self.is_stored = is_deferred, is_stored

    # Steps

    def acquire(self, member: str, count: int, limits_records: bool) -> None:
        offset = self.partition.next_fetch_offset
        read = [
            OffsetRange(at, at + 4) for at in range(offset - offset % 5, min(END, offset + 60), 5)
        ]
        acquired = self.partition.acquire(member, Wanted(count, 7, limits_records), offset, read)
        taken = [
            (offset, each.delivery_count)
            for each in acquired
            for offset in range(each.first_offset, each.last_offset + 1)
        ]
        assert [offset for offset, _ in taken] == sorted({offset for offset, _ in taken})
        if limits_records:
            assert len(taken) <= count
        for offset, delivery_count in taken:
            record = self.records.setdefault(offset, Record())
            assert offset >= self.start
            assert record.state is RecordState.AVAILABLE, f"{offset} was handed out twice"
            assert not record.is_written
            assert record.due_ms <= self.timer.now_ms, f"{offset} came too early"
            record.state = RecordState.ACQUIRED
            record.count += 1
            record.member = member
            record.is_abandoned = False
            record.deadline_ms = self.timer.now_ms + LIMITS.lock_duration_ms
            assert delivery_count == record.count <= LIMITS.delivery_count_limit
        isolated = [count for _, count in taken if count >= LIMITS.delivery_count_limit]
        assert not isolated or len(taken) == 1, "a last delivery is made alone"
        if not taken and offset < END:
            # Something that can be had is always had, while the window has room.
            assert not self.partition.can_acquire

    def acknowledge(self, member: str, first: int, types: list[int]) -> None:
        first += self.start
        last = first + len(types) - 1
        if first < 0:
            return
        batch = AcknowledgementBatch(first, last, tuple(types))
        known = [offset for offset in range(first, last + 1) if offset >= self.start]
        is_beyond = bool(known) and known[-1] > self.partition.end_offset
        is_held = all(
            (record := self.records.get(offset)) is not None
            and record.state is RecordState.ACQUIRED
            and record.member == member
            and not record.is_written
            for offset in known
        )
        expected = None if is_held else ErrorCode.INVALID_RECORD_STATE
        if is_beyond:
            expected = (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD_STATE)
        changes = {offset: RecordEvent(types[offset - first]) for offset in known if not expected}
        self._say(changes, expected, lambda done: self.partition.acknowledge(member, [batch], done))

    def acknowledge_all(self, member: str, kind: int) -> None:
        held = [
            offset
            for offset, record in self.records.items()
            if record.member == member and record.state is RecordState.ACQUIRED
            if not record.is_written and offset >= self.start
        ]
        batches = [AcknowledgementBatch(offset, offset, (kind,)) for offset in sorted(held)]
        changes = dict.fromkeys(held, RecordEvent(kind))
        self._say(changes, None, lambda done: self.partition.acknowledge(member, batches, done))

    def release(self, member: str) -> None:
        for record in self.records.values():
            if record.member == member and record.state is RecordState.ACQUIRED:
                record.is_abandoned = True
                if not record.is_written:
                    self._end(record, RecordEvent.EXPIRE)
        self.partition.release(member)

    def _say(self, changes, expected, call) -> None:
        """Says what members say, and changes the model once the answer is known."""
        written = [(self.records[offset], event) for offset, event in changes.items()]
        said_ms = self.timer.now_ms
        for record, _ in written:
            record.is_written = True
        self.unanswered += 1

        def on_done(error) -> None:
            self.unanswered -= 1
            if expected is not None:
                assert error is not None
                assert error.code in (expected if isinstance(expected, tuple) else (expected,))
                return
            for record, event in written:
                record.is_written = False
                is_late = record.deadline_ms <= self.timer.now_ms
                if error is None and event is not RecordEvent.RENEW:
                    self._end(record, event, said_ms)
                elif record.is_abandoned or (is_late and error is not None):
                    self._end(record, RecordEvent.EXPIRE)
                elif error is None:
                    record.deadline_ms = self.timer.now_ms + LIMITS.lock_duration_ms

        call(on_done)

    def _end(self, record: Record, event: RecordEvent, at_ms: int | None = None) -> None:
        record.member = ""
        if event is RecordEvent.ACCEPT:
            record.state = RecordState.ACKNOWLEDGED
        elif (
            event in (RecordEvent.REJECT, RecordEvent.GAP)
            or record.count >= LIMITS.delivery_count_limit
        ):
            record.state = RecordState.ARCHIVED
        else:
            record.state = RecordState.AVAILABLE
            delay_ms = self.limits.backoff_after(record.count)
            record.due_ms = (self.timer.now_ms if at_ms is None else at_ms) + delay_ms

    def move(self, delay_ms: int) -> None:
        # The model is asked first: a timer that is due must find everything as it was.
        now_ms = self.timer.now_ms + delay_ms
        for record in self.records.values():
            is_late = record.state is RecordState.ACQUIRED and record.deadline_ms <= now_ms
            if is_late and not record.is_written:
                self._end(record, RecordEvent.EXPIRE, record.deadline_ms)
        self.timer.advance_clock(delay_ms)

    def log_start(self, by: int) -> None:
        self.start = max(self.start, self.partition.start_offset + by)
        self.partition.on_log_start(self.start)

    # Invariants

    def check(self) -> None:
        partition = self.partition
        assert partition.start_offset >= self.start
        self.start = partition.start_offset
        expected = partition.start_offset
        available = done = 0
        now_ms = self.timer.now_ms
        for batch in partition.in_flight:
            assert batch.first == expected <= batch.last
            expected = batch.last + 1
            for offset in range(batch.first, batch.last + 1):
                record = self.records.get(offset, Record())
                assert batch.state is record.state, (offset, batch.state, record)
                assert batch.delivery_count == record.count
                is_held_back = record.state is RecordState.AVAILABLE and record.due_ms > now_ms
                is_acquired = record.state is RecordState.ACQUIRED
                assert (batch.lock is not None) == (is_acquired or is_held_back)
                if batch.lock is not None and is_acquired:
                    assert batch.lock.member_id == record.member
            available += batch.size * batch.is_available
            done += batch.size * (batch.state in FINAL_STATES)
        assert partition.available_count == available
        assert partition.delivery_complete_count == done
        head = partition.in_flight.head
        assert head is None or head.state not in FINAL_STATES, "the start did not move"
        batches = list(partition.in_flight)
        for one, other in pairwise(batches):
            assert not one.is_like(other), "neighbours that are alike are one batch"
        self.check_stored(done)
        locks = {batch.lock for batch in batches if batch.lock is not None}
        assert self.timer.size == sum(not lock.has_expired for lock in locks)

    def check_stored(self, done: int) -> None:
        """Checks that the stored state is never ahead of the model, and equals it once nothing was
        refused.
        """
        passed = self.partition.start_offset - self.last.start_offset
        if self.writes:
            return
        assert self.last.delivery_complete_count <= passed + done
        if not self.is_told:
            return
        known = {
            offset: batch
            for batch in self.coordinator.to_tuple()
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        for offset, record in self.records.items():
            if offset < self.start or not record.count:
                continue
            stored = known.get(offset)
            if record.state is RecordState.ACQUIRED:
                count = 0 if stored is None else stored.delivery_count
                assert count == record.count - 1, (offset, stored, record)
            else:
                assert stored is not None, (offset, record)
                assert (stored.state, stored.delivery_count) == (record.state, record.count)


@settings(max_examples=rounds(100), deadline=None)
@given(STEPS, st.sampled_from([LIMITS, BACKING_OFF]))
def test_every_record_is_in_the_state_that_the_model_says(steps, limits) -> None:
    """If this fails, a record is lost, handed out twice, delivered too often, too early or never
    again."""
    story = Story(limits)
    actions = {
        "acquire": story.acquire,
        "ack": story.acknowledge,
        "ack_all": lambda member, kind, _: story.acknowledge_all(member, kind),
        "release": lambda member, *_: story.release(member),
        "move": lambda delay_ms, *_: story.move(delay_ms),
        "log_start": lambda by, *_: story.log_start(by),
        "stored": lambda succeeds, *_: story.stored(succeeds),
        "defer": lambda is_deferred, is_stored, _: story.defer(is_deferred, is_stored),
    }
    for name, *arguments in steps:
        actions[name](*arguments)
        story.check()
    while story.writes:
        story.stored(succeeds=True)
        story.check()
    assert story.unanswered == 0
