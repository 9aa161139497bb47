"""OffsetFetch (9), versions 1 to 10: the committed offsets of a group, or of many.

Behaviour: a missing commit is -1, without an error. A null list of topics means all topics of the
group. Many entries are answered in slices; the offsets of a group are those of one moment. With
`require_stable` a partition with an offset of an open transaction is UNSTABLE_OFFSET_COMMIT: the
client asks again until the transaction is over (KIP-447).

Version notes: 2 can ask for all topics and has an error for the group, 5 leader epochs, 6 is
flexible, 7 adds `require_stable`, 8 asks for many groups, 9 brings the member's epoch, 10 names
topics by id. In version 1 every partition has the group's error.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from odradek.coordinator.offsets.requests import FetchedOffsets
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
# A topic to show: its name or id, the name if it is known, the partitions.
_Wanted = tuple[_Fields, str | None, Iterable[int]]


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once, or in slices."""
    body = request.body()
    answered: list[_Fields] = []
    if request.api_version >= BATCH_VERSION:
        steps = _answer_groups(context, request, body.groups, answered)
        request.answer_when_made(steps, groups=answered)
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
    steps = _answer_topics(context.metadata.image, request, body.topics, offsets, answered)
    request.answer_when_made(steps, topics=answered)


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


def _answer_groups(
    context: HandlerContext, request: Request, groups: Iterable[Any], answered: list[_Fields]
) -> Iterator[int]:
    image = context.metadata.image
    for group in groups:
        fields: _Fields = {"group_id": group.group_id}
        answered.append(fields)
        yield 1
        try:
            offsets = _fetch(context, request, group)
        except BrokerError as error:
            fields["error_code"] = error.code
            continue
        topics: list[_Fields] = []
        fields["topics"] = topics
        yield from _answer_topics(image, request, group.topics, offsets, topics)


def _fetch(context: HandlerContext, request: Request, group: Any) -> FetchedOffsets:
    return context.groups.fetch_offsets(
        group.group_id,
        getattr(group, "member_id", None),
        getattr(group, "member_epoch", NO_MEMBER_EPOCH),
        require_stable=request.body().require_stable,
    )


def _answer_topics(
    image: MetadataImage,
    request: Request,
    asked: Sequence[Any] | None,
    offsets: FetchedOffsets,
    answered: list[_Fields],
) -> Iterator[int]:
    """Answers one partition at each step, with its offset at the first step."""
    by_id = request.api_version >= TOPIC_ID_VERSION
    offsets = _kept(offsets, None if asked is None else _names(image, by_id, asked))
    for identity, name, indexes in _wanted(image, by_id, asked, offsets):
        partitions: list[_Fields] = []
        answered.append({**identity, "partitions": partitions})
        yield 1
        for index in indexes:
            partitions.append(_partition(name, index, offsets))
            yield 1


def _kept(offsets: FetchedOffsets, names: Iterable[str | None] | None) -> FetchedOffsets:
    """Copies the offsets of these topics, or of all, since commits may come between slices."""
    committed = offsets.committed
    if names is None:
        names = committed
    known = [name for name in names if name is not None and name in committed]
    return FetchedOffsets({name: dict(committed[name]) for name in known}, offsets.unstable)


def _names(image: MetadataImage, by_id: bool, asked: Iterable[Any]) -> list[str | None]:
    if by_id:
        return [_name_of_id(image, topic.topic_id) for topic in asked]
    return [topic.name for topic in asked]


def _name_of_id(image: MetadataImage, topic_id: UUID | None) -> str | None:
    topic = None if topic_id is None else image.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _wanted(
    image: MetadataImage, by_id: bool, asked: Iterable[Any] | None, offsets: FetchedOffsets
) -> Iterator[_Wanted]:
    if asked is None:
        for name, committed in offsets.committed.items():
            identity = _identity(image, name, by_id)
            if identity is not None:
                yield identity, name, committed
    elif by_id:
        for topic in asked:
            topic_id: UUID | None = topic.topic_id
            yield {"topic_id": topic_id}, _name_of_id(image, topic_id), topic.partition_indexes
    else:
        for topic in asked:
            yield {"name": topic.name}, topic.name, topic.partition_indexes


def refused_topic(topic: Any, code: ErrorCode) -> dict[str, object]:
    """A topic of a request, by the name or id that it has there, with an error for every
    partition."""
    topic_id = getattr(topic, "topic_id", None)
    return {
        **({"name": topic.name} if topic_id is None else {"topic_id": topic_id}),
        "partitions": [_nothing(index, code) for index in topic.partition_indexes],
    }


def _identity(image: MetadataImage, name: str, by_id: bool) -> _Fields | None:
    """The name or id of a topic in the answer; a deleted topic has no id."""
    if not by_id:
        return {"name": name}
    topic = image.topic(name)
    return None if topic is None else {"topic_id": topic.topic_id}


def _partition(topic: str | None, index: int, offsets: FetchedOffsets) -> _Fields:
    if topic is None:
        return _nothing(index, ErrorCode.UNKNOWN_TOPIC_ID)
    if (topic, index) in offsets.unstable:
        return _nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    offset = offsets.committed.get(topic, {}).get(index)
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
