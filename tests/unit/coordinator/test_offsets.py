"""Committed offsets: who may commit, what is refused, deleted, and what expires (R23, KIP-211)."""

from collections.abc import Callable

import pytest
from tests.unit.coordinator.consumer.consumers import Consumer, ConsumerWorld
from tests.unit.coordinator.consumer.test_consumer_migration import subscription
from tests.unit.coordinator.fakes import Member, World, settle

from odradek.coordinator.offsets.requests import (
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
    TopicErrors,
)
from odradek.coordinator.records.group_records import GroupMetadataKey, GroupMetadataValue
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.errors import BrokerError, ErrorCode

MINUTE_MS = 60_000
RETENTION_MS = 7 * MINUTE_MS


def world_of(**settings: object) -> World:
    """A coordinator that keeps offsets for seven minutes."""
    return World(offsets_retention_minutes=7, **settings)


def reader(world: World, name: str, topics: list[str], **more: object) -> Member:
    """A consumer whose subscription can be read."""
    protocols = (("range", subscription(topics, {})),)
    return Member(world, name, protocols=protocols, **more)  # type: ignore[arg-type]


def code_of(outcome: object) -> ErrorCode:
    assert isinstance(outcome, BrokerError), outcome
    return outcome.code


def expire_after(world: World, duration_ms: int) -> None:
    world.advance(duration_ms)
    world.groups.expire_offsets()


def names(world: World) -> list[str]:
    return sorted(group.group_id for group in world.groups.list_groups([], []))


# Committing


def test_a_member_commits_in_its_own_generation_only() -> None:
    """Fails when a member that was left behind could move the offsets of its heirs."""
    world = world_of()
    anna = Member(world, "anna")
    settle(anna)
    assert world.commit("g", {("t", 0): 5}, anna) == [("t", [(0, ErrorCode.NONE)])]
    anna.generation_id -= 1
    assert code_of(world.commit("g", {("t", 0): 4}, anna)) is ErrorCode.ILLEGAL_GENERATION
    anna.generation_id += 2
    assert code_of(world.commit("g", {("t", 0): 4}, anna)) is ErrorCode.ILLEGAL_GENERATION
    anna.generation_id -= 1
    anna.member_id = "stranger"
    assert code_of(world.commit("g", {("t", 0): 4}, anna)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(world.commit("g", {("t", 0): 4})) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.committed("g") == {("t", 0): 5}


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_is_gone_is_told_so(version: int, code: ErrorCode) -> None:
    """Fails when a member without a group commits, or is told what its version does not know."""
    world = world_of()
    lost = Member(world, "lost")
    lost.member_id, lost.generation_id = "lost-1", 3
    assert code_of(world.commit("g", {("t", 0): 4}, lost, version=version)) is code
    assert names(world) == []


def test_who_only_assigns_itself_commits_without_a_group() -> None:
    """Fails when `assign`-only and old simple consumers cannot store offsets."""
    world = world_of()
    world.commit("g", {("t", 0): 5})
    (listed,) = world.groups.list_groups([], [])
    assert (listed.protocol_type, listed.state) == ("", "Empty")
    world.commit("", {("t", 0): 6})
    assert world.committed("") == {("t", 0): 6}


def test_while_members_are_called_together_they_may_commit_what_they_have() -> None:
    """Fails when a rebalance costs what was read before it, or the next owner is overrun."""
    world = world_of()
    anna, bert = Member(world, "anna"), Member(world, "bert")
    settle(anna)
    bert.join()
    assert anna.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.commit("g", {("t", 0): 5}, anna) == [("t", [(0, ErrorCode.NONE)])]
    anna.join()
    assert code_of(world.commit("g", {("t", 0): 6}, anna)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.committed("g") == {("t", 0): 5}


def test_a_commit_is_a_sign_of_life() -> None:
    """Fails when a member that commits is taken for dead."""
    world = world_of()
    anna = Member(world, "anna", session_timeout_ms=10_000)
    settle(anna)
    for offset in range(3):
        world.advance(9_000)
        world.commit("g", {("t", 0): offset}, anna)
    assert anna.beat() is ErrorCode.NONE


def test_metadata_that_is_too_long_is_refused_partition_by_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Fails when one partition's metadata costs the others their commit, or has no limit."""
    caplog.set_level("INFO")
    world = world_of(offset_metadata_max_bytes=10)
    fits = world.commit("g", {("t", 0): 5, ("u", 0): 6}, metadata="ä" * 10)
    assert fits == [("t", [(0, ErrorCode.NONE)]), ("u", [(0, ErrorCode.NONE)])]
    outcome = world.commit("g", {("t", 0): 7}, metadata="x" * 11)
    assert outcome == [("t", [(0, ErrorCode.OFFSET_METADATA_TOO_LARGE)])]
    assert world.committed("g") == {("t", 0): 5, ("u", 0): 6}
    assert "group g: metadata of 11 characters beside t-0 is too much (member none)" in caplog.text


@pytest.mark.parametrize("longest", ["x" * 32_767, "ü" * 16_383])
def test_metadata_that_no_record_has_room_for_is_refused_partition_by_partition(
    longest: str,
) -> None:
    """Fails when a setting that allows more than Kafka's format costs a whole request."""
    world = world_of(offset_metadata_max_bytes=100_000)
    too_large = [("t", [(0, ErrorCode.OFFSET_METADATA_TOO_LARGE)])]
    assert world.commit("g", {("t", 0): 7}, metadata=f"{longest}ü") == too_large
    assert world.commit("g", {("t", 0): 5}, metadata=longest) == [("t", [(0, ErrorCode.NONE)])]
    world.restart()
    assert world.committed("g") == {("t", 0): 5}


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63), -(2**40), 0])
def test_any_retention_that_a_client_may_set_is_stored(retention_ms: int) -> None:
    """Fails when the moment of an offset's expiry does not fit its record, or is none."""
    world = world_of()
    outcome = world.commit("g", {("t", 0): 5}, retention_ms=retention_ms)
    assert outcome == [("t", [(0, ErrorCode.NONE)])]
    world.restart()
    assert world.committed("g") == {("t", 0): 5}
    expire_after(world, 1000 * RETENTION_MS)
    assert world.committed("g") == ({("t", 0): 5} if retention_ms > 0 else {})


