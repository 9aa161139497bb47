"""Produce requests, for users' producers and Spark's sink."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.client.apis import PRODUCE, ClientApi
from odradek.client.core.metadata import ClusterMetadata, Node
from odradek.client.errors import StaleMetadata
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.direct.produce import (
    TOPIC_ID_VERSION,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    encode_produce_request,
)
from odradek.protocol.primitives import Buffer

# Transactional batches of newer versions add their partition to the transaction by themselves;
# partitions are added by AddPartitionsToTxn here, which every broker understands.
_TRANSACTIONAL_PRODUCE: Final = ClientApi(
    PRODUCE.key,
    PRODUCE.name,
    PRODUCE.min_version,
    11,
    PRODUCE.flexible_from,
    PRODUCE.throttles_from,
)


class Terms(NamedTuple):
    """The fields that all requests of a producer share; `acks` is -1 for all in sync."""

    transactional_id: str | None
    acks: int
    timeout_ms: int

    @property
    def api(self) -> ClientApi:
        """Produce, in the versions that these terms have."""
        return PRODUCE if self.transactional_id is None else _TRANSACTIONAL_PRODUCE


def encode_request(
    terms: Terms,
    batches: Iterable[tuple[TopicPartition, Buffer]],
    metadata: ClusterMetadata,
    version: int,
) -> list[Buffer]:
    """The body of a request with a batch for each of some partitions.

    Raises:
        StaleMetadata: the id of a topic is not known.
    """
    topics: dict[str, ProduceTopic] = {}
    for (name, index), records in batches:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = _topic(name, metadata, version)
        topic.partitions.append(ProducePartition(index, records))
    request = ProduceRequest(
        terms.transactional_id, terms.acks, terms.timeout_ms, list(topics.values())
    )
    return encode_produce_request(request, version)


def answers_in(
    response: ProduceResponse, metadata: ClusterMetadata
) -> dict[TopicPartition, ProducePartitionResponse]:
    """The answers about partitions of topics that are known."""
    found = {}
    for topic in response.topics:
        name = topic.name
        if topic.topic_id is not None and (known := metadata.topics_by_id.get(topic.topic_id)):
            name = known.name
        if name is not None:
            for answer in topic.partitions:
                found[TopicPartition(name, answer.index)] = answer
    return found


def with_leader_of(
    metadata: ClusterMetadata,
    asked: ClusterMetadata,
    partition: TopicPartition,
    answer: ProducePartitionResponse,
    response: ProduceResponse,
) -> ClusterMetadata:
    """The metadata, with the leader that a refusal names (KIP-951) of a topic of those that were
    `asked` for."""
    if answer.current_leader_id < 0:
        return metadata
    topic = asked.topics.get(partition.topic)
    topic_id = None if topic is None else topic.topic_id
    nodes = [
        Node(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints
    ]
    return metadata.with_nodes(nodes).with_leader(
        partition, topic_id, answer.current_leader_id, answer.current_leader_epoch
    )


def _topic(name: str, metadata: ClusterMetadata, version: int) -> ProduceTopic:
    if version < TOPIC_ID_VERSION:
        return ProduceTopic(name, None, [])
    known = metadata.topics.get(name)
    if known is None or known.topic_id is None:
        raise StaleMetadata(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return ProduceTopic(None, known.topic_id, [])
