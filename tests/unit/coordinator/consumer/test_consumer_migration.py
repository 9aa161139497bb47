"""Groups that change their kind while members are in them, process by process."""

import pytest
from tests.unit.coordinator.consumer.consumers import Consumer, ConsumerWorld, settle
from tests.unit.coordinator.fakes import Member

from odradek.coordinator.classic.requests import LeavingMember
from odradek.coordinator.consumer.embedded_protocol import read_assignment, read_subscription
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)


def subscription(topics: list[str], owned: dict[str, list[int]]) -> bytes:
    """Version 1, as cooperative members write it."""
    partitions = tuple(TopicPartition(topic, n) for topic, some in owned.items() for n in some)
    return encode_subscription(Subscription(tuple(topics), partitions, version=1))


def whole_topic() -> bytes:
    """The assignment of all partitions of "t"."""
    partitions = tuple(TopicPartition("t", index) for index in range(4))
    return encode_assignment(Assignment(partitions, version=1))


class ClassicConsumer(Member):
    """A cooperative consumer of the classic protocol that reads "t"."""

    world: ConsumerWorld

    def __init__(self, world: ConsumerWorld, name: str, **more: object) -> None:
        super().__init__(world, name, protocols=(("coop", b""),), **more)
        self.owned: dict[str, list[int]] = {}

    def rejoin(self) -> None:
        self.protocols = (("coop", subscription(["t"], self.owned)),)
        self.join()

    def take(self) -> None:
        """Fetches the assignment of the generation that it has joined."""
        self.sync()
        code = self.synced[-1].error_code
        assert code is ErrorCode.NONE, code
        self.owned = {}
        for topic, index in read_assignment(self.synced[-1].assignment).partitions:
            self.owned.setdefault(topic, []).append(index)

    def follow(self) -> None:
        """Heartbeats, and joins again as long as it is asked to."""
        while self.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()
            self.take()


def classic_group(world: ConsumerWorld, *names: str) -> list[ClassicConsumer]:
    """Stable members, the first of which has given itself everything."""
    members = [ClassicConsumer(world, name) for name in names]
    for member in members:
        member.rejoin()
    world.advance(0)
    for member in members:
        if member.generation_id != world.runtime.shard("g").registry.get("g").generation_id:
            member.rejoin()
    for member in members:
        member.sync({members[0].member_id: whole_topic()} if member.leads else None)
    members[0].owned = {"t": [0, 1, 2, 3]}
    return members


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld()


def test_a_live_classic_group_is_upgraded_and_downgraded_again(world: ConsumerWorld) -> None:
    """If this fails, an application cannot be moved to the new protocol without an outage."""
    (old,) = classic_group(world, "old")
    world.commit("g", {("t", 0): 7}, old)
    new = Consumer(world, "new")
    new.join()
    assert (new.error, new.has) == (None, {})
    old.follow()
    assert old.owned == {"t": [0, 1]}
    settle(new)
    assert new.has == {"t": [2, 3]}
    assert (world.group().state_name, world.group().type) == ("Stable", "consumer")
    assert world.committed("g") == {("t", 0): 7}
    world.restart()
    assert old.beat() is ErrorCode.NONE

    new.leave()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    (listed,) = world.groups.list_groups([], [])
    assert (listed.type, listed.state) == ("classic", "PreparingRebalance")
    old.rejoin()
    assert old.leads
    old.sync({old.member_id: b"all"})
    assert old.synced[-1].assignment == b"all"
    assert world.committed("g") == {("t", 0): 7}


def test_a_classic_member_may_join_a_consumer_group(world: ConsumerWorld) -> None:
    new = Consumer(world, "new")
    new.join()
    old = ClassicConsumer(world, "old")
    old.rejoin()
    old.take()
    assert (old.joined[-1].leader_id, old.owned) == ("", {})
    settle(new)
    assert new.has == {"t": [0, 1]}
    old.follow()
    assert old.owned == {"t": [2, 3]}
    described = world.groups.describe_consumer_group("g")
    assert {each.member_id: each.is_classic for each in described.members} == {
        "new": False,
        old.member_id: True,
    }


def test_silent_classic_members_are_out_with_their_own_session(world: ConsumerWorld) -> None:
    (old,) = classic_group(world, "old")
    new = Consumer(world, "new")
    new.join()
    world.advance(10_000)
    assert set(world.group().members) == {"new"}
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("dies", [False, True])
def test_classic_members_live_while_an_upgrade_is_written(world: ConsumerWorld, dies: bool) -> None:
    """Fails when a stall of the replicas costs members their place who went on all the while."""
    (old,) = classic_group(world, "old")
    world.log.holds = True
    Consumer(world, "new").join()
    for _ in range(4):  # ends while the end of a session waits its turn
        world.advance(3000)
        assert old.beat() is ErrorCode.NONE
    world.log.holds = False
    world.log.commit()
    assert set(world.group().members) == {"new", old.member_id}
    world.advance(9_999)
    if not dies:
        assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(1)
    assert set(world.group().members) == ({"new"} if dies else {"new", old.member_id})


