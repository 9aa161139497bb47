"""Commits in requests, and the results of each partition in responses.

A partition is committed to the topic that it was read from: a recreated one has another id, and two
partitions of a name may have been read from different topics. Partitions or topic ids in a response
that were not requested are ignored; a missing one is an error of that partition.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final
from uuid import UUID

from odradek.client.core.admin_types import CommittedOffset
from odradek.client.errors import KafkaError, error_for, raise_for, unanswered
from odradek.model import TopicPartition

Offsets = Mapping[TopicPartition, CommittedOffset | int]
NO_IDS: Final[Mapping[TopicPartition, UUID]] = {}


def with_metadata(offsets: Offsets) -> dict[TopicPartition, CommittedOffset]:
    """Offsets in the form in which they are committed."""
    return {
        TopicPartition(*partition): CommittedOffset(each) if isinstance(each, int) else each
        for partition, each in offsets.items()
    }


def commits_by_topic(
    offsets: Mapping[TopicPartition, CommittedOffset],
    topic_ids: Mapping[TopicPartition, UUID] = NO_IDS,
) -> list[dict[str, object]]:
    """The topics of a commit by name, and by id where it is given: each version of a request takes
    what it knows, and those of transactions know no ids."""
    found: dict[tuple[str, UUID | None], list[dict[str, object]]] = {}
    for each, committed in offsets.items():
        found.setdefault((each.topic, topic_ids.get(each)), []).append(
            {
                "partition_index": each.partition,
                "committed_offset": committed.offset,
                "committed_leader_epoch": committed.leader_epoch,
                "committed_metadata": committed.metadata,
            }
        )
    return [
        {"name": name, "partitions": partitions}
        | ({} if topic_id is None else {"topic_id": topic_id})
        for (name, topic_id), partitions in found.items()
    ]


def commit_errors(
    answer: Any,
    asked: Collection[TopicPartition],
    topic_ids: Mapping[TopicPartition, UUID] = NO_IDS,
) -> dict[TopicPartition, KafkaError | None]:
    """The error of each refused partition; None for committed ones."""
    by_id = {(topic_ids.get(each), each.partition): each for each in asked}
    found: dict[TopicPartition, KafkaError | None] = {each: unanswered(each) for each in asked}
    for topic in answer.topics:
        for each in topic.partitions:
            index = each.partition_index
            partition = (
                TopicPartition(topic.name, index)
                if hasattr(topic, "name")
                else by_id.get((topic.topic_id, index))
            )
            if partition in found:
                code = int(each.error_code)
                found[partition] = error_for(code, str(partition)) if code else None
    return found


def committed_offsets(
    answer: Any, group_id: str
) -> dict[TopicPartition, CommittedOffset | KafkaError | None]:
    """The committed offsets of a group by partition; None without one.

    Raises:
        KafkaError: the group cannot be asked.
    """
    group = answer
    if hasattr(answer, "groups"):
        group = next((each for each in answer.groups if each.group_id == group_id), None)
    if group is None:
        raise unanswered(group_id)
    raise_for(int(getattr(group, "error_code", 0)))
    found: dict[TopicPartition, CommittedOffset | KafkaError | None] = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                found[partition] = error_for(int(each.error_code), str(partition))
            elif each.committed_offset < 0:
                found[partition] = None
            else:
                epoch = getattr(each, "committed_leader_epoch", -1)
                found[partition] = CommittedOffset(
                    each.committed_offset, each.metadata or "", epoch
                )
    return found