@pytest.mark.parametrize(
    ("partition", "offset", "leader_epoch"),
    [(2**31, 5, 0), (0, 2**63, 0), (0, -(2**63) - 1, 0), (0, 5, 2**31), (0, 5, -(2**31) - 1)],
)
def test_numbers_that_no_record_has_room_for_are_refused(
    partition: int, offset: int, leader_epoch: int
) -> None:
    """Fails when a number ends the append by an exception: nobody would be answered."""
    world = world_of()
    asked = OffsetCommitRequest(
        "g",
        "",
        None,
        -1,
        -1,
        [CommittedTopic("t", None, [CommittedPartition(partition, offset, leader_epoch, "")])],
        9,
    )
    answers: list[TopicErrors | BrokerError] = []
    world.groups.commit_offsets(asked, answers.append)
    assert [code_of(each) for each in answers] == [ErrorCode.INVALID_REQUEST]
    assert world.commit("g", {("t", 0): 5}) == [("t", [(0, ErrorCode.NONE)])]


# Deleting


def deleted(world: World, group_id: str, **topics: list[int]) -> TopicErrors | BrokerError:
    outcomes: list[TopicErrors | BrokerError] = []
    world.groups.delete_offsets(group_id, list(topics.items()), outcomes.append)
    (outcome,) = outcomes
    return outcome


def test_offsets_of_a_topic_that_is_read_are_not_deleted() -> None:
    """Fails when an administrator could take away what members are about to use."""
    world = world_of()
    anna = reader(world, "anna", ["t"])
    settle(anna)
    world.commit("g", {("t", 0): 5, ("u", 0): 6, ("u", 1): 7}, anna)
    assert deleted(world, "g", t=[0], u=[1, 2]) == [
        ("t", [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]),
        ("u", [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]),
    ]
    assert world.committed("g") == {("t", 0): 5, ("u", 0): 6}
    world.restart()
    assert world.committed("g") == {("t", 0): 5, ("u", 0): 6}