@pytest.mark.parametrize("comes", [False, True])
def test_a_join_of_a_classic_member_counts_when_it_arrives(
    world: ConsumerWorld, comes: bool
) -> None:
    """Fails when a stall of the replicas costs a member its place that was told to join again."""
    new, old = Consumer(world, "new"), ClassicConsumer(world, "old")
    new.join()
    old.rejoin()
    world.log.holds = True
    Consumer(world, "late").join()
    for _ in range(4):
        world.advance(3000)
        new.send()
        if comes:
            old.send_join()
    world.log.holds = False
    world.log.commit()
    assert (old.member_id in world.group().members) == comes


def test_an_upgrade_that_is_refused_leaves_sessions_as_they_were(world: ConsumerWorld) -> None:
    """Fails when a classic member is awaited by a group that there never was."""
    (old,) = classic_group(world, "old")
    sessions = world.heartbeats.delayed
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    new = Consumer(world, "new")
    new.join()
    assert new.error is not None
    world.log.refusal = None
    assert world.heartbeats.delayed == sessions + 1
    world.advance(9_999)
    assert old.beat() is ErrorCode.NONE
    world.advance(10_000)
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("comes", [False, True])
def test_a_join_counts_that_waits_for_an_upgrade_that_is_refused(
    world: ConsumerWorld, comes: bool
) -> None:
    """Fails when a classic member is out whose JoinGroup had come before its session was over."""
    (old,) = classic_group(world, "old")
    world.advance(9_000)
    world.log.holds = True
    Consumer(world, "new").join()
    if comes:
        old.send_join()
    world.advance(2_000)
    world.log.lose()
    world.log.holds = False
    assert old.beat() is (ErrorCode.NONE if comes else ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_classic_member_that_does_not_join_again_is_out_in_time(world: ConsumerWorld) -> None:
    """Its heartbeats come, but it keeps its partitions: that must not last."""
    (old,) = classic_group(world, "old")
    new = Consumer(world, "new")
    new.join()
    for _ in range(12):
        assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        new.beat()
        world.advance(5_000)
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    settle(new)
    assert new.has == {"t": [0, 1, 2, 3]}


def test_a_static_process_is_restarted_with_the_new_protocol(world: ConsumerWorld) -> None:
    """It takes its own place, with its partitions; nothing moves."""
    old = ClassicConsumer(world, "old", instance_id="one")
    old.rejoin()
    old.sync({old.member_id: whole_topic()})
    new = Consumer(world, "new", instance_id="one")
    new.join()
    assert (new.error, new.has) == (None, {"t": [0, 1, 2, 3]})
    assert set(world.group().members) == {"new"}
    assert old.beat() is ErrorCode.FENCED_INSTANCE_ID


def test_members_that_wait_in_a_rebalance_are_called_back(world: ConsumerWorld) -> None:
    old, other = classic_group(world, "old", "other")
    other.rejoin()
    answers = len(other.joined)
    Consumer(world, "new").join()
    assert len(other.joined) > answers
    assert other.joined[-1].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(world.group().members) == {"new", old.member_id, other.member_id}


def test_a_generation_that_crosses_an_upgrade_is_forgotten(world: ConsumerWorld) -> None:
    """Fails when a group changes its kind back with a restart, or leaves somebody waiting."""
    old, other = classic_group(world, "old", "other")
    world.log.holds = True
    old.rejoin()
    other.rejoin()
    assert old.leads
    new = Consumer(world, "new")
    new.join()  # not committed yet: to the others the group is a classic one
    other.sync()
    old.sync({old.member_id: b"", other.member_id: b""})
    waiting = len(other.synced)
    world.log.commit()
    assert [each.error_code for each in other.synced[waiting:]] == [ErrorCode.REBALANCE_IN_PROGRESS]
    members = {"new", old.member_id, other.member_id}
    assert set(world.group().members) == members
    world.log.holds = False
    world.restart()
    assert set(world.group().members) == members


def test_an_assignment_on_its_way_to_the_log_is_not_overlooked(world: ConsumerWorld) -> None:
    """Fails when an upgrade gives away what a member is about to be told that it has."""
    old = ClassicConsumer(world, "old")
    old.rejoin()
    world.advance(0)
    world.log.holds = True
    old.sync({old.member_id: whole_topic()})
    new = Consumer(world, "new")
    new.join()
    assert new.error is not None
    assert new.error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # it comes again
    world.log.commit()
    assert old.synced[-1].assignment == whole_topic()
    world.log.holds = False
    new.join()
    assert (new.error, new.has) == (None, {})


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_can_forbid_the_upgrade(policy: str) -> None:
    world = ConsumerWorld(group_consumer_migration_policy=policy)
    classic_group(world, "old")
    new = Consumer(world, "new")
    new.join()
    assert new.error is not None
    assert new.error.code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_the_policy_can_forbid_the_downgrade(policy: str) -> None:
    world = ConsumerWorld(group_consumer_migration_policy=policy)
    new = Consumer(world, "new")
    new.join()
    old = ClassicConsumer(world, "old")
    old.rejoin()
    old.take()
    new.leave()
    old.follow()
    assert (world.group().type, old.owned) == ("consumer", {"t": [0, 1, 2, 3]})


@pytest.mark.parametrize("others", [0, 1])
def test_a_static_process_is_restarted_with_the_old_protocol(
    world: ConsumerWorld, others: int
) -> None:
    """It takes the place of the last member of the new protocol: the group is a classic one."""
    new = Consumer(world, "new", instance_id="one")
    new.join()
    staying = [ClassicConsumer(world, f"old-{number}") for number in range(others)]
    for member in staying:
        member.rejoin()
        member.take()
    settle(new)
    world.commit("g", {("t", 0): 7}, staying[0] if staying else None)
    back = ClassicConsumer(world, "back", instance_id="one")
    back.rejoin()
    assert back.joined[-1].error_code is ErrorCode.NONE
    (listed,) = world.groups.list_groups([], [])
    assert listed.type == "classic"
    assert refused_epoch(new) is ErrorCode.GROUP_ID_NOT_FOUND
    back.sync()
    assert back.synced[-1].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    for member in (*staying, back):
        member.rejoin()
    everybody = [*staying, back]
    shares = {member.member_id: member.name.encode() for member in everybody}
    for member in everybody:
        member.sync(shares if member.leads else None)
    assert [member.synced[-1].assignment for member in everybody] == [
        member.name.encode() for member in everybody
    ]
    world.restart()
    assert [member.beat() for member in everybody] == [ErrorCode.NONE] * len(everybody)


def refused_epoch(consumer: Consumer) -> ErrorCode:
    consumer.beat()
    assert consumer.error is not None
    return consumer.error.code


def test_a_static_replacement_among_others_of_the_new_protocol_stays_mixed(
    world: ConsumerWorld,
) -> None:
    new, other = Consumer(world, "new", instance_id="one"), Consumer(world, "other")
    new.join()
    other.join()
    settle(new, other)
    had = new.has
    back = ClassicConsumer(world, "back", instance_id="one")
    back.rejoin()
    back.take()
    assert (world.group().type, back.owned) == ("consumer", had)


def test_the_last_new_member_that_goes_silent_makes_the_group_classic(
    world: ConsumerWorld,
) -> None:
    """Fails when a group whose new members all crashed stays where its old ones cannot follow."""
    new = Consumer(world, "new")
    new.join()
    old = ClassicConsumer(world, "old", session_timeout_ms=60_000)
    old.rejoin()
    old.take()
    world.advance(45_000)
    (listed,) = world.groups.list_groups([], [])
    assert (listed.type, listed.state) == ("classic", "PreparingRebalance")
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.rejoin()
    assert old.leads


def test_a_group_too_large_for_the_classic_protocol_is_not_downgraded() -> None:
    world = ConsumerWorld(group_max_size=1)
    new = Consumer(world, "new")
    new.join()
    for name in ("one", "two"):
        ClassicConsumer(world, name).rejoin()
    new.leave()
    assert (world.group().type, len(world.group().members)) == ("consumer", 2)


def ineligible(world: ConsumerWorld, what: str) -> None:
    """A stable classic group that cannot become a consumer group."""
    metadata, assignment = subscription(["t"], {}), b""
    if what == "malformed subscription":
        metadata = b"\0\1\0\0\0\5"
    elif what == "malformed assignment":
        assignment = b"\0\1\0"
    elif what == "assignor with data of its own":
        assignment = b"\0\1" + b"\0\0\0\0" + b"\0\0\0\3abc"
    kind = "connect" if what == "other protocol type" else "consumer"
    member = Member(world, "old", protocols=(("x", metadata),), protocol_type=kind)
    member.join()
    world.advance(0)
    member.sync({member.member_id: assignment})
    assert member.synced[-1].error_code is ErrorCode.NONE


@pytest.mark.parametrize(
    "what",
    [
        "malformed subscription",
        "malformed assignment",
        "assignor with data of its own",
        "other protocol type",
        "full",
    ],
)
def test_what_cannot_be_carried_over_is_not_upgraded(what: str) -> None:
    """Fails when an upgrade would lose what a classic group depends on, or break it half-way."""
    world = ConsumerWorld(group_consumer_max_size=1 if what == "full" else 10)
    ineligible(world, what)
    appends = world.log.appends
    new = Consumer(world, "new")
    new.join()
    assert new.error is not None
    assert new.error.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.log.appends == appends
    (listed,) = world.groups.list_groups([], [])
    assert (listed.type, listed.state) == ("classic", "Stable")


def test_wrong_claims_of_classic_members_are_refused(world: ConsumerWorld) -> None:
    Consumer(world, "new").join()
    old = ClassicConsumer(world, "old")
    old.rejoin()
    old.generation_id += 1
    assert old.beat() is ErrorCode.ILLEGAL_GENERATION
    old.member_id = "new"
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    stranger = Member(world, "connect", protocol_type="connect")
    stranger.join()
    assert stranger.joined[-1].error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\0\0\0\5", b"\0\0\0\0\0\1\0\1\xff"])
def test_malformed_subscriptions_are_refused(data: bytes) -> None:
    with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
        read_subscription(data)
    if data:
        with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
            read_assignment(data)


def test_an_assignment_that_comes_while_an_upgrade_is_written_is_not_stored(
    world: ConsumerWorld,
) -> None:
    """Fails when a group that was deleted is there again, with members that have long left, once
    its log has been compacted: the generation was written behind the end of the classic group."""
    old = ClassicConsumer(world, "old")
    old.rejoin()
    world.advance(0)
    world.log.holds = True
    new = Consumer(world, "new")
    new.join()
    old.sync({old.member_id: whole_topic()})
    assert old.synced == []
    world.log.holds = False
    world.log.commit()
    assert old.synced[-1].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    new.join()
    old.follow()
    world.groups.leave("g", [LeavingMember(old.member_id)], lambda _: None)
    new.leave()
    deleted: list[BrokerError | None] = []
    world.groups.delete_group("g", deleted.append)
    assert deleted == [None]
    world.log.compact(0)
    world.restart()
    assert world.groups.list_groups([], []) == []


def test_a_sync_counts_when_it_arrives(world: ConsumerWorld) -> None:
    """Fails when a stall costs a member its place that has asked for its assignment before its end
    had its turn."""
    new = Consumer(world, "new")
    new.join()
    old = ClassicConsumer(world, "old")
    old.rejoin()
    old.take()
    world.log.holds = True
    Consumer(world, "third").join()
    world.advance(10_001)
    old.sync()
    world.log.holds = False
    world.log.commit()
    assert set(world.group().members) == {"new", "third", old.member_id}


def test_a_member_whose_join_is_stored_late_has_come_back(world: ConsumerWorld) -> None:
    """Fails when a stall costs a member its place that was asked to join again, and has."""
    old = ClassicConsumer(world, "old", session_timeout_ms=30_000, rebalance_timeout_ms=10_000)
    old.rejoin()
    world.advance(0)
    old.sync({old.member_id: whole_topic()})
    new = Consumer(world, "new")
    new.join()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    world.log.holds = True
    old.rejoin()
    world.advance(6_000)
    assert old.joined[-1].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.holds = False
    world.log.commit()
    world.advance(5_000)
    assert set(world.group().members) == {"new", old.member_id}


@pytest.mark.parametrize(("is_join", "stall_ms"), [(True, 6_000), (False, 4_000)])
def test_a_member_that_does_not_come_back_behind_a_stall_is_late(
    world: ConsumerWorld, is_join: bool, stall_ms: int
) -> None:
    """Fails when a member that only sends heartbeats keeps its partitions for ever, since its
    JoinGroup had no turn, or for longer than it may, since its SyncGroup waited for one."""
    old = ClassicConsumer(world, "old", rebalance_timeout_ms=10_000)
    old.rejoin()
    world.advance(0)
    old.sync({old.member_id: whole_topic()})
    new = Consumer(world, "new")
    new.join()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    world.log.holds = True
    Consumer(world, "third").join()
    if is_join:
        old.rejoin()
    else:
        old.sync()
    world.advance(stall_ms)
    world.log.holds = False
    world.log.commit()
    for _ in range(6 if is_join else 3):
        old.beat()
        new.beat()
        world.advance(3_000)
    assert set(world.group().members) == {"new", "third"}


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_sessions_have_bounds_in_consumer_groups_too(
    world: ConsumerWorld, session_timeout_ms: int
) -> None:
    """Fails when a classic member may stay dead in a consumer group for as long as it likes."""
    Consumer(world, "a").join()
    old = ClassicConsumer(world, "old", session_timeout_ms=session_timeout_ms)
    old.rejoin()
    assert old.joined[-1].error_code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert set(world.group().members) == {"a"}
