"""ConsumerGroupHeartbeat and ConsumerGroupDescribe in every version, over a real coordinator."""

import pytest
from tests.unit.coordinator.consumer.consumers import ConsumerWorld

from odradek.errors import ErrorCode

HEARTBEAT, DESCRIBE = 68, 69
JOIN = {
    "group_id": "g",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ("t",),
    "topic_partitions": (),
}


@pytest.fixture
def world():
    return ConsumerWorld({"t": 2})


@pytest.fixture
def groups(cluster, world):
    """The cluster with a coordinator of its own."""
    cluster.replace(groups=world.groups, metadata=world.metadata)
    return cluster


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_lives_and_leaves(groups, world, version):
    member_id = "" if version == 0 else "me"
    joined = groups.ask(HEARTBEAT, version, member_id=member_id, **JOIN)
    assert (joined.error_code, joined.member_epoch) == (0, 2)
    assert joined.member_id == (member_id or "00000000-0000-0000-0000-000000000001")
    (assigned,) = joined.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (world.topic_id("t"), (0, 1))
    who = {"group_id": "g", "member_id": joined.member_id}
    alive = groups.ask(HEARTBEAT, version, **who, member_epoch=2)
    assert (alive.error_code, alive.assignment) == (0, None)
    left = groups.ask(HEARTBEAT, version, **who, member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    gone = groups.ask(HEARTBEAT, version, **who, member_epoch=2)
    assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "is not a member of group g" in gone.error_message


@pytest.mark.parametrize("version", [0, 1])
def test_groups_are_described(groups, version):
    groups.ask(HEARTBEAT, 1, member_id="me", rack_id="r", instance_id="i", **JOIN)
    found, missing = groups.ask(DESCRIBE, version, group_ids=("g", "none")).groups
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "uniform")
    assert (found.group_epoch, found.assignment_epoch) == (2, 2)
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("me", "i", "r")
    assert (member.client_id, member.client_host) == ("test", "/192.0.2.7")
    assert member.subscribed_topic_names == ("t",)
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == ("t", (0, 1))
    assert member.target_assignment == member.assignment
    if version >= 1:
        assert member.member_type == 1
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert missing.error_message == "Group none not found."
    assert {each.authorized_operations for each in (found, missing)} == {-(2**31)}


def test_groups_without_a_name_come_first(groups):
    """Fails when a client that goes by the order of Kafka's answers takes one group for another."""
    described = groups.ask(DESCRIBE, 1, group_ids=("b", "", "a")).groups
    assert [each.group_id for each in described] == ["", "b", "a"]
    assert described[0].error_code == ErrorCode.INVALID_GROUP_ID


def test_the_operations_on_a_group_are_told_to_who_asks(groups):
    """Fails when tools show fewer permissions than Kafka without an authorizer gives."""
    groups.ask(HEARTBEAT, 1, member_id="me", **JOIN)
    wanted = {"group_ids": ("g", "none"), "include_authorized_operations": True}
    found, missing = groups.ask(DESCRIBE, 1, **wanted).groups
    assert found.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))
    assert missing.authorized_operations == -(2**31)


def test_the_protocol_ends_with_its_feature(groups, world):
    """Members would stay with a protocol that the cluster has given up."""
    world.metadata.image = world.metadata.image.with_features({"group.version": 0})
    refused = groups.ask(HEARTBEAT, 1, member_id="me", **JOIN)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    (described,) = groups.ask(DESCRIBE, 1, group_ids=("g",)).groups
    assert described.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_protocol_can_be_switched_off(cluster_with, world):
    cluster = cluster_with({"group.coordinator.rebalance.protocols": "classic"})
    cluster.replace(groups=world.groups, metadata=world.metadata)
    refused = cluster.ask(HEARTBEAT, 1, member_id="me", **JOIN)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    (group,) = cluster.ask(DESCRIBE, 1, group_ids=("g",)).groups
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_failing_handler_is_answered_in_shape(cluster):
    """There is no coordinator at all here, which is a mistake of ours."""
    answer = cluster.ask(HEARTBEAT, 1, member_id="me", **JOIN)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    (group,) = cluster.ask(DESCRIBE, 1, group_ids=("g",)).groups
    assert group.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
