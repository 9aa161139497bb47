"""A step of long work that raises: it ends itself, is heard of, and keeps no other waiting."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import pytest
from tests.unit.coordinator.consumer.consumers import Consumer, ConsumerWorld
from tests.unit.coordinator.fakes import ListLog, Member, World, settle
from tests.unit.coordinator.test_upkeep import RETENTION_MS
from tests.unit.coordinator.transactional.transactions import ORDERS, TransactionWorld

from odradek.background import do_each, do_each_in_turns
from odradek.clock import ManualClock
from odradek.coordinator.classic.requests import JoinResult, SyncResult
from odradek.coordinator.group_shard import GroupShard
from odradek.coordinator.offsets.requests import (
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
    TopicErrors,
)
from odradek.coordinator.records.group_records import GroupMetadataKey, GroupMetadataValue
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.records.record_codec import GroupRecordCodec
from odradek.coordinator.runtime.batches import EndMarker
from odradek.coordinator.runtime.partitioning import partition_for
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.runtime.shard import CoordinatorResult, CoordinatorShard, Uncommitted
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TransactionResult
from odradek.purgatory import DelayedOperationPurgatory
from odradek.timer import MockTimer

PARTITIONS = 4
FIRST = 0
"""The partition of which something raises: others come after it."""
GROUPS = {partition_for(name, PARTITIONS): name for name in "abcdefghijklmnop"}


@pytest.fixture
def world() -> World:
    world = World(PARTITIONS, offsets_retention_minutes=7)
    for name in GROUPS.values():
        for number in range(30):
            world.commit(name, {("t", number): number})
    return world


def turns(world: "World | RaisingWorld") -> list[Exception]:
    """Takes every turn of the loop, as a timer does; what was raised in them."""
    raised: list[Exception] = []
    while world.deferred:
        try:
            world.deferred.pop(0)()
        except Exception as error:  # noqa: BLE001 - the test's own
            raised.append(error)
    return raised


@pytest.mark.parametrize("error", [AssertionError("broken"), KeyError("ours")])
def test_a_load_that_raises_keeps_no_other_from_being_loaded(
    world: World, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when the groups of all other partitions are told for ever to wait for a load."""
    world.load_slice_bytes = 200
    world._build()
    world.log.raises[FIRST] = error
    assert turns(world) == [error]
    assert f"partition {FIRST} cannot be loaded: {error!r}" in caplog.text
    for partition, name in GROUPS.items():
        if partition == FIRST:
            with pytest.raises(BrokerError) as refusal:
                world.committed(name)
            assert refusal.value.code is ErrorCode.NOT_COORDINATOR
        else:
            assert len(world.committed(name)) == 30
    assert not world.runtime.is_loading
    world.log.raises.clear()
    world.elect(epoch=1)
    assert turns(world) == []
    assert len(world.committed(GROUPS[FIRST])) == 30


def test_a_sweep_that_raises_goes_on_with_the_other_shards(world: World) -> None:
    """Fails when what one shard holds against a cleanup keeps all others from it, or when nobody
    hears that this one is left: offsets of a deleted topic would stay in it for ever."""
    seen: list[int] = []
    refused: list[Exception] = []

    def work(shard: GroupShard, _: Uncommitted) -> Iterator[Sequence[CoordinatorRecord]]:
        yield ()
        if shard.partition == FIRST:
            raise ZeroDivisionError
        seen.append(shard.partition)
        yield ()

    world.runtime.sweep(work, refused.append)
    raised = turns(world)
    assert [type(each) for each in raised] == [ZeroDivisionError]
    assert refused == raised
    assert seen == [1, 2, 3]


def test_an_expiry_that_raises_goes_on_with_the_other_partitions(world: World) -> None:
    """Fails when offsets of all groups are kept for ever because those of one cannot go."""
    world.advance(RETENTION_MS)
    world.log.raises[FIRST] = AssertionError("broken")
    with pytest.raises(AssertionError, match="broken"):
        world.groups.expire_offsets()
    turns(world)
    left = {partition: len(world.committed(name)) for partition, name in GROUPS.items()}
    assert left == {FIRST: 30, 1: 0, 2: 0, 3: 0}


