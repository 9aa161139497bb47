"""Groups that change their kind while members are in them, process by process."""

import pytest
from tests.unit.coordinator.consumers import Consumer, ConsumerWorld, settle
from tests.unit.coordinator.fakes import Member

from odradek.coordinator.consumer.client_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.protocol.primitives import Writer


def subscription(topics: list[str], owned: dict[str, list[int]]) -> bytes:
    """Version 1, as cooperative members write it."""
    writer = Writer()
    writer.int16(1)
    writer.array_length(len(topics), False)
    for topic in topics:
        writer.string(topic, False)
    writer.int32(-1)
    writer.array_length(len(owned), False)
    for topic, indexes in owned.items():
        writer.string(topic, False)
        writer.array_length(len(indexes), False)
        for index in indexes:
            writer.int32(index)
    return writer.to_bytes()


class ClassicConsumer(Member):
    """A cooperative consumer of the classic protocol that reads "t"."""

    world: ConsumerWorld

    def __init__(self, world: ConsumerWorld, name: str, **more: str) -> None:
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
        assigned = decode_assignment(self.synced[-1].assignment)
        self.owned = {topic: sorted(indexes) for topic, indexes in assigned.items()}

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
    everything = {world.topic_id("t"): frozenset(range(4))}
    whole = encode_assignment(1, everything, world.metadata.image)
    for member in members:
        member.sync({members[0].member_id: whole} if member.leads else None)
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
    whole = encode_assignment(1, {world.topic_id("t"): frozenset(range(4))}, world.metadata.image)
    old.sync({old.member_id: whole})
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
        decode_subscription(data)
    if data:
        with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
            decode_assignment(data)
