"""Consumer groups by heartbeats: epochs, reconciliation, static members, expressions, errors."""

from uuid import UUID

import pytest
from tests.unit.coordinator.consumer.consumers import Consumer, ConsumerWorld, settle
from tests.unit.coordinator.fakes import Member

from odradek.coordinator.consumer.member import ConsumerMember
from odradek.coordinator.consumer.requests import HeartbeatRequest, HeartbeatResult
from odradek.coordinator.records.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ConfigResource
from odradek.model import ConfigResourceType


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld()


def refused(answer: object) -> ErrorCode:
    assert isinstance(answer, BrokerError), answer
    return answer.code


def test_the_first_member_gets_everything_at_once(world: ConsumerWorld) -> None:
    a = Consumer(world, "a")
    a.join()
    assert (a.epoch, a.has) == (2, {"t": [0, 1, 2, 3]})  # as in Kafka: 1 was the empty group
    assert world.group().state_name == "Stable"


def test_partitions_change_hands_only_after_they_were_given_back(world: ConsumerWorld) -> None:
    """If this fails, two members may read a partition at the same time."""
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    a.clings = True
    b.join()
    assert (b.epoch, b.has) == (3, {})
    a.beat()
    assert (a.epoch, world.named(a.assigned), a.has) == (2, {"t": [0, 1]}, {"t": [0, 1, 2, 3]})
    b.beat()
    assert b.has == {}
    a.clings = False
    a._own()
    a.beat()
    b.beat()
    assert (a.epoch, a.has) == (3, {"t": [0, 1]})
    assert (b.epoch, b.has) == (3, {"t": [2, 3]})
    assert world.group().state_name == "Stable"


def test_who_does_not_say_what_it_has_has_given_nothing_back(world: ConsumerWorld) -> None:
    """If this fails, a heartbeat of a member that still reads a partition gives it away."""
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    a.clings = True
    b.join()
    a.beat()
    a.send()
    b.beat()
    assert (world.group().members["a"].member_epoch, b.has) == (2, {})


def test_only_changes_are_told(world: ConsumerWorld) -> None:
    a = Consumer(world, "a")
    a.join()
    quiet = a.send()
    assert isinstance(quiet, HeartbeatResult)
    assert quiet.assignment is None
    full = a.send(rebalance_timeout_ms=60_000, subscribed_topic_names=a.topics, owned=a.owned)
    assert isinstance(full, HeartbeatResult)
    assert full.assignment == a.assigned
    assert full.heartbeat_interval_ms == 5_000


def test_a_heartbeat_that_changes_nothing_writes_nothing(world: ConsumerWorld) -> None:
    a = Consumer(world, "a")
    a.join()
    appends = world.log.appends
    a.beat()
    assert world.log.appends == appends


def test_a_member_that_leaves_sets_its_partitions_free(world: ConsumerWorld) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    settle(a, b)
    a.leave()
    assert a.epoch == -1
    settle(b)
    assert b.has == {"t": [0, 1, 2, 3]}
    b.leave()
    assert world.group().state_name == "Empty"


def test_a_silent_member_is_out_when_its_session_is_over(world: ConsumerWorld) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    settle(a, b)
    world.advance(44_999)
    b.beat()
    assert set(world.group().members) == {"a", "b"}
    world.advance(1)
    assert set(world.group().members) == {"b"}
    a.beat()
    assert a.error is not None
    assert a.error.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_keeps_what_it_must_give_back_is_out_in_time(world: ConsumerWorld) -> None:
    """If this fails, one stuck member holds up the whole group for ever."""
    a = Consumer(world, "a", rebalance_timeout_ms=10_000)
    b = Consumer(world, "b")
    a.join()
    a.clings = True
    b.join()
    a.beat()
    for _ in range(10):
        world.advance(999)
        a.beat()
    assert "a" in world.group().members
    world.advance(10)
    assert set(world.group().members) == {"b"}
    settle(b)
    assert b.has == {"t": [0, 1, 2, 3]}


def test_a_wrong_epoch_is_fenced_and_may_join_again(world: ConsumerWorld) -> None:
    a = Consumer(world, "a")
    a.join()
    assert refused(a.send(member_epoch=7)) is ErrorCode.FENCED_MEMBER_EPOCH
    a.join()
    assert (a.error, a.has) == (None, {"t": [0, 1, 2, 3]})