def test_without_members_all_offsets_may_be_deleted() -> None:
    """Fails when the offsets of a group that has stopped cannot be reset."""
    world = world_of()
    anna = reader(world, "anna", ["t"])
    settle(anna)
    world.commit("g", {("t", 0): 5}, anna)
    anna.leave()
    assert deleted(world, "g", t=[0]) == [("t", [(0, ErrorCode.NONE)])]
    assert world.committed("g") == {}


def test_members_whose_subscriptions_cannot_be_read_keep_all_offsets() -> None:
    """Fails when the offsets of a connect worker's live group could be deleted."""
    world = world_of()
    worker = Member(world, "worker", protocol_type="connect")
    settle(worker)
    assert code_of(deleted(world, "g", t=[0])) is ErrorCode.NON_EMPTY_GROUP
    worker.leave()
    assert deleted(world, "g", t=[0]) == [("t", [(0, ErrorCode.NONE)])]


def test_consumers_whose_subscriptions_cannot_be_read_keep_all_offsets() -> None:
    """Fails when live offsets are deleted because it is not known who reads them."""
    world = world_of()
    anna = Member(world, "anna", protocols=(("mine", b"my own format"),))
    settle(anna)
    world.commit("g", {("t", 0): 5}, anna)
    assert deleted(world, "g", t=[0]) == [("t", [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)])]
    assert world.committed("g") == {("t", 0): 5}
    anna.leave()
    assert deleted(world, "g", t=[0]) == [("t", [(0, ErrorCode.NONE)])]


def test_while_the_first_members_join_all_offsets_are_kept() -> None:
    """Fails when offsets that members are about to begin from can be deleted."""
    world = world_of(group_initial_rebalance_delay_ms=3_000)
    world.commit("g", {("t", 0): 5})
    reader(world, "anna", ["u"]).join()
    assert deleted(world, "g", t=[0]) == [("t", [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)])]


def test_a_consumer_groups_subscriptions_count() -> None:
    """Fails when the newer protocol's members lose the offsets that they use."""
    world = ConsumerWorld({"t": 1, "u": 1})
    Consumer(world, "anna", ["t"]).join()
    assert deleted(world, "g", t=[0], u=[0]) == [
        ("t", [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]),
        ("u", [(0, ErrorCode.NONE)]),
    ]


def test_offsets_of_an_unknown_group_are_not_deleted() -> None:
    """Fails when a misspelt group is reported as done."""
    assert code_of(deleted(world_of(), "none", t=[0])) is ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_are_deleted_when_nobody_is_in_them() -> None:
    """Fails when a live group can be deleted, or a deleted one comes back with a restart."""
    world = world_of()
    anna = Member(world, "anna")
    settle(anna)
    world.commit("g", {("t", 0): 5}, anna)
    outcomes: list[BrokerError | None] = []
    world.groups.delete_group("g", outcomes.append)
    assert code_of(outcomes.pop()) is ErrorCode.NON_EMPTY_GROUP
    anna.leave()
    world.groups.delete_group("g", outcomes.append)
    assert outcomes.pop() is None
    world.groups.delete_group("g", outcomes.append)
    assert code_of(outcomes.pop()) is ErrorCode.GROUP_ID_NOT_FOUND
    for _ in range(2):
        assert names(world) == []
        assert world.committed("g") == {}
        world.restart()


@pytest.mark.parametrize("linger", [False, True])
@pytest.mark.parametrize("topic", ["t", "u"])
def test_a_group_is_deleted_with_the_commits_on_their_way(topic: str, linger: bool) -> None:
    """Fails when a group that was deleted is back after a restart, with one of its offsets."""
    world = world_of()
    world.commit("g", {("t", 0): 5})
    world.log.holds = True
    world.commit("g", {(topic, 0): 6}, linger=linger)
    world.commit("h", {("t", 0): 7}, linger=linger)
    deleted: list[BrokerError | None] = []
    world.groups.delete_group("g", deleted.append)
    world.log.holds = False
    world.log.commit()
    assert deleted == [None]
    for _ in range(2):
        assert (world.committed("g"), names(world)) == ({}, ["h"])
        assert world.committed("h") == {("t", 0): 7}
        world.restart()


