"""If these fail, a client sends records to brokers that do not lead, or reads metadata wrongly."""

from uuid import UUID

import pytest

from odradek.client.core.consuming.list_offsets import by_leader, list_offsets_request
from odradek.client.core.metadata import (
    ClusterMetadata,
    Node,
    PartitionMetadata,
    TopicMetadata,
    decode_metadata_response,
    encode_metadata_request,
)
from odradek.model import TopicPartition
from odradek.protocol import messages

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
    assert known.with_leader(partition, 2, 5) is known
    assert known.with_leader(TopicPartition("other", 0), 2, 9) is known
    moved = known.with_leader(partition, 3, 6)
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
