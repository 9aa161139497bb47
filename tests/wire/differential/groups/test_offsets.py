"""Committed offsets: Apache Kafka and ours answer the same, field by field, errors and all."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from tests.wire.differential.groups.test_groups import Member, coordinators
from tests.wire.differential.harness import Peer, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

__all__ = ["coordinators"]
Check = Callable[[Scenario], None]
COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
UNKNOWN_ID = UUID(int=12345)


def make_topic(peer: Peer, name: str, partitions: int = 2) -> UUID:
    """A topic of that name that members of groups can be assigned; its id."""
    topic_id = _make_topic(peer, name, partitions)
    peer.let_hear()
    return topic_id


def make_topic_to_commit(peer: Peer, name: str) -> UUID:
    """A topic of that name to which offsets can be committed; its id."""
    topic_id = _make_topic(peer, name, 2)
    partition = {"partition_index": 0, "committed_offset": 0}
    topics = [{"name": name, "partitions": [partition]}]
    peer.ask_until(_is_committed, "offset_commit", 2, group_id="settling", topics=topics)
    return topic_id


def _make_topic(peer: Peer, name: str, partitions: int) -> UUID:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    peer.prepare("create_topics", 7, topics=[topic], timeout_ms=9000)
    asked = [{"name": name}]
    peer.ask_until(_has_leaders, "metadata", 12, topics=asked)
    topic_id = peer.prepare("metadata", 12, topics=asked).topics[0].topic_id
    assert isinstance(topic_id, UUID)
    return topic_id


def _is_committed(answer: Any) -> bool:
    return not answer.topics[0].partitions[0].error_code


def _has_leaders(answer: Any) -> bool:
    return all(not topic.error_code and topic.partitions for topic in answer.topics)


def commit(peer: Peer, version: int, name: str, topic_id: UUID | None, **values: Any) -> Any:
    """Commits partitions 0 and 1 of a topic, as somebody who is no member."""
    partitions = [
        {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"},
        {"partition_index": 1, "committed_offset": 6, "committed_leader_epoch": 3},
    ]
    topic = {"name": name, "topic_id": topic_id, "partitions": partitions}
    asked = {
        "group_id": "commits",
        "generation_id_or_member_epoch": -1,
        "retention_time_ms": -1,
        "topics": [topic],
        **values,
    }
    return peer.ask("offset_commit", version, **asked)


def fetch(
    peer: Peer, version: int, group_id: str, topics: list[dict[str, Any]] | None, **values: Any
) -> Any:
    """Fetches offsets of one group."""
    if topics is not None and version < 10:
        topics = [{key: each[key] for key in ("name", "partition_indexes")} for each in topics]
    if version < 8:
        return peer.ask("offset_fetch", version, group_id=group_id, topics=topics, **values)
    group = {"group_id": group_id, "topics": topics, **values}
    return peer.ask("offset_fetch", version, groups=[group], require_stable=True)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_commits(same_answers: Check, version: int) -> None:
    def scenario(peer: Peer) -> None:
        name = f"commits{version}"
        topic_id = make_topic_to_commit(peer, name)
        commit(peer, version, name, topic_id)
        commit(peer, version, "none", UNKNOWN_ID)
        commit(peer, version, "", None)
        commit(peer, version, name, topic_id, group_id="")
        commit(peer, version, name, topic_id, topics=[])
        for partition in (
            {"partition_index": 2, "committed_offset": 1},
            {"partition_index": -1, "committed_offset": 1},
            {"partition_index": 0, "committed_offset": -1},
            {"partition_index": 0, "committed_offset": -2},
            {"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 4097},
            {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""},
            {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -7},
        ):
            topic = {"name": name, "topic_id": topic_id, "partitions": [partition]}
            other = {"name": "none", "topic_id": UNKNOWN_ID, "partitions": [partition]}
            commit(peer, version, name, topic_id, topics=[topic])
            commit(peer, version, name, topic_id, topics=[other])
            fetch(peer, 9, "commits", [{"name": name, "partition_indexes": [0, 1]}])
        strangers: list[dict[str, Any]] = [
            {"generation_id_or_member_epoch": 0},
            {"generation_id_or_member_epoch": 3, "member_id": "stranger"},
            {"member_id": "stranger"},
            {"group_instance_id": "one"},
            {"group_id": "none", "generation_id_or_member_epoch": 3, "member_id": "stranger"},
            {"group_id": "none", "member_id": "stranger"},
        ]
        for each in strangers:
            commit(peer, version, name, topic_id, **each)
        if version < 5:
            commit(peer, version, name, topic_id, retention_time_ms=1_000_000)
        peer.ask("delete_groups", 2, groups_names=["commits", "none", ""])

    same_answers(scenario)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_commits_of_members(same_answers: Check, version: int) -> None:
    def scenario(peer: Peer) -> None:
        name = f"members{version}"
        topic_id = make_topic_to_commit(peer, name)
        member = Member(peer, name, group_instance_id="one").settle()
        who = {
            "group_id": name,
            "member_id": member.member_id,
            "group_instance_id": "one",
            "generation_id_or_member_epoch": 1,
        }
        others: list[dict[str, Any]] = [
            {},
            {"generation_id_or_member_epoch": 0},
            {"generation_id_or_member_epoch": 2},
            {"generation_id_or_member_epoch": -1},
            {"generation_id_or_member_epoch": -1, "member_id": ""},
            {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None},
            {"member_id": "stranger"},
            {"member_id": "stranger", "group_instance_id": None},
            {"member_id": ""},
            {"group_instance_id": "two"},
            {"group_instance_id": None},
        ]
        for each in others:
            commit(peer, version, name, topic_id, **{**who, **each})
        member.send_join()
        commit(peer, version, name, topic_id, **who)
        commit(peer, version, name, topic_id, **{**who, "generation_id_or_member_epoch": 2})
        fetch(peer, 9, name, None)
        delete = [{"name": name, "partitions": [{"partition_index": 0}]}]
        peer.ask("offset_delete", 0, group_id=name, topics=delete)

    same_answers(scenario)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetches(same_answers: Check, version: int) -> None:
    def scenario(peer: Peer) -> None:
        name = f"fetches{version}"
        topic_id = make_topic_to_commit(peer, name)
        commit(peer, 9, name, None, group_id=name)
        asked: list[list[dict[str, Any]] | None] = [
            [{"name": name, "topic_id": topic_id, "partition_indexes": [0, 1, 2, -1]}],
            [{"name": "none", "topic_id": UNKNOWN_ID, "partition_indexes": [0]}],
            [{"name": "", "topic_id": None, "partition_indexes": [0]}],
            [{"name": name, "topic_id": topic_id, "partition_indexes": []}],
            [],
        ]
        if version >= 2:
            asked.append(None)
        for topics in asked:
            for group_id in (name, "none", ""):
                fetch(peer, version, group_id, topics)
        if version >= 8:
            groups = [{"group_id": each, "topics": None} for each in (name, "none", "", name)]
            peer.ask("offset_fetch", version, groups=groups)
            peer.ask("offset_fetch", version, groups=[])
        if version >= 9:
            for member_id in (None, "", "stranger"):
                for epoch in (-1, 0, 1):
                    fetch(peer, version, name, None, member_id=member_id, member_epoch=epoch)

    same_answers(scenario)


def test_deletions(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        make_topic_to_commit(peer, "deletions")
        commit(peer, 9, "deletions", None, group_id="deletions")
        indexes = [{"partition_index": each} for each in (0, 1, 2, -1)]
        for group_id in ("", "none", "deletions"):
            for topics in (
                [],
                [{"name": "none", "partitions": indexes}],
                [{"name": "", "partitions": indexes}],
                [{"name": "deletions", "partitions": []}],
                [{"name": "deletions", "partitions": indexes}],
                [{"name": "deletions", "partitions": indexes[:1]}],
            ):
                peer.ask("offset_delete", 0, group_id=group_id, topics=topics)
        fetch(peer, 9, "deletions", None)
        peer.ask("list_groups", 5)
        peer.ask("describe_groups", 6, groups=["deletions"])

    same_answers(scenario)


# Of topics "u", which the group does not commit to: what is read of them decides.
OTHER_TOPIC = b"\0\0\0\1\0\1u"
NO_DATA, NOTHING_OWNED = b"\xff\xff\xff\xff", b"\0\0\0\0"


@pytest.mark.parametrize(
    ("name", "metadata"),
    [
        ("cut-in-the-version", b"\0"),
        ("whole", b"\0\0" + OTHER_TOPIC + NO_DATA),
        ("cut-behind-the-topics", b"\0\0" + OTHER_TOPIC),
        ("version-1-without-owned", b"\0\1" + OTHER_TOPIC + NO_DATA),
        ("version-2-without-generation", b"\0\2" + OTHER_TOPIC + NO_DATA + NOTHING_OWNED),
        ("version-below-all", b"\xff\xff" + OTHER_TOPIC + NO_DATA),
        (
            "version-of-the-future",
            b"\0\x09" + OTHER_TOPIC + NO_DATA + NOTHING_OWNED + b"\0\0\0\1\xff\xffmore",
        ),
    ],
)
def test_subscriptions_as_far_as_they_are_read(
    same_answers: Check, name: str, metadata: bytes
) -> None:
    """The topics that a group still reads are kept from expiry and deletion, by the first fields
    alone."""

    def scenario(peer: Peer) -> None:
        topic_id = make_topic_to_commit(peer, name)
        protocols = [{"name": "range", "metadata": metadata}]
        member = Member(peer, name, protocols=protocols).settle()
        who = {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
        commit(peer, 9, name, topic_id, group_id=name, **who)
        topics = [{"name": name, "partitions": [{"partition_index": 0}]}]
        peer.ask("offset_delete", 0, group_id=name, topics=topics)
        named = [{"member_id": member.member_id}]
        peer.ask("leave_group", 5, group_id=name, members=named)
        peer.ask("offset_delete", 0, group_id=name, topics=topics)

    same_answers(scenario)
