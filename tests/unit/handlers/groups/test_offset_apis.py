"""The APIs of offsets in every version, over a real coordinator; see `test_group_apis`."""

from uuid import UUID

import pytest
from tests.unit.coordinator.consumer.consumers import ConsumerWorld
from tests.unit.coordinator.transactional.test_transactional_offsets import Transactions
from tests.unit.handlers.groups.group_client import (
    COMMIT,
    CONSUMER_HEARTBEAT,
    FETCH,
    OFFSET_DELETE,
    Groups,
    every,
)

from odradek.errors import ErrorCode
from odradek.model import TransactionResult


@pytest.fixture
def world():
    return ConsumerWorld({"t": 2, "u": 1})


@pytest.fixture
def groups(cluster, world):
    return Groups(cluster, world)


def codes(response):
    return [int(each.error_code) for topic in response.topics for each in topic.partitions]


@every(COMMIT)
def test_offsets_are_committed(groups, world, version):
    """Fails when a client of that version cannot commit, or what it says is lost."""
    assert codes(groups.commit(version, {0: 5, 1: 6})) == [0, 0]
    assert world.committed("g") == {("t", 0): 5, ("t", 1): 6}
    stored = world.groups.fetch_offsets("g", None, -1).committed["t"][0]
    assert (stored.metadata, stored.topic_id) == ("m", world.topic_id("t"))


@every(COMMIT)
def test_members_commit_in_their_generation(groups, world, version):
    """Fails when a member's commit is refused, or one of an earlier generation is not."""
    joined = groups.stable()
    who = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert codes(groups.commit(version, **who)) == [0]
    old = {**who, "generation_id_or_member_epoch": 0}
    assert codes(groups.commit(version, {0: 1, 1: 1}, **old)) == [ErrorCode.ILLEGAL_GENERATION] * 2
    gone = {**who, "group_id": "none"}
    missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert codes(groups.commit(version, **gone)) == [missing]
    assert world.committed("g") == {("t", 0): 5}


@every(COMMIT, since=6)
def test_the_leader_epoch_is_kept(groups, world, version):
    """Fails when a consumer cannot notice that what it read was truncated (KIP-320)."""
    partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": 7}
    topic = {"name": "t", "topic_id": world.topic_id("t"), "partitions": (partition,)}
    answer = groups.ask(
        COMMIT, version, group_id="g", generation_id_or_member_epoch=-1, topics=(topic,)
    )
    assert codes(answer) == [0]
    assert world.groups.fetch_offsets("g", None, -1).committed["t"][0].leader_epoch == 7


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_retention_of_old_clients_is_kept(groups, world, version):
    """Fails when a retention that a client asked for is not what it gets."""
    groups.commit(version, retention_time_ms=1_000)
    stored = world.groups.fetch_offsets("g", None, -1).committed["t"][0]
    assert stored.expire_timestamp_ms == stored.commit_timestamp_ms + 1_000


@every(COMMIT)
def test_offsets_of_topics_that_are_not_there_are_refused_one_by_one(
    groups, world, version, caplog
):
    """Fails when offsets of deleted topics are stored, or cost the others their commit."""
    caplog.set_level("INFO")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(groups.commit(version, {0: 5, 2: 6, -1: 7})) == [0, unknown, unknown]
    missing = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else unknown
    assert codes(groups.commit(version, topic="none")) == [missing]
    world.set_topics(u=1)
    deleted = groups.ask(
        COMMIT,
        version,
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=({"name": "t", "topic_id": UUID(int=1), "partitions": ({"partition_index": 0},)},),
    )
    assert codes(deleted) == [missing]
    assert world.committed("g") == {("t", 0): 5}
    assert "group g: commit for partition 2 of topic" in caplog.text
    assert missing.name in caplog.text


def test_a_refused_commit_is_one_line_for_a_topic(world, groups, caplog):
    """A commit of 50 000 partitions that are not there would hold up everybody to log them."""
    caplog.set_level("INFO")
    world.set_topics(t=1)
    assert len(codes(groups.commit(9, dict.fromkeys(range(1, 101), 5)))) == 100
    lines = [record.message for record in caplog.records if "is refused" in record.message]
    assert len(lines) == 1
    assert "commit for partition 1 of topic" in lines[0]
    assert "and for 99 more" in lines[0]


def identity(world, version, topic):
    return {"topic_id": world.topic_id(topic)} if version >= 10 else {"name": topic}


def fetch(groups, version, topics, group_id="g", require_stable=False, **more):
    """OffsetFetch of one group: its error, and what it says of partitions."""
    asked = None
    if topics is not None:
        asked = [
            {**identity(groups.world, version, name), "partition_indexes": indexes}
            for name, indexes in topics.items()
        ]
    one = {"group_id": group_id, "topics": asked, **more}
    fields = {"groups": (one,)} if version >= 8 else one
    if require_stable:
        fields["require_stable"] = True
    answer = groups.ask(FETCH, version, **fields)
    answered = answer.groups[0] if version >= 8 else answer
    code = answered.error_code if version >= 2 else 0
    named = {groups.world.topic_id(name): name for name in ("t", "u")}
    found = {}
    for topic in answered.topics:
        name = named[topic.topic_id] if version >= 10 else topic.name
        for each in topic.partitions:
            assert each.error_code == 0 or version < 2 or require_stable
            found[name, each.partition_index] = each
    return int(code), found


