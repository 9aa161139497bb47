"""`SharePartition`: a partition as one share group reads it, record by record. Does no I/O.

The group has a window on the log. Records before its `start_offset` are finished; from there to
`end_offset` every record has one state (`states`) and possibly a member that holds it; later ones
were never handed out. The start moves when the records there are finished.

    acquire       records that were read are locked for a member, for a time
    acknowledge   the member says what became of them; takes effect when it is stored
    release       the member is gone: its records may be handed out again
    time-out      the same, by the wheel (`lock`)
    back-off      returned records are held back for a time, if the group wants that (`backoff`)

A write can fail: then the acknowledgement has no effect. So an acknowledged record stays acquired,
and no request may change it, until its state is stored. The end of a lock takes effect at once,
stored or not: a new coordinator has no locks either. States that could not be stored go with the
next write.

Called on the broker's loop only. Rules of form that a request breaks are found before
(`acknowledgements`); here a member's claim to a record is checked.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from odradek.background import note_refusal, run_each
from odradek.errors import BrokerError, ErrorCode
from odradek.replication.share.acknowledgements import (
    AcknowledgedRange,
    AcknowledgementBatch,
    ranges_of,
)
from odradek.replication.share.acquisition import (
    AcquiredRecords,
    Acquisition,
    OffsetRange,
    Wanted,
)
from odradek.replication.share.backoff import BackOff, BackOffs
from odradek.replication.share.in_flight import InFlightBatch, InFlightBatches
from odradek.replication.share.limits import ShareLimits
from odradek.replication.share.lock import AcquisitionLock
from odradek.replication.share.persister import (
    OnPersisted,
    ShareState,
    StateBatch,
    combined,
)
from odradek.replication.share.state_writes import StateWrites
from odradek.replication.share.states import (
    FINAL_STATES,
    RecordEvent,
    RecordState,
    transition,
)
from odradek.timer import Timer

Store = Callable[[ShareState, OnPersisted], None]
"""Stores what has changed; calls back once, maybe at once."""
OnAcknowledged = Callable[[BrokerError | None], None]


class _Write:
    """A member's acknowledgements until they are stored: the next states of its records. Locks of
    records that stay acquired are renewed then."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: list[StateBatch] = []


