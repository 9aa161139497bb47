"""A share partition, rule by rule: what is handed out together, and what becomes of it."""

import sys

import pytest

from odradek.errors import BrokerError, ErrorCode
from odradek.replication.share.acknowledgements import (
    AcknowledgementBatch,
    check_acknowledgements,
)
from odradek.replication.share.acquisition import OffsetRange, Wanted
from odradek.replication.share.limits import ShareLimits
from odradek.replication.share.persister import ShareState, StateBatch
from odradek.replication.share.share_partition import SharePartition
from odradek.replication.share.states import (
    FINAL_STATES,
    TRANSITIONS,
    RecordEvent,
    RecordState,
    transition,
)
from odradek.timer import MockTimer

ALL = Wanted(1000, 1000)
BEGAN_MS = 1_700_000_000_000
REFUSED = BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class World:
    """A partition, a timer, and a store that may fail, at once or, if it `delays`, later."""

    def __init__(self, start: int = 0, limits: ShareLimits | None = None, batches=()) -> None:
        self.timer = MockTimer()
        self.limits = limits or ShareLimits(1000, 5, 100)
        self.stored: list[ShareState] = []
        self.error: BrokerError | None = None
        self.delays = False
        self.delayed: list = []
        self.woken = 0
        self.partition = SharePartition(
            self.timer, lambda: self.limits, self._store, lambda: self._wake(), self.wall_ms
        )
        self.partition.begin(ShareState(0, start, tuple(batches)))

    def _store(self, state, on_done) -> None:
        self.stored.append(state)
        if self.delays:
            self.delayed.append(on_done)
        else:
            on_done(self.error)

    def wall_ms(self) -> int:
        return BEGAN_MS + self.timer.now_ms

    def _wake(self) -> None:
        self.woken += 1

    def acquire(self, member, *ranges, wanted=ALL, aborted=(), offset=None):
        read = [OffsetRange(*each) for each in ranges]
        if offset is None:
            offset = self.partition.next_fetch_offset
        gone = [OffsetRange(*each) for each in aborted]
        return [tuple(each) for each in self.partition.acquire(member, wanted, offset, read, gone)]

    def say(self, member, first, last, *types):
        (outcome,) = self.begin_to_say(member, first, last, *types)
        return None if outcome is None else outcome.code

    def begin_to_say(self, member, first, last, *types):
        """The answer; empty until it is there."""
        outcome: list = []
        batch = AcknowledgementBatch(first, last, types)
        self.partition.acknowledge(member, [batch], outcome.append)
        return outcome

    def answer_store(self, error=None):
        """The oldest write that waits succeeds or fails."""
        self.delayed.pop(0)(error)

    def states(self):
        return [
            (each.first, each.last, each.state.name, each.delivery_count)
            for each in self.partition.in_flight
        ]


def test_the_table_ends_in_final_states() -> None:
    """If this fails, a record that is done with can be handed out again."""
    assert not [state for state, _ in TRANSITIONS if state in FINAL_STATES]
    released = transition(RecordState.ACQUIRED, RecordEvent.RELEASE, is_last_delivery=True)
    assert released is RecordState.ARCHIVED
    assert transition(RecordState.AVAILABLE, RecordEvent.ACCEPT) is None


def test_accepted_records_move_the_start_and_are_stored() -> None:
    """If this fails, accepted records come again after a restart."""
    world = World()
    assert world.acquire("a", (0, 9)) == [(0, 9, 1)]
    assert world.say("a", 0, 4, RecordEvent.ACCEPT) is None
    assert world.partition.start_offset == 5
    assert world.stored[-1].batches == (StateBatch(0, 4, RecordState.ACKNOWLEDGED, 1),)
    assert world.states() == [(5, 9, "ACQUIRED", 1)]


def test_records_are_acknowledged_one_by_one() -> None:
    """If this fails, one type per offset collapses into one type for all."""
    world = World()
    world.acquire("a", (0, 3))
    types = (RecordEvent.RELEASE, RecordEvent.ACCEPT, RecordEvent.REJECT, RecordEvent.GAP)
    assert world.say("a", 0, 3, *types) is None
    assert world.states() == [
        (0, 0, "AVAILABLE", 1),
        (1, 1, "ACKNOWLEDGED", 1),
        (2, 3, "ARCHIVED", 1),
    ]
    assert world.partition.delivery_complete_count == 3
    assert world.partition.next_fetch_offset == 0


