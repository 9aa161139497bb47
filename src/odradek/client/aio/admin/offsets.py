"""Offsets: of partitions, by time or end, and those that groups have committed."""

from collections.abc import Iterable, Mapping

from odradek.client.aio.admin.base import AdminBase, each_of
from odradek.client.aio.offsets import list_offsets
from odradek.client.apis import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from odradek.client.core.admin_types import CommittedOffset, OffsetAndTimestamp
from odradek.client.core.cluster import GROUP
from odradek.client.core.consuming.list_offsets import READ_COMMITTED, READ_UNCOMMITTED, Answers
from odradek.client.core.groups.commits import (
    Offsets,
    commit_errors,
    commits_by_topic,
    committed_offsets,
    with_metadata,
)
from odradek.client.core.listed import listed
from odradek.client.core.metadata import by_topic
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
        answers: Answers = {}

        async def attempt(
            pending: list[TopicPartition],
        ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
            asked = {partition: questions[partition] for partition in pending}
            await list_offsets(self._cluster, asked, isolation_level, answers.update)
            return answers

        return await self._retrying(questions, attempt, answers=answers)

    async def list_group_offsets(
        self,
        group_ids: Iterable[str],
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[str, Committed | KafkaError]:
        """Lists the committed offsets of groups, for some partitions or for all."""
        wanted = None if partitions is None else by_topic(listed(partitions))

        async def ask(group_id: str) -> Committed:
            node_id = await self._coordinator(group_id, GROUP)
            topics = None
            if wanted is not None:
                topics = [
                    {"name": name, "partition_indexes": indexes} for name, indexes in wanted.items()
                ]
            values = {
                # By name and by id: each version takes the form that it knows.
                "group_id": group_id,
                "topics": topics,
                "groups": [{"group_id": group_id, "topics": topics}],
                "require_stable": require_stable,
            }
            answer = await self._cluster.call(node_id, OFFSET_FETCH, values)
            return _committed(committed_offsets(answer, group_id))

        async def attempt(pending: list[str]) -> dict[str, Committed | KafkaError]:
            return await each_of(pending, ask)

        return await self._retrying(group_ids, attempt)

    async def alter_group_offsets(
        self, group_id: str, offsets: Offsets
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commits offsets for a group that has no members."""
        wanted = with_metadata(offsets)

        async def attempt(
            pending: list[TopicPartition],
        ) -> dict[TopicPartition, KafkaError | None]:
            node_id = await self._coordinator(group_id, GROUP)
            values = {
                "group_id": group_id,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": commits_by_topic({each: wanted[each] for each in pending}),
            }
            answer = await self._cluster.call(node_id, OFFSET_COMMIT, values)
            return commit_errors(answer, pending)

        return await self._retrying(wanted, attempt, final=_NO_PARTITION)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Forgets offsets of topics that the group does not read any more.

        Raises:
            KafkaError: the group does not exist, or has members of another kind.
        """

        async def ask(
            node_id: int | None, pending: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            topics = [
                {"name": name, "partitions": [{"partition_index": each} for each in indexes]}
                for name, indexes in by_topic(pending).items()
            ]
            values = {"group_id": group_id, "topics": topics}
            answer = await self._cluster.call(node_id, OFFSET_DELETE, values)
            raise_for(int(answer.error_code))
            return commit_errors(answer, pending)

        return await self._retrying_change(
            partitions, self._whom(group_id), ask, final=_NO_PARTITION
        )


def _committed(
    answers: Mapping[TopicPartition, CommittedOffset | KafkaError | None],
) -> Committed:
    found = {}
    for partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        if answer is not None:
            found[partition] = answer
    return found