class SharePartition:
    """See the module. `limits` are the group's as they are now; `store` keeps states, asked for one
    write at a time; `on_available` is called when there may be more to hand out; held-back records
    are due by `wall_ms`."""

    def __init__(
        self,
        timer: Timer,
        limits: Callable[[], ShareLimits],
        store: Store,
        on_available: Callable[[], None],
        wall_ms: Callable[[], int],
    ) -> None:
        self._timer: Final = timer
        self._limits: Final = limits
        self._store: Final = store
        self._on_available: Final = on_available
        self._wall_ms: Final = wall_ms
        self.state_epoch = 0
        self.start_offset = 0
        self.delivery_complete_count = 0
        self.available_count = 0
        self.in_flight = InFlightBatches()
        self._first_available = 0
        self._writes: Final = StateWrites(self._send)
        self._is_behind = False
        self._expire: Final = self._on_lock_expired
        self._come_due: Final = self._on_due
        self._is_closed = False

    # Its life

    def begin(self, state: ShareState) -> None:
        """Begins with the stored state; its start is known."""
        self.state_epoch = state.state_epoch
        self.start_offset = self._first_available = state.start_offset
        backoffs = self._backoffs()
        for batch in state.batches:
            first = max(batch.first_offset, self.end_offset + 1)
            if batch.last_offset < first:
                continue
            # A new leader has no locks: these records are not acquired any more.
            is_free = batch.state is RecordState.ACQUIRED
            after = RecordState.AVAILABLE if is_free else batch.state
            self._extend(first - 1, RecordState.AVAILABLE)
            held = backoffs.until(batch.due_ms, first, batch.last_offset)
            self._append(first, batch.last_offset, after, batch.delivery_count, held)
        self._move_start()

    def close(self) -> None:
        """Ends all locks; nothing is handed out or stored here any more."""
        self._is_closed = True
        for batch in self.in_flight.clear():
            if batch.lock is not None:
                batch.lock.cancel()

    @property
    def end_offset(self) -> int:
        """The last offset that was ever handed out; one less than the start if there is none."""
        tail = self.in_flight.tail
        return self.start_offset - 1 if tail is None else tail.last

    @property
    def next_fetch_offset(self) -> int:
        """The first offset that may have something to hand out."""
        if self.available_count:
            for batch in self.in_flight.overlapping(self._first_available, self.end_offset):
                if batch.is_available:
                    self._first_available = batch.first
                    return batch.first
        return self.end_offset + 1

    @property
    def can_acquire(self) -> bool:
        """Whether the window has room, or has records that can be handed out again."""
        return self.available_count > 0 or self._room > 0

    @property
    def _room(self) -> int:
        return self._limits().max_record_locks - (self.end_offset - self.start_offset + 1)

    # Handing out

    def acquire(
        self,
        member_id: str,
        wanted: Wanted,
        fetch_offset: int,
        read: Sequence[OffsetRange],
        aborted: Sequence[OffsetRange] = (),
    ) -> list[AcquiredRecords]:
        """Locks records that were `read` from `fetch_offset` on for a member.

        `aborted` are the ones of aborted transactions.
        """
        if self._is_closed or wanted.max_records <= 0 or not read:
            return []
        if read[-1].last < self.start_offset:
            return []
        self._archive_available(fetch_offset, read[0].first - 1)
        first, last = max(read[0].first, self.start_offset), read[-1].last
        for gone in aborted:
            self._archive_available(max(gone.first, first), gone.last)
        acquisition = Acquisition(self._limits(), member_id, wanted, read)
        known_end = self.end_offset
        self._acquire_known(acquisition, first, min(last, known_end))
        if last > known_end and not acquisition.is_full:
            self._acquire_new(acquisition, max(first, known_end + 1), last, aborted)
        self._lock(acquisition)
        self._move_start()
        return acquisition.pieces()

    def _acquire_known(self, acquisition: Acquisition, first: int, last: int) -> None:
        """Acquires records that were handed out before and came back."""
        if not self.available_count:
            return
        for batch in self.in_flight.overlapping(max(first, self._first_available), last):
            if acquisition.is_full:
                return
            if batch.is_available:
                begin, end = max(batch.first, first), min(batch.last, last)
                acquisition.take(begin, end, batch.delivery_count)

    def _acquire_new(
        self,
        acquisition: Acquisition,
        first: int,
        last: int,
        aborted: Sequence[OffsetRange],
    ) -> None:
        """Acquires new records, as far as the window has room."""
        room = self._room
        if room <= 0:
            return
        end = acquisition.end_of(first, last, room)
        self._extend(first - 1, RecordState.ARCHIVED)
        self._extend(end, RecordState.AVAILABLE)
        for gone in aborted:
            self._archive_available(max(gone.first, first), min(gone.last, end))
        for batch in self.in_flight.overlapping(first, end):
            if batch.is_available and not acquisition.is_full:
                acquisition.take(max(batch.first, first), batch.last, batch.delivery_count)

    def _lock(self, acquisition: Acquisition) -> None:
        taken = acquisition.taken
        if not taken:
            return
        lock = self._new_lock(acquisition.member_id, taken[0].first_offset, taken[-1].last_offset)
        for first, last, delivery_count in taken:
            for batch in self.in_flight.cut(first, last):
                self._enter(batch, RecordEvent.ACQUIRE)
                batch.delivery_count = delivery_count
                self._hold(batch, lock)
        self.in_flight.join(taken[0].first_offset, taken[-1].last_offset)

    def _new_lock(self, member_id: str, first: int, last: int) -> AcquisitionLock:
        lock = AcquisitionLock(
            self._limits().lock_duration_ms, member_id, first, last, self._expire
        )
        self._timer.add(lock)
        return lock

    def _archive_available(self, first: int, last: int) -> None:
        """Archives records that could be handed out but are gone from the log, or not to be
        seen."""
        if not self.available_count or first > last:
            return
        for batch in self.in_flight.overlapping(first, last):
            if batch.is_available:
                begin, end = max(batch.first, first), min(batch.last, last)
                for part in self.in_flight.cut(begin, end):
                    self._enter(part, RecordEvent.ARCHIVE)
        self.in_flight.join(first, last)

    # Acknowledgements

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], on_done: OnAcknowledged
    ) -> None:
        """Carries out a member's acknowledgements, all of them or none. `on_done` gets None when
        they are stored, or INVALID_REQUEST for records that were never handed out,
        INVALID_RECORD_STATE for those that the member does not hold, or the error of the write."""
        ranges = [
            each._replace(first=max(each.first, self.start_offset))
            for each in ranges_of(batches)
            if each.last >= self.start_offset
        ]
        try:
            for each in ranges:
                self._check(member_id, each)
        except BrokerError as error:
            on_done(error)
            return
        self._finish(ranges, on_done)

    def release(self, member_id: str) -> None:
        """Releases the records of a member that is gone. Records with a write in progress are
        released only if the write is refused."""
        locks: dict[AcquisitionLock, None] = {}
        for batch in self.in_flight:
            if batch.lock is not None and batch.lock.member_id == member_id:
                batch.lock.is_abandoned = True
                locks[batch.lock] = None
        self._end(locks)

    def _check(self, member_id: str, said: AcknowledgedRange) -> None:
        if said.last > self.end_offset:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"the records from {said.first} to {said.last} were not handed out",
            )
        if said.event is RecordEvent.RENEW and not self._limits().may_renew:
            raise BrokerError(
                ErrorCode.INVALID_RECORD_STATE, "the group does not let its members renew locks"
            )
        for batch in self.in_flight.overlapping(said.first, said.last):
            lock = batch.lock
            if lock is None or lock.member_id != member_id or batch.write is not None:
                raise BrokerError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"the records from {said.first} to {said.last} are not held by the member",
                )

    def _finish(self, ranges: Sequence[AcknowledgedRange], on_done: OnAcknowledged) -> None:
        """Stores the next states of acquired records, and then applies them."""
        if not ranges:
            on_done(None)
            return
        write = _Write()
        for said in ranges:
            for batch in self.in_flight.cut(said.first, said.last):
                write.batches.append(self._outcome(batch, said.event))
                batch.write = write
        self.in_flight.join(ranges[0].first, ranges[-1].last)
        stored = [each for each in write.batches if each.state is not RecordState.ACQUIRED]
        if stored:
            self._writes.store(stored, lambda error: self._on_stored(write, error, on_done))
        else:
            self._on_stored(write, None, on_done)

    def _on_stored(self, write: _Write, error: BrokerError | None, on_done: OnAcknowledged) -> None:
        ended: dict[AcquisitionLock, None] = {}
        renewed: list[InFlightBatch] = []
        backoffs = self._backoffs()
        for said in write.batches:
            for batch in self._cut_what_is_left(said.first_offset, said.last_offset):
                assert batch.write is write, f"{batch.first} is in another write"
                lock = batch.lock
                assert lock is not None, f"nobody holds {batch.first}, which is in a write"
                batch.write = None
                if error is None and said.state is not RecordState.ACQUIRED:
                    self._become(batch, said, backoffs)
                elif lock.is_abandoned or (lock.has_expired and error is not None):
                    ended[lock] = None
                elif error is None:
                    renewed.append(batch)
        self._renew(renewed)
        self.in_flight.join(write.batches[0].first_offset, write.batches[-1].last_offset)
        self._end(ended)
        self._move_start()
        on_done(error)
        if error is None:
            self._on_available()

    def _renew(self, batches: Sequence[InFlightBatch]) -> None:
        if not batches:
            return
        held = batches[0].lock
        assert held is not None, f"nobody holds {batches[0].first}, which is renewed"
        lock = self._new_lock(held.member_id, batches[0].first, batches[-1].last)
        for batch in batches:
            self._let_go(batch)
            self._hold(batch, lock)

    def _cut_what_is_left(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches of these records that the log still has."""
        first = max(first, self.start_offset)
        return self.in_flight.cut(first, last) if first <= last else []

    # Storing

    def _send(self, batches: Sequence[StateBatch], on_done: OnPersisted) -> None:
        """Stores the changes, together with those that an earlier write failed to store."""
        if self._is_closed:
            # The new leader has read the state, and may have handed the records out again.
            on_done(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        if self._is_behind:
            batches = [*self._settled(), *batches]
        self._store(self._state(batches), partial(self._on_sent, on_done))

    def _on_sent(self, on_done: OnPersisted, error: BrokerError | None) -> None:
        self._is_behind = error is not None
        on_done(error)

    def _settled(self) -> list[StateBatch]:
        """All records that were ever handed out, as a coordinator should store them: held ones with
        their delivery count before this delivery."""
        return [
            StateBatch(batch.first, batch.last, RecordState.AVAILABLE, batch.delivery_count - 1)
            if batch.state is RecordState.ACQUIRED
            else StateBatch(
                batch.first, batch.last, batch.state, batch.delivery_count, _due_ms(batch)
            )
            for batch in self.in_flight
            if batch.delivery_count > (batch.state is RecordState.ACQUIRED)
        ]

    def _state(self, batches: Sequence[StateBatch]) -> ShareState:
        """The state as it is once these batches are stored."""
        batches = combined(batches)
        done = self.delivery_complete_count + sum(
            self._unfinished(each) for each in batches if each.state in FINAL_STATES
        )
        return ShareState(self.state_epoch, self.start_offset, batches, done)

    def _unfinished(self, stored: StateBatch) -> int:
        """How many of the records are not finished yet."""
        first, last = stored.first_offset, stored.last_offset
        return sum(
            min(batch.last, last) - max(batch.first, first) + 1
            for batch in self.in_flight.overlapping(first, last)
            if batch.state not in FINAL_STATES
        )

    # Time

    def _on_lock_expired(self, lock: AcquisitionLock) -> None:
        self._end((lock,))

    def _end(self, locks: Iterable[AcquisitionLock]) -> None:
        """Releases the records that these locks still hold, so that they may be handed out
        again."""
        stored: list[StateBatch] = []
        backoffs = self._backoffs()
        for lock in locks:
            for batch in self.in_flight.overlapping(lock.first, lock.last):
                if batch.lock is lock and batch.write is None:
                    stored.append(self._outcome(batch, RecordEvent.EXPIRE))
                    self._become(batch, stored[-1], backoffs)
            self.in_flight.join(lock.first, lock.last)
        if not stored:
            return
        # The end of a lock counts whether it is stored or not.
        note = partial(note_refusal, "the end of an acquisition lock is not stored")
        store = partial(self._writes.store, stored, note)
        run_each([store, self._move_start, self._on_available])

    def _backoffs(self) -> BackOffs:
        limits = self._limits()
        return BackOffs(self._timer, self._wall_ms, limits.backoff_max_ms, self._come_due)

    def _on_due(self, backoff: AcquisitionLock) -> None:
        """Ends a back-off: its records may be handed out again."""
        for batch in self.in_flight.overlapping(backoff.first, backoff.last):
            if batch.lock is backoff:
                self._let_go(batch)
                self._count(batch, 1)
        self.in_flight.join(backoff.first, backoff.last)
        self._on_available()

    # The log

    def on_log_start(self, log_start_offset: int) -> None:
        """Finishes records that the log has deleted, even if a member holds them."""
        if log_start_offset <= self.start_offset:
            return
        for batch in self.in_flight.drop_before(log_start_offset):
            self._forget(batch)
        self.start_offset = log_start_offset
        self._move_start()

    # The states

    def _extend(self, last: int, state: RecordState) -> None:
        """Adds the records between the end and `last`."""
        first = self.end_offset + 1
        if first <= last:
            self._append(first, last, state, 0)

    def _append(
        self,
        first: int,
        last: int,
        state: RecordState,
        delivery_count: int,
        backoff: BackOff | None = None,
    ) -> None:
        batch = InFlightBatch(first, last, state, delivery_count)
        if backoff is not None:
            self._hold(batch, backoff)
        self._count(batch, 1)
        self.in_flight.append(batch)

    def _enter(self, batch: InFlightBatch, event: RecordEvent) -> None:
        after = transition(batch.state, event)
        assert after is not None, f"{event.name} of records that are {batch.state.name}"
        self._count(batch, -1)
        batch.state = after
        self._count(batch, 1)

    def _outcome(self, batch: InFlightBatch, event: RecordEvent) -> StateBatch:
        """The state that acquired records come to, and when they are due if they come back."""
        limits = self._limits()
        is_last = batch.delivery_count >= limits.delivery_count_limit
        after = transition(batch.state, event, is_last_delivery=is_last)
        assert after is not None, f"{event.name} of records that are {batch.state.name}"
        due_ms = 0
        if after is RecordState.AVAILABLE and limits.backoff_ms > 0:
            due_ms = self._wall_ms() + limits.backoff_after(batch.delivery_count)
        return StateBatch(batch.first, batch.last, after, batch.delivery_count, due_ms)

    def _become(self, batch: InFlightBatch, outcome: StateBatch, backoffs: BackOffs) -> None:
        """Moves acquired records to another state."""
        self._let_go(batch)
        batch.state = outcome.state
        backoff = backoffs.until(outcome.due_ms, batch.first, batch.last)
        if backoff is not None:
            self._hold(batch, backoff)
        self._count(batch, 1)

    def _count(self, batch: InFlightBatch, sign: int) -> None:
        if batch.is_available:
            self.available_count += sign * batch.size
            if sign > 0:
                self._first_available = min(self._first_available, batch.first)
        elif batch.state in FINAL_STATES:
            self.delivery_complete_count += sign * batch.size

    def _hold(self, batch: InFlightBatch, lock: AcquisitionLock) -> None:
        batch.lock = lock
        lock.take(batch.size)

    def _let_go(self, batch: InFlightBatch) -> None:
        lock, batch.lock = batch.lock, None
        assert lock is not None, f"nobody holds the records from {batch.first} to {batch.last}"
        lock.let_go(batch.size)

    def _forget(self, batch: InFlightBatch) -> None:
        """Ends the lock of a batch that leaves the window."""
        self._count(batch, -1)
        if batch.lock is not None:
            self._let_go(batch)

    def _move_start(self) -> None:
        """Moves the start past the finished records."""
        start = self.start_offset
        for batch in self.in_flight:
            if batch.state not in FINAL_STATES:
                break
            start = batch.last + 1
        if start > self.start_offset:
            for batch in self.in_flight.drop_before(start):
                self._forget(batch)
            self.start_offset = start
        self._first_available = max(self._first_available, start)


def _due_ms(batch: InFlightBatch) -> int:
    """The time at which records are due; 0 if they are not held back."""
    return batch.lock.due_ms if isinstance(batch.lock, BackOff) else 0
