"""Committed offsets: kept, committed, fetched, deleted, expired (R23, KIP-211).

Commands look and decide; what they return is appended, and `replay` takes it over when it is
committed. An offset that was acknowledged is therefore in the log, and one that is in the log
is never given back for an older one.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Final, final
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.coordinator.group import GroupRegistry
from odradek.coordinator.records.offset_records import NO_EXPIRY, OffsetAndMetadata, OffsetCommitKey
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.runtime import CoordinatorResult
from odradek.errors import BrokerError, ErrorCode

logger = logging.getLogger(__name__)

NO_RETENTION: Final = -1
MS_PER_MINUTE: Final = 60_000
SLICE_OFFSETS: Final = 500
"""How many offsets are looked at, and maybe removed, before others get their turn."""
_KNOWS_GROUP_ID_NOT_FOUND: Final = 9

TopicOffsets = dict[int, OffsetAndMetadata]


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
    """An OffsetCommit, free of wire versions; `retention_ms` is -1 unless an old client set it."""

    def __init__(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        retention_ms: int,
        topics: list[CommittedTopic],
        api_version: int,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.generation_or_epoch = generation_or_epoch
        self.retention_ms = retention_ms
        self.topics = topics
        self.api_version = api_version


TopicErrors = list[tuple[str, list[tuple[int, ErrorCode]]]]
"""By topic and partition, in the order of the request."""


class OffsetStore:
    """The offsets of one partition of the internal topic, by group, topic and partition."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, TopicOffsets]] = {}

    def replay(self, key: OffsetCommitKey, value: OffsetAndMetadata | None) -> None:
        """Applies a committed record."""
        if value is None:
            self._forget(key.group_id, key.topic, key.partition)
            return
        topics = self._groups.get(key.group_id)
        if topics is None:
            self._groups[key.group_id] = topics = {}
        partitions = topics.get(key.topic)
        if partitions is None:
            topics[key.topic] = partitions = {}
        partitions[key.partition] = value

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._groups.pop(group_id, None)

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        """The offset, if one is committed."""
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def find(self, key: OffsetCommitKey) -> OffsetAndMetadata | None:
        """The offset of a key, if one is committed."""
        return self.get(key.group_id, key.topic, key.partition)

    def of_group(self, group_id: str) -> dict[str, TopicOffsets]:
        """All offsets of a group, by topic; not to be changed."""
        return self._groups.get(group_id, {})

    def group_ids(self) -> list[str]:
        """The groups that have offsets."""
        return list(self._groups)

    def keys(self, group_id: str) -> Iterator[OffsetCommitKey]:
        """The keys of a group's offsets."""
        for topic, partitions in self.of_group(group_id).items():
            for partition in partitions:
                yield OffsetCommitKey(group_id, topic, partition)

    def key_slices(
        self, group_id: str, topics: Collection[str] | None = None
    ) -> Iterator[list[OffsetCommitKey]]:
        """The keys of a group's offsets, of some topics or of all, `SLICE_OFFSETS` at a time at
        most; the last slice is empty. Offsets may come and go between two slices.
        """
        for topic in [name for name in self.of_group(group_id) if topics is None or name in topics]:
            partitions = list(self.of_group(group_id).get(topic, ()))
            for first in range(0, len(partitions), SLICE_OFFSETS):
                some = partitions[first : first + SLICE_OFFSETS]
                yield [OffsetCommitKey(group_id, topic, partition) for partition in some]
        yield []


