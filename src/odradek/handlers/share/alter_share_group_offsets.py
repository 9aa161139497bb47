"""AlterShareGroupOffsets (91), version 0: sets the offsets of a share group without members.

The states of these partitions begin anew.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share import offset_changes
from odradek.metadata.image import MetadataImage

Errors = Mapping[tuple[UUID, int], BrokerError | None]
_Fields = dict[str, object]


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the states are stored; reads and answers many partitions in slices."""
    if not offset_changes.may_serve(context, request):
        return
    body = request.body()
    starts: dict[tuple[UUID, int], int] = {}

    def on_done(outcome: Errors | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            offset_changes.refuse(request, outcome)
        else:
            responses = _responses(context.metadata.image, body.topics, outcome)
            request.answer(error_code=ErrorCode.NONE, responses=responses)

    def alter(_is_long: bool) -> None:
        context.share_groups.alter_offsets(body.group_id, starts, request.guard(on_done))

    request.in_slices(_read(context.metadata.image, body.topics, starts), alter)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    offset_changes.fail(request, code)


def _read(
    image: MetadataImage, topics: Iterable[Any], starts: dict[tuple[UUID, int], int]
) -> Iterator[int]:
    """Reads the partitions, one at each step."""
    for each in topics:
        topic = image.topic(each.topic_name)
        yield 1
        for partition in each.partitions:
            index = partition.partition_index
            if topic is not None and 0 <= index < len(topic.partitions):
                starts[topic.topic_id, index] = partition.start_offset
            yield 1


def _responses(image: MetadataImage, topics: Iterable[Any], errors: Errors) -> Iterator[_Fields]:
    for each in topics:
        topic = image.topic(each.topic_name)
        topic_id = UUID(int=0) if topic is None else topic.topic_id
        yield {
            "topic_name": each.topic_name,
            "topic_id": topic_id,
            "partitions": _partitions(topic_id, each.partitions, errors),
        }


def _partitions(topic_id: UUID, asked: Iterable[Any], errors: Errors) -> Iterator[_Fields]:
    unknown = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for partition in asked:
        error = errors.get((topic_id, partition.partition_index), unknown)
        yield {"partition_index": partition.partition_index, **_code(error)}


def _code(error: BrokerError | None) -> _Fields:
    if error is None:
        return {"error_code": ErrorCode.NONE}
    return {"error_code": error.code, "error_message": error.message}
