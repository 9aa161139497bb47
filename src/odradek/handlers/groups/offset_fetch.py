"""OffsetFetch (9), versions 1 to 10: the committed offsets of a group, or of many.

Behaviour: a missing commit is -1, without an error. A null list of topics means all that the group
has. With `require_stable` a partition of which an open transaction has an offset is
UNSTABLE_OFFSET_COMMIT: the client asks again until the transaction is over (KIP-447).

Version notes: 2 knows all topics and an error for the group, 5 leader epochs, 6 is flexible, 7 adds
`require_stable`, 8 asks for many groups, 9 brings the member's epoch, 10 names topics by id. In
version 1 every partition has the group's error.
"""

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from odradek.coordinator.offsets.requests import FetchedOffsets
from odradek.coordinator.records.offset_records import OffsetAndMetadata
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.image import MetadataImage

GROUP_ERROR_VERSION: Final = 2
BATCH_VERSION: Final = 8
TOPIC_ID_VERSION: Final = 10
NO_OFFSET: Final = -1
NO_MEMBER_EPOCH: Final = -1

_Fields = dict[str, object]


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    body = request.body()
    if request.api_version >= BATCH_VERSION:
        request.answer(groups=[_group(context, request, group) for group in body.groups])
        return
    try:
        offsets = context.groups.fetch_offsets(
            body.group_id,
            None,
            NO_MEMBER_EPOCH,
            require_stable=getattr(body, "require_stable", False),
        )
    except BrokerError as error:
        fail(request, error.code)
        return
    request.answer(topics=_topics(context.metadata.image, request, body.topics, offsets))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every group with an error."""
    body = request.body()
    if request.api_version >= BATCH_VERSION:
        failed = [{"group_id": each.group_id, "error_code": code} for each in body.groups]
        request.answer(groups=failed)
    elif request.api_version >= GROUP_ERROR_VERSION:
        request.answer(error_code=code)
    else:
        topics = [
            {
                "name": topic.name,
                "partitions": [_nothing(index, code) for index in topic.partition_indexes],
            }
            for topic in body.topics
        ]
        request.answer(topics=topics)


def _group(context: HandlerContext, request: Request, group: Any) -> _Fields:
    member_id = getattr(group, "member_id", None)
    member_epoch = getattr(group, "member_epoch", NO_MEMBER_EPOCH)
    try:
        offsets = context.groups.fetch_offsets(
            group.group_id,
            member_id,
            member_epoch,
            require_stable=request.body().require_stable,
        )
    except BrokerError as error:
        return {"group_id": group.group_id, "error_code": error.code}
    topics = _topics(context.metadata.image, request, group.topics, offsets)
    return {"group_id": group.group_id, "topics": topics}


def _topics(
    image: MetadataImage, request: Request, asked: Iterable[Any] | None, offsets: FetchedOffsets
) -> list[_Fields]:
    by_id = request.api_version >= TOPIC_ID_VERSION
    if asked is None:
        return [
            {**identity, "partitions": _partitions(name, partitions, offsets)}
            for name, partitions in offsets.committed.items()
            if (identity := _identity(image, name, by_id)) is not None
        ]
    if by_id:
        return [_topic_by_id(image, topic, offsets) for topic in asked]
    return [
        {
            "name": topic.name,
            "partitions": _partitions(topic.name, topic.partition_indexes, offsets),
        }
        for topic in asked
    ]


def refused_topic(topic: Any, code: ErrorCode) -> dict[str, object]:
    """A topic of a request, by the name or id that it has there, with an error for every
    partition."""
    return {
        "name": getattr(topic, "name", None) or "",
        "topic_id": getattr(topic, "topic_id", None),
        "partitions": [_nothing(index, code) for index in topic.partition_indexes],
    }


def _identity(image: MetadataImage, name: str, by_id: bool) -> _Fields | None:
    """How a topic is named in the answer; a topic that is gone has no id to be named by."""
    if not by_id:
        return {"name": name}
    topic = image.topic(name)
    return None if topic is None else {"topic_id": topic.topic_id}


def _topic_by_id(image: MetadataImage, topic: Any, offsets: FetchedOffsets) -> _Fields:
    topic_id: UUID | None = topic.topic_id
    found = None if topic_id is None else image.topic_by_id(topic_id)
    if found is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID
        partitions = [_nothing(index, code) for index in topic.partition_indexes]
    else:
        partitions = _partitions(found.name, topic.partition_indexes, offsets)
    return {"topic_id": topic_id, "partitions": partitions}


def _partitions(topic: str, indexes: Iterable[int], offsets: FetchedOffsets) -> list[_Fields]:
    committed = offsets.committed.get(topic, {})
    return [
        _nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if (topic, index) in offsets.unstable
        else _partition(index, committed.get(index))
        for index in indexes
    ]


def _partition(index: int, offset: OffsetAndMetadata | None) -> _Fields:
    if offset is None:
        return _nothing(index, ErrorCode.NONE)
    return {
        "partition_index": index,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
    }


def _nothing(index: int, code: ErrorCode) -> _Fields:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_OFFSET,
        "metadata": "",
        "error_code": code,
    }