def test_a_group_is_deleted_beside_a_commit_that_is_lost() -> None:
    """Fails when a group stays because of an offset that never was."""
    world = world_of()
    world.commit("g", {("t", 0): 5})
    world.log.holds = True
    world.commit("g", {("u", 0): 6})
    held, world.log.held = world.log.held, []
    world.groups.delete_group("g", lambda outcome: None)
    for _, on_committed in held:
        on_committed(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR))
    world.log.holds = False
    world.log.commit()
    assert (world.committed("g"), names(world)) == ({}, [])


@pytest.mark.parametrize("linger", [False, True])
def test_an_offset_is_deleted_that_is_on_its_way(linger: bool) -> None:
    """Fails when an offset is there that was deleted after it had been committed."""
    world = world_of()
    world.commit("g", {("u", 0): 5})
    world.log.holds = True
    world.commit("g", {("t", 0): 6}, linger=linger)
    world.groups.delete_offsets("g", [("t", [0, 1])], lambda outcome: None)
    world.groups.flush()
    world.log.holds = False
    world.log.commit()
    for _ in range(2):
        assert world.committed("g") == {("u", 0): 5}
        world.restart()


def test_an_id_that_was_handed_out_keeps_no_group_from_being_deleted() -> None:
    """Fails when a client that asked for an id and went away keeps a group from being deleted;
    one that is still there begins anew."""
    world = world_of()
    anna = Member(world, "anna")
    anna.send_join()
    outcomes: list[BrokerError | None] = []
    world.groups.delete_group("g", outcomes.append)
    assert outcomes == [None]
    anna.send_join()
    assert anna.joined[-1].error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeats.delayed == 0


def test_the_offsets_of_deleted_topics_go() -> None:
    """Fails when a topic that is made anew inherits the offsets of the one before."""
    world = world_of()
    world.commit("g", {("t", 0): 5, ("u", 0): 6})
    world.commit("h", {("t", 1): 7})
    world.groups.on_topics_deleted(frozenset(["t"]))
    for _ in range(2):
        assert world.committed("g") == {("u", 0): 6}
        assert world.committed("h") == {}
        world.restart()


# Expiry


def only_stored(world: World) -> None:
    world.commit("g", {("t", 0): 5})


def left(world: World) -> None:
    anna = reader(world, "anna", ["t"])
    settle(anna)
    world.commit("g", {("t", 0): 5}, anna)
    anna.leave()


@pytest.mark.parametrize("begin", [only_stored, left])
def test_offsets_go_when_their_group_has_been_empty_for_their_retention(
    begin: Callable[[World], None],
) -> None:
    """Fails when offsets go too early, or stay, or their group stays for ever."""
    world = world_of()
    begin(world)
    expire_after(world, RETENTION_MS - 1)
    assert world.committed("g") == {("t", 0): 5}
    expire_after(world, 1)
    for _ in range(2):
        assert world.committed("g") == {}
        assert names(world) == []
        world.restart()


def test_retention_counts_from_when_the_group_became_empty() -> None:
    """Fails when a group that has run for long and stops for a moment loses its offsets."""
    world = world_of()
    anna = reader(world, "anna", ["t"], session_timeout_ms=1_800_000)
    settle(anna)
    world.commit("g", {("t", 0): 5}, anna)
    expire_after(world, 3 * RETENTION_MS)
    assert world.committed("g") == {("t", 0): 5}
    anna.leave()
    expire_after(world, RETENTION_MS - 1)
    world.restart()
    assert world.committed("g") == {("t", 0): 5}
    expire_after(world, 1)
    assert world.committed("g") == {}


