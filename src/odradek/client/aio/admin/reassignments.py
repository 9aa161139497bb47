"""Reassignments: gives partitions other replicas, and lists those under way."""

from collections.abc import Iterable, Mapping, Sequence

from odradek.client.aio.admin.base import AdminBase, outcome
from odradek.client.apis import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from odradek.client.core.admin_types import PartitionReassignment
from odradek.client.core.listed import listed
from odradek.client.core.metadata import by_topic
from odradek.client.errors import KafkaError, raise_for
from odradek.model import TopicPartition


class ReassignmentCalls(AdminBase):
    """Calls about the replicas of partitions."""

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begins to move partitions to other replicas, the preferred leader first; None cancels the
        one in progress. Does not wait for the end.

        Raises:
            KafkaError: the controller refuses, or nobody answers.
        """

        async def ask(
            node_id: int | None, pending: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            topics = [
                {
                    "name": name,
                    "partitions": [
                        {
                            "partition_index": index,
                            "replicas": targets[TopicPartition(name, index)],
                        }
                        for index in indexes
                    ],
                }
                for name, indexes in by_topic(pending).items()
            ]
            values = {
                "topics": topics,
                "timeout_ms": self._timeout_ms,
                "allow_replication_factor_change": allow_replication_factor_change,
            }
            answer = await self._cluster.call(node_id, ALTER_PARTITION_REASSIGNMENTS, values)
            raise_for(int(answer.error_code), answer.error_message)
            return {
                TopicPartition(topic.name, each.partition_index): outcome(
                    each.error_code, None, each.error_message
                )
                for topic in answer.responses
                for each in topic.partitions
            }

        return await self._retrying_change(targets, self._controller, ask)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Lists the reassignments under way, of some partitions or, with None, of all.

        Raises:
            KafkaError: the controller refuses, or nobody answers.
        """
        topics = None
        if partitions is not None:
            topics = [
                {"name": name, "partition_indexes": indexes}
                for name, indexes in by_topic(listed(partitions)).items()
            ]
        values = {"topics": topics, "timeout_ms": self._timeout_ms}

        async def attempt() -> dict[TopicPartition, PartitionReassignment]:
            answer = await self._cluster.call(
                await self._controller(), LIST_PARTITION_REASSIGNMENTS, values
            )
            raise_for(int(answer.error_code), answer.error_message)
            return {
                TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                    tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._cluster.retrying(attempt)
