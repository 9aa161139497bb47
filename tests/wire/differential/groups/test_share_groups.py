"""Share groups (KIP-932): Apache Kafka and ours answer the same, field by field."""

import time
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID, uuid5

import pytest
from tests.deadlines import deadline_s
from tests.wire.differential.groups.test_groups import coordinators
from tests.wire.differential.groups.test_offsets import make_topic
from tests.wire.differential.harness import Peer, Scenario

from odradek.model import SHARE_GROUP_STATE_TOPIC
from odradek.records.builder import RecordBatchBuilder

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

__all__ = ["coordinators"]
Check = Callable[[Scenario], None]

NOBODY = UUID(int=77)
RETRY_S: Final = 0.1
HEARD_S: Final = deadline_s(20)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


def produce(peer: Peer, name: str, count: int, partition: int = 0) -> None:
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(1_700_000_000_000, None, b"value %d" % number)
    data = {"index": partition, "records": bytes(builder.build())}
    topics = [{"name": name, "partition_data": [data]}]
    peer.prepare("produce", 9, acks=-1, timeout_ms=9000, topic_data=topics)


def begin_early(peer: Peer, group_id: str, **settings: str) -> None:
    """The group reads from the log's start."""
    configs = [
        {"name": name, "config_operation": 0, "value": value}
        for name, value in {"share.auto.offset.reset": "earliest", **settings}.items()
    ]
    resource = {"resource_type": 32, "resource_name": group_id, "configs": configs}
    peer.prepare("incremental_alter_configs", 1, resources=[resource])
    # Kafka's controller answers before its brokers have heard of it.
    deadline = time.monotonic() + HEARD_S
    while not _early(peer, group_id):
        assert time.monotonic() < deadline, f"{group_id} is not known to begin early"
        time.sleep(RETRY_S)


def _early(peer: Peer, group_id: str) -> bool:
    name = "share.auto.offset.reset"
    resource = {
        "resource_type": 32,
        "resource_name": group_id,
        "configuration_keys": [name],
    }
    described = peer.prepare("describe_configs", 4, resources=[resource])
    return [each.value for each in described.results[0].configs] == ["earliest"]


class ShareMember:
    """A member of a share group that says what the test tells it to say."""

    def __init__(self, peer: Peer, group_id: str, member_id: str, *topics: str) -> None:
        self.peer = peer
        self.group_id = group_id
        self.member_id = member_id
        self.topics = list(topics)
        self.epoch = 0

    def beat(self, quietly: bool = False, **values: Any) -> Any:
        asked = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "subscribed_topic_names": self.topics if not self.epoch else None,
            **values,
        }
        ask = self.peer.quietly if quietly else self.peer.ask
        answer = ask("share_group_heartbeat", 1, **asked)
        if answer is not None and not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    def join(self, topic_id: UUID, partitions: int) -> None:
        """Comes in, and has its partitions: Kafka makes their states after the first heartbeat."""
        self.beat(quietly=True)
        held: set[int] = set()
        for _ in range(100):
            answer = self.beat(quietly=True, member_epoch=0, subscribed_topic_names=self.topics)
            for topic in answer.assignment.topic_partitions if answer.assignment else ():
                if topic.topic_id == topic_id:
                    held = set(topic.partitions)
            if len(held) == partitions:
                return
            time.sleep(RETRY_S)
        raise AssertionError(f"{self.member_id} is assigned {held}: {answer}")

    def fetch(self, epoch: int, *topics: Any, version: int = 2, **values: Any) -> Any:
        return self.peer.ask("share_fetch", version, **self._fetch(epoch, topics, values))

    def fetch_until(self, epoch: int, *topics: Any) -> Any:
        """Opens a session until it gives something, or complains of something else."""
        return self.peer.ask_until(
            lambda answer: any(
                each.acquired_records for topic in answer.responses for each in topic.partitions
            ),
            "share_fetch",
            2,
            **self._fetch(epoch, topics, {"max_wait_ms": 5000}),
        )

    def _fetch(self, epoch: int, topics: Any, values: Any) -> Any:
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": epoch,
            "max_wait_ms": 100,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            "topics": list(topics),
            "forgotten_topics_data": [],
            **values,
        }

    def acknowledge(self, epoch: int, *topics: Any, version: int = 2, **values: Any) -> Any:
        return self.peer.ask(
            "share_acknowledge",
            version,
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            topics=list(topics),
            **values,
        )

    def leave(self) -> None:
        answer = self.beat(quietly=True, member_epoch=-1)
        assert answer is not None, "the connection was closed"
        assert not answer.error_code, answer


