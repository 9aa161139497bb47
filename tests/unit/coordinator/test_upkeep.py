"""Loading and sweeping, which look at everything, let the broker do its other work meanwhile."""

import logging
import struct

import pytest
from tests.unit.coordinator.consumer.consumers import Consumer, ConsumerWorld
from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.test_runtime import OK, commit_of

from odradek.coordinator.group_shard import GroupShard
from odradek.coordinator.offsets.requests import OffsetCommitRequest
from odradek.coordinator.offsets.store import SLICE_OFFSETS
from odradek.coordinator.records.record_codec import GroupRecordCodec
from odradek.coordinator.runtime.partitioning import partition_for
from odradek.coordinator.runtime.shard import CoordinatorResult
from odradek.errors import BrokerError, ErrorCode
from odradek.model import NO_PRODUCER_ID
from odradek.records.builder import RecordBatchBuilder

RETENTION_MS = 7 * 60_000
MANY = 2 * SLICE_OFFSETS + SLICE_OFFSETS // 2


@pytest.fixture
def world() -> World:
    return World(offsets_retention_minutes=7)


def turn(world: World) -> None:
    """One turn of the loop: what was deferred until now runs."""
    deferred, world.deferred[:] = list(world.deferred), []
    for action in deferred:
        action()


def group_ids(world: World) -> list[str]:
    return [group.group_id for group in world.groups.list_groups([], [])]


def test_expiry_of_a_large_group_is_sliced(world: World) -> None:
    """Fails when expiry holds the loop up, takes what came meanwhile, or leaves the group."""
    world.commit("g", {("t", number): 1 for number in range(MANY)})
    world.advance(RETENTION_MS)
    world.groups.expire_offsets()
    assert len(world.committed("g")) == MANY - SLICE_OFFSETS
    world.commit("g", {("t", MANY - 1): 2})
    turn(world)
    assert len(world.committed("g")) == MANY - 2 * SLICE_OFFSETS
    world.run_deferred()
    assert world.committed("g") == {("t", MANY - 1): 2}
    world.advance(RETENTION_MS)
    world.groups.expire_offsets()
    assert group_ids(world) == []
    world.restart()
    assert group_ids(world) == []


def test_a_large_group_goes_with_its_last_slice(world: World) -> None:
    """Fails when a group outlives its offsets because they went in several slices."""
    world.commit("g", {("t", number): 1 for number in range(MANY)})
    world.commit("h", {("t", 0): 1})
    world.advance(RETENTION_MS)
    world.groups.expire_offsets()
    assert group_ids(world) == ["g", "h"]
    world.run_deferred()
    assert group_ids(world) == []


def test_small_groups_share_a_slice(world: World) -> None:
    """Fails when every group costs an append and a turn of its own."""
    for number in range(100):
        world.commit(f"g{number}", {("t", 0): 1})
    before = world.log.appends
    world.advance(RETENTION_MS)
    world.groups.expire_offsets()
    assert group_ids(world) == []
    assert world.log.appends == before + 1


def test_offsets_of_deleted_topics_go_slice_by_slice(world: World) -> None:
    """Fails when the deletion of a topic holds the loop up, or takes what the next topic of the
    name has stored meanwhile."""
    world.commit("g", {("t", number): 1 for number in range(MANY)} | {("u", 0): 1})
    world.groups.on_topics_deleted(frozenset(["t"]))
    assert len(world.committed("g")) == MANY + 1 - SLICE_OFFSETS
    world.advance(1)
    world.commit("g", {("t", MANY - 1): 2})
    world.run_deferred()
    assert world.committed("g") == {("t", MANY - 1): 2, ("u", 0): 1}


def test_a_sweep_ends_where_the_partition_is_lost(world: World) -> None:
    """Fails when a broker goes on to write to a partition that another leads."""
    world.commit("g", {("t", number): 1 for number in range(MANY)})
    world.advance(RETENTION_MS)
    world.groups.expire_offsets()
    before = world.log.appends
    world.runtime.on_resigned(0)
    turn(world)
    assert world.deferred == []
    assert world.log.appends == before


