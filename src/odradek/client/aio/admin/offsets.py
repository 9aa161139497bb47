"""Offsets: of partitions, by time or end, and those that groups have committed."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from odradek.client.aio.admin.base import AdminBase, by_topic, outcome
from odradek.client.aio.cluster import GROUP, Message
from odradek.client.aio.offsets import list_offsets
from odradek.client.apis import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from odradek.client.core.admin_types import CommittedOffset, OffsetAndTimestamp
from odradek.client.core.consuming.list_offsets import READ_COMMITTED, READ_UNCOMMITTED
from odradek.client.errors import KafkaError, raise_for
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

Committed = dict[TopicPartition, CommittedOffset]
_NO_PARTITION = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class OffsetCalls(AdminBase):
    """Calls about offsets."""

    async def list_offsets(
        self, questions: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
        """The first offsets at or after timestamps, or for `LATEST`, `EARLIEST` and their like.

        An offset of -1 says that no record has this timestamp or a later one.
        """
        isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED

        async def attempt(
            pending: list[TopicPartition],
        ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
            asked = {partition: questions[partition] for partition in pending}
            return await list_offsets(self._cluster, asked, isolation_level)

        return await self._retrying(questions, attempt)

    async def list_group_offsets(
        self,
        group_ids: Iterable[str],
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[str, Committed | KafkaError]:
        """What groups have committed, for some partitions or for all that they know."""
        wanted = None if partitions is None else by_topic(partitions)

        async def ask(group_id: str) -> Committed:
            node_id = await self._coordinator(group_id, GROUP)
            topics = None
            if wanted is not None:
                topics = [
                    {"name": name, "partition_indexes": indexes} for name, indexes in wanted.items()
                ]
            values = {
                # In both forms: each version takes the one that it knows.
                "group_id": group_id,
                "topics": topics,
                "groups": [{"group_id": group_id, "topics": topics}],
                "require_stable": require_stable,
            }
            answer = await self._cluster.call(node_id, OFFSET_FETCH, values)
            return _committed(answer.groups[0] if hasattr(answer, "groups") else answer)

        async def attempt(pending: list[str]) -> dict[str, Committed | KafkaError]:
            return await _each(pending, ask)

        return await self._retrying(group_ids, attempt)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commits offsets for a group that has no members."""

        async def attempt(
            pending: list[TopicPartition],
        ) -> dict[TopicPartition, KafkaError | None]:
            node_id = await self._coordinator(group_id, GROUP)
            values = {
                "group_id": group_id,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": _commits({each: offsets[each] for each in pending}),
            }
            answer = await self._cluster.call(node_id, OFFSET_COMMIT, values)
            return _by_partition(answer)

        return await self._retrying(offsets, attempt, final=_NO_PARTITION)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Forgets offsets of topics that the group does not read any more.

        Raises:
            KafkaError: the group does not exist, or has members of another kind.
        """

        async def attempt(
            pending: list[TopicPartition],
        ) -> dict[TopicPartition, KafkaError | None]:
            node_id = await self._coordinator(group_id, GROUP)
            topics = [
                {"name": name, "partitions": [{"partition_index": each} for each in indexes]}
                for name, indexes in by_topic(pending).items()
            ]
            values = {"group_id": group_id, "topics": topics}
            answer = await self._cluster.call(node_id, OFFSET_DELETE, values)
            raise_for(int(answer.error_code))
            return _by_partition(answer)

        return await self._retrying(partitions, attempt, final=_NO_PARTITION)


async def _each(
    group_ids: list[str], ask: Callable[[str], Awaitable[Committed]]
) -> dict[str, Committed | KafkaError]:
    """Asks for every group at once; what one is refused does not concern the others."""
    answers = await asyncio.gather(*map(ask, group_ids), return_exceptions=True)
    found: dict[str, Committed | KafkaError] = {}
    for group_id, answer in zip(group_ids, answers, strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, KafkaError):
            raise answer
        found[group_id] = answer
    return found


def _committed(group: Message) -> Committed:
    raise_for(int(getattr(group, "error_code", 0)))
    found = {}
    for topic in group.topics:
        for partition in topic.partitions:
            raise_for(int(partition.error_code), f"{topic.name}-{partition.partition_index}")
            if partition.committed_offset >= 0:
                found[TopicPartition(topic.name, partition.partition_index)] = CommittedOffset(
                    partition.committed_offset,
                    partition.metadata or "",
                    getattr(partition, "committed_leader_epoch", -1),
                )
    return found


def _commits(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[dict[str, object]]:
    by_name: dict[str, list[dict[str, object]]] = {}
    for (topic, index), committed in offsets.items():
        by_name.setdefault(topic, []).append(
            {
                "partition_index": index,
                "committed_offset": committed.offset,
                "committed_leader_epoch": committed.leader_epoch,
                "committed_metadata": committed.metadata,
            }
        )
    return [{"name": name, "partitions": partitions} for name, partitions in by_name.items()]


def _by_partition(answer: Message) -> dict[TopicPartition, KafkaError | None]:
    return {
        TopicPartition(topic.name, partition.partition_index): outcome(partition.error_code, None)
        for topic in answer.topics
        for partition in topic.partitions
    }
