"""Requests that members should not send, and that networks and crashes send for them.

In every case three things are held: the sender gets Kafka's error code, the others go on, and
the log says who and why.
"""

from collections.abc import Callable

import pytest
from tests.unit.coordinator.consumer.consumers import Consumer, ConsumerWorld
from tests.unit.coordinator.fakes import Member, World, settle, sync_all

from odradek.coordinator.classic.requests import LeavingMember
from odradek.errors import BrokerError, ErrorCode

PLENTY = 10_000


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("INFO", "odradek.coordinator")
    return caplog


@pytest.fixture
def world() -> World:
    return World()


def stable(world: World, *names: str, **more: object) -> list[Member]:
    """A group in its first common generation; the first member leads."""
    members = [Member(world, name, **more) for name in names]  # type: ignore[arg-type]
    settle(*members)
    if len(members) > 1:
        members[0].join()
        settle(*members)
    return members


def goes_on(*members: Member) -> None:
    """The members come to a common generation with what they do on their own."""
    for _ in range(3):
        for member in members:
            if member.beat() is not ErrorCode.NONE:
                member.join()
        members[0].world.advance(0)
        sync_all(*members)
    assert [member.beat() for member in members] == [ErrorCode.NONE] * len(members)
    assert len({member.generation_id for member in members}) == 1


# Strangers, and the past


def test_unknown_members_are_refused_everywhere(
    world: World, log: pytest.LogCaptureFixture
) -> None:
    """Fails when somebody who is no member can act as one, or disturbs those who are."""
    anna, bert = stable(world, "anna", "bert")
    stranger = Member(world, "stranger")
    stranger.member_id, stranger.generation_id = "stranger-1", anna.generation_id
    stranger.send_join()
    assert stranger.joined[-1].error_code is ErrorCode.UNKNOWN_MEMBER_ID
    stranger.sync({anna.member_id: b"mine"})
    assert stranger.synced[-1].error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    outcome = world.commit("g", {("t", 0): 1}, stranger)
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.UNKNOWN_MEMBER_ID
    for request in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit"):
        assert f"group g: {request} of member stranger-1" in log.text
    assert [anna.beat(), bert.beat()] == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.parametrize("distance", [-1, 1, 1000])
def test_other_generations_are_refused(
    world: World, log: pytest.LogCaptureFixture, distance: int
) -> None:
    """Fails when a member acts on an assignment that is not, or not yet, the group's."""
    anna, bert = stable(world, "anna", "bert")
    bert.generation_id += distance
    bert.sync()
    assert bert.synced[-1].error_code is ErrorCode.ILLEGAL_GENERATION
    assert bert.beat() is ErrorCode.ILLEGAL_GENERATION
    outcome = world.commit("g", {("t", 0): 1}, bert)
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.ILLEGAL_GENERATION
    known = anna.generation_id
    assert f"generation {known + distance}, the group is in {known}" in log.text
    assert bert.member_id in log.text
    goes_on(anna, bert)


def test_a_sync_before_the_join_is_refused(world: World) -> None:
    """Fails when a member without a generation gets, or gives, an assignment."""
    early = Member(world, "early", "h")
    early.sync()
    assert early.synced[-1].error_code is ErrorCode.UNKNOWN_MEMBER_ID
    early.send_join()
    early.sync({early.member_id: b"mine"})
    assert early.synced[-1].error_code is ErrorCode.UNKNOWN_MEMBER_ID
    anna, bert = stable(world, "anna", "bert")
    anna.join()
    bert.sync()
    assert bert.synced[-1].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    goes_on(anna, bert)


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("connect", (("range", b"m"),)),
        ("", (("range", b"m"),)),
        ("consumer", (("other", b"m"),)),
        ("consumer", ()),
    ],
)
def test_who_speaks_something_else_does_not_join(
    world: World,
    log: pytest.LogCaptureFixture,
    protocol_type: str,
    protocols: tuple[tuple[str, bytes], ...],
) -> None:
    """Fails when members that cannot understand each other are put into one group."""
    (anna,) = stable(world, "anna")
    other = Member(world, "other", protocol_type=protocol_type, protocols=protocols)
    other.join()
    assert other.joined[-1].error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "JoinGroup of member to be (client other at /127.0.0.1) is refused" in log.text
    assert anna.beat() is ErrorCode.NONE
    if not protocol_type or not protocols:
        alone = Member(
            world, "alone", "h", protocol_type=protocol_type, protocols=protocols, version=3
        )
        alone.join()
        assert alone.joined[-1].error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.groups.describe_group("h").state == "Empty"
        world.groups.expire_offsets()
        assert [each.group_id for each in world.groups.list_groups([], [])] == ["g"]


