"""Commands, commits and loading, over a log that commits when the test says so."""

import pytest
from tests.unit.coordinator.fakes import Member, World, settle

from odradek.coordinator.consumer.requests import HeartbeatRequest
from odradek.coordinator.offsets.requests import (
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
)
from odradek.coordinator.runtime.partitioning import java_hash, partition_for
from odradek.errors import BrokerError, ErrorCode

OK = [("t", [(0, ErrorCode.NONE)])]


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [("my-group", 12), ("billing", 9), ("polygenelubricants", 0), ("g", 3)],
)
def test_groups_are_where_kafka_has_them(group_id, partition):
    """Fails when tools would look for a group on another partition."""
    assert partition_for(group_id, 50) == partition


def test_the_hash_is_over_utf16():
    """Fails when names beyond the basic plane go elsewhere than in Java."""
    assert java_hash("🧵") == 0xD83E * 31 + 0xDDF5


def test_a_commit_is_seen_and_answered_when_it_is_committed():
    """Fails when a commit is acknowledged, or shown, before the replicas have it."""
    world = World()
    world.log.holds = True
    assert world.commit("g", {("t", 0): 5}) is None
    assert world.committed("g") == {}
    world.log.commit()
    assert world.committed("g") == {("t", 0): 5}


def test_a_refused_append_changes_nothing():
    """Fails when state parts from the log."""
    world = World()
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    outcome = world.commit("g", {("t", 0): 5})
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.committed("g") == {}


def test_lingering_commits_share_an_append():
    """Fails when pipelined commits cost an append each."""
    world = World()
    answers = []
    for number in range(100):
        request = OffsetCommitRequest("g", "", None, -1, -1, commit_of(number), 9)
        world.groups.commit_offsets(request, answers.append, linger=True)
    assert answers == []
    world.groups.flush()
    assert answers == [OK] * 100
    assert world.log.appends == 1
    assert world.committed("g") == {("t", 0): 99}


def commit_of(offset):
    return [CommittedTopic("t", None, [CommittedPartition(0, offset, -1, "")])]


def test_loading_is_sliced_and_answered_meanwhile():
    """Fails when loading would hold the loop up, or a half-loaded partition would answer."""
    world = World()
    for number in range(50):
        world.commit("g", {("t", number % 7): number})
    before = world.committed("g")
    world.load_slice_bytes = 200
    world._build()
    assert len(world.deferred) == 1
    with pytest.raises(BrokerError) as refusal:
        world.committed("g")
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(BrokerError):
        world.groups.list_groups([], [])
    world.run_deferred()
    assert world.committed("g") == before


def test_a_lost_partition_is_refused_and_found_again():
    """Fails when a broker answers for a partition that it does not lead."""
    world = World()
    world.commit("g", {("t", 0): 5})
    world.runtime.on_resigned(0)
    with pytest.raises(BrokerError) as refusal:
        world.committed("g")
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    world.elect(epoch=1)
    assert world.committed("g") == {("t", 0): 5}


def test_who_waits_is_answered_when_the_partition_is_lost():
    """Fails when a client would wait for ever for an answer that cannot come."""
    world = World()
    anna, bert = (Member(world, name) for name in ("anna", "bert"))
    settle(anna)
    bert.join()
    world.runtime.on_resigned(0)
    assert bert.joined[-1].error_code is ErrorCode.NOT_COORDINATOR
    assert world.heartbeats.delayed == 0
    assert world.rebalances.delayed == 0


def test_a_commit_that_was_not_committed_in_time_is_refused():
    """Fails when a commit is acknowledged by a broker that has lost the partition."""
    world = World()
    world.log.holds = True
    outcomes = []
    request = OffsetCommitRequest("g", "", None, -1, -1, commit_of(5), 9)
    world.groups.commit_offsets(request, outcomes.append)
    world.runtime.on_resigned(0)
    assert outcomes == []
    world.log.lose()
    assert outcomes[0].code is ErrorCode.NOT_COORDINATOR


def test_exclusive_commands_of_a_group_wait_for_each_other():
    """Fails when a command would decide on a state that another is about to change."""
    world = World()
    world.commit("g", {("t", 0): 5})
    world.log.holds = True
    outcomes = []
    world.groups.delete_group("g", outcomes.append)
    world.groups.delete_group("g", outcomes.append)
    assert outcomes == []
    world.log.commit()
    assert outcomes[0] is None
    assert outcomes[1].code is ErrorCode.GROUP_ID_NOT_FOUND


