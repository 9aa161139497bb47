"""The APIs of groups in every version, over a real coordinator.

A request of each version is written as a client writes it, handed to the dispatcher, and the
answer is read as a client reads it. What the coordinator decides is tested with it; here it is
what of that reaches the wire, and how.
"""

import pytest
from tests.unit.coordinator.consumer.consumers import ConsumerWorld
from tests.unit.handlers.groups.group_client import (
    COMMIT,
    CONSUMER_HEARTBEAT,
    DELETE,
    DESCRIBE,
    FETCH,
    FIND,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST,
    METADATA,
    OFFSET_DELETE,
    RANGES,
    SYNC,
    Groups,
    every,
)

from odradek.errors import ErrorCode
from odradek.handlers.table import API_TABLE


def test_the_versions_are_those_of_kafka_4_3():
    """Fails when a version is advertised that is not tested here, or not advertised at all."""
    assert {
        key: (API_TABLE[key].min_version, API_TABLE[key].max_version) for key in RANGES
    } == RANGES


@pytest.fixture
def world():
    return ConsumerWorld({"t": 2, "u": 1})


@pytest.fixture
def groups(cluster, world):
    return Groups(cluster, world)


# JoinGroup


@every(JOIN)
def test_a_first_member_joins(groups, version):
    """Fails when a client of that version cannot become a member."""
    joined = groups.join(version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert (joined.generation_id, joined.leader, joined.members) == (-1, "", ())
        assert joined.protocol_name == (None if version >= 7 else "")
        joined = groups.join(version, joined.member_id)
    assert joined.error_code == 0
    assert joined.member_id == joined.leader
    assert joined.member_id.startswith("test-")
    assert (joined.generation_id, joined.protocol_name) == (1, "range")
    (member,) = joined.members
    assert (member.member_id, member.metadata) == (joined.member_id, METADATA)
    if version >= 7:
        assert joined.protocol_type == "consumer"
    if version >= 9:
        assert joined.skip_assignment is False
    (known,) = groups.group().members.values()
    assert known.rebalance_timeout_ms == (60_000 if version >= 1 else 10_000)
    assert (known.client_id, known.client_host) == ("test", "/192.0.2.7")


@every(JOIN)
def test_a_join_waits_for_the_others(groups, world, version):
    """Fails when a rebalance does not wait, or followers are told what only leaders are."""
    leader = groups.stable()
    first = groups.send_join(version)
    if version >= 4:
        answer = groups.cluster.answer(first, JOIN, version)
        first = groups.send_join(version, answer.member_id)
    assert first.sent is None
    groups.join(9, leader.member_id)
    joined = groups.cluster.answer(first, JOIN, version)
    assert (joined.error_code, joined.generation_id, joined.members) == (0, 2, ())
    assert joined.leader == leader.member_id


@every(JOIN, since=5)
def test_a_static_member_joins_and_is_replaced(groups, version):
    """Fails when a static process has to go through a rebalance, or cannot be told apart."""
    joined = groups.stable(version=version, group_instance_id="i")
    assert joined.member_id.startswith("i-")
    assert joined.members[0].group_instance_id == "i"
    again = groups.join(version, group_instance_id="i")
    assert (again.error_code, again.generation_id) == (0, 1)
    assert again.member_id != joined.member_id
    if version >= 9:
        assert (again.skip_assignment, again.leader) == (True, again.member_id)
    else:
        assert (again.leader, again.members) == (joined.member_id, ())
    fenced = groups.join(version, joined.member_id, group_instance_id="i")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


@every(JOIN, since=8)
def test_a_reason_to_join_is_shown(groups, version, caplog):
    """Fails when nobody can find out why a group rebalances (KIP-800)."""
    caplog.set_level("INFO")
    groups.member(version, reason="deployed anew")
    assert "(deployed anew)" in caplog.text


@every(JOIN)
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_refused_joins(groups, version, fields, code):
    """Fails when a client of that version cannot read why it was refused."""
    refused = groups.join(version, **fields)
    assert (refused.error_code, refused.generation_id, refused.members) == (code, -1, ())
    assert refused.member_id == fields.get("member_id", "")


# SyncGroup, Heartbeat, LeaveGroup


@every(SYNC)
def test_an_assignment_is_fetched(groups, version):
    """Fails when a client of that version does not get its assignment."""
    joined = groups.member()
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    synced = groups.sync(joined, version, **named)
    assert (synced.error_code, synced.assignment) == (0, b"share")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
        other = groups.sync(joined, version, protocol_name="roundrobin", protocol_type="consumer")
        assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    old = groups.sync(joined, version, generation_id=9, **named)
    assert (old.error_code, old.assignment) == (ErrorCode.ILLEGAL_GENERATION, b"")
    if version >= 3:
        ghost = groups.sync(joined, version, group_instance_id="ghost", **named)
        assert ghost.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@every(HEARTBEAT)
def test_heartbeats(groups, version):
    """Fails when a client of that version does not learn that it has to join again."""
    joined = groups.stable(group_instance_id="i")
    who = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1}
    assert groups.ask(HEARTBEAT, version, **who).error_code == 0
    assert groups.ask(HEARTBEAT, version, **{**who, "generation_id": 2}).error_code == (
        ErrorCode.ILLEGAL_GENERATION
    )
    assert groups.ask(HEARTBEAT, version, **{**who, "group_id": ""}).error_code == (
        ErrorCode.INVALID_GROUP_ID
    )
    if version >= 3:
        named = groups.ask(HEARTBEAT, version, **who, group_instance_id="i")
        assert named.error_code == 0
        groups.join(9, group_instance_id="i")
        fenced = groups.ask(HEARTBEAT, version, **who, group_instance_id="i")
        assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
    else:
        groups.send_join(3)
        called = groups.ask(HEARTBEAT, version, **who)
        assert called.error_code == ErrorCode.REBALANCE_IN_PROGRESS