def test_a_lost_answer_can_be_asked_for_again(world: ConsumerWorld) -> None:
    """A member that did not hear of its new epoch comes with the one before."""
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    a.beat()
    lost = a.send(owned=a.owned)
    assert isinstance(lost, HeartbeatResult)
    assert (a.epoch, lost.member_epoch) == (2, 3)
    again = a.send(owned=a.owned)
    assert isinstance(again, HeartbeatResult)
    assert again.member_epoch == 3
    stranger = {world.topic_id("t"): frozenset([3])}
    assert refused(a.send(owned=stranger)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(a.send()) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_static_member_comes_back_to_what_it_had(world: ConsumerWorld) -> None:
    a = Consumer(world, "a", instance_id="one")
    b = Consumer(world, "b")
    a.join()
    b.join()
    settle(a, b)
    had, epoch = a.has, world.group().epoch
    early = Consumer(world, "early", instance_id="one")
    early.join()
    assert early.error is not None
    assert early.error.code is ErrorCode.UNRELEASED_INSTANCE_ID
    a.leave(-2)
    again = Consumer(world, "a2", instance_id="one")
    again.join()
    assert (again.has, again.epoch, world.group().epoch) == (had, epoch, epoch)
    assert set(world.group().members) == {"a2", "b"}
    assert refused(a.send(instance_id="one", member_epoch=1)) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_out_with_its_session(world: ConsumerWorld) -> None:
    a = Consumer(world, "a", instance_id="one")
    a.join()
    a.leave(-2)
    world.advance(44_999)
    assert "a" in world.group().members
    world.advance(1)
    assert world.group().is_empty


def test_a_changed_subscription_is_followed(world: ConsumerWorld) -> None:
    world.set_topics(t=4, u=2)
    a = Consumer(world, "a")
    a.join()
    a.beat(subscribed_topic_names=frozenset(["u"]))
    settle(a)
    assert a.has == {"u": [0, 1]}


def test_topics_that_appear_grow_and_go_are_followed(world: ConsumerWorld) -> None:
    a = Consumer(world, "a", ["t", "later"])
    a.join()
    world.set_topics(t=5, later=1)
    settle(a)
    assert a.has == {"later": [0], "t": [0, 1, 2, 3, 4]}
    world.set_topics(later=1)
    settle(a)
    assert a.has == {"later": [0]}


def test_a_topic_of_the_same_name_is_another_topic(world: ConsumerWorld) -> None:
    """If this fails, members go on with partitions of a topic that was deleted."""
    a = Consumer(world, "a")
    a.join()
    world.set_topics()
    world.set_topics(t=4)
    settle(a)
    assert a.has == {"t": [0, 1, 2, 3]}


def test_an_expression_is_matched_against_topics_as_they_come(world: ConsumerWorld) -> None:
    world.set_topics(orders=1, other=1)
    a = Consumer(world, "a", None, regex="ord.*")
    a.join()
    assert a.has == {"orders": [0]}
    assert world.group().is_subscribed_to("orders")
    assert not world.group().is_subscribed_to("other")
    world.set_topics(orders=1, other=1, ordnance=2)
    settle(a)
    assert a.has == {"ordnance": [0, 1], "orders": [0]}
    a.beat(subscribed_topic_regex="", subscribed_topic_names=frozenset(["other"]))
    settle(a)
    assert a.has == {"other": [0]}
    assert world.group().expressions == {}


def test_names_and_an_expression_go_together(world: ConsumerWorld) -> None:
    world.set_topics(t=1, orders=1)
    a = Consumer(world, "a", ["t"], regex="ord.*")
    a.join()
    assert a.has == {"orders": [0], "t": [0]}


@pytest.mark.parametrize("expression", ["(", "(?=a)", r"(a)\1", "((a{1000}){1000}){1000}"])
def test_an_illegal_expression_is_refused(world: ConsumerWorld, expression: str) -> None:
    a = Consumer(world, "a", None, regex=expression)
    a.join()
    assert a.error is not None
    assert a.error.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.runtime.shard("g").registry.get("g") is None


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_bad_requests_are_refused(
    world: ConsumerWorld, fields: dict[str, object], code: ErrorCode
) -> None:
    join = {
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": frozenset(["t"]),
        "owned": {},
    }
    assert refused(Consumer(world, "a").send(**{**join, **fields})) is code
    assert world.log.appends == 0


def test_strangers_are_refused(world: ConsumerWorld) -> None:
    Consumer(world, "a").join()
    b = Consumer(world, "b")
    assert refused(b.send(member_epoch=1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(b.send(member_epoch=-1)) is ErrorCode.UNKNOWN_MEMBER_ID
    ghost = {"member_epoch": 1, "instance_id": "ghost"}
    assert refused(b.send(**ghost)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_old_clients_are_given_an_id() -> None:
    world = ConsumerWorld()
    answers: list[HeartbeatResult | BrokerError] = []
    a = Consumer(world, "a")
    a.member_id = ""
    a.epoch = 0
    request = {"rebalance_timeout_ms": 1, "subscribed_topic_names": a.topics, "owned": {}}
    assert refused(a.send(**request)) is ErrorCode.INVALID_REQUEST
    world.groups.consumer_heartbeat(
        HeartbeatRequest("g", "", 0)._replace(**request), 0, answers.append
    )
    (answer,) = answers
    assert isinstance(answer, HeartbeatResult)
    assert answer.member_id == "00000000-0000-0000-0000-000000000001"


def test_a_full_group_takes_nobody_but_its_members() -> None:
    world = ConsumerWorld(group_consumer_max_size=1)
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    assert b.error is not None
    assert b.error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    a.join()
    assert a.error is None


def test_most_members_choose_the_assignor(world: ConsumerWorld) -> None:
    for name in ("a", "b"):
        Consumer(world, name, assignor="range").join()
    Consumer(world, "c", assignor="uniform").join()
    assert world.groups.describe_consumer_group("g").assignor_name == "range"


def test_assignments_rest_for_their_interval() -> None:
    """A hundred members that join at once must not cost a hundred assignments."""
    world = ConsumerWorld(group_consumer_assignment_interval_ms=1_000)
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    settle(a, b)
    assert (world.group().state_name, a.has, b.has) == ("Assigning", {"t": [0, 1, 2, 3]}, {})
    world.advance(1_000)
    settle(a, b)
    assert (world.group().state_name, a.has, b.has) == ("Stable", {"t": [0, 1]}, {"t": [2, 3]})


def test_what_is_not_read_any_more_is_given_back_before_the_next_assignment() -> None:
    world = ConsumerWorld({"t": 2, "u": 2}, group_consumer_assignment_interval_ms=1_000)
    a = Consumer(world, "a", ["t", "u"])
    a.join()
    a.beat(subscribed_topic_names=frozenset(["u"]))
    settle(a)
    assert (world.group().state_name, a.has) == ("Assigning", {"u": [0, 1]})


def test_who_has_partitions_to_give_back_and_unsubscribes_is_told_at_once() -> None:
    """Fails when a member that is slow to give one topic's partitions back goes on reading
    another that it has given up."""
    world = ConsumerWorld({"t": 4, "u": 2})
    anna, bert = Consumer(world, "anna", ["t", "u"]), Consumer(world, "bert", ["t"])
    anna.join()
    anna.clings = True
    bert.join()
    anna.beat()
    given_back = world.group().members["anna"].pending_revocation
    assert world.named(given_back).keys() == {"t"}
    epoch = anna.epoch
    anna.beat(subscribed_topic_names=frozenset({"t"}))
    assert (anna.epoch, world.named(anna.assigned).keys()) == (epoch, {"t"})
    assert world.named(world.group().members["anna"].pending_revocation)["u"] == [0, 1]
    anna.clings = False
    settle(anna, bert)
    assert sorted([*anna.has["t"], *bert.has["t"]]) == [0, 1, 2, 3]
    assert anna.has.keys() == bert.has.keys() == {"t"}


def test_a_group_has_settings_of_its_own(world: ConsumerWorld) -> None:
    resource = ConfigResource(ConfigResourceType.GROUP, "g")
    settings = {"consumer.heartbeat.interval.ms": "7000", "consumer.session.timeout.ms": "99999"}
    world.metadata.image = world.metadata.image.with_configs({resource: settings})
    a = Consumer(world, "a")
    a.join()
    answer = a.send()
    assert isinstance(answer, HeartbeatResult)
    assert answer.heartbeat_interval_ms == 7_000
    world.advance(59_999)  # the broker's longest session is shorter than what the group wants
    assert not world.group().is_empty
    world.advance(1)
    assert world.group().is_empty


def test_a_restart_forgets_nothing(world: ConsumerWorld) -> None:
    """If this fails, every member has to join again after each restart of the broker."""
    a, b = Consumer(world, "a"), Consumer(world, "b", instance_id="two", regex="u.*")
    a.join()
    b.join()
    a.beat()
    before = world.groups.describe_consumer_group("g")
    expressions = world.group().expressions
    world.restart()
    assert world.groups.describe_consumer_group("g") == before
    assert world.group().expressions == expressions
    settle(a, b)
    assert (a.has, b.has) == ({"t": [0, 1]}, {"t": [2, 3]})
    world.advance(45_000)
    assert world.group().is_empty


def test_nothing_is_told_before_it_is_committed(world: ConsumerWorld) -> None:
    """With replicas a heartbeat waits; what comes meanwhile looks at the state after it."""
    world.log.holds = True
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    assert (a.epoch, b.epoch) == (0, 0)
    assert world.runtime.shard("g").registry.get("g") is None
    world.log.commit()
    assert set(world.group().members) == {"a"}
    world.log.commit()
    assert set(world.group().members) == {"a", "b"}
    assert world.group().epoch == 3


def test_an_append_that_fails_changes_nothing(world: ConsumerWorld) -> None:
    world.log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    a = Consumer(world, "a")
    a.join()
    assert a.error is not None
    assert a.error.code is ErrorCode.NOT_COORDINATOR
    assert world.runtime.shard("g").registry.get("g") is None


def test_commits_are_checked_by_epoch(world: ConsumerWorld) -> None:
    a = Consumer(world, "a")
    a.join()
    group = world.group()
    group.check_offset_commit("a", None, 2, 9)
    for args, code in [
        (("a", None, 3, 9), ErrorCode.STALE_MEMBER_EPOCH),
        (("a", None, 2, 8), ErrorCode.UNSUPPORTED_VERSION),
        (("b", None, 1, 9), ErrorCode.UNKNOWN_MEMBER_ID),
        (("", None, -1, 9), ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        with pytest.raises(BrokerError) as caught:
            group.check_offset_commit(*args)
        assert caught.value.code is code
    group.check_offset_fetch(None, -1)
    group.check_offset_fetch("a", 2)
    with pytest.raises(BrokerError, match="STALE_MEMBER_EPOCH"):
        group.check_offset_fetch("a", 3)
    a.leave()
    group.check_offset_commit("", None, -1, 9)


def test_what_was_kept_may_be_committed_in_an_earlier_epoch(world: ConsumerWorld) -> None:
    """Fails when a rebalance that leaves a partition where it is costs its reader a commit, or
    one commits what is somebody else's now (KIP-1251)."""
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    first = a.epoch
    b.join()
    settle(a, b)
    for _ in range(2):
        check = world.group().check_offset_commit("a", None, first, 9)
        assert check is not None
        for index in (0, 1):
            check(world.topic_id("t"), index)
        for topic_id, index in ((world.topic_id("t"), 2), (world.topic_id("t"), 9), (None, 0)):
            with pytest.raises(BrokerError, match="STALE_MEMBER_EPOCH"):
                check(topic_id, index)
        got = world.group().check_offset_commit("b", None, first, 9)
        assert got is not None
        with pytest.raises(BrokerError, match="STALE_MEMBER_EPOCH"):
            got(world.topic_id("t"), 2)
        assert world.group().check_offset_commit("a", None, a.epoch, 9) is None
        world.restart()


def test_old_records_give_partitions_their_members_epoch() -> None:
    """Fails when a group that an older broker wrote cannot be read, or lets anybody commit."""
    topic_id = UUID(int=7)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        5, 4, 0, (TopicPartitions(topic_id, (0, 1)),), (TopicPartitions(topic_id, (2,)),)
    )
    member = ConsumerMember("a").with_assignment(value)
    assert member.assignment_epochs == {topic_id: {0: 5, 1: 5, 2: 5}}
    later = member.at_epoch(6, member.state, {topic_id: frozenset({0, 3})}, {})
    assert later.assignment_epochs == {topic_id: {0: 5, 3: 6}}
    assert later.released().assignment_epochs == {topic_id: {0: 0, 3: 0}}


def test_what_has_yet_to_be_given_back_is_described(world: ConsumerWorld) -> None:
    """Fails when a tool takes a partition for unread that its old owner is still reading."""
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    a.clings = True
    b.join()
    a.beat()
    described = world.groups.describe_consumer_group("g")
    assert world.named(described.members[0].assignment) == {"t": [0, 1, 2, 3]}


def test_listing_and_deleting_treat_both_kinds_alike(world: ConsumerWorld) -> None:
    a = Consumer(world, "a")
    a.join()
    (listed,) = world.groups.list_groups([], ["consumer"])
    assert (listed.group_id, listed.type, listed.state) == ("g", "consumer", "Stable")
    assert world.groups.list_groups([], ["classic"]) == []
    outcomes: list[BrokerError | None] = []
    world.groups.delete_group("g", outcomes.append)
    assert refused(outcomes.pop()) is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    world.groups.delete_group("g", outcomes.append)
    assert outcomes == [None]
    assert world.groups.list_groups([], []) == []
    world.restart()
    assert world.groups.list_groups([], []) == []


def test_a_group_without_members_changes_its_kind_and_keeps_its_offsets(
    world: ConsumerWorld,
) -> None:
    classic = Member(world, "classic")
    world.commit("g", {("t", 0): 5})
    a = Consumer(world, "a")
    a.join()
    assert world.committed("g") == {("t", 0): 5}
    a.leave()
    classic.join()
    world.advance(0)
    classic.sync({classic.member_id: b"all"})
    assert classic.synced[-1].assignment == b"all"
    assert world.committed("g") == {("t", 0): 5}
    world.restart()
    (listed,) = world.groups.list_groups([], [])
    assert (listed.type, listed.state) == ("classic", "Stable")


@pytest.mark.parametrize("joins", [False, True])
def test_a_group_that_was_of_another_kind_does_not_come_back_as_that(
    world: ConsumerWorld, joins: bool
) -> None:
    """Fails when a classic group is there again, which nobody can delete for good, once its log is
    compacted: one of a member that has left, or only of an id that JoinGroup has handed out."""
    classic = Member(world, "classic", version=5)
    if joins:
        classic.join()
        classic.leave()
    else:
        classic.send_join()
    a = Consumer(world, "a")
    a.join()
    assert a.has == {"t": [0, 1, 2, 3]}
    a.leave()
    world.groups.delete_group("g", lambda _outcome: None)
    world.log.compact(0)
    world.restart()
    assert world.groups.list_groups([], []) == []


def test_a_group_with_classic_members_is_not_joined(world: ConsumerWorld) -> None:
    classic = Member(world, "classic")
    classic.join()
    a = Consumer(world, "a")
    a.join()
    assert a.error is not None
    assert a.error.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_topics_that_are_read_do_not_expire(world: ConsumerWorld) -> None:
    Consumer(world, "a").join()
    assert world.group().offset_expiry_base_ms("t", 5) is None
    assert world.group().offset_expiry_base_ms("u", 5) == 5


def test_the_first_assignor_that_is_set_is_the_default() -> None:
    """Fails when `group.consumer.assignors` is passed over."""
    world = ConsumerWorld(group_consumer_assignors="range,another")
    a, b = Consumer(world, "a"), Consumer(world, "b", assignor="uniform")
    a.join()
    assert world.groups.describe_consumer_group("g").assignor_name == "range"
    b.join()
    assert b.error is not None
    assert b.error.code is ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.mark.parametrize(("wanted", "interval_ms"), [(1, 5_000), (5_001, 5_001), (99_999, 15_000)])
def test_a_group_keeps_within_the_brokers_bounds(
    world: ConsumerWorld, wanted: int, interval_ms: int
) -> None:
    """Fails when one group's settings can make its members overrun the broker."""
    resource = ConfigResource(ConfigResourceType.GROUP, "g")
    settings = {"consumer.heartbeat.interval.ms": str(wanted)}
    world.metadata.image = world.metadata.image.with_configs({resource: settings})
    a = Consumer(world, "a")
    a.join()
    answer = a.send()
    assert isinstance(answer, HeartbeatResult)
    assert answer.heartbeat_interval_ms == interval_ms


def test_a_groups_own_rest_between_assignments_holds() -> None:
    """Fails when `consumer.assignment.interval.ms` of a group is passed over."""
    world = ConsumerWorld(group_consumer_assignment_interval_ms=0)
    resource = ConfigResource(ConfigResourceType.GROUP, "g")
    settings = {"consumer.assignment.interval.ms": "2000"}
    world.metadata.image = world.metadata.image.with_configs({resource: settings})
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    world.advance(1_999)
    settle(a, b)
    assert world.group().state_name == "Assigning"
    world.advance(1)
    settle(a, b)
    assert (world.group().state_name, b.has) == ("Stable", {"t": [2, 3]})


def test_what_waits_for_a_lost_shard_is_refused_and_not_decided_by_its_state(
    world: ConsumerWorld,
) -> None:
    """A member would be fenced by a coordinator that has just loaded its group, by what it knew
    in an earlier epoch of its own; or somebody would wait for ever."""
    silent, lively = Consumer(world, "silent"), Consumer(world, "lively")
    silent.join()
    world.advance(40_001)
    world.log.holds = True
    lively.join()
    answers: list[HeartbeatResult | BrokerError] = []
    request = HeartbeatRequest("g", "silent", -1)
    world.groups.consumer_heartbeat(request, 1, answers.append)
    world.advance(4_999)  # the silent one is to be fenced, behind the other's join and its own end
    appends = world.log.appends
    world.elect(epoch=1)
    world.log.holds = False
    world.log.commit()
    assert world.log.appends == appends
    assert set(world.group().members) == {"silent", "lively"}
    assert [getattr(each, "code", None) for each in answers] == [ErrorCode.NOT_COORDINATOR]
