"""Consumer groups (KIP-848): Apache Kafka and ours answer the same, field by field."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from tests.wire.differential.groups.test_groups import Member, coordinators, describe, subscription
from tests.wire.differential.groups.test_offsets import commit, fetch, make_topic
from tests.wire.differential.harness import Peer, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

__all__ = ["coordinators"]
Check = Callable[[Scenario], None]


class Consumer:
    """A member of a consumer group that says what the test tells it to say."""

    def __init__(self, peer: Peer, group_id: str, member_id: str, *topics: str) -> None:
        self.peer = peer
        self.group_id = group_id
        self.member_id = member_id
        self.topics = list(topics)
        self.epoch = 0

    def join(self, **values: Any) -> Any:
        self.epoch = 0
        full = {
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": self.topics,
            "topic_partitions": [],
        }
        return self.beat(**{**full, **values})

    def beat(self, version: int = 1, **values: Any) -> Any:
        asked = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "rebalance_timeout_ms": -1,
            **values,
        }
        answer = self.peer.ask("consumer_group_heartbeat", version, **asked)
        if answer is not None and not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    def leave(self) -> None:
        """Says good-bye: other tests list the groups of the same brokers."""
        self.beat(member_epoch=-1)

    def owns(self, topic_id: UUID, *partitions: int) -> list[dict[str, Any]]:
        return [{"topic_id": topic_id, "partitions": list(partitions)}] if partitions else []


def describe_consumers(peer: Peer, *group_ids: str) -> None:
    for version in range(2):
        peer.ask(
            "consumer_group_describe",
            version,
            group_ids=list(group_ids),
            include_authorized_operations=bool(version),
        )


@pytest.mark.parametrize("version", [0, 1])
def test_heartbeats_that_are_refused(same_answers: Check, version: int) -> None:
    def scenario(peer: Peer) -> None:
        make_topic(peer, "refused", 2)
        group_id = f"refused{version}"
        known = Consumer(peer, group_id, "known", "refused")
        known.join()
        full: dict[str, Any] = {
            "member_epoch": 0,
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": ["refused"],
            "topic_partitions": [],
        }
        bad: list[dict[str, Any]] = [
            {"group_id": ""},
            {"group_id": " "},
            {"group_id": "none", "member_epoch": 3},
            {"group_id": "none", "member_epoch": -1},
            {"member_id": "", "member_epoch": 1},
            {"member_id": "", "member_epoch": -1},
            {"member_id": "", "member_epoch": -2},
            {"member_id": " ", "member_epoch": 1},
            {"member_id": " ", "member_epoch": -1},
            {"member_id": "stranger", "member_epoch": 1},
            {"member_id": "stranger", "member_epoch": -1},
            {"member_id": "stranger", "member_epoch": -2},
            {"member_id": "stranger", "member_epoch": -2, "instance_id": "one"},
            {"member_id": "stranger", "member_epoch": -1, "instance_id": "one"},
            {"member_id": "stranger", "member_epoch": 1, "instance_id": "one"},
            {"member_epoch": -3},
            {"member_epoch": -2},
            {"member_epoch": 7},
            {"instance_id": "one"},
            {"instance_id": ""},
            {"instance_id": " "},
            {"rack_id": ""},
            {"rack_id": " "},
            {"server_assignor": "none"},
            {"server_assignor": ""},
            {**full, "rebalance_timeout_ms": -1},
            {**full, "rebalance_timeout_ms": 0},
            {**full, "topic_partitions": None},
            {**full, "topic_partitions": [{"topic_id": UUID(int=5), "partitions": [0]}]},
            {**full, "subscribed_topic_names": None},
            {**full, "subscribed_topic_names": []},
            {**full, "subscribed_topic_names": None, "subscribed_topic_regex": ""},
            {**full, "subscribed_topic_names": None, "subscribed_topic_regex": "("},
            {**full, "instance_id": ""},
            {**full, "instance_id": " "},
            {**full, "rack_id": ""},
            {**full, "server_assignor": "none"},
            {"subscribed_topic_regex": "["},
        ]
        if version:
            bad.append({**full, "member_id": ""})
            bad.append({**full, "member_id": " "})
        epoch = known.epoch
        for each in bad:
            known.epoch = epoch
            known.beat(version, **each)
        describe_consumers(peer, group_id)

    same_answers(scenario)


def test_a_life(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        topic_id = make_topic(peer, "consumed", 4)
        anna = Consumer(peer, "consumed", "anna", "consumed", "none")
        anna.join()
        describe_consumers(peer, "consumed", "none")
        describe(peer, "consumed")
        peer.ask("list_groups", 5, types_filter=["consumer"])
        peer.ask("list_groups", 4, states_filter=["stable"])
        anna.beat()
        anna.beat(topic_partitions=anna.owns(topic_id, 0, 1, 2, 3))
        anna.beat(
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["consumed", "none"],
            topic_partitions=anna.owns(topic_id, 0, 1, 2, 3),
        )
        bert = Consumer(peer, "consumed", "bert", "consumed")
        bert.join()
        describe_consumers(peer, "consumed")
        bert.beat()
        anna.beat(topic_partitions=anna.owns(topic_id, 0, 1, 2, 3))
        describe_consumers(peer, "consumed")
        bert.beat()
        anna.beat(topic_partitions=anna.owns(topic_id, 0, 1))
        anna.beat()
        describe_consumers(peer, "consumed")
        bert.beat()
        bert.beat(topic_partitions=bert.owns(topic_id, 2, 3))
        describe_consumers(peer, "consumed")
        peer.ask("delete_groups", 2, groups_names=["consumed"])
        bert.epoch -= 1
        bert.beat(topic_partitions=bert.owns(topic_id, 2, 3))
        bert.epoch -= 1
        bert.beat(topic_partitions=bert.owns(topic_id, 2, 3))
        bert.join()
        bert.leave()
        describe_consumers(peer, "consumed")
        anna.beat(topic_partitions=anna.owns(topic_id, 0, 1))
        anna.leave()
        describe_consumers(peer, "consumed")
        describe(peer, "consumed")
        peer.ask("list_groups", 5, types_filter=["consumer"])
        peer.ask("delete_groups", 2, groups_names=["consumed"])

    same_answers(scenario)


def test_static_members(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        topic_id = make_topic(peer, "instances", 2)
        anna = Consumer(peer, "instances", "anna", "instances")
        anna.join(instance_id="one")
        early = Consumer(peer, "instances", "early", "instances")
        early.join(instance_id="one")
        anna.beat(instance_id="two")
        anna.beat(instance_id=None)
        # Kafka also refuses the member itself, should it join again: ours takes it for a repeated
        # request whose answer was lost.
        describe_consumers(peer, "instances")
        anna.beat(member_epoch=-2, instance_id="two")
        anna.beat(member_epoch=-2, instance_id="one")
        describe_consumers(peer, "instances")
        later = Consumer(peer, "instances", "later", "instances")
        later.join(instance_id="one")
        later.beat(instance_id="one", topic_partitions=later.owns(topic_id, 0, 1))
        anna.epoch = 2
        anna.beat(instance_id="one")
        anna.beat()
        anna.beat(member_epoch=-1, instance_id="one")
        later.beat(member_epoch=-1, instance_id="two")
        later.beat(member_epoch=-1, instance_id="one")
        describe_consumers(peer, "instances")

    same_answers(scenario)


def test_commits_of_members(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        topic_id = make_topic(peer, "kept", 4)
        make_topic(peer, "other", 1)
        anna = Consumer(peer, "kept", "anna", "kept")
        anna.join()
        bert = Consumer(peer, "kept", "bert", "kept")
        bert.join()
        anna.beat(topic_partitions=anna.owns(topic_id, 0, 1, 2, 3))

        def commits(*epochs: int, version: int = 9, who: str = "anna") -> None:
            for epoch in epochs:
                for name, index in (("kept", 0), ("kept", 3), ("kept", 9), ("other", 0)):
                    partition = {"partition_index": index, "committed_offset": epoch + 100}
                    commit(
                        peer,
                        version,
                        name,
                        topic_id,
                        group_id="kept",
                        member_id=who,
                        generation_id_or_member_epoch=epoch,
                        topics=[{"name": name, "topic_id": topic_id, "partitions": [partition]}],
                    )

        commits(0, 1, 2, 3, -1)
        anna.beat(topic_partitions=anna.owns(topic_id, 0, 1))
        commits(0, 1, 2, 3, -1)
        commits(0, 1, 2, 3, who="bert")
        commits(0, 1, 2, 3, who="stranger")
        commits(2, version=8)
        commits(1, 2, version=10)
        bert.beat()
        commits(1, 2, 3, who="bert")
        mixed = [{"partition_index": each, "committed_offset": 7} for each in (0, 3)]
        topics = [{"name": "kept", "topic_id": topic_id, "partitions": mixed}]
        who = {"group_id": "kept", "member_id": "anna", "generation_id_or_member_epoch": 1}
        commit(peer, 9, "kept", topic_id, **who, topics=topics)
        fetch(peer, 9, "kept", None)
        fetch(peer, 9, "kept", None, member_id=None, member_epoch=-1)
        for member_id in ("", "anna", "stranger"):
            for epoch in (-1, 0, 1, 2, 3):
                fetch(peer, 9, "kept", None, member_id=member_id, member_epoch=epoch)
        asked = [{"name": "kept", "partitions": [{"partition_index": 0}]}]
        asked.append({"name": "other", "partitions": [{"partition_index": 0}]})
        peer.ask("offset_delete", 0, group_id="kept", topics=asked)
        for member in (anna, bert):
            member.leave()

    same_answers(scenario)


def test_classic_requests_to_consumer_groups(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        make_topic(peer, "mixed", 2)
        anna = Consumer(peer, "mixed", "anna", "mixed")
        bert = Consumer(peer, "mixed", "bert", "mixed")
        anna.join()
        bert.join(instance_id="one")
        who = {"group_id": "mixed", "member_id": "anna", "generation_id": 1}
        for member_id in ("anna", "stranger", ""):
            for instance_id in (None, "one", "two"):
                said = {**who, "member_id": member_id, "group_instance_id": instance_id}
                peer.ask("heartbeat", 4, **said)
                peer.ask("sync_group", 5, **said, protocol_type="consumer", protocol_name="range")
        describe(peer, "mixed")
        for session_timeout_ms in (1, 3_000_000):
            Member(peer, "mixed", session_timeout_ms=session_timeout_ms).send_join()
        for version in range(3):
            for member_id in ("stranger", "", "anna"):
                peer.ask("leave_group", version, group_id="mixed", member_id=member_id)
        for version in range(3, 6):
            for member_id in ("stranger", "", "anna", "bert"):
                for instance_id in (None, "two", ""):
                    leaving = {"member_id": member_id, "group_instance_id": instance_id}
                    peer.ask("leave_group", version, group_id="mixed", members=[leaving])
        describe_consumers(peer, "mixed")
        by_instance = {"member_id": "", "group_instance_id": "one"}
        fenced = {"member_id": "anna", "group_instance_id": "one"}
        peer.ask("leave_group", 5, group_id="mixed", members=[fenced, by_instance])
        describe_consumers(peer, "mixed")

    same_answers(scenario)


def test_several_leave_a_consumer_group_at_once(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        make_topic(peer, "several", 2)
        for name in ("anna", "bert", "carl"):
            Consumer(peer, "several", name, "several").join()
        leaving = [{"member_id": name} for name in ("anna", "nobody", "bert", "anna")]
        peer.ask("leave_group", 5, group_id="several", members=leaving)
        describe_consumers(peer, "several")
        peer.ask("leave_group", 5, group_id="several", members=[{"member_id": "carl"}] * 2)
        describe_consumers(peer, "several")

    same_answers(scenario)


def test_an_id_that_was_handed_out_and_never_used(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        make_topic(peer, "handed", 2)
        Member(peer, "handed", version=5).send_join()
        describe(peer, "handed")
        anna = Consumer(peer, "handed", "anna", "handed")
        anna.join()
        describe_consumers(peer, "handed")
        anna.leave()
        describe_consumers(peer, "handed")

    same_answers(scenario)


def test_groups_that_change_their_kind(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        topic_id = make_topic(peer, "kinds", 2)
        member = Member(
            peer,
            "kinds",
            protocols=[{"name": "range", "metadata": subscription("kinds")}],
        )
        member.join()
        assignment = b"\0\0\0\0\0\1\0\5kinds\0\0\0\2\0\0\0\0\0\0\0\1\xff\xff\xff\xff"
        member.sync(assignments=[{"member_id": member.member_id, "assignment": assignment}])
        anna = Consumer(peer, "kinds", "anna", "kinds")
        anna.join()
        describe_consumers(peer, "kinds")
        describe(peer, "kinds")
        peer.ask("heartbeat", 4, **member.who())
        member.send_join()
        member.sync(assignments=[])
        describe_consumers(peer, "kinds")
        anna.beat(topic_partitions=anna.owns(topic_id))
        anna.leave()
        describe_consumers(peer, "kinds")
        describe(peer, "kinds")

    same_answers(scenario)


TOPIC_U = b"\0\0\0\1\0\1u"
NO_DATA, OWNED = b"\xff\xff\xff\xff", b"\0\0\0\1\0\1u\0\0\0\1\0\0\0\0"
# One that cannot be read is an UNKNOWN_SERVER_ERROR of Kafka's, where ours says what is wrong.
SUBSCRIPTIONS = {
    "version-0": b"\0\0" + TOPIC_U + NO_DATA,
    "version-1": b"\0\1" + TOPIC_U + NO_DATA + OWNED,
    "version-2": b"\0\2" + TOPIC_U + NO_DATA + OWNED + b"\0\0\0\1",
    "version-3": b"\0\3" + TOPIC_U + b"\0\0\0\4data" + OWNED + b"\0\0\0\1\0\4rack",
    "version-of-the-future": b"\0\x09" + TOPIC_U + NO_DATA + OWNED + b"\0\0\0\1\xff\xffmore",
    "twice-a-topic": b"\0\0" + b"\0\0\0\2\0\1u\0\1u" + NO_DATA,
}


def test_subscriptions_of_classic_members(same_answers: Check) -> None:
    """The topics that such a member reads, and the version of its answer, by what it wrote."""

    def scenario(peer: Peer) -> None:
        make_topic(peer, "u", 2)
        for name, metadata in SUBSCRIPTIONS.items():
            group_id = f"subscribed-{name}"
            Consumer(peer, group_id, "anna", "u").join()
            protocols = [{"name": "range", "metadata": metadata}]
            member = Member(peer, group_id, protocols=protocols)
            answer = member.join()
            if answer is not None and not answer.error_code:
                member.sync(assignments=[])
            describe_consumers(peer, group_id)

    same_answers(scenario)