@every(LEAVE)
def test_members_leave(groups, version, caplog):
    """Fails when a member that closes has to be waited for, or a batch is answered as one."""
    caplog.set_level("INFO")
    joined = groups.stable()
    one = {"member_id": joined.member_id, "reason": "closed"}
    stranger = {"member_id": "stranger"}
    left = groups.ask(LEAVE, version, group_id="g", members=(one, stranger), **one_of(one))
    assert left.error_code == 0
    if version >= 3:
        assert [(each.member_id, each.error_code) for each in left.members] == [
            (joined.member_id, 0),
            ("stranger", ErrorCode.UNKNOWN_MEMBER_ID),
        ]
    if version >= 5:
        assert "it left (closed)" in caplog.text
    assert groups.group().is_empty
    again = groups.ask(LEAVE, version, group_id="g", members=(one,), **one_of(one))
    code = again.members[0].error_code if version >= 3 else again.error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID
    nameless = groups.ask(LEAVE, version, group_id="", members=(one,), **one_of(one))
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


def one_of(member):
    return {"member_id": member["member_id"]}


@every(LEAVE, since=3)
def test_a_static_member_is_made_to_leave_by_its_instance(groups, version):
    """Fails when an administrator cannot remove a process that will not come back."""
    groups.stable(group_instance_id="i")
    wrong = {"member_id": "other", "group_instance_id": "i"}
    refused = groups.ask(LEAVE, version, group_id="g", members=(wrong,))
    assert refused.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    named = {"member_id": "", "group_instance_id": "i"}
    left = groups.ask(LEAVE, version, group_id="g", members=(named,))
    assert (left.members[0].error_code, left.members[0].group_instance_id) == (0, "i")
    assert groups.group().is_empty


# DescribeGroups, ListGroups, DeleteGroups