@every(FETCH)
def test_committed_offsets_are_fetched(groups, world, version):
    """Fails when a client of that version does not find its place again."""
    groups.commit(9, {0: 5})
    code, found = fetch(groups, version, {"t": [0, 1], "u": [0]})
    assert code == 0
    assert {key: each.committed_offset for key, each in found.items()} == {
        ("t", 0): 5,
        ("t", 1): -1,
        ("u", 0): -1,
    }
    assert (found["t", 0].metadata, found["t", 1].metadata) == ("m", "")
    if version >= 5:
        assert found["t", 0].committed_leader_epoch == -1
    code, found = fetch(groups, version, {"t": [0]}, "none")
    assert (code, found["t", 0].committed_offset) == (0, -1)


@every(FETCH, since=2)
def test_all_topics_of_a_group_are_fetched(groups, version):
    """Fails when tools cannot ask for everything that a group has committed."""
    groups.commit(9, {0: 5, 1: 6})
    groups.commit(9, {0: 7}, topic="u")
    code, found = fetch(groups, version, None)
    assert code == 0
    assert {key: each.committed_offset for key, each in found.items()} == {
        ("t", 0): 5,
        ("t", 1): 6,
        ("u", 0): 7,
    }
    assert fetch(groups, version, {}) == (0, {})


@every(FETCH, since=8)
def test_many_groups_are_fetched_at_once(groups, version):
    """Fails when a tool that looks at all groups has to ask for each (KIP-709)."""
    groups.commit(9, {0: 5})
    groups.commit(9, {0: 7}, topic="u", group_id="h")
    asked = tuple({"group_id": each, "topics": None} for each in ("h", "none", "g"))
    answer = groups.ask(FETCH, version, groups=asked)
    assert [(each.group_id, each.error_code, len(each.topics)) for each in answer.groups] == [
        ("h", 0, 1),
        ("none", 0, 0),
        ("g", 0, 1),
    ]


@every(FETCH, since=7)
def test_who_asks_for_what_is_stable_waits_for_transactions(groups, world, version):
    """Fails when a reader begins again where an open transaction has already been (KIP-447)."""
    groups.commit(9, {0: 5, 1: 6})
    transactions = Transactions(world)
    transactions.commit(100, {("t", 0): 10})
    for topics in ({"t": [0, 1]}, None):
        code, found = fetch(groups, version, topics, require_stable=True)
        assert code == 0
        assert {
            key: (each.committed_offset, each.error_code, each.metadata)
            for key, each in found.items()
        } == {
            ("t", 0): (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT, ""),
            ("t", 1): (6, ErrorCode.NONE, "m"),
        }
        _, found = fetch(groups, version, topics)
        assert found["t", 0].committed_offset == 5
    transactions.end(100, TransactionResult.COMMIT)
    _, found = fetch(groups, version, {"t": [0]}, require_stable=True)
    assert found["t", 0].committed_offset == 10


@every(FETCH, since=9)
def test_members_of_the_newer_protocol_fetch_in_their_epoch(groups, version):
    """Fails when a member that was fenced goes on from the place of its heirs."""
    join = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    }
    groups.ask(CONSUMER_HEARTBEAT, 1, **join)
    assert fetch(groups, version, {"t": [0]}, member_id="m", member_epoch=2)[0] == 0
    assert fetch(groups, version, {"t": [0]})[0] == 0
    stale = fetch(groups, version, {"t": [0]}, member_id="m", member_epoch=3)
    assert stale == (ErrorCode.STALE_MEMBER_EPOCH, {})
    stranger = fetch(groups, version, {"t": [0]}, member_id="x", member_epoch=1)
    assert stranger == (ErrorCode.UNKNOWN_MEMBER_ID, {})


@every(FETCH)
def test_a_coordinator_that_has_moved_says_so_where_the_version_can(groups, world, version):
    """Fails when a client takes a broker that cannot know for one that knows of no offsets."""
    groups.commit(9, {0: 5})
    world.runtime.on_resigned(0)
    code, found = fetch(groups, version, {"t": [0, 1]})
    if version >= 2:
        assert (code, found) == (ErrorCode.NOT_COORDINATOR, {})
    else:
        assert [each.error_code for each in found.values()] == [ErrorCode.NOT_COORDINATOR] * 2
        assert [each.committed_offset for each in found.values()] == [-1, -1]


def test_fetching_by_an_unknown_topic_id(groups, world):
    """Fails when offsets of a topic that was deleted look like none committed."""
    topic = {"topic_id": UUID(int=99), "partition_indexes": (0,)}
    answer = groups.ask(FETCH, 10, groups=({"group_id": "g", "topics": (topic,)},))
    (answered,) = answer.groups[0].topics
    assert answered.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_offsets_are_deleted(groups, world):
    """Fails when one topic's refusal is told for another, or unknown partitions pass."""
    groups.stable()
    groups.world.commit("h", {("t", 0): 5, ("u", 0): 6})

    def delete(group_id, **topics):
        asked = [
            {"name": name, "partitions": [{"partition_index": each} for each in indexes]}
            for name, indexes in topics.items()
        ]
        return groups.ask(OFFSET_DELETE, 0, group_id=group_id, topics=asked)

    subscribed = delete("g", t=[0], u=[0, 5], none=[0])
    assert subscribed.error_code == 0
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(subscribed) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0, unknown, unknown]
    assert codes(delete("h", t=[0])) == [0]
    assert world.committed("h") == {("u", 0): 6}
    missing = delete("none", t=[0])
    assert (missing.error_code, missing.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())