def of(topic_id: UUID, *batches: tuple[int, int, list[int]], partition: int = 0) -> dict[str, Any]:
    said = [
        {"first_offset": first, "last_offset": last, "acknowledge_types": types}
        for first, last, types in batches
    ]
    partitions = [{"partition_index": partition, "acknowledgement_batches": said}]
    return {"topic_id": topic_id, "partitions": partitions}


def begun(peer: Peer, name: str, count: int, **settings: str) -> tuple[ShareMember, UUID]:
    """A member that is assigned the one partition of a topic."""
    topic_id = make_topic(peer, name, 1)
    begin_early(peer, f"{name}-g", **settings)
    if count:
        produce(peer, name, count)
    member = ShareMember(peer, f"{name}-g", str(uuid5(NOBODY, name)), name)
    member.join(topic_id, 1)
    return member, topic_id


def test_heartbeats(same_answers: Check, coordinators: None) -> None:
    """If this fails, a client that is told of an error does something else than with Kafka."""

    def scenario(peer: Peer) -> None:
        make_topic(peer, "share-beats", 1)
        member = ShareMember(peer, "share-beats-g", str(uuid5(NOBODY, "b")), "share-beats")
        member.beat(member_id="")
        member.beat(group_id="")
        member.beat(member_epoch=-2)
        member.beat(subscribed_topic_names=None)
        member.beat(subscribed_topic_names=[])
        member.beat(rack_id="")
        member.beat(member_epoch=3, subscribed_topic_names=None)
        member.beat(member_epoch=-1)
        member.beat(quietly=True)
        member.beat(member_epoch=77)
        member.beat(member_id="somebody", member_epoch=1)
        member.beat(member_epoch=-1)
        member.beat(member_epoch=-1)
        for group_id in ("share-beats-g", "nobody's", ""):
            peer.ask("share_group_describe", 1, group_ids=[group_id])
        peer.quietly("delete_groups", 2, groups_names=["share-beats-g"])

    same_answers(scenario)


def test_epochs(same_answers: Check, coordinators: None) -> None:
    """If this fails, a member that moves from one broker to the other is fenced."""

    def scenario(peer: Peer) -> None:
        member = ShareMember(peer, "share-epochs-g", str(uuid5(NOBODY, "e")), "share-epochs-none")
        member.beat()
        member.beat()
        peer.ask("share_group_describe", 1, group_ids=[member.group_id])
        member.leave()
        peer.quietly("delete_groups", 2, groups_names=[member.group_id])
        name = "share-epochs"
        topic_id = make_topic(peer, name, 1)
        partitions = [{"partition_index": 0, "start_offset": 0}]
        wish = [{"topic_name": name, "partitions": partitions}]
        peer.ask("alter_share_group_offsets", 0, group_id="share-epochs-h", topics=wish)
        peer.ask(
            "read_share_group_state_summary",
            1,
            group_id="share-epochs-h",
            topics=[{"topic_id": topic_id, "partitions": [{"partition": 0, "leader_epoch": -1}]}],
        )
        peer.ask("delete_groups", 2, groups_names=["share-epochs-h"])
        peer.ask("delete_topics", 6, topics=[{"name": name, "topic_id": None}], timeout_ms=9000)

    same_answers(scenario)