@every(DESCRIBE)
def test_groups_are_described(groups, version):
    """Fails when an administrator cannot see who is in a group, and with what."""
    joined = groups.stable(group_instance_id="i")
    found, missing = groups.ask(DESCRIBE, version, groups=("g", "none")).groups
    assert (found.error_code, found.group_id, found.group_state) == (0, "g", "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (member,) = found.members
    assert (member.member_id, member.client_id) == (joined.member_id, "test")
    assert member.client_host == "/192.0.2.7"
    assert (member.member_metadata, member.member_assignment) == (METADATA, b"share")
    if version >= 3:
        assert found.authorized_operations == -(2**31)
    if version >= 4:
        assert member.group_instance_id == "i"
    assert (missing.group_state, missing.members) == ("Dead", ())
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 6:
        assert missing.error_message == "Group none not found."


@pytest.mark.parametrize("version", range(3, 7))
def test_the_operations_on_a_group_are_told_to_who_asks(groups, version):
    """Fails when tools show fewer permissions than Kafka without an authorizer gives."""
    groups.stable()
    wanted = {"groups": ("g", "none"), "include_authorized_operations": True}
    found, missing = groups.ask(DESCRIBE, version, **wanted).groups
    assert operations_in(found.authorized_operations) == [3, 6, 8, 10, 11]
    assert operations_in(missing.authorized_operations) == (
        [31] if version >= 6 else [3, 6, 8, 10, 11]
    )


def operations_in(bits: int) -> list[int]:
    """The bits that are set; the last one alone says that nothing is told."""
    return [bit for bit in range(32) if bits >> bit & 1]


@every(DESCRIBE)
def test_a_group_of_the_newer_protocol_is_not_described_as_a_classic_one(groups, version):
    """Fails when old tools show a consumer group as something that it is not."""
    join = {
        "group_id": "g",
        "member_id": "m",
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    }
    groups.ask(CONSUMER_HEARTBEAT, 1, **join)
    (found,) = groups.ask(DESCRIBE, version, groups=("g",)).groups
    assert (found.group_state, found.members) == ("Dead", ())


@pytest.fixture
def listed(groups):
    """A stable classic group, one that only stores offsets, and a consumer group."""
    groups.stable()
    groups.commit(9, group_id="stores")
    join = {
        "group_id": "new",
        "member_id": "m",
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    }
    groups.ask(CONSUMER_HEARTBEAT, 1, **join)
    return groups


@every(LIST)
def test_groups_are_listed(listed, version):
    """Fails when a group is missing from the list, or is shown as something else."""
    answer = listed.ask(LIST, version)
    found = {each.group_id: each for each in answer.groups}
    assert (answer.error_code, set(found)) == (0, {"g", "new", "stores"})
    types = {name: each.protocol_type for name, each in found.items()}
    assert types == {"g": "consumer", "new": "consumer", "stores": ""}
    if version >= 4:
        states = {name: each.group_state for name, each in found.items()}
        assert states == {"g": "Stable", "new": "Stable", "stores": "Empty"}
    if version >= 5:
        kinds = {name: each.group_type for name, each in found.items()}
        assert kinds == {"g": "classic", "new": "consumer", "stores": "classic"}


@pytest.mark.parametrize(
    ("version", "states", "types", "expected"),
    [
        (4, ("Stable",), (), {"g", "new"}),
        (4, ("stable", "EMPTY"), (), {"g", "new", "stores"}),
        (4, ("PreparingRebalance",), (), set()),
        (5, ("Empty",), (), {"stores"}),
        (5, ("nonsense",), (), set()),
        (5, (), ("classic",), {"g", "stores"}),
        (5, (), ("Consumer",), {"new"}),
        (5, (), ("share",), set()),
        (5, ("Empty",), ("classic",), {"stores"}),
        (5, ("Empty",), ("consumer",), set()),
    ],
)
def test_the_list_is_filtered(listed, version, states, types, expected):
    """Fails when a filter is passed over."""
    answer = listed.ask(LIST, version, states_filter=states, types_filter=types)
    assert {each.group_id for each in answer.groups} == expected


@every(LIST)
def test_a_list_that_would_not_be_whole_is_not_given(listed, world, version):
    """Fails when a tool takes groups that are still being loaded for deleted."""
    world.load_slice_bytes = 1
    world._build()
    listed.cluster.replace(groups=world.groups)
    answer = listed.ask(LIST, version)
    assert (answer.error_code, answer.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())


@every(DELETE)
def test_groups_are_deleted(groups, world, version):
    """Fails when one group's refusal keeps the others, or a live group goes."""
    groups.stable()
    groups.commit(9, group_id="stores")
    asked = ("g", "stores", "none", "stores")
    results = groups.ask(DELETE, version, groups_names=asked).results
    assert {each.group_id: each.error_code for each in results} == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "stores": 0,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert groups.ask(DELETE, version, groups_names=()).results == ()


# FindCoordinator


@pytest.fixture
def finder(cluster_with):
    return cluster_with({"offsets.topic.replication.factor": "1"})


@every(FIND)
def test_a_coordinator_is_found(finder, version):
    """Fails when a client of that version does not find its coordinator at its first try."""
    for _ in range(2):
        answer = finder.ask(
            FIND, version, key="my-group", coordinator_keys=("my-group", "billing"), key_type=0
        )
        found = answer.coordinators if version >= 4 else (answer,)
        for each in found:
            assert (each.error_code, each.node_id) == (0, 1)
            assert (each.host, each.port) == ("127.0.0.1", 9092)
        if version >= 4:
            assert [each.key for each in found] == ["my-group", "billing"]
    topic = finder.cache.image.topic("__consumer_offsets")
    assert len(topic.partitions) == 50


@every(FIND, since=1)
@pytest.mark.parametrize("kind", [2, 9])
def test_coordinators_of_other_kinds_are_not_here(finder, version, kind):
    """Fails when clients look for ever for a coordinator that there is not: of another kind, in a
    version that does not know it, or by a key that is no share partition's."""
    answer = finder.ask(FIND, version, key="x", coordinator_keys=("x",), key_type=kind)
    found = answer.coordinators[0] if version >= 4 else answer
    code = ErrorCode.INVALID_REQUEST
    assert (found.error_code, found.node_id, found.host, found.port) == (code, -1, "", -1)


@every(FIND)
def test_without_replicas_for_the_topic_there_is_no_coordinator(cluster, version):
    """Fails when a broker that cannot make the topic leaves clients without an answer."""
    answer = cluster.ask(FIND, version, key="g", coordinator_keys=("g",))
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


# What is everybody's


APIS = sorted(key for key in RANGES if key not in (FIND, CONSUMER_HEARTBEAT, 69))


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(key, version) for key in APIS for version in range(RANGES[key][0], RANGES[key][1] + 1)],
)
def test_a_failing_handler_is_answered_in_shape(cluster, api_key, version):
    """Fails when a mistake of ours costs a client its connection. Here is no coordinator."""
    world = ConsumerWorld({"t": 1})
    cluster.replace(metadata=world.metadata)
    name = {} if api_key == FETCH and version >= 10 else {"name": "t"}
    identity = {"name": "t", "topic_id": world.topic_id("t")}
    committed = {**identity, "partitions": ({"partition_index": 0},)}
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    one = {"group_id": "g", "topics": ({**name, "partition_indexes": (0,)},)}
    fields = {
        COMMIT: {"group_id": "g", "topics": (committed,)},
        FETCH: {"groups": (one,)} if version >= 8 else one,
        DESCRIBE: {"groups": ("g",)},
        DELETE: {"groups_names": ("g",)},
        LIST: {},
        OFFSET_DELETE: {"group_id": "g"},
        SYNC: {"group_id": "g", **protocol},
    }.get(api_key, {"group_id": "g"})
    answer = cluster.ask(api_key, version, **fields)
    assert ErrorCode.UNKNOWN_SERVER_ERROR in set(found_codes(answer))


def found_codes(answer):
    """All error codes of an answer, wherever they stand."""
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        if name == "error_code":
            yield int(value)
        for each in value if isinstance(value, tuple) else ():
            yield from found_codes(each)