def test_whole_record_batches_are_handed_out_unless_records_are_limited() -> None:
    """If this fails, clients get parts of batches that they did not ask to be cut."""
    world = World()
    ranges = ((0, 9), (10, 19), (20, 29))
    assert world.acquire("a", *ranges, wanted=Wanted(12, 100)) == [(0, 19, 1)]
    assert world.acquire("a", (20, 29), wanted=Wanted(3, 100, True)) == [(20, 22, 1)]
    pieces = world.acquire("b", (20, 29), (30, 39), (40, 49), wanted=Wanted(100, 8))
    assert pieces == [(23, 39, 1), (40, 49, 1)]


def test_the_window_bounds_what_is_handed_out() -> None:
    """If this fails, a group that never acknowledges reads the whole log into memory."""
    world = World(limits=ShareLimits(1000, 5, 100))
    assert world.acquire("a", (0, 59)) == [(0, 59, 1)]
    assert world.acquire("a", (60, 79), (80, 119), (120, 139)) == [(60, 119, 1)]
    assert world.acquire("a", (120, 139)) == []
    assert not world.partition.can_acquire
    world.say("a", 10, 19, RecordEvent.RELEASE)
    assert world.partition.can_acquire
    assert world.acquire("b", (0, 59), offset=10) == [(10, 19, 2)]


def test_a_lock_ends_by_the_wheel_and_the_last_delivery_archives() -> None:
    """If this fails, records of a dead member are stuck, or come for ever."""
    world = World(limits=ShareLimits(1000, 2, 100))
    world.acquire("a", (0, 1))
    world.timer.advance_clock(1000)
    assert world.states() == [(0, 1, "AVAILABLE", 1)]
    assert world.woken == 1
    assert world.acquire("b", (0, 1)) == [(0, 1, 2)]
    world.timer.advance_clock(1000)
    assert world.partition.start_offset == 2
    assert world.stored[-1].batches == (StateBatch(0, 1, RecordState.ARCHIVED, 2),)


def test_a_renewed_lock_ends_later_for_its_records_alone() -> None:
    """If this fails, a member that works long loses its record in the middle of it."""
    world = World()
    world.acquire("a", (0, 9))
    world.timer.advance_clock(900)
    assert world.say("a", 3, 3, RecordEvent.RENEW) is None
    world.timer.advance_clock(200)
    assert world.states() == [
        (0, 2, "AVAILABLE", 1),
        (3, 3, "ACQUIRED", 1),
        (4, 9, "AVAILABLE", 1),
    ]
    world.limits = world.limits._replace(may_renew=False)
    assert world.say("a", 3, 3, RecordEvent.RENEW) is ErrorCode.INVALID_RECORD_STATE


def test_a_poisonous_record_is_isolated() -> None:
    """If this fails, one record that kills its consumers takes its neighbours to the limit."""
    world = World(limits=ShareLimits(1000, 5, 100))
    handed_out = []
    for _ in range(3):
        handed_out.append(world.acquire("a", (0, 15)))
        world.partition.release("a")
    assert handed_out == [[(0, 15, 1)], [(0, 15, 2)], [(0, 15, 3)]]
    assert world.acquire("a", (0, 15)) == [(0, 7, 4)]
    world.partition.release("a")
    assert world.acquire("a", (0, 15)) == [(0, 0, 5)]


def test_a_failed_write_changes_nothing() -> None:
    """If this fails, memory and what is stored part."""
    world = World()
    world.acquire("a", (0, 9))
    world.error = BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert world.say("a", 0, 9, RecordEvent.ACCEPT) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.states() == [(0, 9, "ACQUIRED", 1)]
    world.error = None
    assert world.say("a", 0, 9, RecordEvent.ACCEPT) is None


def test_a_refused_write_is_not_counted_by_the_next_one() -> None:
    """If this fails, tools show a lag that is too small, once a coordinator has refused a write
    that another one waited behind."""
    world = World()
    world.acquire("a", (0, 9))
    world.delays = True
    refused = world.begin_to_say("a", 2, 4, RecordEvent.ACCEPT)
    stored = world.begin_to_say("a", 6, 7, RecordEvent.ACCEPT)
    assert len(world.delayed) == 1
    world.answer_store(REFUSED)
    assert [each.code for each in refused] == [REFUSED.code]
    assert world.stored[-1].delivery_complete_count == 2
    world.answer_store()
    assert stored == [None]
    assert world.partition.delivery_complete_count == 2
    lost = world.begin_to_say("a", 2, 4, RecordEvent.ACCEPT)
    last = world.begin_to_say("a", 8, 9, RecordEvent.ACCEPT)
    world.partition.on_log_start(6)
    world.answer_store()
    assert lost == [None]
    assert (world.partition.start_offset, world.stored[-1].start_offset) == (8, 8)
    assert world.stored[-1].delivery_complete_count == 2
    world.answer_store()
    assert (last, world.partition.start_offset) == ([None], 10)