def test_a_sync_for_another_protocol_is_refused(world: World) -> None:
    """Fails when a member would use an assignment made for an assignor that it has not got."""
    anna, bert = stable(world, "anna", "bert")
    bert.protocol_type = "connect"
    bert.sync()
    assert bert.synced[-1].error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    bert.protocol_type = "consumer"
    goes_on(anna, bert)


@pytest.mark.parametrize("session_timeout_ms", [-1, 0, 5_999, 1_800_001])
def test_sessions_have_bounds(
    world: World, log: pytest.LogCaptureFixture, session_timeout_ms: int
) -> None:
    """Fails when a member may keep its partitions for ever, or overrun us with heartbeats."""
    member = Member(world, "m", session_timeout_ms=session_timeout_ms)
    member.join()
    assert member.joined[-1].error_code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert "INVALID_SESSION_TIMEOUT" in log.text
    for allowed in (6_000, 1_800_000):
        stable(world, f"m{allowed}", group_id=str(allowed), session_timeout_ms=allowed)


# Names, metadata, numbers


@pytest.mark.parametrize("metadata", [b"", b"\xff" * 900_000])
def test_metadata_is_the_members_own_business(world: World, metadata: bytes) -> None:
    """Fails when metadata that cannot be read, or is huge, ends more than it should."""
    member = Member(world, "m", protocols=(("range", metadata),))
    other = Member(world, "other")
    settle(member, other)
    member.join()
    settle(member, other)
    assert member.beat() is ErrorCode.NONE
    assert dict.fromkeys(member.joined[-1].members)
    world.restart()
    goes_on(member, other)


def test_a_group_that_does_not_fit_the_log_is_not_stable(
    world: World, log: pytest.LogCaptureFixture
) -> None:
    """Fails when members act on an assignment that was not stored, or never hear of it."""
    anna, bert = stable(world, "anna", "bert")
    anna.join()
    bert.join()
    world.log.refusal = ErrorCode.MESSAGE_TOO_LARGE
    sync_all(bert, anna)
    assert [each.synced[-1].error_code for each in (bert, anna)] == [
        ErrorCode.UNKNOWN_SERVER_ERROR
    ] * 2
    assert "group g: assignment not stored" in log.text
    world.log.refusal = None
    goes_on(anna, bert)


@pytest.mark.parametrize("what", ["group", "instance", "client", "protocol"])
def test_a_name_that_does_not_fit_the_log_harms_nobody_else(
    world: World, log: pytest.LogCaptureFixture, what: str
) -> None:
    """Fails when one member's endless name keeps its group from ever storing a generation."""
    (anna,) = stable(world, "anna")
    long = "ü" * 16_400
    other = Member(
        world,
        long if what == "client" else "other",
        long if what == "group" else "g",
        instance_id=long if what == "instance" else None,
        protocols=(("range", b"m"), (long if what == "protocol" else "roundrobin", b"m")),
    )
    other.join()
    assert other.joined[-1].error_code is ErrorCode.INVALID_REQUEST
    assert "a name of 32800 bytes" in log.text
    goes_on(anna)


def test_the_longest_names_that_fit_are_stored(world: World) -> None:
    """Fails when a name is accepted that the log then cannot take."""
    long = "x" * 32_730
    member = Member(world, long, long, protocols=((long, b"m"),), protocol_type=long)
    settle(member)
    world.restart()
    assert member.beat() is ErrorCode.NONE


@pytest.mark.parametrize(
    "group_id", ["g", " ", "ü-🧵", "a/b", "..", "\x00\n", "группа", "g" * 10_000]
)
def test_a_group_may_have_any_name(group_id: str) -> None:
    """Fails when a name that Kafka takes is refused, or is found elsewhere after a restart."""
    world = World(partitions=7)
    (member,) = stable(world, "m", group_id=group_id)
    world.commit(group_id, {("t", 0): 5}, member)
    world.restart()
    assert member.beat() is ErrorCode.NONE
    assert world.committed(group_id) == {("t", 0): 5}
    assert world.groups.describe_group(group_id).state == "Stable"


def test_members_need_a_group_with_a_name(world: World) -> None:
    """Fails when the group without a name, which old consumers store offsets in, gets members."""
    member = Member(world, "m", "")
    member.send_join()
    assert member.joined[-1].error_code is ErrorCode.INVALID_GROUP_ID
    member.sync()
    assert member.synced[-1].error_code is ErrorCode.INVALID_GROUP_ID
    assert member.beat() is ErrorCode.INVALID_GROUP_ID
    assert member.leave() is ErrorCode.INVALID_GROUP_ID


