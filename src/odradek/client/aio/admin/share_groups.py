"""Share groups: their offsets. They are listed, described and deleted as all groups are.

A share group has one offset a partition, where it begins to read; later records are handed out one
by one. The group's coordinator answers all three.
"""

from collections.abc import Iterable, Mapping

from odradek.client.aio.admin.base import AdminBase, each_of, outcome
from odradek.client.apis import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
)
from odradek.client.core.admin_types import ShareGroupOffset
from odradek.client.core.cluster import GROUP, Message
from odradek.client.core.listed import listed
from odradek.client.core.metadata import by_topic
from odradek.client.errors import KafkaError, raise_for, unanswered
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

_NO_PARTITION = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
ShareOffsets = dict[TopicPartition, ShareGroupOffset | KafkaError]


class ShareGroupCalls(AdminBase):
    """Calls about the offsets of share groups."""

    async def list_share_group_offsets(
        self, group_ids: Iterable[str], partitions: Iterable[TopicPartition] | None = None
    ) -> dict[str, ShareOffsets | KafkaError]:
        """Lists the start offsets of share groups, for some partitions or for all."""
        topics = None
        if partitions is not None:
            topics = [
                {"topic_name": name, "partitions": indexes}
                for name, indexes in by_topic(listed(partitions)).items()
            ]

        async def ask(group_id: str) -> ShareOffsets:
            node_id = await self._coordinator(group_id, GROUP)
            values = {"groups": [{"group_id": group_id, "topics": topics}]}
            answer = await self._cluster.call(node_id, DESCRIBE_SHARE_GROUP_OFFSETS, values)
            for group in answer.groups:
                if group.group_id == group_id:
                    raise_for(int(group.error_code), group.error_message)
                    return _offsets(group)
            raise unanswered(group_id)

        async def attempt(pending: list[str]) -> dict[str, ShareOffsets | KafkaError]:
            return await each_of(pending, ask)

        return await self._retrying(group_ids, attempt)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Moves the start of a share group that has no members.

        Raises:
            KafkaError: the group has members, or is of another kind.
        """

        async def attempt(
            pending: list[TopicPartition],
        ) -> dict[TopicPartition, KafkaError | None]:
            node_id = await self._coordinator(group_id, GROUP)
            topics = [
                {
                    "topic_name": name,
                    "partitions": [
                        {
                            "partition_index": index,
                            "start_offset": offsets[TopicPartition(name, index)],
                        }
                        for index in indexes
                    ],
                }
                for name, indexes in by_topic(pending).items()
            ]
            values = {"group_id": group_id, "topics": topics}
            answer = await self._cluster.call(node_id, ALTER_SHARE_GROUP_OFFSETS, values)
            raise_for(int(answer.error_code), answer.error_message)
            return {
                TopicPartition(topic.topic_name, each.partition_index): outcome(
                    each.error_code, None, each.error_message
                )
                for topic in answer.responses
                for each in topic.partitions
            }

        return await self._retrying(offsets, attempt, final=_NO_PARTITION)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str]
    ) -> dict[str, KafkaError | None]:
        """Deletes the offsets of topics of a share group that has no members.

        Raises:
            KafkaError: the group has members, or is of another kind.
        """

        async def ask(node_id: int | None, pending: list[str]) -> dict[str, KafkaError | None]:
            values = {"group_id": group_id, "topics": [{"topic_name": each} for each in pending]}
            answer = await self._cluster.call(node_id, DELETE_SHARE_GROUP_OFFSETS, values)
            raise_for(int(answer.error_code), answer.error_message)
            return {
                each.topic_name: outcome(each.error_code, None, each.error_message)
                for each in answer.responses
            }

        return await self._retrying_change(topics, self._whom(group_id), ask, final=_NO_PARTITION)


def _offsets(group: Message) -> ShareOffsets:
    return {
        TopicPartition(topic.topic_name, each.partition_index): outcome(
            each.error_code,
            ShareGroupOffset(each.start_offset, each.leader_epoch, _lag(each)),
            each.error_message,
        )
        for topic in group.topics
        for each in topic.partitions
    }


def _lag(partition: Message) -> int | None:
    """The lag, from version 1 on, if it is known."""
    lag: int = getattr(partition, "lag", -1)
    return None if lag < 0 else lag