def test_what_a_member_that_is_gone_held_comes_back_though_it_is_not_stored() -> None:
    """If this fails, records of a worker that was killed are stuck for the time of a lock, because
    the coordinator was moving just then."""
    world = World()
    world.acquire("a", (0, 9))
    world.delays = True
    answers = world.begin_to_say("a", 0, 4, RecordEvent.ACCEPT)
    world.partition.release("a")
    assert world.states() == [(0, 4, "ACQUIRED", 1), (5, 9, "AVAILABLE", 1)]
    assert world.acquire("b", (5, 9)) == [(5, 9, 2)]
    world.answer_store(REFUSED)
    assert [each.code for each in answers] == [REFUSED.code]
    assert world.states() == [(0, 4, "AVAILABLE", 1), (5, 9, "ACQUIRED", 2)]
    assert world.woken == 2
    assert world.acquire("a", (0, 4)) == [(0, 4, 2)]
    world.partition.release("a")
    assert world.states()[0] == (0, 4, "AVAILABLE", 2)


def test_what_could_not_be_stored_goes_with_the_next_write() -> None:
    """If this fails, a record comes again after a failover that was delivered as often as it may
    be, because the end of its last lock was not stored."""
    world = World(limits=ShareLimits(1000, 2, 100))
    world.acquire("a", (0, 5))
    world.partition.release("a")
    world.acquire("a", (1, 5), wanted=Wanted(2, 2, True), offset=1)
    world.timer.advance_clock(500)
    world.acquire("b", (0, 0))
    world.error = REFUSED
    world.timer.advance_clock(500)
    assert world.states()[1] == (1, 2, "ARCHIVED", 2)
    world.error = None
    world.acquire("c", (3, 5))
    assert world.say("c", 4, 4, RecordEvent.ACCEPT) is None
    assert world.stored[-1].delivery_complete_count == 3
    assert world.stored[-1].batches == (
        StateBatch(0, 0, RecordState.AVAILABLE, 1),
        StateBatch(1, 2, RecordState.ARCHIVED, 2),
        StateBatch(3, 5, RecordState.AVAILABLE, 1),
        StateBatch(4, 4, RecordState.ACKNOWLEDGED, 2),
    )
    assert world.say("c", 5, 5, RecordEvent.ACCEPT) is None
    assert world.stored[-1].batches == (StateBatch(5, 5, RecordState.ACKNOWLEDGED, 2),)


def test_a_renewal_holds_only_with_all_that_was_said_with_it() -> None:
    """If this fails, half of a request that was refused has taken effect."""
    world = World()
    world.acquire("a", (0, 9))
    types = (RecordEvent.RENEW, RecordEvent.ACCEPT, RecordEvent.RENEW)
    world.timer.advance_clock(900)
    world.error = REFUSED
    assert world.say("a", 0, 2, *types) is REFUSED.code
    world.error = None
    world.timer.advance_clock(100)
    assert world.states() == [(0, 9, "AVAILABLE", 1)]

    world.acquire("a", (0, 9))
    world.delays = True
    answers = world.begin_to_say("a", 0, 2, *types)
    world.timer.advance_clock(1000)
    assert world.states()[0] == (0, 2, "ACQUIRED", 2), "a lock ended while it was being renewed"
    while world.delayed:
        world.answer_store()
    assert answers == [None]
    world.timer.advance_clock(999)
    assert world.states()[:3] == [
        (0, 0, "ACQUIRED", 2),
        (1, 1, "ACKNOWLEDGED", 2),
        (2, 2, "ACQUIRED", 2),
    ]
    answers = world.begin_to_say("a", 0, 2, RecordEvent.RENEW, RecordEvent.GAP, RecordEvent.RENEW)
    assert [each.code for each in answers] == [ErrorCode.INVALID_RECORD_STATE]


def test_a_member_that_is_gone_renews_nothing() -> None:
    """If this fails, what a worker renewed that was killed meanwhile is held for one lock more."""
    world = World()
    world.acquire("a", (0, 2))
    world.delays = True
    answers = world.begin_to_say("a", 0, 1, RecordEvent.RENEW, RecordEvent.ACCEPT)
    world.partition.release("a")
    assert world.states() == [(0, 1, "ACQUIRED", 1), (2, 2, "AVAILABLE", 1)]
    world.answer_store()
    assert answers == [None]
    assert world.states()[0] == (0, 0, "AVAILABLE", 1)


