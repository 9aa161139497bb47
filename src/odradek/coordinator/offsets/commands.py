"""`OffsetCommands`: commit and delete the offsets of one partition of the internal topic.

Commands decide; their records are appended, and `replay` applies them when they are committed. An
acknowledged offset is therefore in the log, and an offset in the log is never replaced by an older
one.
"""

import logging
from collections.abc import Sequence
from typing import Final

from odradek.config.broker import BrokerConfig
from odradek.coordinator.group import CheckPartition, GroupRegistry
from odradek.coordinator.offsets.in_flight import OffsetsInFlight
from odradek.coordinator.offsets.requests import OffsetCommitRequest, TopicErrors
from odradek.coordinator.offsets.store import OffsetStore
from odradek.coordinator.records.offset_records import (
    MAX_TIMESTAMP_MS,
    NO_EXPIRY,
    OffsetAndMetadata,
    OffsetCommitKey,
    is_storable,
    tombstone,
)
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.shard import CoordinatorResult
from odradek.errors import BrokerError, ErrorCode

logger = logging.getLogger(__name__)

NO_RETENTION: Final = -1
_KNOWS_GROUP_ID_NOT_FOUND: Final = 9


class OffsetCommands:
    """The commands on the offsets of one partition."""

    def __init__(self, store: OffsetStore, registry: GroupRegistry, config: BrokerConfig) -> None:
        self._store = store
        self._registry = registry
        self._config = config

    # Committing

    def commit(self, request: OffsetCommitRequest, now_ms: int) -> CoordinatorResult[TopicErrors]:
        """Commits the allowed partitions; the others are refused one by one.

        Raises:
            BrokerError: the sender may not commit for this group.
        """
        check = self._check_sender(request)
        expire_ms = _expire_timestamp_ms(request.retention_ms, now_ms)
        longest = self._config["offset.metadata.max.bytes"]
        records: list[CoordinatorRecord] = []
        answer: TopicErrors = []
        for topic in request.topics:
            errors: list[tuple[int, ErrorCode]] = []
            for each in topic.partitions:
                if check is not None:
                    check(topic.topic_id, each.partition)
                if len(each.metadata) > longest or not is_storable(each.metadata):
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

    def _check_sender(self, request: OffsetCommitRequest) -> CheckPartition | None:
        group = self._registry.get(request.group_id)
        if group is None:
            if request.generation_or_epoch >= 0:
                raise BrokerError(_missing_group(request))
            return None
        if request.is_transactional and not _names_member(request):
            return None
        check = group.check_offset_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_or_epoch,
            request.api_version,
            request.is_transactional,
        )
        group.on_offset_commit(request.member_id)
        return check

    # Deleting

    def delete(
        self,
        group_id: str,
        topics: Sequence[tuple[str, Sequence[int]]],
        in_flight: OffsetsInFlight,
    ) -> CoordinatorResult[TopicErrors]:
        """Deletes offsets, also `in_flight` ones, of topics that the group does not read at
        present.

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
                keys = [OffsetCommitKey(group_id, topic, partition) for partition in partitions]
                records += [
                    tombstone(key) for key in keys if self._store.has(key) or in_flight.has(key)
                ]
        return CoordinatorResult(records, answer)

    def delete_group(self, group_id: str, in_flight: OffsetsInFlight) -> CoordinatorResult[None]:
        """Deletes a group without members, and its offsets, also `in_flight` ones.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.
        """
        group = self._registry.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_delete()
        coming = [key for key in in_flight.keys(group_id) if not self._store.has(key)]
        records = [tombstone(key) for key in [*self._store.keys(group_id), *coming]]
        return CoordinatorResult([*records, *group.tombstones()], None)


def _expire_timestamp_ms(retention_ms: int, now_ms: int) -> int:
    """The expiry of an offset by its client's setting, within the bounds of the format."""
    if retention_ms == NO_RETENTION:
        return NO_EXPIRY
    return min(max(now_ms + retention_ms, 0), MAX_TIMESTAMP_MS)


def _names_member(request: OffsetCommitRequest) -> bool:
    """Whether a commit names its member; those of transactions did not at first, and need not."""
    return (
        request.generation_or_epoch >= 0
        or bool(request.member_id)
        or request.group_instance_id is not None
    )


def _missing_group(request: OffsetCommitRequest) -> ErrorCode:
    if not request.is_transactional and request.api_version >= _KNOWS_GROUP_ID_NOT_FOUND:
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