# Crowds


def test_ten_thousand_members_at_once() -> None:
    """Fails when a crowd is not served, or each member costs a walk over all others."""
    world = World(group_initial_rebalance_delay_ms=3_000)
    world.log.max_bytes = 10_000_000
    members = [Member(world, f"m{number}") for number in range(PLENTY)]
    for member in members:
        member.join()
    world.advance(3_000)
    world.advance(3_000)
    assert {member.generation_id for member in members} == {1}
    sync_all(*members)
    assert all(member.synced[-1].assignment == member.name.encode() for member in members)
    assert world.log.appends == 2  # that there is a group, and its generation
    leaving = [LeavingMember(member.member_id) for member in members]
    left: list[ErrorCode] = []
    world.groups.leave("g", leaving, lambda codes: left.extend(codes))  # type: ignore[arg-type]
    assert left == [ErrorCode.NONE] * PLENTY
    assert world.groups.describe_group("g").state == "Empty"


def test_a_full_group_takes_nobody_else(log: pytest.LogCaptureFixture) -> None:
    """Fails when the limit does not hold, or those who are in lose their place."""
    world = World(group_max_size=2)
    anna, bert = stable(world, "anna", "bert")
    carl = Member(world, "carl")
    carl.join()
    assert carl.joined[-1].error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "client carl at /127.0.0.1" in log.text
    goes_on(anna, bert)


# Leaders


def test_a_leader_that_assigns_to_strangers(world: World, log: pytest.LogCaptureFixture) -> None:
    """Fails when an assignment to nobody is stored, or those whom it forgets hear nothing."""
    anna, bert = stable(world, "anna", "bert")
    anna.join()
    bert.join()
    bert.sync()
    anna.sync({"nobody": b"all", anna.member_id: b"some"})
    assert (anna.synced[-1].assignment, bert.synced[-1].assignment) == (b"some", b"")
    assert f"leader {anna.member_id} assigns to unknown members, ignored: nobody" in log.text
    world.restart()
    assert {each.assignment for each in world.groups.describe_group("g").members} == {b"some", b""}
    goes_on(anna, bert)


def test_a_follower_that_brings_an_assignment(world: World) -> None:
    """Fails when somebody else than the leader decides who reads what."""
    anna, bert = stable(world, "anna", "bert")
    anna.join()
    bert.join()
    bert.sync({bert.member_id: b"everything"})
    assert not [each for each in bert.synced[-1:] if each.assignment == b"everything"]
    anna.sync({bert.member_id: b"its share"})
    assert bert.synced[-1].assignment == b"its share"


def test_a_leader_that_never_syncs_is_dropped(world: World, log: pytest.LogCaptureFixture) -> None:
    """Fails when one process that hangs after its join keeps its group from working."""
    anna, bert = stable(world, "anna", "bert", rebalance_timeout_ms=20_000)
    anna.join()
    bert.join()
    bert.sync()
    for _ in range(5):
        world.advance(4_000)
        anna.beat()
    assert bert.synced[-1].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert f"group g: member {anna.member_id} did not sync generation" in log.text
    assert anna.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    bert.join()
    assert bert.leads
    goes_on(bert)


# Members that vanish


def before_its_second_join(member: Member) -> None:
    member.send_join()


def while_its_join_waits(member: Member) -> None:
    member.join()


def before_its_sync(member: Member) -> None:
    member.join()


def while_its_sync_waits(member: Member) -> None:
    member.join()
    member.sync()


def when_it_is_stable(member: Member) -> None:
    member.join()


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize(
    "vanish",
    [
        before_its_second_join,
        while_its_join_waits,
        before_its_sync,
        while_its_sync_waits,
        when_it_is_stable,
    ],
)
def test_a_member_that_vanishes_at_any_step(
    world: World,
    log: pytest.LogCaptureFixture,
    vanish: Callable[[Member], None],
    static: bool,
) -> None:
    """Fails when a crash at one of the steps leaves its group waiting, or a member for ever."""
    anna, bert = stable(world, "anna", "bert", rebalance_timeout_ms=15_000)
    lost = Member(
        world, "lost", instance_id="lost" if static else None, rebalance_timeout_ms=15_000
    )
    vanish(lost)
    if vanish is not before_its_second_join and vanish is not while_its_join_waits:
        anna.join()
        bert.join()
    if vanish is when_it_is_stable:
        sync_all(anna, bert, lost)
        assert lost.beat() is ErrorCode.NONE
    for _ in range(80):
        world.advance(4_500)
        for member in (anna, bert):
            if member.beat() is not ErrorCode.NONE:
                member.join()
        sync_all(anna, bert)
    group = world.groups.describe_group("g")
    assert (group.state, len(group.members)) == ("Stable", 2)
    goes_on(anna, bert)
    if lost.member_id:
        assert lost.member_id in log.text


