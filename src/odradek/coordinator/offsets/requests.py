"""Requests and responses about committed offsets, free of wire versions."""

from collections.abc import Mapping
from typing import NamedTuple, final
from uuid import UUID

from odradek.coordinator.records.offset_records import OffsetAndMetadata
from odradek.errors import ErrorCode

TopicErrors = list[tuple[str, list[tuple[int, ErrorCode]]]]
"""By topic and partition, in the order of the request."""


@final
class CommittedPartition:
    """An offset to commit."""

    def __init__(self, partition: int, offset: int, leader_epoch: int, metadata: str) -> None:
        self.partition = partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata


@final
class CommittedTopic:
    """The offsets to commit for a topic that exists."""

    def __init__(
        self, name: str, topic_id: UUID | None, partitions: list[CommittedPartition]
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


@final
class OffsetCommitRequest:
    """An OffsetCommit; `retention_ms` is -1 unless an old client set it.

    `is_transactional` says that it is a TxnOffsetCommit, whose sender need not be a member.
    """

    def __init__(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        retention_ms: int,
        topics: list[CommittedTopic],
        api_version: int,
        is_transactional: bool = False,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.generation_or_epoch = generation_or_epoch
        self.retention_ms = retention_ms
        self.topics = topics
        self.api_version = api_version
        self.is_transactional = is_transactional


class FetchedOffsets(NamedTuple):
    """The answer to an OffsetFetch: all offsets of a group by topic and partition, not to be
    changed, and the partitions that have pending offsets of transactions."""

    committed: Mapping[str, Mapping[int, OffsetAndMetadata]]
    unstable: frozenset[tuple[str, int]] = frozenset()