def test_a_member_that_sends_everything_again(same_answers: Check, coordinators: None) -> None:
    """If this fails, a member whose answer was lost never hears what it has to read."""

    def scenario(peer: Peer) -> None:
        name = "share-again"
        topic_id = make_topic(peer, name, 1)
        member = ShareMember(peer, f"{name}-g", str(uuid5(NOBODY, name)), name)
        member.join(topic_id, 1)
        # How many epochs a member takes to join is a matter of time, with Kafka.
        for names, told in ((None, None), ([name], [(topic_id, [0])])):
            held = member.beat(quietly=True, subscribed_topic_names=names).assignment
            topics = held and [
                (each.topic_id, list(each.partitions)) for each in held.topic_partitions
            ]
            assert topics == told, peer
        member.leave()

    same_answers(scenario)


def test_groups_of_other_kinds(same_answers: Check, coordinators: None) -> None:
    """If this fails, a share group can be taken over by a consumer, or the other way round."""

    def scenario(peer: Peer) -> None:
        member, _ = begun(peer, "share-kinds", 0)
        group_id = member.group_id
        peer.ask(
            "consumer_group_heartbeat",
            1,
            group_id=group_id,
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["share-kinds"],
            topic_partitions=[],
        )
        peer.ask(
            "join_group",
            5,
            group_id=group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        peer.ask("describe_groups", 6, groups=[group_id])
        for topics in (None, [{"name": "share-kinds", "partition_indexes": [0, 1]}]):
            peer.ask("offset_fetch", 9, groups=[{"group_id": group_id, "topics": topics}])
            named = [] if topics is None else topics
            peer.ask("offset_fetch", 7, group_id=group_id, topics=named, require_stable=True)
        peer.ask("list_groups", 5, states_filter=[], types_filter=["share"])
        peer.ask("list_groups", 5, states_filter=["stable"], types_filter=["share"])
        peer.ask("delete_groups", 2, groups_names=[group_id])
        member.leave()
        peer.ask("delete_groups", 2, groups_names=[group_id])
        peer.ask("delete_groups", 2, groups_names=[group_id])

    same_answers(scenario)


def test_sessions(same_answers: Check, coordinators: None) -> None:
    """If this fails, clients lose their sessions for good, or go on in those of others."""

    def scenario(peer: Peer) -> None:
        member, topic_id = begun(peer, "share-sessions", 4)
        member.fetch(5, of(topic_id))
        member.fetch(-1, of(topic_id))
        member.fetch(0, of(topic_id, (0, 1, [ACCEPT])))
        member.acknowledge(0, of(topic_id, (0, 1, [ACCEPT])))
        member.acknowledge(1, of(topic_id, (0, 1, [ACCEPT])))
        member.fetch_until(0, of(topic_id))
        member.fetch(2)
        member.fetch(0)
        member.fetch(1)
        member.fetch(2, of(topic_id, partition=9))
        member.fetch(3, forgotten_topics_data=[{"topic_id": NOBODY, "partitions": [0]}])
        member.fetch(-1)
        member.fetch(1)
        member.leave()

    same_answers(scenario)


def test_acknowledgements(same_answers: Check, coordinators: None) -> None:
    """If this fails, what a client says wrongly is taken for right, or the other way round."""

    def scenario(peer: Peer) -> None:
        member, topic_id = begun(peer, "share-acks", 20)
        member.fetch_until(0, of(topic_id))
        said = (
            [(3, 2, [ACCEPT])],
            [(0, 3, [ACCEPT]), (3, 4, [ACCEPT])],
            [(4, 5, [ACCEPT]), (0, 1, [ACCEPT])],
            [(0, 3, [])],
            [(0, 3, [ACCEPT, ACCEPT])],
            [(0, 3, [7])],
            [(0, 3, [RENEW])],
            [(15, 25, [ACCEPT])],
            [(30, 35, [ACCEPT])],
            [(0, 1, [ACCEPT])],
            [(0, 1, [ACCEPT])],
            [(1, 2, [ACCEPT])],
            [(2, 5, [RELEASE, REJECT, GAP, ACCEPT])],
            [(6, 6, [ACCEPT]), (8, 9, [REJECT])],
        )
        epoch = 1
        for batches in said:
            member.acknowledge(epoch, of(topic_id, *batches))
            epoch += 1
        member.acknowledge(epoch, of(NOBODY, (0, 1, [ACCEPT])))
        member.acknowledge(epoch + 1, of(topic_id, (0, 1, [ACCEPT]), partition=4))
        member.acknowledge(epoch + 2, of(topic_id, (10, 11, [RENEW])), is_renew_ack=True)
        stranger = ShareMember(peer, member.group_id, "stranger", "share-acks")
        stranger.acknowledge(1, of(topic_id, (10, 11, [ACCEPT])))
        member.fetch(epoch + 3, of(topic_id, (12, 12, [RELEASE])))
        member.fetch(
            epoch + 4,
            of(topic_id, (13, 13, [ACCEPT])),
            forgotten_topics_data=[{"topic_id": topic_id, "partitions": [0]}],
        )
        member.fetch(epoch + 5, of(topic_id, (14, 14, [RENEW])), is_renew_ack=True)
        member.fetch(
            epoch + 5,
            of(topic_id, (14, 14, [RENEW])),
            is_renew_ack=True,
            max_bytes=0,
            min_bytes=0,
            max_records=0,
            max_wait_ms=0,
        )
        member.acknowledge(-1, of(topic_id, (15, 15, [ACCEPT])))
        member.leave()

    same_answers(scenario)


def test_delivery(same_answers: Check, coordinators: None) -> None:
    """If this fails, records are handed out in other parts, or another number of times."""

    def scenario(peer: Peer) -> None:
        settings = {"share.delivery.count.limit": "5"}
        member, topic_id = begun(peer, "share-delivery", 8, **settings)
        member.fetch_until(0, of(topic_id))
        for epoch in range(1, 15, 2):
            member.acknowledge(epoch, of(topic_id, *_held(peer, RELEASE)))
            member.fetch(epoch + 1)
        member.fetch(15, share_acquire_mode=1, max_records=2)
        member.leave()

    def _held(peer: Peer, kind: int) -> list[tuple[int, int, list[int]]]:
        values = peer.answers[-1].values
        return [
            (each["first_offset"], each["last_offset"], [kind])
            for topic in values["responses"]
            for partition in topic["partitions"]
            for each in partition["acquired_records"]
        ]

    same_answers(scenario)


def test_offsets(same_answers: Check, coordinators: None) -> None:
    """If this fails, tools show or set other offsets than with Kafka."""

    def scenario(peer: Peer) -> None:
        member, topic_id = begun(peer, "share-offsets", 10)
        name, group_id = "share-offsets", member.group_id

        def describe(*topics: str) -> None:
            asked = [{"topic_name": each, "partitions": [0]} for each in topics] or None
            peer.ask(
                "describe_share_group_offsets", 1, groups=[{"group_id": group_id, "topics": asked}]
            )

        member.fetch_until(0, of(topic_id))
        member.acknowledge(1, of(topic_id, (0, 4, [ACCEPT])))
        member.acknowledge(2, of(topic_id, (5, 6, [ACCEPT])))
        describe(name)
        describe()
        describe("no-such-topic")
        peer.ask(
            "describe_share_group_offsets", 1, groups=[{"group_id": "nobody's", "topics": None}]
        )
        partitions = [{"partition_index": 0, "start_offset": 3}]
        wish = [{"topic_name": name, "partitions": partitions}]
        unknown = [{"topic_name": "no-such-topic", "partitions": partitions}]
        peer.ask("alter_share_group_offsets", 0, group_id=group_id, topics=wish)
        peer.ask("delete_share_group_offsets", 0, group_id=group_id, topics=[{"topic_name": name}])
        member.acknowledge(-1)
        member.leave()
        peer.ask("alter_share_group_offsets", 0, group_id=group_id, topics=wish + unknown)
        describe(name)
        peer.ask("alter_share_group_offsets", 0, group_id="nobody's", topics=wish)
        peer.ask(
            "delete_share_group_offsets", 0, group_id="nobody's", topics=[{"topic_name": name}]
        )
        peer.ask("delete_share_group_offsets", 0, group_id=group_id, topics=[{"topic_name": name}])
        describe()
        peer.quietly("delete_groups", 2, groups_names=[group_id])

    same_answers(scenario)


def test_states(same_answers: Check, coordinators: None) -> None:
    """If this fails, brokers of a mixed cluster do not understand one another."""

    def scenario(peer: Peer) -> None:
        topic_id = make_topic(peer, "share-states", 1)
        find = {"key_type": 2, "coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAATQ:0"]}
        peer.ask_until(
            lambda answer: not answer.coordinators[0].error_code, "find_coordinator", 6, **find
        )
        peer.ask("find_coordinator", 5, **find)
        for key in ("g", "g:t:0", "g:AAAAAAAAAAAAAAAAAAAATQ:x", ""):
            peer.ask("find_coordinator", 6, key_type=2, coordinator_keys=[key])
        peer.ask("metadata", 12, topics=[{"name": SHARE_GROUP_STATE_TOPIC}])

        def ask(
            api: str, version: int, which: UUID = topic_id, index: int = 0, **data: Any
        ) -> None:
            partitions = [{"partition": index, **data}]
            peer.ask_until(
                lambda answer: answer.results[0].partitions[0].error_code not in (14, 15),
                api,
                version,
                group_id="share-states-g",
                topics=[{"topic_id": which, "partitions": partitions}],
            )

        batch = {"first_offset": 5, "last_offset": 6, "delivery_state": 2, "delivery_count": 1}
        write = {"state_epoch": 1, "leader_epoch": 0, "start_offset": 5, "state_batches": [batch]}
        ask("read_share_group_state", 0, leader_epoch=0)
        ask("write_share_group_state", 1, **write)
        ask("read_share_group_state_summary", 1, leader_epoch=0)
        ask("initialize_share_group_state", 0, state_epoch=1, start_offset=5)
        ask("initialize_share_group_state", 0, state_epoch=0, start_offset=5)
        ask("initialize_share_group_state", 0, NOBODY, state_epoch=1, start_offset=5)
        ask("initialize_share_group_state", 0, topic_id, 7, state_epoch=1, start_offset=5)
        ask("initialize_share_group_state", 0, topic_id, -1, state_epoch=1, start_offset=5)
        ask("write_share_group_state", 1, **write, delivery_complete_count=2)
        ask("read_share_group_state", 0, leader_epoch=3)
        ask("write_share_group_state", 1, **write)
        ask("write_share_group_state", 1, **{**write, "leader_epoch": 3, "state_epoch": 0})
        ask("read_share_group_state", 0, leader_epoch=1)
        ask("read_share_group_state_summary", 1, leader_epoch=3)
        ask("read_share_group_state_summary", 1, leader_epoch=-1)
        ask("delete_share_group_state", 0)
        ask("delete_share_group_state", 0)
        ask("read_share_group_state", 0, leader_epoch=3)
        for which, index in ((NOBODY, 0), (NOBODY, -1), (UUID(int=0), 0), (topic_id, 7)):
            ask("read_share_group_state", 0, which, index, leader_epoch=0)
            ask("write_share_group_state", 1, which, index, **write)
            ask("read_share_group_state_summary", 1, which, index, leader_epoch=0)
            ask("delete_share_group_state", 0, which, index)

    same_answers(scenario)