def test_names_that_do_not_fit_are_refused_without_harm():
    """Fails when one client's oversized name would damage what others write."""
    world = World()
    outcome = world.commit("g" * 40_000, {("t", 0): 5})
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.INVALID_REQUEST
    assert world.commit("g", {("t", 0): 6}) == OK
    world.restart()
    assert world.committed("g") == {("t", 0): 6}


def test_a_commit_that_the_replicas_do_not_take_in_time_is_refused_in_time():
    """Fails when clients hang on slow replicas, or a commit that came through late is lost."""
    world = World(offsets_commit_timeout_ms=700)
    world.log.holds = True
    answers = []
    for linger in (False, True):
        request = OffsetCommitRequest("g", "", None, -1, -1, commit_of(5), 9)
        world.groups.commit_offsets(request, answers.append, linger=linger)
    world.groups.flush()
    world.advance(699)
    assert answers == []
    world.advance(1)
    assert [answer.code for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert world.committed("g") == {}
    world.log.commit()
    assert world.committed("g") == {("t", 0): 5}
    assert len(answers) == 2
    assert world.writes.delayed == 0


def test_a_commit_that_comes_through_has_no_time_out_left():
    """Fails when the timer keeps what was answered long ago."""
    world = World()
    world.log.holds = True
    outcomes = []
    request = OffsetCommitRequest("g", "", None, -1, -1, commit_of(5), 9)
    world.groups.commit_offsets(request, outcomes.append)
    (waiting,) = world.writes.waiting()
    assert (waiting.kind, waiting.missing) == ("DelayedWrite", "replicas of the internal topic")
    world.log.commit()
    assert outcomes == [OK]
    assert (world.writes.delayed, world.timer.size) == (0, 0)


def test_a_late_answer_does_not_let_the_next_command_look_too_early():
    """Fails when a command decides on a state that a late write is still about to change."""
    world = World()
    world.commit("g", {("t", 0): 5})
    world.log.holds = True
    outcomes = []
    world.groups.delete_group("g", outcomes.append)
    world.advance(4_999)
    world.groups.delete_group("g", outcomes.append)
    world.advance(1)
    assert [outcome.code for outcome in outcomes] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.log.commit()
    assert [outcome.code for outcome in outcomes[1:]] == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_while_a_partition_is_loaded_its_groups_are_asked_to_wait():
    """Fails when a member is told that it, or its group, is unknown by who cannot know yet."""
    world = World()
    anna = Member(world, "anna")
    settle(anna)
    world.commit("g", {("t", 0): 4}, anna)
    world.load_slice_bytes = 1
    world._build()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert anna.beat() is loading
    anna.send_join()
    anna.sync()
    assert (anna.joined[-1].error_code, anna.synced[-1].error_code) == (loading, loading)
    assert anna.leave() is loading
    outcomes = [world.commit("g", {("t", 0): 5}, anna)]
    world.groups.delete_group("g", outcomes.append)
    world.groups.delete_offsets("g", [("t", [0])], outcomes.append)
    heartbeat = HeartbeatRequest("g", "m", 0, rebalance_timeout_ms=1, owned={})
    world.groups.consumer_heartbeat(
        heartbeat._replace(subscribed_topic_names=frozenset("t")), 1, outcomes.append
    )
    assert [outcome.code for outcome in outcomes] == [loading] * 4
    for describe in (world.groups.describe_group, world.groups.describe_consumer_group):
        with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            describe("g")
    world.run_deferred()
    assert anna.beat() is ErrorCode.NONE


def test_heartbeats_leave_nothing_behind_in_the_timer():
    """Fails when signs of life, not silences, are what members cost the timer."""
    world = World()
    members = [Member(world, f"m{number}", f"g{number // 10}") for number in range(200)]
    for group in range(20):
        settle(*members[group * 10 : group * 10 + 10])
    for group in range(20):  # everybody joined one after the other: once more, together
        settle(*members[group * 10 : group * 10 + 10])
    for _ in range(20):
        world.advance(3_000)
        assert {member.beat() for member in members} == {ErrorCode.NONE}
        assert world.heartbeats.delayed == len(members)
    world.advance(9_999)
    assert {member.beat() for member in members} == {ErrorCode.NONE}
    world.advance(10_000)
    assert {member.beat() for member in members} == {ErrorCode.UNKNOWN_MEMBER_ID}
