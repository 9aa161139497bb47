"""ListOffsets on an event loop: many partitions, each asked of its leader, all leaders at once."""

import asyncio
from collections.abc import Mapping

from odradek.client.aio.cluster import ClusterClient
from odradek.client.apis import LIST_OFFSETS
from odradek.client.core.admin_types import OffsetAndTimestamp
from odradek.client.core.consuming.list_offsets import (
    SPEC_VERSIONS,
    by_leader,
    list_offsets_request,
)
from odradek.client.errors import (
    KafkaError,
    StaleMetadata,
    UnsupportedVersion,
    error_for,
)
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.list_offsets import (
    ListOffsetsResponse,
    decode_list_offsets_response,
    encode_list_offsets_request,
)
from odradek.protocol.primitives import Buffer

Answers = dict[TopicPartition, OffsetAndTimestamp | KafkaError]


async def list_offsets(
    cluster: ClusterClient, questions: Mapping[TopicPartition, int], isolation_level: int
) -> Answers:
    """One attempt; the metadata of what failed retriably is asked for anew at the next.

    Raises:
        KafkaError: nobody answers to a question for metadata.
    """
    await refresh_unknown(cluster, questions)
    led, leaderless = by_leader(questions, cluster.metadata)
    answers: Answers = {partition: _no_leader(cluster, partition) for partition in leaderless}
    asked = [
        _ask(cluster, node_id, {each: questions[each] for each in partitions}, isolation_level)
        for node_id, partitions in led.items()
    ]
    for found in await asyncio.gather(*asked):
        answers |= found
    stale = {
        partition.topic for partition, answer in answers.items() if isinstance(answer, KafkaError)
    }
    cluster.metadata = cluster.metadata.without_topics(stale)
    return answers


async def list_all_offsets(
    cluster: ClusterClient, questions: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """As many attempts as it takes until all are answered; what is answered is not asked again.

    Raises:
        KafkaError: one cannot be answered, or not in time.
    """
    found: dict[TopicPartition, OffsetAndTimestamp] = {}

    async def attempt() -> None:
        missing = {each: at for each, at in questions.items() if each not in found}
        failed: KafkaError | None = None
        for partition, answer in (await list_offsets(cluster, missing, isolation_level)).items():
            if isinstance(answer, KafkaError):
                failed = answer
            else:
                found[partition] = answer
        if failed is not None:
            raise failed

    if questions:
        await cluster.retrying(attempt)
    return {partition: found[partition] for partition in questions}


async def refresh_unknown(cluster: ClusterClient, partitions: Mapping[TopicPartition, int]) -> None:
    """Asks for the topics of partitions that have no known leader.

    Raises:
        KafkaError: nobody answers.
    """
    unknown = {each.topic for each in partitions if cluster.metadata.leader_of(each) is None}
    if unknown:
        await cluster.refresh(unknown)


def _no_leader(cluster: ClusterClient, partition: TopicPartition) -> KafkaError:
    is_known = cluster.metadata.partition(partition) is not None
    code = ErrorCode.LEADER_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = error_for(code, str(partition))
    assert isinstance(error, StaleMetadata), f"{code.name} is about metadata"
    return error


async def _ask(
    cluster: ClusterClient,
    node_id: int,
    questions: Mapping[TopicPartition, int],
    isolation_level: int,
) -> Answers:
    request = list_offsets_request(
        questions, cluster.metadata, isolation_level, cluster.request_timeout_ms
    )
    needed = max((SPEC_VERSIONS.get(question, 0) for question in questions.values()), default=0)

    def encode(version: int) -> list[Buffer]:
        if version < needed:
            raise UnsupportedVersion(f"the broker's ListOffsets {version} does not know this")
        return encode_list_offsets_request(request, version)

    try:
        response = await cluster.exchange(
            node_id, LIST_OFFSETS, encode, decode_list_offsets_response
        )
    except KafkaError as error:
        return dict.fromkeys(questions, error)
    return _read(response)


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
