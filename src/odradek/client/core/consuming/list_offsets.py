"""ListOffsets as clients ask it: one question a partition, sorted by who leads them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.client.core.metadata import ClusterMetadata
from odradek.model import NO_LEADER_EPOCH, TopicPartition
from odradek.protocol.list_offsets import (
    LeaseTerms,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

CONSUMER: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

# What may be asked for instead of a timestamp.
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


def list_offsets_request(
    questions: Mapping[TopicPartition, int],
    metadata: ClusterMetadata,
    isolation_level: int,
    timeout_ms: int,
) -> ListOffsetsRequest:
    """One request for partitions that one broker leads, by a timestamp or one of the above."""
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
    """One request that takes a lease on partitions of one broker, from offsets on."""
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