def test_what_was_to_be_forgotten_is_forgotten_beside_an_expiry_that_raises(world: World) -> None:
    """Fails when offsets of a deleted topic, whose removal was refused once, stay for ever."""
    world.advance(RETENTION_MS - 60_000)
    name = GROUPS[1]
    world.commit(name, {("gone", 0): 1, ("there", 0): 1})
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    world.groups.on_topics_deleted(frozenset({"gone"}))
    turns(world)
    world.log.refusal = None
    world.advance(60_000)
    world.log.raises[FIRST] = AssertionError("broken")
    with pytest.raises(AssertionError, match="broken"):
        world.groups.expire_offsets()
    turns(world)
    assert world.committed(name) == {("there", 0): 1}


def test_each_has_its_turn_and_a_broken_invariant_is_raised_before_all_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Fails when what ends the broker is hidden by what only ends a step."""
    errors: dict[int, Exception] = {2: KeyError(2), 3: AssertionError("three"), 4: OSError("disk")}
    seen: list[int] = []

    def work(number: int) -> None:
        seen.append(number)
        if number in errors:
            raise errors[number]

    with pytest.raises(AssertionError, match="three"):
        do_each(range(1, 6), work)
    assert seen == [1, 2, 3, 4, 5]
    assert "background work failed unexpectedly" in caplog.text
    do_each([1, 5], work)


def test_a_slice_that_raises_keeps_no_later_one_from_its_turn() -> None:
    """Fails when one topic of thousands keeps what comes behind it as it was."""
    seen: list[int] = []
    deferred: list[Callable[[], None]] = []

    def work(number: int) -> None:
        seen.append(number)
        if number == 2:
            raise KeyError(number)

    with pytest.raises(KeyError):
        do_each_in_turns(range(1, 8), work, 3, deferred.append)
    assert seen == [1, 2, 3]
    while deferred:
        deferred.pop()()
    assert seen == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("count", range(8))
def test_the_end_comes_once_after_the_last_item_although_items_raise(count: int) -> None:
    """Fails when a round whose last log raises counts as under way for good."""
    steps: list[int | str] = []
    deferred: list[Callable[[], None]] = []

    def work(number: int) -> None:
        steps.append(number)
        raise KeyError(number)

    def take(turn: Callable[[], None]) -> None:
        with suppress(KeyError):
            turn()

    take(
        partial(do_each_in_turns, range(count), work, 3, deferred.append, lambda: steps.append(""))
    )
    while deferred:
        take(deferred.pop())
    assert steps == [*range(count), ""]


@pytest.mark.parametrize("is_expiry", [False, True])
def test_upkeep_of_transactional_ids_that_raises_goes_on_with_the_others(is_expiry: bool) -> None:
    """Fails when one id's log keeps all later transactions of dead producers open, or their ids."""
    world = TransactionWorld(PARTITIONS, transactional_id_expiration_ms=1_000)
    for name in GROUPS.values():
        producer = world.producer(name=name, timeout_ms=5_000)
        if not is_expiry:
            world.add(producer, name=name)
    world.advance(5_001)
    world.log.raises[FIRST] = AssertionError("broken")
    upkeep = world.coordinator.expire_ids if is_expiry else world.coordinator.abort_timed_out
    with pytest.raises(AssertionError, match="broken"):
        upkeep()
    world.advance(0)
    world.log.raises.clear()
    for partition, name in GROUPS.items():
        if is_expiry:
            known = any(name in shard.transactions for shard in world.coordinator.shards())
            assert known == (partition == FIRST)
        else:
            assert world.state(name) == ("ONGOING" if partition == FIRST else "COMPLETE_ABORT")