@pytest.mark.parametrize("restarts", [1, 3])
def test_old_records_of_empty_groups_expire_by_their_commits(restarts: int) -> None:
    """Fails when a group whose record does not say since when it is empty keeps its offsets
    for as long as brokers are restarted."""
    world = world_of()
    world.commit("g", {("t", 0): 5})
    value = GroupMetadataValue("consumer", 3, None, None, -1, ())
    world.runtime.shard("g").services.append(
        [CoordinatorRecord(GroupMetadataKey("g"), value)], lambda _error: None
    )
    for _ in range(restarts):
        world.restart()
        world.advance(RETENTION_MS // restarts)
    world.advance(RETENTION_MS % restarts)
    assert world.committed("g") == {("t", 0): 5}
    world.groups.expire_offsets()
    assert (world.committed("g"), names(world)) == ({}, [])


def test_a_commit_renews_the_offsets_of_a_group_without_members() -> None:
    """Fails when a consumer that only assigns itself loses what it has just committed."""
    world = world_of()
    world.commit("g", {("t", 0): 5, ("t", 1): 5})
    world.advance(RETENTION_MS - 1)
    world.commit("g", {("t", 0): 6})
    expire_after(world, 1)
    assert world.committed("g") == {("t", 0): 6}
    assert names(world) == ["g"]


def test_a_live_group_loses_the_offsets_of_topics_that_it_has_given_up() -> None:
    """Fails when offsets of topics nobody reads stay, or those of topics that are read go."""
    world = world_of()
    anna = reader(world, "anna", ["t", "u"], session_timeout_ms=1_800_000)
    settle(anna)
    world.commit("g", {("t", 0): 5, ("u", 0): 6}, anna)
    expire_after(world, 2 * RETENTION_MS)
    assert world.committed("g") == {("t", 0): 5, ("u", 0): 6}
    anna.protocols = (("range", subscription(["t"], {})),)
    settle(anna)
    world.groups.expire_offsets()
    assert world.committed("g") == {("t", 0): 5}


@pytest.mark.parametrize("kind", ["consumer", "connect"])
def test_unreadable_subscriptions_keep_all_offsets(kind: str) -> None:
    """Fails when the offsets of a live group go because its members write what we cannot read."""
    world = world_of()
    member = Member(
        world,
        "m",
        protocol_type=kind,
        protocols=(("x", b"\0"),),
        session_timeout_ms=1_800_000,
    )
    settle(member)
    world.commit("g", {("t", 0): 5}, member)
    expire_after(world, 2 * RETENTION_MS)
    assert world.committed("g") == {("t", 0): 5}


def test_a_consumer_group_keeps_what_it_reads_and_loses_the_rest() -> None:
    """Fails when KIP-848 groups' offsets are kept or dropped by other rules than Kafka's."""
    world = ConsumerWorld({"t": 1, "u": 1}, offsets_retention_minutes=7)
    anna = Consumer(world, "anna", ["t"])
    anna.join()
    anna_commits = Member(world, "anna")
    anna_commits.member_id, anna_commits.generation_id = "anna", anna.epoch
    world.commit("g", {("t", 0): 5, ("u", 0): 6}, anna_commits)
    for _ in range(RETENTION_MS // 30_000):
        world.advance(30_000)
        anna.beat()
    world.groups.expire_offsets()
    assert world.committed("g") == {("t", 0): 5}
    anna.leave()
    world.groups.expire_offsets()
    assert world.committed("g") == {}
    assert names(world) == []


def test_an_old_client_may_set_the_retention_of_its_own_offset() -> None:
    """Fails when versions 2 to 4 of OffsetCommit are promised a retention that is not kept."""
    world = world_of()
    world.commit("g", {("t", 0): 5}, retention_ms=1_000, version=4)
    world.commit("g", {("t", 1): 6}, retention_ms=3 * RETENTION_MS, version=4)
    world.restart()
    expire_after(world, 999)
    assert world.committed("g") == {("t", 0): 5, ("t", 1): 6}
    expire_after(world, 1)
    assert world.committed("g") == {("t", 1): 6}
    expire_after(world, 3 * RETENTION_MS)
    assert world.committed("g") == {}


def test_a_group_without_offsets_and_members_goes() -> None:
    """Fails when every name that ever joined and left stays in memory and in the log."""
    world = world_of()
    anna = Member(world, "anna")
    settle(anna)
    anna.leave()
    world.groups.expire_offsets()
    world.restart()
    assert names(world) == []