def test_nothing_is_stored_behind_the_end() -> None:
    """If this fails, what waited behind a write is stored after the next one to lead has read the
    state: an accepted record comes again."""
    world = World()
    world.acquire("a", (0, 9))
    world.delays = True
    first = world.begin_to_say("a", 0, 0, RecordEvent.ACCEPT)
    second = world.begin_to_say("a", 1, 1, RecordEvent.ACCEPT)
    world.partition.close()
    world.answer_store()
    assert first == [None]
    assert [each.code for each in second] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (len(world.stored), world.delayed) == (1, [])


def test_claims_that_do_not_hold_are_refused_whole() -> None:
    """If this fails, a member ends what another one holds."""
    world = World(start=5)
    world.acquire("a", (5, 9))
    assert world.say("b", 5, 9, RecordEvent.ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert world.say("a", 5, 10, RecordEvent.ACCEPT) is ErrorCode.INVALID_REQUEST
    assert world.say("a", 0, 4, RecordEvent.ACCEPT) is None
    assert world.states() == [(5, 9, "ACQUIRED", 1)]
    world.say("a", 6, 6, RecordEvent.ACCEPT)
    assert world.say("a", 5, 7, RecordEvent.ACCEPT) is ErrorCode.INVALID_RECORD_STATE


def test_aborted_records_and_gaps_are_done_with() -> None:
    """If this fails, a reader of committed records gets others, or the start stands still."""
    world = World()
    assert world.acquire("a", (0, 4), (5, 9), aborted=[(0, 4)]) == [(5, 9, 1)]
    assert world.partition.start_offset == 5
    assert world.acquire("a", (20, 24)) == [(20, 24, 1)]
    assert world.states()[1] == (10, 19, "ARCHIVED", 0)
    world.say("a", 5, 9, RecordEvent.RELEASE)
    # Compaction has taken what came back.
    assert world.acquire("a", (8, 9)) == [(8, 9, 2)]
    assert world.partition.start_offset == 8


def test_what_the_log_has_lost_is_done_with() -> None:
    """If this fails, retention leaves a group waiting for records that are gone."""
    world = World()
    world.acquire("a", (0, 9))
    world.partition.on_log_start(5)
    assert world.partition.start_offset == 5
    assert world.say("a", 0, 9, RecordEvent.ACCEPT) is None
    world.partition.on_log_start(50)
    assert world.partition.next_fetch_offset == 50
    assert world.timer.size == 0


def test_a_stored_state_is_taken_up() -> None:
    """If this fails, a restart hands out what was accepted, or not what was released."""
    stored = [
        StateBatch(12, 14, RecordState.ACKNOWLEDGED, 1),
        StateBatch(15, 15, RecordState.AVAILABLE, 3),
        # No broker should store this.
        StateBatch(16, 16, RecordState.ACQUIRED, 3),
    ]
    world = World(start=10, batches=stored)
    assert world.states() == [
        (10, 11, "AVAILABLE", 0),
        (12, 14, "ACKNOWLEDGED", 1),
        (15, 15, "AVAILABLE", 3),
        (16, 16, "AVAILABLE", 3),
    ]
    assert world.acquire("a", (10, 19)) == [(10, 11, 1)]
    assert world.acquire("a", (10, 19)) == [(15, 15, 4)]


BACKING_OFF = ShareLimits(1000, 5, 100, backoff_ms=200, backoff_multiplier=3.0, backoff_max_ms=900)


def test_what_comes_back_is_held_back_longer_each_time() -> None:
    """If this fails, a record that cannot be processed just now is delivered to its limit within
    milliseconds, or late, or the ones behind it wait for it."""
    world = World(limits=BACKING_OFF)
    world.acquire("a", (0, 1), (2, 2))
    assert world.say("a", 0, 1, RecordEvent.RELEASE) is None
    assert world.stored[-1].batches == (StateBatch(0, 1, RecordState.AVAILABLE, 1, BEGAN_MS + 200),)
    assert world.states()[0] == (0, 1, "AVAILABLE", 1)
    assert world.acquire("b", (0, 1), (2, 2), offset=0) == []
    assert world.partition.next_fetch_offset == 3
    assert world.acquire("b", (3, 3)) == [(3, 3, 1)]
    woken = world.woken
    world.timer.advance_clock(199)
    assert (world.woken, world.partition.available_count) == (woken, 0)
    assert world.say("b", 0, 0, RecordEvent.ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    world.timer.advance_clock(1)
    assert (world.woken, world.partition.next_fetch_offset) == (woken + 1, 0)
    assert world.acquire("b", (0, 1)) == [(0, 1, 2)]
    world.partition.release("b")
    assert world.stored[-1].batches[0].due_ms == BEGAN_MS + 200 + 600


def test_the_back_off_is_bounded() -> None:
    """If this fails, a record comes back after years, or the broker stops at a large number."""
    assert [BACKING_OFF.backoff_after(count) for count in (1, 2, 3, 9)] == [200, 600, 900, 900]
    endless = ShareLimits(backoff_ms=1, backoff_multiplier=1e300, backoff_max_ms=7)
    assert [endless.backoff_after(count) for count in (1, 2, 9)] == [1, 7, 7]
    assert ShareLimits().backoff_after(3) == 0


def test_a_lock_that_ends_holds_back_as_well_and_the_last_one_archives() -> None:
    """If this fails, only polite workers get a pause."""
    world = World(limits=BACKING_OFF._replace(delivery_count_limit=2))
    world.acquire("a", (0, 0))
    world.timer.advance_clock(1000)
    assert world.acquire("a", (0, 0), offset=0) == []
    world.timer.advance_clock(200)
    assert world.acquire("a", (0, 0)) == [(0, 0, 2)]
    world.timer.advance_clock(1000)
    assert world.partition.start_offset == 1
    assert world.timer.size == 0


def test_what_is_held_back_stays_so_over_a_restart() -> None:
    """If this fails, a restart or a failover delivers at once what was to come in an hour."""
    stored = [
        StateBatch(10, 11, RecordState.AVAILABLE, 1, BEGAN_MS + 300),
        StateBatch(12, 12, RecordState.AVAILABLE, 1, BEGAN_MS - 1),
        StateBatch(13, 14, RecordState.AVAILABLE, 1, BEGAN_MS + 300),
        StateBatch(15, 15, RecordState.AVAILABLE, 1, BEGAN_MS + 10**9),
    ]
    world = World(start=10, batches=stored, limits=BACKING_OFF)
    assert world.timer.size == 2
    assert world.acquire("a", (10, 15)) == [(12, 12, 2)]
    world.timer.advance_clock(300)
    assert world.acquire("a", (10, 14), wanted=Wanted(9, 9)) == [(10, 11, 2), (13, 14, 2)]
    world.timer.advance_clock(600)
    assert world.partition.next_fetch_offset == 15, "a clock that was wrong holds back for ever"
    world.partition.close()
    assert world.timer.size == 0


def test_a_back_off_that_was_not_stored_goes_with_the_next_write() -> None:
    """If this fails, a record that is held back comes too early after a failover."""
    world = World(limits=BACKING_OFF)
    world.acquire("a", (0, 3))
    world.error = REFUSED
    world.partition.release("a")
    world.error = None
    world.acquire("b", (4, 4))
    world.acquire("b", (5, 5))
    assert world.say("b", 5, 5, RecordEvent.ACCEPT) is None
    assert world.stored[-1].batches[0] == StateBatch(0, 3, RecordState.AVAILABLE, 1, BEGAN_MS + 200)


@pytest.mark.parametrize(
    "batches",
    [
        [(5, 4, (1,))],
        [(0, 4, (1,)), (3, 5, (1,))],
        [(6, 7, (1,)), (0, 1, (1,))],
        [(0, 4, ())],
        [(0, 4, (1, 1))],
        [(0, 4, (5,))],
        [(0, 4, (-1,))],
        [(0, 4, (4,))],
    ],
)
def test_illegal_forms_are_refused(batches) -> None:
    """If this fails, a malformed acknowledgement reaches the records."""
    with pytest.raises(BrokerError) as refused:
        check_acknowledgements([AcknowledgementBatch(*each) for each in batches])
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_lock_is_small() -> None:
    """If this fails, 2 000 locks on each of 1 000 partitions need more than 640 MB."""
    world = World(limits=ShareLimits(1000, 5, 4000))
    for offset in range(2000):
        world.acquire("a", (offset, offset))
    batches = list(world.partition.in_flight)
    assert len(batches) == 2000
    # An entry in each of two lists, and a number for each of two offsets, beside the objects.
    each = sys.getsizeof(batches[0]) + sys.getsizeof(batches[0].lock) + 2 * (8 + 28)
    assert each <= 320  # 312 compiled, of which 88 are the batch and 152 the timer