def test_partitions_are_loaded_one_slice_a_turn() -> None:
    """Fails when fifty partitions hold the loop up fifty times as long as one, or a small one
    has to wait for the large."""
    world = World(partitions=3)
    groups = {partition_for(name, 3): name for name in ("a", "b", "c")}
    for partition in (0, 1):
        for number in range(20):
            world.commit(groups[partition], {("t", number): number})
    world.commit(groups[2], {("t", 0): 1})
    world.load_slice_bytes = 200
    world._build()
    assert world.committed(groups[2]) == {("t", 0): 1}
    shards = [context.shard for context in world.runtime._contexts.values()]
    loaded = [known(shard) for shard in shards]
    assert loaded[0] < 20
    turn(world)
    assert len(world.deferred) == 1
    assert sum(was != is_ for was, is_ in zip(loaded, map(known, shards), strict=True)) == 1
    with pytest.raises(BrokerError) as refusal:
        world.committed(groups[0])
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.run_deferred()
    assert [known(shard) for shard in shards] == [20, 20, 1]


def known(shard: GroupShard | None) -> int:
    """How many offsets the shard has seen."""
    assert shard is not None
    store = shard.offset_store
    return sum(1 for group_id in store.group_ids() for _ in store.keys(group_id))


def test_a_partition_lost_while_it_is_loaded_is_left_alone() -> None:
    """Fails when loading goes on for a shard that is gone, or stops for those that wait."""
    world = World(partitions=2)
    groups = {partition_for(name, 2): name for name in ("a", "b")}
    for group_id in groups.values():
        for number in range(20):
            world.commit(group_id, {("t", number): number})
    world.load_slice_bytes = 200
    world._build()
    lost = world.runtime._contexts[0].shard
    before = known(lost)
    world.runtime.on_resigned(0)
    world.run_deferred()
    assert known(lost) == before
    assert len(world.committed(groups[1])) == 20
    world.elect(epoch=1)
    world.run_deferred()
    assert len(world.committed(groups[0])) == 20