@pytest.mark.parametrize("holds", [False, True])
def test_a_replaced_static_member_that_vanishes_is_out_with_its_session(
    world: World, holds: bool
) -> None:
    """Fails when a process that took a static member's place and died keeps its partitions
    until somebody else touches it."""
    stable(world, "anna", instance_id="one")
    world.log.holds = holds
    again = Member(world, "anna", instance_id="one")
    again.send_join()
    world.log.commit()
    world.log.holds = False
    assert again.joined[-1].error_code is ErrorCode.NONE
    world.advance(9_999)
    assert len(world.groups.describe_group("g").members) == 1
    world.advance(1)
    assert world.groups.describe_group("g").members == ()


def test_a_rebalance_waits_for_who_was_given_an_id(world: World) -> None:
    """Fails when a member that comes back with its id at once finds a generation begun without
    it, and has everybody called together again (KIP-394)."""
    (anna,) = stable(world, "anna")
    bert, carl = Member(world, "bert"), Member(world, "carl")
    bert.send_join()
    carl.join()
    anna.join()
    assert carl.joined[-1].error_code is ErrorCode.MEMBER_ID_REQUIRED
    bert.send_join()
    assert anna.generation_id == bert.generation_id == carl.generation_id == 2


def test_a_lost_answer_to_a_first_join_leaves_no_member_behind(world: World) -> None:
    """Fails when clients without ids, which join again and again, fill the group up (KIP-394)."""
    for _ in range(100):
        Member(world, "impatient").send_join()
    world.advance(10_000)
    world.groups.expire_offsets()
    assert world.groups.list_groups([], []) == []
    for _ in range(3):
        Member(world, "old", version=3).send_join()
    world.advance(300_000)
    world.groups.expire_offsets()
    assert world.groups.list_groups([], []) == []


# Topics and rebalances


def test_commits_during_a_rebalance_do_not_disturb_it(world: World) -> None:
    """Fails when a commit ends a wait, or is lost in one."""
    anna, bert = stable(world, "anna", "bert")
    anna.join()
    assert world.commit("g", {("t", 0): 5}, bert) == [("t", [(0, ErrorCode.NONE)])]
    assert world.groups.describe_group("g").state == "PreparingRebalance"
    bert.join()
    outcome = world.commit("g", {("t", 0): 6}, bert)
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.REBALANCE_IN_PROGRESS
    sync_all(anna, bert)
    assert world.commit("g", {("t", 0): 7}, bert) == [("t", [(0, ErrorCode.NONE)])]
    assert world.committed("g") == {("t", 0): 7}


# The newer protocol


def test_strangers_to_a_consumer_group_are_told_and_logged(log: pytest.LogCaptureFixture) -> None:
    """Fails when refusals of the newer protocol leave no trace."""
    world = ConsumerWorld()
    anna = Consumer(world, "anna")
    anna.join()
    stranger = Consumer(world, "stranger")
    for epoch, code in ((1, ErrorCode.UNKNOWN_MEMBER_ID), (-1, ErrorCode.UNKNOWN_MEMBER_ID)):
        stranger.epoch = epoch
        stranger.beat()
        assert stranger.error is not None
        assert stranger.error.code is code
    assert "ConsumerGroupHeartbeat of member stranger (client stranger at /::1)" in log.text
    classic = Member(world, "classic", protocol_type="connect")
    classic.join()
    assert classic.joined[-1].error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "JoinGroup of member to be (client classic at /127.0.0.1)" in log.text
    anna.beat()
    assert (anna.error, anna.has) == (None, {"t": [0, 1, 2, 3]})


def test_a_thousand_consumers_at_once() -> None:
    """Fails when a crowd of the newer protocol is not served in one assignment."""
    world = ConsumerWorld({"t": 1000}, group_consumer_assignment_interval_ms=1_000)
    consumers = [Consumer(world, f"c{number}") for number in range(1000)]
    for consumer in consumers:
        consumer.join()
    for _ in range(4):
        world.advance(1_000)
        for consumer in consumers:
            consumer.beat()
    assert world.group().state_name == "Stable"
    assert sorted(consumer.has["t"][0] for consumer in consumers) == list(range(1000))