class OffsetCommands:
    """What may be done with the offsets of one partition."""

    def __init__(self, store: OffsetStore, registry: GroupRegistry, config: BrokerConfig) -> None:
        self._store = store
        self._registry = registry
        self._config = config

    # Committing

    def commit(self, request: OffsetCommitRequest, now_ms: int) -> CoordinatorResult[TopicErrors]:
        """Commits what may be committed; the rest is refused partition by partition.

        Raises:
            BrokerError: the sender may not commit for this group.
        """
        group = self._registry.get(request.group_id)
        if group is not None:
            group.check_offset_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_or_epoch,
                request.api_version,
            )
            group.on_offset_commit(request.member_id)
        elif request.generation_or_epoch >= 0:
            raise BrokerError(_missing_group(request.api_version))
        expire_ms = NO_EXPIRY
        if request.retention_ms != NO_RETENTION:
            expire_ms = now_ms + request.retention_ms
        longest = self._config["offset.metadata.max.bytes"]
        records: list[CoordinatorRecord] = []
        answer: TopicErrors = []
        for topic in request.topics:
            errors: list[tuple[int, ErrorCode]] = []
            for each in topic.partitions:
                if len(each.metadata) > longest:
                    _log_metadata(request, topic.name, each.partition, len(each.metadata))
                    errors.append((each.partition, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                    continue
                errors.append((each.partition, ErrorCode.NONE))
                key = OffsetCommitKey(request.group_id, topic.name, each.partition)
                value = OffsetAndMetadata(
                    each.offset,
                    each.leader_epoch,
                    each.metadata,
                    now_ms,
                    expire_ms,
                    topic.topic_id,
                )
                records.append(CoordinatorRecord(key, value))
            answer.append((topic.name, errors))
        return CoordinatorResult(records, answer)

    # Deleting

    def delete(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]]
    ) -> CoordinatorResult[TopicErrors]:
        """Deletes offsets of topics that the group does not read at present.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.
        """
        group = self._registry.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_offset_delete()
        records: list[CoordinatorRecord] = []
        answer: TopicErrors = []
        for topic, partitions in topics:
            code = ErrorCode.NONE
            if group.is_subscribed_to(topic):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            answer.append((topic, [(partition, code) for partition in partitions]))
            if code is ErrorCode.NONE:
                records += [
                    tombstone(OffsetCommitKey(group_id, topic, partition))
                    for partition in partitions
                    if self._store.get(group_id, topic, partition) is not None
                ]
        return CoordinatorResult(records, answer)

    def delete_group(self, group_id: str) -> CoordinatorResult[None]:
        """Deletes a group without members, and its offsets.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.
        """
        group = self._registry.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_delete()
        records = [tombstone(key) for key in self._store.keys(group_id)]
        return CoordinatorResult([*records, *group.tombstones()], None)

    def delete_topics(
        self, topics: frozenset[str], deleted_ms: int
    ) -> Iterator[list[CoordinatorRecord]]:
        """The records that remove the offsets of topics that were deleted, slice by slice.

        Offsets that were committed later belong to a new topic of the same name.
        """
        records: list[CoordinatorRecord] = []
        looked_at = 0
        for group_id in self._store.group_ids():
            for keys in self._store.key_slices(group_id, topics):
                records += [tombstone(key) for key in keys if self._is_older(key, deleted_ms)]
                looked_at += len(keys) + 1
                if looked_at >= SLICE_OFFSETS:
                    yield records
                    records, looked_at = [], 0
        yield records

    def _is_older(self, key: OffsetCommitKey, moment_ms: int) -> bool:
        value = self._store.find(key)
        return value is not None and value.commit_timestamp_ms <= moment_ms

    # Expiry

    def expire(self, now_ms: int) -> Iterator[list[CoordinatorRecord]]:
        """The records that remove expired offsets, and groups with nothing left, slice by slice.

        Raises nothing; what goes is only gone when the records are committed.
        """
        retention_ms = self._config["offsets.retention.minutes"] * MS_PER_MINUTE
        records: list[CoordinatorRecord] = []
        looked_at = 0
        for group_id in self._registry.group_ids():
            first = len(records)
            for keys in self._store.key_slices(group_id):
                records += [
                    tombstone(key) for key in keys if self._is_expired(key, now_ms, retention_ms)
                ]
                if not keys:
                    records += self._maybe_remove(group_id, len(records) - first)
                looked_at += len(keys) + 1
                if looked_at >= SLICE_OFFSETS:
                    yield records
                    records, looked_at, first = [], 0, 0
        yield records

    def _maybe_remove(self, group_id: str, leaving: int) -> Sequence[CoordinatorRecord]:
        """What removes a group that has nobody and no offsets but those that are `leaving`."""
        group = self._registry.get(group_id)
        left = sum(map(len, self._store.of_group(group_id).values())) - leaving
        if group is None or left or not group.is_empty:
            return ()
        return group.tombstones()

    def _is_expired(self, key: OffsetCommitKey, now_ms: int, retention_ms: int) -> bool:
        value = self._store.find(key)
        group = self._registry.get(key.group_id)
        if value is None or group is None:
            return False
        base_ms = group.offset_expiry_base_ms(key.topic, value.commit_timestamp_ms)
        if base_ms is None:
            return False
        if value.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= value.expire_timestamp_ms
        return now_ms - base_ms >= retention_ms


def tombstone(key: OffsetCommitKey) -> CoordinatorRecord:
    """The record that removes an offset."""
    return CoordinatorRecord(key, None)


def _missing_group(api_version: int) -> ErrorCode:
    if api_version >= _KNOWS_GROUP_ID_NOT_FOUND:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.ILLEGAL_GENERATION


def _log_metadata(request: OffsetCommitRequest, topic: str, partition: int, size: int) -> None:
    logger.info(
        "group %s: metadata of %d characters beside %s-%d is too much (member %s)",
        request.group_id,
        size,
        topic,
        partition,
        request.member_id or "none",
    )
