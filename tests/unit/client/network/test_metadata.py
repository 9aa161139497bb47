"""If these fail, a client sends records to brokers that do not lead, or reads metadata wrongly."""

import random
from uuid import UUID

import pytest

from odradek.client.core.consuming.list_offsets import by_leader, list_offsets_request
from odradek.client.core.freshness import Freshness
from odradek.client.core.metadata import (
    ClusterMetadata,
    Node,
    PartitionMetadata,
    TopicMetadata,
    decode_metadata_response,
    encode_metadata_request,
)
from odradek.client.core.producing.requests import answers_in
from odradek.client.core.retries import ExponentialBackoff
from odradek.client.errors import KafkaError, StaleMetadata, error_for
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.direct.produce import (
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
)

ID = UUID(int=7)
NODE = Node(1, "localhost", 9092)
OTHER = Node(2, "localhost", 9093, "east")


def topic(name: str, *leaders: tuple[int, int], topic_id: UUID | None = ID) -> TopicMetadata:
    """A topic whose partitions have these leaders, in these epochs."""
    partitions = {index: PartitionMetadata(*leader) for index, leader in enumerate(leaders)}
    return TopicMetadata(name, topic_id, False, partitions)


def cluster(*topics: TopicMetadata) -> ClusterMetadata:
    return ClusterMetadata({1: NODE, 2: OTHER}, {each.name: each for each in topics}, "c", 1)


@pytest.mark.parametrize("version", range(4, 14))
def test_the_codec_reads_and_writes_what_kafkas_definition_says(version: int) -> None:
    values = {
        "brokers": [{"node_id": 2, "host": "localhost", "port": 9093, "rack": "east"}],
        "cluster_id": "c",
        "controller_id": 2,
        "topics": [
            {
                "name": "t",
                "topic_id": ID,
                "partitions": [
                    {
                        "partition_index": 0,
                        "leader_id": 2,
                        "leader_epoch": 5,
                        "replica_nodes": [2, 1],
                        "isr_nodes": [2],
                        "offline_replicas": [1],
                    }
                ],
                "topic_authorized_operations": 264,
            },
            {"name": "gone", "topic_id": None, "error_code": 3},
        ],
    }
    frame = memoryview(b"head" + messages.encode_response(3, version, values))
    read = decode_metadata_response(frame, version, 4)
    assert read.nodes == {2: OTHER}
    assert (read.cluster_id, read.controller_id) == ("c", 2)
    assert read.topics["gone"].error_code == 3
    found = read.topics["t"]
    assert found.topic_id == (ID if version >= 10 else None)
    assert found.authorized_operations == (264 if version >= 8 else None)
    [partition] = found.partition_metadata.values()
    epoch = 5 if version >= 7 else -1
    offline = (1,) if version >= 5 else ()
    assert partition == PartitionMetadata(2, epoch, (2, 1), (2,), offline)
    request = encode_metadata_request(["t"], version, include_authorized_operations=True)
    read_back = messages.decode_request(3, version, memoryview(request), 0)
    assert [each.name for each in read_back.topics] == ["t"]
    assert read_back.allow_auto_topic_creation is False
    every = messages.decode_request(
        3, version, memoryview(encode_metadata_request(None, version)), 0
    )
    assert every.topics is None


def test_an_older_leader_does_not_replace_a_newer_one() -> None:
    known = cluster(topic("t", (1, 5), (1, 5)))
    merged = known.merged(cluster(topic("t", (2, 4), (2, 6))), is_complete=False)
    leaders = merged.topics["t"].partition_metadata
    assert [leaders[0].leader, leaders[1].leader] == [1, 2]


def test_a_topic_made_anew_begins_anew() -> None:
    known = cluster(topic("t", (1, 5)))
    anew = cluster(topic("t", (2, 0), topic_id=UUID(int=8)))
    assert known.merged(anew, is_complete=False).topics["t"].partition_metadata[0].leader == 2


def test_topics_that_were_not_asked_for_stay_and_those_that_are_gone_go() -> None:
    known = cluster(topic("a", (1, 0)), topic("b", (1, 0)))
    gone = TopicMetadata("b", None, False, {}, error_code=3)
    assert set(known.merged(cluster(gone), is_complete=False).topics) == {"a"}
    assert set(known.merged(cluster(topic("b", (1, 0))), is_complete=True).topics) == {"b"}


def test_a_leader_that_an_answer_names_is_taken_if_it_is_news() -> None:
    known = cluster(topic("t", (1, 5)))
    partition = TopicPartition("t", 0)
    topic_id = known.topics["t"].topic_id
    assert known.with_leader(partition, topic_id, 2, 5) is known
    assert known.with_leader(partition, UUID(int=8), 2, 9) is known
    assert known.with_leader(TopicPartition("other", 0), topic_id, 2, 9) is known
    moved = known.with_leader(partition, topic_id, 3, 6)
    assert moved.leader_of(partition) is None
    assert moved.with_nodes([Node(3, "h", 1)]).leader_of(partition) == Node(3, "h", 1)


