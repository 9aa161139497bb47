"""ListOffsets of clients: one timestamp per partition, grouped by leader."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.client.apis import LIST_OFFSETS
from odradek.client.core.admin_types import OffsetAndTimestamp
from odradek.client.core.cluster import ClusterCore
from odradek.client.core.metadata import ClusterMetadata
from odradek.client.core.waits import Gen
from odradek.client.errors import (
    KafkaError,
    StaleMetadata,
    UnsupportedVersion,
    error_for,
    unanswered,
)
from odradek.errors import ErrorCode
from odradek.model import NO_LEADER_EPOCH, TopicPartition
from odradek.protocol.direct.list_offsets import (
    LeaseTerms,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    decode_list_offsets_response,
    encode_list_offsets_request,
)
from odradek.protocol.primitives import Buffer

CONSUMER: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

# The special values instead of a timestamp.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

# The first version that gives each of them a meaning.
SPEC_VERSIONS: Final[Mapping[int, int]] = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

Answers = dict[TopicPartition, OffsetAndTimestamp | KafkaError]


def list_offsets_gen(
    cluster: ClusterCore[Any],
    node_id: int,
    questions: Mapping[TopicPartition, int],
    isolation_level: int,
) -> Gen[Answers]:
    """Asks one broker about partitions that it leads: an answer or an error for each."""
    request = list_offsets_request(
        questions, cluster.metadata, isolation_level, cluster.request_timeout_ms
    )
    needed = max((SPEC_VERSIONS.get(question, 0) for question in questions.values()), default=0)

    def encode(version: int) -> list[Buffer]:
        if version < needed:
            raise UnsupportedVersion(f"the broker's ListOffsets {version} does not know this")
        return encode_list_offsets_request(request, version)

    try:
        response = yield from cluster.exchange_gen(
            node_id, LIST_OFFSETS, encode, decode_list_offsets_response
        )
    except KafkaError as error:
        return dict.fromkeys(questions, error)
    return {each: unanswered(each) for each in questions} | {
        each: answer for each, answer in _read(response).items() if each in questions
    }


def _read(response: ListOffsetsResponse) -> Answers:
    answers: Answers = {}
    for topic in response.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.index)
            answers[partition] = (
                error_for(each.error_code, str(partition))
                if each.error_code
                else OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
            )
    return answers


def no_leader(metadata: ClusterMetadata, partition: TopicPartition) -> KafkaError:
    """The error for a partition without a known leader."""
    is_known = metadata.partition(partition) is not None
    code = ErrorCode.LEADER_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = error_for(code, str(partition))
    assert isinstance(error, StaleMetadata), f"{code.name} is about metadata"
    return error


def list_offsets_request(
    questions: Mapping[TopicPartition, int],
    metadata: ClusterMetadata,
    isolation_level: int,
    timeout_ms: int,
) -> ListOffsetsRequest:
    """Makes a request for partitions that one broker leads, by a timestamp or one of the above."""
    by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for partition, position in questions.items():
        known = metadata.partition(partition)
        epoch = NO_LEADER_EPOCH if known is None else known.leader_epoch
        by_topic[partition.topic].append(ListOffsetsPartition(partition.partition, position, epoch))
    topics = [ListOffsetsTopic(name, partitions) for name, partitions in by_topic.items()]
    return ListOffsetsRequest(CONSUMER, topics, isolation_level, timeout_ms)


def lease_request(
    terms: LeaseTerms, offsets: Mapping[TopicPartition, int], timeout_ms: int
) -> ListOffsetsRequest:
    """Makes a request that takes a lease on partitions of one broker, from offsets on."""
    by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for partition, offset in offsets.items():
        by_topic[partition.topic].append(
            ListOffsetsPartition(partition.partition, EARLIEST, lease_offset=offset)
        )
    topics = [ListOffsetsTopic(name, partitions) for name, partitions in by_topic.items()]
    return ListOffsetsRequest(CONSUMER, topics, READ_UNCOMMITTED, timeout_ms, terms)


def by_leader(
    partitions: Iterable[TopicPartition], metadata: ClusterMetadata
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """The partitions by the id of the broker that leads them, and those without a known leader."""
    led: dict[int, list[TopicPartition]] = defaultdict(list)
    leaderless = []
    for partition in partitions:
        leader = metadata.leader_of(partition)
        if leader is None:
            leaderless.append(partition)
        else:
            led[leader.id].append(partition)
    return led, leaderless
