"""Topics: create, delete, grow, list, describe. Changes go to the controller."""

from collections.abc import Iterable, Mapping
from functools import partial

from odradek.client.aio.admin.base import AdminBase, outcome
from odradek.client.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_TOPIC_PARTITIONS,
)
from odradek.client.core.admin_types import ConfigEntry, CreatedTopic, NewPartitions, NewTopic
from odradek.client.core.cluster import Message
from odradek.client.core.listed import each_once
from odradek.client.core.metadata import TopicMetadata
from odradek.client.errors import KafkaError, UnknownTopicOrPartition
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class TopicCalls(AdminBase):
    """Calls about topics."""

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Creates topics, or only validates the requests."""
        wanted = {topic.name: topic for topic in topics}

        async def ask(
            node_id: int | None, names: list[str]
        ) -> dict[str, CreatedTopic | KafkaError]:
            values = {
                "topics": [_new_topic(wanted[name]) for name in names],
                "timeout_ms": self._timeout_ms,
                "validate_only": validate_only,
            }
            answer = await self._cluster.call(node_id, CREATE_TOPICS, values)
            return {
                topic.name: outcome(topic.error_code, _created(topic), topic.error_message)
                for topic in answer.topics
            }

        return await self._retrying_change(wanted, self._controller, ask)

    async def delete_topics(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Deletes topics with all that is in them."""

        async def ask(node_id: int | None, pending: list[str]) -> dict[str, KafkaError | None]:
            values = {
                # By name and by id: each version takes the form that it knows.
                "topic_names": pending,
                "topics": [{"name": name, "topic_id": None} for name in pending],
                "timeout_ms": self._timeout_ms,
            }
            answer = await self._cluster.call(node_id, DELETE_TOPICS, values)
            return {
                topic.name: outcome(topic.error_code, None, getattr(topic, "error_message", None))
                for topic in answer.responses
            }

        return await self._retrying_change(names, self._controller, ask, final=_GONE)

    async def create_partitions(
        self, counts: Mapping[str, NewPartitions], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Adds partitions to topics."""

        async def ask(node_id: int | None, names: list[str]) -> dict[str, KafkaError | None]:
            values = {
                "topics": [_new_partitions(name, counts[name]) for name in names],
                "timeout_ms": self._timeout_ms,
                "validate_only": validate_only,
            }
            answer = await self._cluster.call(node_id, CREATE_PARTITIONS, values)
            return {
                topic.name: outcome(topic.error_code, None, topic.error_message)
                for topic in answer.results
            }

        return await self._retrying_change(counts, self._controller, ask, final=_GONE)

    async def list_topics(self) -> dict[str, TopicMetadata]:
        """Every topic, including internal ones."""
        answer = await self._cluster.retrying(lambda: self._cluster.ask_metadata(None))
        return {name: topic for name, topic in answer.topics.items() if not topic.error_code}

    async def describe_topics(
        self, names: Iterable[str], *, include_authorized_operations: bool = False
    ) -> dict[str, TopicMetadata | KafkaError]:
        """Topics with their partitions and replicas."""

        async def attempt(pending: list[str]) -> dict[str, TopicMetadata | KafkaError]:
            answer = await self._cluster.ask_metadata(
                pending, include_authorized_operations=include_authorized_operations
            )
            missing = UnknownTopicOrPartition(None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return {
                name: outcome(topic.error_code, topic)
                if (topic := answer.topics.get(name)) is not None
                else missing
                for name in pending
            }

        return await self._retrying(names, attempt, final=_GONE)

    async def eligible_leaders(
        self, names: Iterable[str]
    ) -> dict[TopicPartition, tuple[tuple[int, ...] | None, tuple[int, ...] | None]]:
        """The eligible leader replicas of topics' partitions, and the last known ones.

        Raises:
            KafkaError: nobody answers, or the brokers do not tell (before 3.7).
        """
        wanted = sorted(each_once(names))
        found = {}

        async def ask(cursor: Message | None) -> Message:
            values: dict[str, object] = {
                "topics": [{"name": name} for name in wanted],
                "response_partition_limit": 2000,
                "cursor": None,
            }
            if cursor is not None:
                values["cursor"] = {
                    "topic_name": cursor.topic_name,
                    "partition_index": cursor.partition_index,
                }
            return await self._cluster.call(None, DESCRIBE_TOPIC_PARTITIONS, values)

        cursor: Message | None = None
        while True:
            answer = await self._cluster.retrying(partial(ask, cursor))
            for topic in answer.topics:
                for each in topic.partitions:
                    found[TopicPartition(topic.name, each.partition_index)] = (
                        each.eligible_leader_replicas,
                        each.last_known_elr,
                    )
            cursor = answer.next_cursor
            if cursor is None:
                return found

    async def describe_topic(self, name: str) -> TopicMetadata:
        """Describes one topic.

        Raises:
            KafkaError: it does not exist, or nobody answers.
        """
        found = (await self.describe_topics([name]))[name]
        if isinstance(found, KafkaError):
            raise found
        return found


def _new_topic(topic: NewTopic) -> dict[str, object]:
    assignment = topic.assignment or {}
    return {
        "name": topic.name,
        "num_partitions": -1 if assignment else topic.partitions,
        "replication_factor": -1 if assignment else topic.replication_factor,
        "assignments": [
            {"partition_index": index, "broker_ids": tuple(brokers)}
            for index, brokers in assignment.items()
        ],
        "configs": [{"name": name, "value": value} for name, value in topic.config.items()],
    }


def _new_partitions(name: str, wanted: NewPartitions) -> dict[str, object]:
    assignments = None
    if wanted.assignment is not None:
        assignments = [{"broker_ids": tuple(brokers)} for brokers in wanted.assignment]
    return {"name": name, "count": wanted.count, "assignments": assignments}


def _created(topic: Message) -> CreatedTopic:
    configs = getattr(topic, "configs", None) or ()
    return CreatedTopic(
        topic.name,
        getattr(topic, "topic_id", None),
        getattr(topic, "num_partitions", -1),
        getattr(topic, "replication_factor", -1),
        {
            entry.name: ConfigEntry(
                entry.name,
                entry.value,
                entry.config_source,
                is_read_only=entry.read_only,
                is_sensitive=entry.is_sensitive,
            )
            for entry in configs
        },
    )
