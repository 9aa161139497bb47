"""A log that refuses what a coordinator decides, takes part of it, or takes its time.

Whatever is refused is tried again, or answered with an error and then has not happened; and what is
awaited of members follows from what is stored.
"""

import pytest
from tests.unit.coordinator.consumer.consumers import Consumer, ConsumerWorld, settle
from tests.unit.coordinator.consumer.test_consumer_migration import ClassicConsumer, classic_group
from tests.unit.coordinator.fakes import Member, World, sync_all
from tests.unit.coordinator.fakes import settle as settle_classic

from odradek.coordinator.classic.requests import LeavingMember
from odradek.coordinator.consumer.requests import HeartbeatRequest, HeartbeatResult
from odradek.coordinator.runtime.response_errors import response_code
from odradek.errors import BrokerError, ErrorCode

SESSION_MS = 45_000
WRITE_TIMEOUT_MS = 5_000
RETRY_MS = 500
REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld()


def pair(world: ConsumerWorld, **more: int) -> tuple[Consumer, Consumer]:
    """Two members that share the topic."""
    a, b = Consumer(world, "a", **more), Consumer(world, "b", **more)
    a.join()
    b.join()
    settle(a, b)
    assert (a.has, b.has) == ({"t": [0, 1]}, {"t": [2, 3]})
    return a, b


