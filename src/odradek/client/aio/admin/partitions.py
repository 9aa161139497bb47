"""Partitions: delete records, elect leaders, log directories, producers, ends of transactions."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from odradek.client.aio.admin.base import AdminBase, outcome
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
from odradek.client.core.cluster import Message
from odradek.client.core.consuming.list_offsets import by_leader
from odradek.client.core.listed import listed
from odradek.client.core.metadata import by_topic
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
# The replica does not exist yet, and will be created in that directory.
_FINAL_MOVE = frozenset({ErrorCode.REPLICA_NOT_AVAILABLE})
_Replica = tuple[int, TopicPartition]
T = TypeVar("T")


class PartitionCalls(AdminBase):
    """Calls about partitions."""

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaError]:
        """Deletes the records before offsets (-1: all records); returns the new log start
        offsets."""

        async def ask(
            node_id: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, int | KafkaError]:
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
            return {
                partition: outcome(each.error_code, each.low_watermark)
                for partition, each in _by_partition(answer.topics)
            }

        return await self._retrying_leaders(DELETE_RECORDS, before, ask)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        """The producers that partitions remember, at their leaders or at one broker's replicas."""

        async def ask(
            node_id: int, pending: list[TopicPartition]
        ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
            topics = [
                {"name": name, "partition_indexes": indexes}
                for name, indexes in by_topic(pending).items()
            ]
            answer = await self._cluster.call(node_id, DESCRIBE_PRODUCERS, {"topics": topics})
            return {
                partition: outcome(
                    each.error_code,
                    [_producer(producer) for producer in each.active_producers],
                    each.error_message,
                )
                for partition, each in _by_partition(answer.topics)
            }

        if broker_id is None:
            return await self._retrying_leaders(DESCRIBE_PRODUCERS, partitions, ask)

        async def route(
            pending: list[TopicPartition],
        ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
            return {broker_id: pending}, {}

        return await self._retrying_each(partitions, route, ask)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        """Ends a hanging transaction in one partition, without its coordinator.

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

        async def ask(
            node_id: int, _: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            answer = await self._cluster.call(node_id, WRITE_TXN_MARKERS, {"markers": [marker]})
            topics = [topic for each in answer.markers for topic in each.topics]
            return {each: outcome(found.error_code, None) for each, found in _by_partition(topics)}

        answers = await self._retrying_leaders(WRITE_TXN_MARKERS, [partition], ask)
        if (error := answers[partition]) is not None:
            raise error

    async def elect_leaders(
        self,
        election_type: ElectionType = ElectionType.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects leaders of some partitions or, with None, of all that need it.

        Raises:
            KafkaError: the controller refuses, or nobody answers.
        """
        wanted = None if partitions is None else list(listed(partitions))

        async def ask(
            node_id: int | None, pending: list[TopicPartition] | None
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
            answer = await self._cluster.call(node_id, ELECT_LEADERS, values)
            raise_for(int(getattr(answer, "error_code", 0)))
            return {
                TopicPartition(topic.topic, each.partition_id): outcome(
                    each.error_code, None, each.error_message
                )
                for topic in answer.replica_election_results
                for each in topic.partition_result
            }

        async def ask_for_all(
            node_id: int | None, _: list[str]
        ) -> dict[str, dict[TopicPartition, KafkaError | None]]:
            return {"all": await ask(node_id, None)}

        if wanted is None:
            found = await self._retrying_change(["all"], self._controller, ask_for_all)
            if isinstance(elected := found["all"], KafkaError):
                raise elected
            return elected
        return await self._retrying_change(wanted, self._controller, ask, final=_FINAL_ELECTION)

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None
    ) -> dict[int, list[LogDirDescription] | KafkaError]:
        """The log directories of some brokers, or of all."""
        wanted = await self._each_node() if broker_ids is None else list(broker_ids)

        async def ask(
            broker_id: int, _: list[int]
        ) -> dict[int, list[LogDirDescription] | KafkaError]:
            answer = await self._cluster.call(broker_id, DESCRIBE_LOG_DIRS, {"topics": None})
            dirs = [_log_dir(each) for each in answer.results]
            return {broker_id: outcome(getattr(answer, "error_code", 0), dirs)}

        async def route(
            pending: list[int],
        ) -> tuple[dict[int, list[int]], dict[int, KafkaError]]:
            return {each: [each] for each in pending}, {}

        return await self._retrying_each(wanted, route, ask)

    async def alter_replica_log_dirs(
        self, targets: Mapping[tuple[int, TopicPartition], str]
    ) -> dict[tuple[int, TopicPartition], KafkaError | None]:
        """Moves replicas of brokers into log directories of the same brokers.

        `targets` has the path by broker and partition. The result says whether a move began;
        `describe_log_dirs` shows its progress.
        """

        async def ask(broker_id: int, theirs: list[_Replica]) -> dict[_Replica, KafkaError | None]:
            dirs = [
                {
                    "path": path,
                    "topics": [
                        {"name": name, "partitions": indexes}
                        for name, indexes in by_topic(
                            each[1] for each in theirs if targets[each] == path
                        ).items()
                    ],
                }
                for path in sorted({targets[each] for each in theirs})
            ]
            answer = await self._cluster.call(broker_id, ALTER_REPLICA_LOG_DIRS, {"dirs": dirs})
            return {
                (broker_id, TopicPartition(topic.topic_name, each.partition_index)): outcome(
                    each.error_code, None
                )
                for topic in answer.results
                for each in topic.partitions
            }

        async def route(
            pending: list[_Replica],
        ) -> tuple[dict[int, list[_Replica]], dict[_Replica, KafkaError]]:
            found: dict[int, list[_Replica]] = {}
            for each in pending:
                found.setdefault(each[0], []).append(each)
            return found, {}

        return await self._retrying_each(targets, route, ask, final=_FINAL_MOVE)

    async def _retrying_leaders(
        self,
        api: ClientApi,
        partitions: Iterable[TopicPartition],
        ask: Callable[
            [int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, T | KafkaError]]
        ],
    ) -> dict[TopicPartition, T | KafkaError]:
        """Like `_retrying_each`, for the leaders of partitions."""
        cluster = self._cluster

        async def route(
            pending: list[TopicPartition],
        ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
            await refresh_unknown(cluster, pending)
            led, leaderless = by_leader(pending, cluster.metadata)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return led, {
                each: error_for(unknown, f"{api.name}: {each} has no leader") for each in leaderless
            }

        async def ask_leader(
            node_id: int, theirs: list[TopicPartition]
        ) -> Mapping[TopicPartition, T | KafkaError]:
            found: Mapping[TopicPartition, T | KafkaError] = {}
            try:
                found = await ask(node_id, theirs)
            finally:
                # Failed partitions are looked up again before the next attempt.
                cluster.doubt(
                    each.topic
                    for each in theirs
                    if each not in found or isinstance(found[each], KafkaError)
                )
            return found

        return await self._retrying_each(partitions, route, ask_leader)


def _by_partition(topics: Iterable[Message]) -> list[tuple[TopicPartition, Message]]:
    return [
        (TopicPartition(topic.name, each.partition_index), each)
        for topic in topics
        for each in topic.partitions
    ]


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