def test_a_log_that_raises_leaves_no_commit_unanswered(world: World) -> None:
    """Fails when clients wait for a batch that nobody has, and that nobody will tell them of."""
    answers: list[TopicErrors | BrokerError] = []
    for offset in (7, 8):
        world.groups.commit_offsets(commit_of(offset), answers.append, linger=True)
    world.log.raises[FIRST] = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        world.groups.flush()
    codes = [each.code for each in answers if isinstance(each, BrokerError)]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    world.log.raises.clear()
    assert world.committed(GROUPS[FIRST])["t", 0] == 0
    world.commit(GROUPS[FIRST], {("t", 0): 5})
    assert world.committed(GROUPS[FIRST])["t", 0] == 5


def test_an_answer_that_raises_keeps_no_other_of_its_batch(world: World) -> None:
    """Fails when one connection that is broken takes the commits of all others with it."""

    def fail(_: object) -> None:
        raise ZeroDivisionError

    answers: list[TopicErrors | BrokerError] = []
    for on_done in (fail, answers.append):
        world.groups.commit_offsets(commit_of(7), on_done, linger=True)
    with pytest.raises(ZeroDivisionError):
        world.groups.flush()
    (answer,) = answers
    assert not isinstance(answer, BrokerError)


def commit_of(offset: int) -> OffsetCommitRequest:
    partitions = [CommittedPartition(0, offset, -1, "")]
    return OffsetCommitRequest(
        GROUPS[FIRST], "", None, -1, -1, [CommittedTopic("t", None, partitions)], 9
    )


# Exclusive commands


def fail(*_: object) -> None:
    raise ZeroDivisionError


RECORD = CoordinatorRecord(
    GroupMetadataKey(GROUPS[FIRST]), GroupMetadataValue("", 0, "", "", 0, ())
)

MARKER = EndMarker(7, 0, 0, TransactionResult.COMMIT, 0)
TIMEOUT_MS = 30_000


def touch(world: "World | RaisingWorld", name: str, on_done: Callable[[object], None]) -> None:
    """An exclusive command that writes."""
    world.runtime.execute(
        name, lambda _: CoordinatorResult([RECORD], None), on_done, exclusive=True, expires=True
    )


def code_of(outcome: object) -> ErrorCode | None:
    return outcome.code if isinstance(outcome, BrokerError) else None


@pytest.mark.parametrize("holds", [False, True])
def test_an_answer_that_raises_leaves_its_group_free(world: World, holds: bool) -> None:
    """Fails when a group, or a transactional id, is busy for ever after one mistake."""
    name, seen = GROUPS[FIRST], list[object]()
    world.log.holds = holds
    if holds:
        for on_done in (fail, seen.append, fail, seen.append):
            touch(world, name, on_done)
        world.log.holds = False
        with pytest.raises(ZeroDivisionError):
            world.log.commit()
    else:
        for on_done in (fail, seen.append, fail, seen.append):
            with suppress(ZeroDivisionError):
                touch(world, name, on_done)
    assert seen == [None, None]
    assert not world.runtime.is_busy(name)


@pytest.mark.parametrize("error", [AssertionError("broken"), KeyError("ours")])
def test_a_command_that_raises_in_its_turn_is_answered(world: World, error: Exception) -> None:
    """Fails when a request waits for ever that was queued behind another."""

    def command(_: GroupShard) -> CoordinatorResult[None]:
        raise error

    name, seen = GROUPS[FIRST], list[object]()
    world.log.holds = True
    touch(world, name, seen.append)
    world.runtime.execute(name, command, seen.append, exclusive=True, expires=True)
    touch(world, name, seen.append)
    world.log.holds = False
    with pytest.raises(type(error)):
        world.log.commit()
    assert [code_of(each) for each in seen] == [None, ErrorCode.UNKNOWN_SERVER_ERROR, None]
    assert not world.runtime.is_busy(name)