def live(world: ConsumerWorld, duration_ms: int, *consumers: Consumer) -> None:
    """Time passes, and these send heartbeats."""
    for _ in range(duration_ms // 3000):
        world.advance(3000)
        for consumer in consumers:
            consumer.beat()


def leave(world: World, *leaving: LeavingMember) -> list[list[ErrorCode] | BrokerError]:
    """One LeaveGroup; its answers, of which there should be one in the end."""
    answers: list[list[ErrorCode] | BrokerError] = []
    world.groups.leave("g", leaving, answers.append)
    return answers


# Members that are out


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_silent_member_is_dropped_when_the_log_takes_it(
    world: ConsumerWorld, refusal: ErrorCode
) -> None:
    """Fails when a dead member keeps its partitions because the log refused its end once."""
    _a, b = pair(world)
    live(world, SESSION_MS - 3000, b)
    world.log.refusal = refusal
    live(world, 6000, b)
    assert set(world.group().members) == {"a", "b"}
    world.log.refusal = None
    world.advance(RETRY_MS)
    assert set(world.group().members) == {"b"}
    settle(b)
    assert b.has == {"t": [0, 1, 2, 3]}


def test_a_member_that_comes_back_before_its_end_is_stored_stays(world: ConsumerWorld) -> None:
    """Fails when a member is dropped by a decision that was refused and is out of date."""
    a, b = pair(world)
    live(world, SESSION_MS - 3000, b)
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    live(world, 6000, b)
    world.log.refusal = None
    a.beat()
    live(world, SESSION_MS, a, b)
    assert (a.error, set(world.group().members)) == (None, {"a", "b"})


def test_a_member_that_clings_is_dropped_when_the_log_takes_it(world: ConsumerWorld) -> None:
    """Fails when partitions are never given back because one write was refused."""
    a, b = Consumer(world, "a", rebalance_timeout_ms=10_000), Consumer(world, "b")
    a.join()
    a.clings = True
    b.join()
    a.beat()
    live(world, 9000, a, b)
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    live(world, 3000, a, b)
    assert set(world.group().members) == {"a", "b"}
    world.log.refusal = None
    live(world, 3000, a, b)
    assert set(world.group().members) == {"b"}


def test_what_a_member_was_never_told_to_give_back_is_not_awaited(world: ConsumerWorld) -> None:
    """Fails when a member is dropped for a revocation that the log has refused."""
    a, b = Consumer(world, "a", rebalance_timeout_ms=10_000), Consumer(world, "b")
    a.join()
    a.clings = True
    b.join()
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    a.beat()
    assert a.error is not None
    world.log.refusal = None
    world.advance(10_000)
    assert set(world.group().members) == {"a", "b"}


def test_a_revocation_goes_on_when_its_end_is_refused(world: ConsumerWorld) -> None:
    """Fails when a member may keep what it should give back, since it once said that it had."""
    a, b = Consumer(world, "a", rebalance_timeout_ms=10_000), Consumer(world, "b")
    a.join()
    a.clings = True
    b.join()
    a.beat()
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    a.send(owned=a.assigned)
    world.log.refusal = None
    for _ in range(5):
        world.advance(3000)
        a.send()
        b.beat()
    assert set(world.group().members) == {"b"}


@pytest.mark.parametrize("epoch", [-1, -2])
def test_who_may_not_leave_is_out_with_its_session(world: ConsumerWorld, epoch: int) -> None:
    """Fails when a member that has said goodbye in vain stays for ever."""
    a = Consumer(world, "a", instance_id="one")
    a.join()
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    a.leave(epoch)
    assert a.error is not None
    assert a.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refusal = None
    world.advance(SESSION_MS)
    assert not world.group().members


def test_a_downgrade_that_is_refused_leaves_sessions_as_they_were(world: ConsumerWorld) -> None:
    """Fails when a classic member that dies after that keeps its partitions for ever."""
    (old,) = classic_group(world, "old")
    new, third = Consumer(world, "new"), Consumer(world, "third")
    new.join()
    old.follow()
    settle(new)
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    new.leave()
    world.log.refusal = None
    third.join()
    live(world, 12_000, third)
    assert set(world.group().members) == {"new", "third"}


def test_leaving_a_consumer_group_is_answered_when_it_has_happened(world: ConsumerWorld) -> None:
    """Fails when an administrator is told that a member is out that is still in."""
    pair(world)
    world.log.holds = True
    answers = leave(world, LeavingMember("a"), LeavingMember("nobody"))
    assert answers == []
    world.log.commit()
    assert answers == [[ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]]
    assert set(world.group().members) == {"b"}
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    (refused,) = leave(world, LeavingMember("b"))
    assert isinstance(refused, BrokerError)
    assert refused.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert set(world.group().members) == {"b"}


def test_several_members_leave_in_one_write(world: ConsumerWorld) -> None:
    """Fails when an answer says that all have left, and some are in after a crash."""
    pair(world)
    world.log.holds = True
    appends = world.log.appends
    leave(world, LeavingMember("a"), LeavingMember("b"), LeavingMember("a"))
    world.log.commit()
    assert world.log.appends == appends + 1
    assert not world.group().members


# Replicas that take their time


def test_a_heartbeat_counts_when_it_arrives(world: ConsumerWorld) -> None:
    """Fails when a stall of the replicas costs everybody his place who went on all the while."""
    a, b = pair(world)
    silent, late = Consumer(world, "silent"), Consumer(world, "late")
    silent.join()
    settle(a, b, silent)
    world.log.holds = True
    late.join()
    for _ in range(2 * SESSION_MS // 3000):
        world.advance(3000)
        for consumer in (a, b):
            consumer.send(owned=consumer.owned)
        late.send(
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=late.topics,
            owned={},
        )
    world.log.holds = False
    world.log.commit()
    assert set(world.group().members) == {"a", "b", "late"}


@pytest.mark.parametrize("comes_ms", [SESSION_MS - 5_000, SESSION_MS + 1])
def test_a_heartbeat_counts_though_it_is_not_heard(world: ConsumerWorld, comes_ms: int) -> None:
    """Fails when a member is dropped that was there before its end had its turn."""
    a = Consumer(world, "a")
    a.join()
    world.advance(SESSION_MS - 6_000)
    world.log.holds = True
    Consumer(world, "b").join()
    world.advance(comes_ms - (SESSION_MS - 6_000))
    a.send()
    world.advance(SESSION_MS + 2_000 - comes_ms)
    world.log.holds = False
    world.log.commit()
    world.advance(10_000)
    assert set(world.group().members) == {"a", "b"}


def test_a_member_that_is_not_listened_to_is_not_late(world: ConsumerWorld) -> None:
    """Fails when a stall of the replicas costs a member its place that has given back in time."""
    a, b = Consumer(world, "a", rebalance_timeout_ms=10_000), Consumer(world, "b")
    a.join()
    a.clings = True
    b.join()
    a.beat()
    world.log.holds = True
    Consumer(world, "c").join()
    for _ in range(10):
        world.advance(3000)
        a.send(owned=a.assigned)
        b.send()
    world.log.holds = False
    world.log.commit()
    a.clings = False
    a._own()
    world.advance(RETRY_MS)
    a.beat()
    live(world, 12_000, a, b)
    assert set(world.group().members) == {"a", "b", "c"}


@pytest.mark.parametrize("comes", [False, True])
def test_a_member_whose_request_had_no_turn_is_not_late(world: ConsumerWorld, comes: bool) -> None:
    """Fails when a stall that ends just behind the time-out of a revocation costs a member its
    place that gave back in time, but was refused once, and asks again behind its own end."""
    a, b = Consumer(world, "a", rebalance_timeout_ms=10_000), Consumer(world, "b")
    a.join()
    a.clings = True
    b.join()
    a.beat()
    world.log.holds = True
    Consumer(world, "c").join()
    world.advance(4_000)
    if comes:
        a.send(owned=a.assigned)
    world.advance(7_000)
    if comes:
        a.send(owned=a.assigned)
    world.log.holds = False
    world.log.commit()
    assert ("a" in world.group().members) == comes
    live(world, 12_000, b)
    assert set(world.group().members) == ({"a", "b", "c"} if comes else {"b", "c"})


def test_a_member_whose_request_had_no_turn_has_time_to_ask_again(world: ConsumerWorld) -> None:
    """Fails when a member is late that gave back in time, was refused for a stall, and asks again
    when the broker has had time to look for late members once more."""
    a, b = Consumer(world, "a", rebalance_timeout_ms=10_000), Consumer(world, "b")
    a.join()
    a.clings = True
    b.join()
    a.beat()
    world.log.holds = True
    Consumer(world, "c").join()
    world.advance(4_000)
    a.send(owned=a.assigned)
    world.advance(7_000)
    world.log.holds = False
    world.log.commit()
    world.advance(4 * RETRY_MS)
    assert "a" in world.group().members


def test_who_waits_for_his_turn_is_answered_in_time(world: ConsumerWorld) -> None:
    """Fails when a member hangs behind somebody else's write, until it takes itself for lost."""
    a, _b = pair(world)
    world.log.holds = True
    Consumer(world, "c").join()
    answers: list[HeartbeatResult | BrokerError] = []
    request = HeartbeatRequest("g", "a", a.epoch)
    world.groups.consumer_heartbeat(request, 1, answers.append)
    left = leave(world, LeavingMember("b"))
    world.advance(WRITE_TIMEOUT_MS - 1)
    assert (answers, left) == ([], [])
    world.advance(1)
    for answer in (answers[0], left[0]):
        assert isinstance(answer, BrokerError)
        assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.commit()
    assert len(answers) == len(left) == 1
    assert set(world.group().members) == {"a", "b", "c"}
    assert world.writes.delayed == 0


def test_a_sync_that_the_replicas_do_not_take_in_time_is_refused_in_time() -> None:
    """Fails when members wait for their assignment as long as a replica is slow."""
    world = World()
    anna = Member(world, "anna")
    anna.join()
    world.log.holds = True
    sync_all(anna)
    world.advance(WRITE_TIMEOUT_MS - 1)
    assert anna.synced == []
    world.advance(1)
    assert anna.synced[-1].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert anna.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    anna.join()
    sync_all(anna)
    world.log.holds = False
    world.log.commit()
    assert anna.synced[-1].assignment == b"anna"
    assert anna.beat() is ErrorCode.NONE
    assert world.writes.delayed == 0


@pytest.mark.parametrize("version", [3, 5])
def test_a_group_is_shown_when_it_is_stored(version: int) -> None:
    """Fails when a tool is shown a group that is gone with this coordinator."""
    world = World()
    world.log.holds = True
    anna = Member(world, "anna", version=version)
    anna.send_join()
    with pytest.raises(BrokerError, match="Group g not found") as caught:
        world.groups.describe_group("g")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.groups.list_groups([], []) == []
    world.log.holds = False
    world.log.commit()
    assert [each.group_id for each in world.groups.list_groups([], [])] == ["g"]
    assert world.groups.describe_group("g").group_id == "g"
    settle_classic(anna)
    assert anna.beat() is ErrorCode.NONE


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_group_that_is_refused_is_not_there(refusal: ErrorCode) -> None:
    """Fails when a member joins a group whose log is closed, and is told so when it syncs."""
    world = World()
    world.log.refusal = refusal
    anna = Member(world, "anna")
    anna.send_join()
    assert anna.joined[-1].error_code is response_code(refusal)
    assert world.groups.list_groups([], []) == []
    assert (world.rebalances.delayed, world.heartbeats.delayed) == (0, 0)
    world.log.refusal = None
    settle_classic(anna)
    assert anna.beat() is ErrorCode.NONE


def test_a_group_that_is_lost_answers_who_would_join_it() -> None:
    """Fails when a join is not answered, or twice, as its group's first record is lost."""
    world = World()
    world.log.holds = True
    members = [Member(world, name, version=3) for name in ("anna", "ben")]
    for each in members:
        each.send_join()
    world.runtime.on_resigned(0)
    world.log.lose()
    for each in members:
        assert [answer.error_code for answer in each.joined] == [ErrorCode.NOT_COORDINATOR]


def test_a_group_that_is_late_refuses_who_would_join_it() -> None:
    """Fails when a member waits for as long as a replica is slow."""
    world = World()
    world.log.holds = True
    anna = Member(world, "anna")
    anna.send_join()
    world.advance(WRITE_TIMEOUT_MS)
    assert [each.error_code for each in anna.joined] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.log.holds = False
    world.log.commit()
    settle_classic(anna)
    assert anna.beat() is ErrorCode.NONE


@pytest.mark.parametrize("takes_long", [False, True])
def test_the_last_member_has_left_when_that_is_stored(takes_long: bool) -> None:
    """Fails when a LeaveGroup is answered whose record another coordinator may not have."""
    world = World()
    anna, ben = Member(world, "anna"), Member(world, "ben")
    settle_classic(anna, ben)
    world.log.holds = True
    answers = leave(world, LeavingMember(anna.member_id), LeavingMember(ben.member_id))
    assert answers == []
    if takes_long:
        world.advance(WRITE_TIMEOUT_MS)
        assert [each.code for each in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        world.log.commit()
        assert len(answers) == 1
    else:
        world.log.commit()
        assert answers == [[ErrorCode.NONE, ErrorCode.NONE]]
    assert world.groups.describe_group("g").state == "Empty"


@pytest.mark.parametrize("refusal", REFUSALS)
def test_the_last_member_hears_that_its_leaving_is_not_stored(refusal: ErrorCode) -> None:
    """Fails when a member is told that it has left, and whoever loads the log waits for it."""
    world = World()
    anna = Member(world, "anna")
    settle_classic(anna)
    world.log.refusal = refusal
    (answer,) = leave(world, LeavingMember(anna.member_id))
    assert isinstance(answer, BrokerError)
    assert answer.code is response_code(refusal)
    assert world.groups.describe_group("g").state == "Empty"


def test_who_leaves_others_behind_is_answered_at_once() -> None:
    """Fails when a member waits for a write that is not there: those who go are not stored."""
    world = World()
    anna, ben = Member(world, "anna"), Member(world, "ben")
    settle_classic(anna, ben)
    world.log.holds = True
    assert leave(world, LeavingMember(anna.member_id), LeavingMember("nobody")) == [
        [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    ]


def test_a_static_member_that_comes_back_is_answered_in_time() -> None:
    """Fails when a restarted process hangs in its join, or stays without a session after it."""
    world = World()
    old = Member(world, "old", instance_id="one")
    settle_classic(old)
    world.log.holds = True
    new = Member(world, "new", instance_id="one")
    new.join()
    world.advance(WRITE_TIMEOUT_MS)
    assert new.joined[-1].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    new.join()
    world.log.holds = False
    world.log.commit()
    assert new.joined[-1].error_code is ErrorCode.NONE
    assert new.beat() is ErrorCode.NONE
    assert old.beat() is ErrorCode.FENCED_INSTANCE_ID
    world.advance(10_000)
    assert world.groups.describe_group("g").members == ()


# Groups that change their kind


def test_a_member_id_that_was_handed_out_keeps_nobody_from_the_newer_protocol(
    world: ConsumerWorld,
) -> None:
    """Fails when a join that never came keeps consumers of the newer protocol out for good."""
    Member(world, "m", version=5).send_join()
    a = Consumer(world, "a")
    a.join()
    assert (a.error, a.has) == (None, {"t": [0, 1, 2, 3]})


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "empty"])
def test_a_classic_join_finds_the_member_that_is_being_written(
    world: ConsumerWorld, is_known: bool
) -> None:
    """Fails when a member that has been told that it is in a group is not."""
    a = Consumer(world, "a")
    if is_known:
        a.join()
        a.leave()
    world.log.holds = True
    a.join()
    old = ClassicConsumer(world, "old")
    old.rejoin()
    world.log.holds = False
    world.log.commit()
    old.rejoin()
    assert set(world.group().members) == {"a", old.member_id}


def test_a_group_whose_end_is_refused_stays_what_it_is(world: ConsumerWorld) -> None:
    """Fails when a group is of one kind here and of another in the log."""
    a = Consumer(world, "a")
    a.join()
    a.leave()
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    old = Member(world, "old", version=3)
    old.join()
    assert old.joined[-1].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not world.group().members
    world.log.refusal = None
    settle_classic(old)
    assert old.beat() is ErrorCode.NONE
    world.restart()
    assert old.beat() is ErrorCode.NONE


def test_a_group_that_changes_its_kind_keeps_its_offsets_and_its_name(
    world: ConsumerWorld,
) -> None:
    """Fails when a group with offsets is not listed, since its first member may not join."""
    a = Consumer(world, "a")
    a.join()
    a.leave()
    world.commit("g", {("t", 0): 5})
    Member(world, "old", protocols=(), version=3).join()
    (listed,) = world.groups.list_groups([], [])
    assert (listed.group_id, listed.type) == ("g", "classic")
    world.restart()
    assert world.committed("g") == {("t", 0): 5}


# Whole or not at all


def big(count: int) -> dict[tuple[str, int], int]:
    return {("t", number): 1 for number in range(count)}


def test_a_commit_is_stored_whole_or_refused() -> None:
    """Fails when a commit is acknowledged of which the topic's limit has kept a part away."""
    world = World()
    world.log.max_bytes = 600_000
    outcome = world.commit("g", big(300), metadata="m" * 4000)
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert world.committed("g") == {}
    world.commit("g", big(100), metadata="m" * 4000)
    assert len(world.committed("g")) == 100


def test_a_group_is_stored_whole_or_refused(world: ConsumerWorld) -> None:
    """Fails when a member is told of an assignment that is stored in part."""
    world.set_topics(t=4, u=40_000)
    world.log.max_bytes = 100_000
    a = Consumer(world, "a", ("t", "u"))
    a.join()
    assert a.error is not None
    assert a.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.log.appends == 0


def test_commits_that_linger_share_batches_as_large_as_the_topic_takes() -> None:
    """Fails when commits that fit are refused because others came with them."""
    world = World()
    world.log.max_bytes = 3_000
    for number in range(10):
        world.commit(f"g{number}", big(10), linger=True)
    world.groups.flush()
    assert all(len(world.committed(f"g{number}")) == 10 for number in range(10))
    assert 1 < world.log.appends < 10


# Upkeep


def test_offsets_that_could_not_be_removed_with_their_topic_go_with_the_next_check() -> None:
    """Fails when a topic of the same name starts where the one before it ended."""
    world = World()
    world.commit("g", {("t", 0): 5, ("u", 0): 6})
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    world.groups.on_topics_deleted(frozenset({"t"}))
    world.run_deferred()
    assert ("t", 0) in world.committed("g")
    world.log.refusal = None
    world.advance(1)
    world.commit("h", {("t", 0): 1})
    world.groups.expire_offsets()
    world.run_deferred()
    assert (world.committed("g"), world.committed("h")) == ({("u", 0): 6}, {("t", 0): 1})


def test_expired_offsets_that_could_not_be_removed_go_with_the_next_check(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Fails when one refusal ends the expiry of offsets, or nobody hears of it."""
    world = World(offsets_retention_minutes=1)
    world.commit("g", {("t", 0): 5})
    world.advance(60_000)
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    world.groups.expire_offsets()
    world.run_deferred()
    assert world.committed("g") == {("t", 0): 5}
    assert "expired offsets are not removed: NOT_ENOUGH_REPLICAS" in caplog.text
    world.log.refusal = None
    world.groups.expire_offsets()
    world.run_deferred()
    assert (world.committed("g"), world.groups.list_groups([], [])) == ({}, [])


def test_upkeep_takes_as_many_batches_as_the_topic_makes_it() -> None:
    """Fails when a topic with a small limit keeps its offsets for ever."""
    world = World(offsets_retention_minutes=1)
    for number in range(40):
        world.commit("g", {("t", number): 5})
    world.advance(60_000)
    world.log.max_bytes = 300
    world.groups.expire_offsets()
    world.run_deferred()
    assert (world.committed("g"), world.groups.list_groups([], [])) == ({}, [])