def test_records_of_unknown_kinds_are_passed_over(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when a directory of a newer Kafka, with streams groups, cannot be loaded,
    or each of its records fills the log."""
    builder = RecordBatchBuilder()
    for kind in (9, 17, 17, 99):
        builder.append(0, struct.pack(">hh", kind, 1) + b"s", b"\x00\x00\x01")
    world.log.append(0, bytearray(builder.build()), lambda _error: None)
    world.commit("g", {("t", 0): 5})
    with caplog.at_level(logging.WARNING):
        world.restart()
    assert world.committed("g") == {("t", 0): 5}
    kinds = [line for line in caplog.messages if "of unknown kind" in line]
    assert [line.split()[4] for line in kinds] == ["9", "17", "99"]


@pytest.mark.parametrize("kind", range(18))
def test_every_kind_that_can_be_read_is_replayed(world: World, kind: int) -> None:
    """Fails when a kind of record is read that the groups do not know what to do with."""
    names = struct.pack(">h", 1) + b"g"
    key = struct.pack(">h", kind) + 2 * names + bytes(4)
    record = GroupRecordCodec().decode(key, None)
    if record is not None:
        world.runtime.shard("g").replay(record, NO_PRODUCER_ID)
    assert (record is None) == (kind in (9, 17))


# With replicas that take their time


@pytest.mark.parametrize("linger", [False, True])
def test_expiry_does_not_take_what_is_about_to_be_renewed(world: World, linger: bool) -> None:
    """Fails when an acknowledged commit is removed for the age of the one that it replaced."""
    world.commit("g", {("t", 0): 1, ("t", 1): 1})
    world.advance(RETENTION_MS)
    world.log.holds = True
    answers: list[object] = []
    request = OffsetCommitRequest("g", "", None, -1, -1, commit_of(2), 9)
    world.groups.commit_offsets(request, answers.append, linger=linger)
    world.groups.expire_offsets()
    world.groups.flush()
    world.log.commit()
    assert answers == [OK]
    assert world.committed("g") == {("t", 0): 2}
    for _ in range(2):
        assert group_ids(world) == ["g"]
        world.log.holds = False
        world.restart()


def test_expiry_does_not_take_a_group_that_is_about_to_have_an_offset(world: World) -> None:
    """Fails when an offset is left without a group: not listed, not deleted, never expired."""
    world.commit("g", {("t", 0): 1})
    world.advance(RETENTION_MS)
    world.log.holds = True
    world.commit("g", {("t", 1): 2})
    world.groups.expire_offsets()
    world.log.commit()
    assert (world.committed("g"), group_ids(world)) == ({("t", 1): 2}, ["g"])


def test_expiry_does_not_take_a_group_that_somebody_is_joining() -> None:
    """Fails when a consumer's heartbeat is answered for a group that is gone."""
    world = ConsumerWorld(offsets_retention_minutes=7)
    world.commit("g", {("t", 0): 1})
    world.advance(RETENTION_MS)
    world.log.holds = True
    anna = Consumer(world, "anna")
    anna.join()
    world.groups.expire_offsets()
    world.log.commit()
    assert world.group().members.keys() == {"anna"}


def test_the_end_of_a_topic_does_not_take_what_its_heir_is_given(world: World) -> None:
    """Fails when the commit for a new topic goes with those for the old one of its name."""
    world.commit("g", {("t", 0): 1, ("t", 1): 1})
    world.log.holds = True
    world.commit("g", {("t", 1): 2})
    world.advance(1)
    world.commit("g", {("t", 0): 3})
    deleted_ms = world.clock.wall_ms() - 1
    world.runtime.sweep(
        lambda shard, uncommitted: shard.upkeep.delete_topics(
            frozenset({"t"}), deleted_ms, uncommitted
        ),
        pytest.fail,
    )
    world.log.commit()
    assert world.committed("g") == {("t", 0): 3}


def test_of_two_ends_of_a_topic_that_are_refused_the_later_counts(world: World) -> None:
    """Fails when a third topic of the name begins with the offsets of the second."""
    world.commit("g", {("t", 0): 1, ("u", 0): 1})
    world.log.holds = True
    world.groups.on_topics_deleted(frozenset({"t"}))
    world.advance(1_000)
    world.commit("g", {("t", 0): 2})
    world.advance(1_000)
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    world.groups.on_topics_deleted(frozenset({"t"}))
    (_, first_ended), (_, committed) = world.log.held
    first_ended(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR))
    committed(None)
    world.log.held.clear()
    world.log.holds, world.log.refusal = False, None
    assert world.committed("g") == {("t", 0): 2, ("u", 0): 1}
    world.groups.expire_offsets()
    world.run_deferred()
    assert world.committed("g") == {("u", 0): 1}


def test_the_end_of_a_topic_counts_in_what_is_being_loaded(world: World) -> None:
    """Fails when a new topic of the name begins with the offsets of the one that was deleted."""
    for number in range(50):
        world.commit("g", {("t", number): 1, ("u", number): 1})
    world.load_slice_bytes = 200
    world._build()
    assert world.runtime.is_loading
    world.groups.on_topics_deleted(frozenset({"t"}))
    world.run_deferred()
    world.groups.expire_offsets()
    world.run_deferred()
    assert {topic for topic, _ in world.committed("g")} == {"u"}


def end_alone(world: World, group_id: str) -> None:
    """The group ends in the log, and its offsets do not, as with other brokers than ours."""
    group = world.runtime.shard(group_id).registry.get(group_id)
    assert group is not None
    ended = CoordinatorResult(group.tombstones(), None)
    world.runtime.execute(group_id, lambda _shard: ended, lambda _outcome: None)


def test_an_offset_that_outlived_its_group_is_not_forgotten(world: World) -> None:
    """Fails when an offset without a group stays for ever."""
    world.commit("g", {("t", 1): 2})
    end_alone(world, "g")
    assert (world.committed("g"), group_ids(world)) == ({("t", 1): 2}, [])
    world.advance(RETENTION_MS)
    world.groups.expire_offsets()
    world.run_deferred()
    assert world.committed("g") == {}


def test_loading_finds_a_group_for_every_offset(world: World) -> None:
    """Fails when offsets whose group's records were removed cannot be listed after a load."""
    world.commit("g", {("t", 1): 2})
    end_alone(world, "g")
    world.restart()
    assert (world.committed("g"), group_ids(world)) == ({("t", 1): 2}, ["g"])