@pytest.mark.parametrize("is_marker", [False, True])
@pytest.mark.parametrize("lingers", [False, True])
def test_what_cannot_be_written_is_answered(world: World, lingers: bool, is_marker: bool) -> None:
    """Fails when a group is busy for ever with what never came into its log."""
    name, seen = GROUPS[FIRST], list[object]()
    if lingers:
        world.groups.commit_offsets(commit_of(8), seen.append, linger=True)
    world.log.raises[FIRST] = ZeroDivisionError()

    def write() -> None:
        if is_marker:
            world.groups.complete_transaction(FIRST, MARKER, TIMEOUT_MS, seen.append)
        else:
            touch(world, name, seen.append)

    with pytest.raises(ZeroDivisionError):
        write()
    assert {code_of(each) for each in seen} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert len(seen) == 1 + lingers
    world.log.raises.clear()
    touch(world, name, seen.append)
    assert seen[-1] is None
    assert not world.runtime.is_busy(name)


class RaisingShard(CoordinatorShard):
    """A state that cannot replay."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def replay(self, record: CoordinatorRecord, producer_id: int) -> None:
        if self.error is not None:
            raise self.error

    def replay_end_transaction_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        result: TransactionResult,
    ) -> None:
        if self.error is not None:
            raise self.error

    def on_loaded(self) -> None: ...

    def on_unloaded(self) -> None: ...


class RaisingWorld:
    """A runtime of such a shard."""

    def __init__(self) -> None:
        self.log = ListLog()
        self.deferred: list[Callable[[], None]] = []
        self.runtime = CoordinatorRuntime[RaisingShard](
            self.log,
            GroupRecordCodec(),
            ManualClock(),
            self.deferred.append,
            lambda: 1,
            lambda *_: RaisingShard(),
            RuntimeSettings(),
            DelayedOperationPurgatory("w", MockTimer(), 0),
        )
        self.runtime.on_elected(0, 0)


@pytest.mark.parametrize("error", [AssertionError("broken"), KeyError("ours")])
@pytest.mark.parametrize("kind", ["exclusive", "shared", "marker"])
def test_what_cannot_be_replayed_ends_the_broker(kind: str, error: Exception) -> None:
    """Fails when a broker answers from a state that is not what its log says."""
    world, seen = RaisingWorld(), list[object]()
    runtime = world.runtime
    world.log.holds = True
    if kind == "marker":
        runtime.complete_transaction(0, MARKER, TIMEOUT_MS, seen.append)
    elif kind == "shared":
        runtime.execute("g", lambda _: CoordinatorResult([RECORD], None), seen.append)
    for _ in range(2):
        touch(world, "g", seen.append)
    runtime.shard("g").error = error
    world.log.holds = False
    world.log.commit()
    first, *others = [code_of(each) for each in seen]
    assert first is ErrorCode.UNKNOWN_SERVER_ERROR
    assert others == [ErrorCode.NOT_COORDINATOR] * (1 if kind == "exclusive" else 2)
    with pytest.raises(BrokerError, match="NOT_COORDINATOR"):
        runtime.shard("g")
    (raised,) = turns(world)
    assert isinstance(raised, AssertionError), "that is what halts a broker"
    assert f"partition 0 cannot be replayed: {error!r}" in str(raised)
    runtime.on_elected(0, 1)
    touch(world, "g", seen.append)
    assert seen[-1] is None


def test_who_waits_hears_of_a_resignation_beside_one_that_raises(world: World) -> None:
    """Fails when one answer that cannot be given keeps those behind it waiting for ever."""
    name, seen = GROUPS[FIRST], list[object]()
    world.log.holds = True
    for on_done in (seen.append, fail, seen.append):
        touch(world, name, on_done)
    with pytest.raises(ZeroDivisionError):
        world.runtime.on_resigned(FIRST)
    world.log.lose()
    codes = [code_of(each) for each in seen]
    assert codes == [ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER]


class Broken(Member):
    """A member whose answers cannot be given."""

    def _on_joined(self, result: JoinResult) -> None:
        super()._on_joined(result)
        if result.error_code is not ErrorCode.MEMBER_ID_REQUIRED:
            raise ZeroDivisionError


def test_members_hear_of_a_resignation_beside_one_that_raises() -> None:
    """Fails when consumers wait for a coordinator that has moved, by a mistake about another."""
    world = World()
    waiting: list[Member] = []
    for group_id in ("g", "h"):
        settle(Member(world, "a", group_id), Member(world, "b", group_id))
        waiting += [Broken(world, "broken", group_id), Member(world, "c", group_id)]
    for member in waiting:
        member.join()
        assert member.joined[-1].error_code is ErrorCode.MEMBER_ID_REQUIRED
    with pytest.raises(ZeroDivisionError):
        world.runtime.on_resigned(0)
    assert {each.joined[-1].error_code for each in waiting} == {ErrorCode.NOT_COORDINATOR}


def test_members_hear_of_a_generation_beside_one_that_raises() -> None:
    """Fails when all others wait for a generation that has begun, until their time-outs."""
    world = World()
    first, broken, last = Member(world, "a"), Broken(world, "broken"), Member(world, "c")
    settle(first)
    broken.join()
    last.join()
    with suppress(ZeroDivisionError):
        first.send_join()
    for member in (first, broken, last):
        assert (member.joined[-1].error_code, member.generation_id) == (ErrorCode.NONE, 2)


def test_members_are_assigned_beside_one_that_raises() -> None:
    """Fails when all others wait for what they are to read, until their time-outs."""
    world = World()
    leader, *others = (Member(world, name) for name in "abc")
    settle(leader)
    for member in others:
        member.join()
    leader.send_join()
    others[0].synced = Unheard()
    for member in others:
        member.sync()
    with suppress(ZeroDivisionError):
        leader.sync({leader.member_id: b"x"})
    assert [each.error_code for each in others[1].synced] == [ErrorCode.NONE]


class Unheard(list[SyncResult]):
    """Takes no answer."""

    def append(self, _result: SyncResult) -> None:
        raise ZeroDivisionError


def test_who_waits_for_replicas_hears_that_it_is_late_beside_one_that_raises(world: World) -> None:
    """Fails when a commit waits for replicas without an end, by a mistake about another one."""
    answers: list[TopicErrors | BrokerError] = []
    world.log.holds = True
    for on_done in (fail, answers.append):
        world.groups.commit_offsets(commit_of(7), on_done, linger=True)
    world.groups.flush()
    with suppress(ZeroDivisionError):
        world.advance(world.config["offsets.commit.timeout.ms"])
    assert [code_of(each) for each in answers] != []


# Markers


@pytest.mark.parametrize("first", [True, False])
def test_markers_that_raise_are_sent_again(first: bool) -> None:
    """Fails when an id stays in PREPARE, and its producer without a next transaction, for ever."""
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.leaders.holds = not first
    if first:
        world.leaders.raises = KeyError("ours")
        with pytest.raises(KeyError):
            world.end(producer)
    else:
        world.end(producer)
        world.leaders.refusals[ORDERS] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        world.leaders.holds = False
        world.leaders.release()
        world.leaders.raises = KeyError("ours")
    for _ in range(3):
        assert world.state() == "PREPARE_COMMIT"
        (waiting,) = world.markers.waiting()
        assert waiting.missing == f"markers in {ORDERS}"
        with suppress(KeyError):
            world.advance(100)
    world.leaders.raises = None
    world.advance(100)
    assert world.state() == "COMPLETE_COMMIT"
    assert not world.markers.waiting()


def test_an_end_that_cannot_be_written_is_written_again() -> None:
    """Fails when an id stays in PREPARE because writing that it has ended raised once."""
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.leaders.holds = True
    world.end(producer)
    world.log.raises[0] = KeyError("ours")
    with pytest.raises(KeyError):
        world.leaders.release()
    world.log.raises.clear()
    assert world.state() == "PREPARE_COMMIT"
    world.advance(100)
    assert world.state() == "COMPLETE_COMMIT"


def test_a_member_whose_end_raises_is_dropped_later() -> None:
    """Fails when a dead member keeps its partitions by one mistake in a task of the timer."""
    groups = ConsumerWorld()
    Consumer(groups, "a").join()
    groups.log.raises[0] = KeyError("ours")
    with suppress(KeyError):
        groups.advance(45_000)
    groups.log.raises.clear()
    assert set(groups.group().members) == {"a"}
    groups.advance(500)
    assert not groups.group().members
