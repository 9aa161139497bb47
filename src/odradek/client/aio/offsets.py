"""Questions about offsets on an event loop: each partition's leader is asked, all at once."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.waiting import wait
from odradek.client.apis import OFFSET_FOR_LEADER_EPOCH
from odradek.client.core.admin_types import OffsetAndTimestamp
from odradek.client.core.consuming.list_offsets import (
    CONSUMER,
    Answers,
    by_leader,
    list_offsets_gen,
    no_leader,
)
from odradek.client.core.consuming.positions import EpochEnd, Fetched
from odradek.client.core.metadata import by_topic
from odradek.client.errors import KafkaError, UnsupportedVersion, error_for, unanswered
from odradek.model import TopicPartition


async def list_offsets(
    cluster: ClusterClient,
    questions: Mapping[TopicPartition, int],
    isolation_level: int,
    tell: Callable[[Answers], None],
) -> None:
    """Makes one attempt. `tell` is called once for every broker, when it has answered or failed, so
    a silent one does not delay the others. The next attempt refreshes the metadata of failed
    partitions.

    Raises:
        KafkaError: no broker answers a request for metadata.
    """
    await refresh_unknown(cluster, questions)
    led, leaderless = by_leader(questions, cluster.metadata)
    if leaderless:
        tell({partition: no_leader(cluster.metadata, partition) for partition in leaderless})

    async def ask(node_id: int, partitions: list[TopicPartition]) -> None:
        theirs = {each: questions[each] for each in partitions}
        answers = await wait(list_offsets_gen(cluster, node_id, theirs, isolation_level))
        cluster.doubt(
            each.topic for each, answer in answers.items() if isinstance(answer, KafkaError)
        )
        tell(answers)

    async with asyncio.TaskGroup() as group:
        for node_id, partitions in led.items():
            group.create_task(ask(node_id, partitions))


async def list_all_offsets(
    cluster: ClusterClient, questions: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Attempts continue until all are answered; answered ones are not asked again.

    Raises:
        KafkaError: one cannot be answered, or not in time.
    """
    found: Answers = {}

    async def attempt() -> None:
        missing = {
            each: at
            for each, at in questions.items()
            if not isinstance(found.get(each), OffsetAndTimestamp)
        }
        await list_offsets(cluster, missing, isolation_level, found.update)
        for answer in found.values():
            if isinstance(answer, KafkaError):
                raise answer

    if questions:
        await cluster.retrying(attempt)
    return {each: answer for each in questions if not isinstance(answer := found[each], KafkaError)}


async def ask_epoch_ends(
    cluster: ClusterClient, node_id: int, asked: Mapping[TopicPartition, Fetched]
) -> dict[TopicPartition, EpochEnd | KafkaError | None]:
    """Where the epochs of fetched records end at one leader (KIP-320), or its error; None if the
    broker is too old."""
    values = {
        "replica_id": CONSUMER,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": index,
                        "current_leader_epoch": asked[TopicPartition(topic, index)].validator,
                        "leader_epoch": asked[TopicPartition(topic, index)].leader_epoch,
                    }
                    for index in indexes
                ],
            }
            for topic, indexes in by_topic(asked).items()
        ],
    }
    try:
        answer = await cluster.call(node_id, OFFSET_FOR_LEADER_EPOCH, values)
    except UnsupportedVersion:
        return dict.fromkeys(asked)
    except KafkaError as error:
        return dict.fromkeys(asked, error)
    found = {
        TopicPartition(topic.topic, each.partition): error_for(int(each.error_code), topic.topic)
        if each.error_code
        else EpochEnd(each.leader_epoch, each.end_offset)
        for topic in answer.topics
        for each in topic.partitions
    }
    return {each: found.get(each, unanswered(each)) for each in asked}


async def refresh_unknown(cluster: ClusterClient, partitions: Iterable[TopicPartition]) -> None:
    """Asks for the topics of partitions that have no known leader, or are outdated.

    Raises:
        KafkaError: nobody answers.
    """
    partitions = list(partitions)
    unknown = {each.topic for each in partitions if cluster.metadata.leader_of(each) is None}
    unknown |= cluster.outdated(each.topic for each in partitions)
    if unknown:
        await cluster.refresh(unknown)