def test_questions_are_sorted_by_leader_with_the_epoch_that_is_known() -> None:
    known = cluster(topic("t", (1, 5), (2, 6), (-1, 7)))
    partitions = [TopicPartition("t", index) for index in range(4)]
    led, leaderless = by_leader(partitions, known)
    assert led == {1: [partitions[0]], 2: [partitions[1]]}
    assert leaderless == partitions[2:]
    request = list_offsets_request({partitions[1]: -2}, known, 1, 500)
    [asked] = request.topics
    [question] = asked.partitions
    assert (question.index, question.timestamp, question.current_leader_epoch) == (1, -2, 6)
    assert (request.isolation_level, request.timeout_ms) == (1, 500)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_errors_that_say_that_metadata_is_stale(code: ErrorCode) -> None:
    """A producer would send to the same broker until its records expire."""
    assert isinstance(error_for(code), StaleMetadata)


def test_what_an_answer_refuses_is_told_with_its_reason() -> None:
    """A reader would be told the name alone."""
    illegal = TopicMetadata("bad topic", None, False, {}, ErrorCode.INVALID_TOPIC_EXCEPTION)
    passing = TopicMetadata("t", None, False, {}, ErrorCode.LEADER_NOT_AVAILABLE)
    answer = cluster(passing, illegal)
    answer.raise_refused(["t", "unknown"])
    with pytest.raises(KafkaError) as refused:
        answer.raise_refused(["t", "bad topic"])
    reason = ErrorCode.INVALID_TOPIC_EXCEPTION.text
    assert str(refused.value) == f"INVALID_TOPIC_EXCEPTION: bad topic: {reason}"


def test_a_passing_error_does_not_take_what_is_known() -> None:
    known = cluster(topic("t", (1, 3)))
    failing = TopicMetadata("t", None, False, {}, ErrorCode.LEADER_NOT_AVAILABLE)
    gone = TopicMetadata("t", None, False, {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for is_complete in (True, False):
        assert "t" in known.merged(cluster(failing), is_complete=is_complete).topics
        assert "t" not in known.merged(cluster(gone), is_complete=is_complete).topics


class Fresh:
    """The ages of some topics, on a clock that is set."""

    def __init__(self) -> None:
        self.freshness = Freshness(10_000, ExponentialBackoff(100, 1_000, random.Random(1)))
        self.known = cluster()
        self.now_ms = 0

    def answer(self, *names: str, leaders: tuple[int, int] = (1, 0)) -> None:
        answer = cluster(*(topic(name, leaders) for name in names))
        before, self.known = self.known, self.known.merged(answer, is_complete=False)
        self.freshness.sent(names)
        self.freshness.answered(names, before, self.known, answer, self.now_ms)

    def outdated(self, *names: str) -> set[str]:
        return self.freshness.outdated(names, self.known, self.now_ms)


def test_every_topic_has_an_age_of_its_own() -> None:
    fresh = Fresh()
    fresh.answer("a", "b")
    assert fresh.outdated("a", "b", "c") == {"c"}
    fresh.now_ms = 9_000
    fresh.answer("a")
    fresh.now_ms = 10_000
    assert fresh.outdated("a", "b") == {"b"}


def test_a_doubt_lasts_until_somebody_asks_after_it() -> None:
    fresh = Fresh()
    fresh.answer("a")
    fresh.freshness.sent(["a"])
    fresh.freshness.doubt(["a"])  # while the question is under way
    assert fresh.outdated("a") == {"a"}
    fresh.answer("a")
    assert fresh.outdated("a") == set()
    fresh.freshness.sent(["a"])
    fresh.freshness.failed(["a"], fresh.now_ms)
    assert fresh.outdated("a") == {"a"}


def test_pauses_grow_while_answers_bring_nothing_new() -> None:
    fresh = Fresh()
    fresh.answer("a")
    assert fresh.freshness.wait_ms(["b"], 0) == fresh.freshness.wait_ms(["a", "b"], 0) == 0
    waits = []
    for _ in range(6):
        waits.append(fresh.freshness.wait_ms(["a"], fresh.now_ms))
        fresh.now_ms += waits[-1]
        fresh.answer("a")
    assert waits == sorted(waits)
    assert waits[0] <= 120
    assert waits[-1] == 1_000
    fresh.answer("a", leaders=(2, 1))
    assert fresh.freshness.wait_ms(["a"], fresh.now_ms) <= 120


def test_what_was_never_asked_for_is_asked_for_at_once_on_a_clock_below_zero() -> None:
    """It would wait for 0, which a clock that stands never comes to."""
    assert Fresh().freshness.wait_ms(["a"], -501) == 0


def test_an_answer_about_a_topic_that_nobody_knows_is_passed_over() -> None:
    """The sender would fail, and the records of all other partitions with it."""
    mine, others = ProducePartitionResponse(0, 0, 5), ProducePartitionResponse(0, 0, 9)
    unnamed, unknown = topic("unnamed", (1, 3), topic_id=None), UUID(int=8)
    answer = ProduceResponse(
        [
            ProduceTopicResponse(None, unknown, [others]),
            ProduceTopicResponse(None, ID, [mine]),
            ProduceTopicResponse("unnamed", None, [others]),
            ProduceTopicResponse(None, None, [others]),
        ]
    )
    found = answers_in(answer, cluster(topic("t", (1, 3)), unnamed))
    assert found == {TopicPartition("t", 0): mine, TopicPartition("unnamed", 0): others}
