"""Partitions: delete records, elect leaders, where logs lie, who produces, ends of transactions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from odradek.client.aio.admin.base import AdminBase, by_topic, outcome
from odradek.client.aio.cluster import Message
from odradek.client.aio.offsets import refresh_unknown
from odradek.client.apis import (
    ALTER_REPLICA_LOG_DIRS,
    DELETE_RECORDS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    ELECT_LEADERS,
    WRITE_TXN_MARKERS,
    ClientApi,
)
from odradek.client.core.admin_types import (
    ElectionType,
    LogDirDescription,
    ProducerState,
    ReplicaInfo,
)
from odradek.client.core.consuming.list_offsets import by_leader
from odradek.client.errors import KafkaError, error_for, raise_for
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

_FINAL_ELECTION = frozenset(
    {
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


# Asks a broker about some partitions: the topics of its answer.
_Ask = Callable[[int, list[TopicPartition]], Awaitable[list[Message]]]


class PartitionCalls(AdminBase):
    """Calls about partitions."""

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaError]:
        """Deletes what lies before offsets (-1: everything); gives where the logs begin now."""

        async def ask(node_id: int, partitions: list[TopicPartition]) -> list[Message]:
            topics = [
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": index, "offset": before[TopicPartition(name, index)]}
                        for index in indexes
                    ],
                }
                for name, indexes in by_topic(partitions).items()
            ]
            values = {"topics": topics, "timeout_ms": self._timeout_ms}
            answer = await self._cluster.call(node_id, DELETE_RECORDS, values)
            return list(answer.topics)

        async def attempt(
            pending: list[TopicPartition],
        ) -> dict[TopicPartition, int | KafkaError]:
            answers = await self._ask_leaders(DELETE_RECORDS, pending, ask)
            return {
                partition: answer
                if isinstance(answer, KafkaError)
                else outcome(answer.error_code, answer.low_watermark)
                for partition, answer in answers.items()
            }

        return await self._retrying(before, attempt)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        """The producers that partitions remember, at their leaders or at one broker's replicas."""

        async def ask(node_id: int, pending: list[TopicPartition]) -> list[Message]:
            topics = [
                {"name": name, "partition_indexes": indexes}
                for name, indexes in by_topic(pending).items()
            ]
            answer = await self._cluster.call(node_id, DESCRIBE_PRODUCERS, {"topics": topics})
            return list(answer.topics)

        async def attempt(
            pending: list[TopicPartition],
        ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
            if broker_id is None:
                answers = await self._ask_leaders(DESCRIBE_PRODUCERS, pending, ask)
            else:
                answers = await _ask_one(broker_id, pending, ask)
            return {
                partition: answer
                if isinstance(answer, KafkaError)
                else outcome(
                    answer.error_code,
                    [_producer(each) for each in answer.active_producers],
                    answer.error_message,
                )
                for partition, answer in answers.items()
            }

        return await self._retrying(partitions, attempt)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        """Ends a transaction that hangs in one partition, past its coordinator.

        Raises:
            KafkaError: the marker is not written.
        """
        marker = {
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "transaction_result": False,
            "coordinator_epoch": coordinator_epoch,
            "topics": [{"name": partition.topic, "partition_indexes": [partition.partition]}],
        }

        async def ask(node_id: int, _: list[TopicPartition]) -> list[Message]:
            answer = await self._cluster.call(node_id, WRITE_TXN_MARKERS, {"markers": [marker]})
            return [topic for each in answer.markers for topic in each.topics]

        async def attempt() -> None:
            answers = await self._ask_leaders(WRITE_TXN_MARKERS, [partition], ask)
            answer = answers[partition]
            if isinstance(answer, KafkaError):
                raise answer
            raise_for(int(answer.error_code))

        await self._cluster.retrying(attempt)

    async def elect_leaders(
        self,
        election_type: ElectionType = ElectionType.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects leaders of some partitions or, with None, of all that need it.

        Raises:
            KafkaError: the controller refuses, or nobody answers.
        """
        wanted = None if partitions is None else list(partitions)

        async def ask(
            pending: list[TopicPartition] | None,
        ) -> dict[TopicPartition, KafkaError | None]:
            topics = None
            if pending is not None:
                topics = [
                    {"topic": name, "partitions": indexes}
                    for name, indexes in by_topic(pending).items()
                ]
            values = {
                "election_type": int(election_type),
                "topic_partitions": topics,
                "timeout_ms": self._timeout_ms,
            }
            answer = await self._cluster.call(await self._controller(), ELECT_LEADERS, values)
            raise_for(int(getattr(answer, "error_code", 0)))
            return {
                TopicPartition(topic.topic, each.partition_id): outcome(
                    each.error_code, None, each.error_message
                )
                for topic in answer.replica_election_results
                for each in topic.partition_result
            }

        if wanted is None:
            return await self._cluster.retrying(lambda: ask(None))
        return await self._retrying(wanted, ask, final=_FINAL_ELECTION)

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None
    ) -> dict[int, list[LogDirDescription] | KafkaError]:
        """The log directories of some brokers, or of all."""
        wanted = await self._each_node() if broker_ids is None else list(broker_ids)

        async def ask(broker_id: int) -> list[LogDirDescription] | KafkaError:
            try:
                answer = await self._cluster.call(broker_id, DESCRIBE_LOG_DIRS, {"topics": None})
                raise_for(int(getattr(answer, "error_code", 0)))
            except KafkaError as error:
                return error
            return [_log_dir(each) for each in answer.results]

        async def attempt(
            pending: list[int],
        ) -> dict[int, list[LogDirDescription] | KafkaError]:
            answers = await asyncio.gather(*map(ask, pending))
            return dict(zip(pending, answers, strict=True))

        return await self._retrying(wanted, attempt)

    async def alter_replica_log_dirs(
        self, targets: Mapping[tuple[int, TopicPartition], str]
    ) -> dict[tuple[int, TopicPartition], KafkaError | None]:
        """Moves replicas of brokers into log directories of the same brokers.

        `targets` has the path by broker and partition. What is told is whether a move began;
        `describe_log_dirs` shows how far it is.
        """
        by_broker: dict[int, dict[TopicPartition, str]] = {}
        for (broker_id, partition), path in targets.items():
            by_broker.setdefault(broker_id, {})[partition] = path

        async def ask(
            broker_id: int, wanted: dict[TopicPartition, str]
        ) -> dict[tuple[int, TopicPartition], KafkaError | None]:
            dirs = [
                {
                    "path": path,
                    "topics": [
                        {"name": name, "partitions": indexes}
                        for name, indexes in by_topic(
                            each for each in wanted if wanted[each] == path
                        ).items()
                    ],
                }
                for path in sorted(set(wanted.values()))
            ]
            try:
                answer = await self._cluster.call(broker_id, ALTER_REPLICA_LOG_DIRS, {"dirs": dirs})
            except KafkaError as error:
                return {(broker_id, each): error for each in wanted}
            return {
                (broker_id, TopicPartition(topic.topic_name, each.partition_index)): outcome(
                    each.error_code, None
                )
                for topic in answer.results
                for each in topic.partitions
            }

        answers = await asyncio.gather(*(ask(*each) for each in by_broker.items()))
        return {key: result for answer in answers for key, result in answer.items()}

    async def _ask_leaders(
        self,
        api: ClientApi,
        partitions: list[TopicPartition],
        ask: _Ask,
    ) -> dict[TopicPartition, Message]:
        """The answers of the leaders by partition, or the errors that they failed with."""
        cluster = self._cluster
        await refresh_unknown(cluster, dict.fromkeys(partitions, 0))
        led, leaderless = by_leader(partitions, cluster.metadata)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found: dict[TopicPartition, Message] = {
            each: error_for(unknown, f"{api.name}: {each} has no leader") for each in leaderless
        }
        for node_id, theirs in led.items():
            found |= await _ask_one(node_id, theirs, ask)
        # Whatever failed is looked up again before the next attempt.
        stale = {
            each.topic
            for each, answer in found.items()
            if isinstance(answer, KafkaError) or answer.error_code
        }
        cluster.metadata = cluster.metadata.without_topics(stale)
        return found


async def _ask_one(
    node_id: int, partitions: list[TopicPartition], ask: _Ask
) -> dict[TopicPartition, Message]:
    """The answers of a broker by partition, or for all of them the error that it failed with."""
    try:
        topics = await ask(node_id, partitions)
    except KafkaError as error:
        return dict.fromkeys(partitions, error)
    return {
        TopicPartition(topic.name, each.partition_index): each
        for topic in topics
        for each in topic.partitions
    }


def _producer(each: Message) -> ProducerState:
    return ProducerState(
        each.producer_id,
        each.producer_epoch,
        each.last_sequence,
        each.last_timestamp,
        each.coordinator_epoch,
        each.current_txn_start_offset,
    )


def _log_dir(each: Message) -> LogDirDescription:
    return LogDirDescription(
        each.log_dir,
        int(each.error_code),
        {
            TopicPartition(topic.name, replica.partition_index): ReplicaInfo(
                replica.partition_size, replica.offset_lag, replica.is_future_key
            )
            for topic in each.topics
            for replica in topic.partitions
        },
        getattr(each, "total_bytes", -1),
        getattr(each, "usable_bytes", -1),
        getattr(each, "is_cordoned", False),
    )
