"""Offsets that belong to transactions: pending until their end marker, live and after a load."""

import itertools

import pytest
from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.test_runtime import commit_of

from odradek.coordinator.group_shard import GroupShard
from odradek.coordinator.offsets.requests import OffsetCommitRequest
from odradek.coordinator.records.offset_records import OffsetAndMetadata, OffsetCommitKey
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.batches import EndMarker, Producer
from odradek.coordinator.runtime.shard import CoordinatorResult
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TransactionResult

ABORT, COMMIT = TransactionResult.ABORT, TransactionResult.COMMIT
MINUTE_MS = 60_000
TIMEOUT_MS = 30_000


class Transactions:
    """Producers that commit offsets of groups with their transactions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.outcomes: list[BrokerError | str | None] = []

    def commit(
        self, producer_id: int, offsets: dict[tuple[str, int], int], group_id: str = "g"
    ) -> None:
        records = [
            CoordinatorRecord(
                OffsetCommitKey(group_id, topic, partition),
                OffsetAndMetadata(offset, commit_timestamp_ms=self.world.clock.wall_ms()),
            )
            for (topic, partition), offset in offsets.items()
        ]

        def command(_shard: GroupShard) -> CoordinatorResult[str]:
            return CoordinatorResult(records, "ok")

        self.world.runtime.execute_transactional(
            group_id, Producer(producer_id, 0), command, self.outcomes.append
        )

    def end(self, producer_id: int, result: TransactionResult, partition: int = 0) -> None:
        self.world.runtime.complete_transaction(
            partition, EndMarker(producer_id, 0, 7, result, 0), TIMEOUT_MS, self.outcomes.append
        )

    def unstable(self, group_id: str = "g") -> set[tuple[str, int]]:
        fetched = self.world.groups.fetch_offsets(group_id, None, -1, require_stable=True)
        return set(fetched.unstable)


@pytest.fixture
def world() -> World:
    return World(offsets_retention_minutes=7)


@pytest.fixture
def transactions(world: World) -> Transactions:
    return Transactions(world)


def test_loading_takes_committed_drops_aborted_and_keeps_open_ones_pending(
    world: World, transactions: Transactions
) -> None:
    """Fails when groups skip records after a restart or an import: an offset of a transaction
    that was aborted, or is not decided, is taken for committed."""
    for partition in range(4):
        world.commit("g", {("t", partition): 1})
    transactions.commit(100, {("t", 0): 10})
    transactions.commit(101, {("t", 1): 11})
    transactions.commit(102, {("t", 2): 12, ("u", 0): 5})
    transactions.end(100, COMMIT)
    transactions.end(101, ABORT)
    world.restart()
    assert world.committed("g") == {("t", 0): 10, ("t", 1): 1, ("t", 2): 1, ("t", 3): 1}
    assert transactions.unstable() == {("t", 2), ("u", 0)}
    transactions.end(102, COMMIT)
    assert world.committed("g")["t", 2] == 12
    assert world.committed("g")["u", 0] == 5
    assert transactions.unstable() == set()


def test_offsets_are_pending_until_the_marker_is_committed(
    world: World, transactions: Transactions
) -> None:
    """Fails when an offset is shown, or called stable, before its transaction is decided."""
    world.commit("g", {("t", 0): 1})
    transactions.commit(100, {("t", 0): 10})
    assert transactions.outcomes == ["ok"]
    assert (world.committed("g"), transactions.unstable()) == ({("t", 0): 1}, {("t", 0)})
    assert world.groups.fetch_offsets("g", None, -1).unstable == frozenset()
    world.log.holds = True
    transactions.end(100, COMMIT)
    assert (world.committed("g"), transactions.unstable()) == ({("t", 0): 1}, {("t", 0)})
    world.log.commit()
    assert transactions.outcomes == ["ok", None]
    assert (world.committed("g"), transactions.unstable()) == ({("t", 0): 10}, set())


def test_an_offset_is_unstable_while_the_replicas_have_not_got_it(
    world: World, transactions: Transactions
) -> None:
    """Fails when who takes a partition over reads the offset before a commit that its former
    owner has sent, and that will count."""
    world.commit("g", {("t", 0): 1})
    world.log.holds = True
    transactions.commit(100, {("t", 0): 10})
    assert transactions.unstable() == {("t", 0)}
    world.log.lose()
    assert transactions.unstable() == set()
    assert isinstance(transactions.outcomes[0], BrokerError)
    transactions.commit(100, {("t", 0): 10})
    transactions.commit(100, {("t", 0): 11})
    world.log.commit()
    transactions.end(100, COMMIT)
    world.log.commit()
    assert (world.committed("g"), transactions.unstable()) == ({("t", 0): 11}, set())


def test_a_late_answer_does_not_make_an_offset_stable(
    world: World, transactions: Transactions
) -> None:
    """Fails when the time-out of a request is taken for the failure of its append."""
    world.log.holds = True
    transactions.commit(100, {("t", 0): 10})
    world.advance(10_000)
    (outcome,) = transactions.outcomes
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.REQUEST_TIMED_OUT
    assert transactions.unstable() == {("t", 0)}
    world.log.commit()
    transactions.end(100, COMMIT)
    world.log.commit()
    assert world.committed("g") == {("t", 0): 10}


def end_in_vain(world: World, transactions: Transactions, result: TransactionResult) -> None:
    """The replicas do not take the marker in time."""
    world.log.holds = True
    transactions.end(100, result)
    world.advance(TIMEOUT_MS - 1)
    assert transactions.outcomes == ["ok"]
    world.advance(1)
    _, outcome = transactions.outcomes
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.REQUEST_TIMED_OUT
    transactions.outcomes.clear()
    assert (world.committed("g"), transactions.unstable()) == ({("t", 0): 1}, {("t", 0)})


@pytest.mark.parametrize(("result", "offset"), [(COMMIT, 10), (ABORT, 1)])
@pytest.mark.parametrize("repeats_first", [False, True])
def test_a_marker_that_is_replicated_too_late_counts_once(
    world: World,
    transactions: Transactions,
    result: TransactionResult,
    offset: int,
    repeats_first: bool,
) -> None:
    """Fails when a transaction waits for a slow replica without an end, when what is replicated
    late is lost, or when the marker that is sent again sets a group back to it."""
    world.commit("g", {("t", 0): 1})
    transactions.commit(100, {("t", 0): 10})
    end_in_vain(world, transactions, result)
    if repeats_first:
        transactions.end(100, result)
        assert transactions.outcomes == []
    world.log.holds = False
    world.log.commit()
    assert (world.committed("g"), transactions.unstable()) == ({("t", 0): offset}, set())
    assert transactions.outcomes == [None] * repeats_first
    assert not world.writes.waiting()
    world.commit("g", {("t", 0): 20})
    transactions.end(100, result)
    assert transactions.outcomes == [None] * (1 + repeats_first)
    world.advance(TIMEOUT_MS)
    for _ in range(2):
        assert (world.committed("g"), transactions.unstable()) == ({("t", 0): 20}, set())
        world.restart()


@pytest.mark.parametrize(("result", "offset"), [(COMMIT, 10), (ABORT, 1)])
def test_a_marker_that_a_new_leader_has_cut_off_is_written_again(
    world: World, transactions: Transactions, result: TransactionResult, offset: int
) -> None:
    """Fails when an offset is pending for ever, or committed, because a marker that nobody has was
    taken for written."""
    world.commit("g", {("t", 0): 1})
    transactions.commit(100, {("t", 0): 10})
    end_in_vain(world, transactions, result)
    world.restart(loses_tail=True)
    assert (world.committed("g"), transactions.unstable()) == ({("t", 0): 1}, {("t", 0)})
    world.log.holds = False
    transactions.end(100, result)
    assert transactions.outcomes == [None]
    assert (world.committed("g"), transactions.unstable()) == ({("t", 0): offset}, set())


def test_a_marker_is_answered_once_when_the_log_refuses_it_too_late(
    world: World, transactions: Transactions
) -> None:
    """Fails when the answer to the first attempt is taken for that to the second one."""
    world.commit("g", {("t", 0): 1})
    transactions.commit(100, {("t", 0): 10})
    end_in_vain(world, transactions, COMMIT)
    world.log.lose()
    assert transactions.outcomes == []
    assert (world.committed("g"), transactions.unstable()) == ({("t", 0): 1}, {("t", 0)})


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("order", list(itertools.permutations([100, 101])))
def test_the_latest_record_counts_whatever_the_order_of_markers(
    world: World, transactions: Transactions, order: tuple[int, int], restarts: bool
) -> None:
    """Fails when offsets jump back because transactions end in another order than they wrote,
    or because somebody committed without one in between."""
    transactions.commit(100, {("t", 0): 10, ("t", 1): 10, ("t", 2): 10})
    world.commit("g", {("t", 0): 20})
    transactions.commit(101, {("t", 1): 30})
    for producer_id in order:
        transactions.end(producer_id, COMMIT)
    if restarts:
        world.restart()
    assert world.committed("g") == {("t", 0): 20, ("t", 1): 30, ("t", 2): 10}


def test_an_aborted_later_offset_leaves_the_earlier_one(
    world: World, transactions: Transactions
) -> None:
    """Fails when an offset that never counted keeps one that does from counting."""
    transactions.commit(100, {("t", 0): 10})
    transactions.commit(101, {("t", 0): 30})
    transactions.end(101, ABORT)
    transactions.end(100, COMMIT)
    assert world.committed("g") == {("t", 0): 10}


def test_a_tombstone_ends_pending_offsets(world: World, transactions: Transactions) -> None:
    """Fails when an offset that was deleted comes back with a transaction that began before."""
    world.commit("g", {("t", 0): 1})
    transactions.commit(100, {("t", 0): 10, ("t", 1): 11})
    done: list[object] = []
    world.groups.delete_offsets("g", [("t", [0, 1])], done.append)
    assert done == [[("t", [(0, ErrorCode.NONE), (1, ErrorCode.NONE)])]]
    assert transactions.unstable() == set()
    transactions.end(100, COMMIT)
    assert world.committed("g") == {}
    world.restart()
    assert world.committed("g") == {}


def test_a_deleted_group_takes_its_pending_offsets_along(
    world: World, transactions: Transactions
) -> None:
    """Fails when a group that was deleted is back when a transaction ends."""
    world.commit("g", {("t", 0): 1})
    transactions.commit(100, {("t", 0): 10, ("t", 1): 11})
    done: list[object] = []
    world.groups.delete_group("g", done.append)
    transactions.end(100, COMMIT)
    assert (done, world.committed("g")) == ([None], {})
    world.restart()
    assert (world.committed("g"), world.groups.list_groups([], [])) == ({}, [])


def test_pending_offsets_keep_their_group_and_do_not_expire(
    world: World, transactions: Transactions
) -> None:
    """Fails when time takes an offset, or its group, that a transaction is about to renew."""
    world.commit("g", {("t", 0): 1, ("t", 1): 1})
    transactions.commit(100, {("t", 0): 10})
    transactions.commit(101, {("t", 0): 10}, group_id="h")
    world.advance(8 * MINUTE_MS)
    world.groups.expire_offsets()
    world.run_deferred()
    assert world.committed("g") == {("t", 0): 1}
    assert [group.group_id for group in world.groups.list_groups([], [])] == ["g", "h"]
    transactions.end(100, COMMIT)
    transactions.end(101, ABORT)
    world.groups.expire_offsets()
    world.run_deferred()
    assert world.groups.list_groups([], []) == []


def test_the_end_of_a_topic_ends_its_pending_offsets(
    world: World, transactions: Transactions
) -> None:
    """Fails when a group begins a new topic of the old name where the old one ended."""
    transactions.commit(100, {("t", 0): 10, ("u", 0): 3})
    world.advance(1)
    world.groups.on_topics_deleted(frozenset({"t"}))
    world.run_deferred()
    transactions.end(100, COMMIT)
    assert world.committed("g") == {("u", 0): 3}


def test_markers_of_strangers_and_of_other_groups_change_nothing(
    world: World, transactions: Transactions
) -> None:
    """Fails when a marker decides about another producer's offsets."""
    transactions.commit(100, {("t", 0): 10})
    transactions.commit(101, {("t", 1): 11}, group_id="h")
    transactions.end(99, COMMIT)
    transactions.end(101, COMMIT)
    assert (world.committed("g"), world.committed("h")) == ({}, {("t", 1): 11})
    assert (transactions.unstable("g"), transactions.unstable("h")) == ({("t", 0)}, set())


def test_a_transactions_batch_is_its_own(world: World, transactions: Transactions) -> None:
    """Fails when commits of others get into a transaction with which they may be aborted."""
    answers: list[object] = []
    request = OffsetCommitRequest("g", "", None, -1, -1, commit_of(5), 9)
    world.groups.commit_offsets(request, answers.append, linger=True)
    transactions.commit(100, {("t", 0): 10})
    transactions.end(100, ABORT)
    assert world.log.appends == 3
    assert world.committed("g") == {("t", 0): 5}


def test_markers_are_refused_where_the_group_is_not_coordinated(
    world: World, transactions: Transactions
) -> None:
    """Fails when a transaction is called over that this broker has not ended."""
    transactions.commit(100, {("t", 0): 10})
    world.runtime.on_resigned(0)
    transactions.end(100, COMMIT)
    error = transactions.outcomes[-1]
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.NOT_COORDINATOR
