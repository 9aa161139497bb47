"""DescribeShareGroupOffsets (90), versions 0 and 1: where share groups read.

A group without a list of topics is shown with every partition that it has read. A start of -1 is
one that is decided when a member first reads the partition, by `share.auto.offset.reset`.

Version notes: 1 adds the lag (KIP-1226), which is known where this broker leads the partition, else
it is -1.
"""

from typing import Any
from uuid import UUID

from odradek.coordinator.share_groups.requests import ShareOffset
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share.share_version import serves_share_groups
from odradek.metadata.image import MetadataImage
from odradek.model import TopicPartition

_Fields = dict[str, object]

UNKNOWN_LAG = -1


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when every share coordinator has."""
    groups = list(request.body().groups)
    answers: dict[int, _Fields] = {}

    def take(index: int, fields: _Fields) -> None:
        answers[index] = fields
        if len(answers) == len(groups):
            request.answer(groups=[answers[each] for each in range(len(groups))])

    if not serves_share_groups(context):
        fail(request, ErrorCode.UNSUPPORTED_VERSION)
        return
    if not groups:
        request.answer(groups=[])
    for index, group in enumerate(groups):
        _describe(context, group, request.guard(lambda fields, at=index: take(at, fields)))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every group with an error."""
    error = BrokerError(code, code.text)
    request.answer(groups=[_refused(each.group_id, error) for each in request.body().groups])


def _describe(context: HandlerContext, group: Any, take: Any) -> None:
    image = context.metadata.image
    wanted, unknown = _wanted(group, image)

    def on_done(outcome: list[ShareOffset] | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            take(_refused(group.group_id, outcome))
            return
        topics: dict[UUID, list[_Fields]] = {}
        for offset in outcome:
            topics.setdefault(offset.topic_id, []).append(_partition(context, offset))
        known = [
            {"topic_id": topic_id, "topic_name": topic.name, "partitions": partitions}
            for topic_id, partitions in topics.items()
            if (topic := context.metadata.image.topic_by_id(topic_id)) is not None
        ]
        take({"group_id": group.group_id, "topics": [*known, *unknown]})

    context.share_groups.describe_offsets(group.group_id, wanted, on_done)


def _wanted(group: Any, image: MetadataImage) -> tuple[Any, list[_Fields]]:
    """The partitions that are asked for, and what is answered for topics that do not exist."""
    if group.topics is None:
        return None, []
    wanted: dict[UUID, frozenset[int]] = {}
    unknown: list[_Fields] = []
    for each in group.topics:
        topic = image.topic(each.topic_name)
        if topic is not None:
            wanted[topic.topic_id] = frozenset(each.partitions)
            continue
        partitions = [
            {"partition_index": index, "start_offset": -1, "lag": UNKNOWN_LAG}
            for index in each.partitions
        ]
        unknown.append(
            {"topic_name": each.topic_name, "topic_id": UUID(int=0), "partitions": partitions}
        )
    return wanted, unknown


def _partition(context: HandlerContext, offset: ShareOffset) -> _Fields:
    if offset.error is not None:
        return {"partition_index": offset.partition, **_error_fields(offset.error)}
    return {
        "partition_index": offset.partition,
        "start_offset": offset.start_offset,
        "leader_epoch": offset.leader_epoch,
        "lag": _lag(context, offset),
        "error_code": ErrorCode.NONE,
    }


def _lag(context: HandlerContext, offset: ShareOffset) -> int:
    """How many records have not come to their end."""
    topic = context.metadata.image.topic_by_id(offset.topic_id)
    if topic is None or offset.start_offset < 0 or offset.delivery_complete_count < 0:
        return UNKNOWN_LAG
    try:
        partition = context.replicas.partition(TopicPartition(topic.name, offset.partition))
        end_offset = partition.leader_log().high_watermark
    except BrokerError:
        return UNKNOWN_LAG
    return max(0, end_offset - offset.start_offset - offset.delivery_complete_count)


def _error_fields(error: BrokerError) -> _Fields:
    return {
        "start_offset": -1,
        "leader_epoch": 0,
        "lag": UNKNOWN_LAG,
        "error_code": error.code,
        "error_message": error.message,
    }


def _refused(group_id: str, error: BrokerError) -> _Fields:
    return {
        "group_id": group_id,
        "topics": (),
        "error_code": error.code,
        "error_message": error.message,
    }
