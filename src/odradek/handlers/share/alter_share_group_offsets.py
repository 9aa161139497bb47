"""AlterShareGroupOffsets (91), version 0: has a share group without members read from elsewhere.

The group forgets those partitions' states: they begin again.
"""

from collections.abc import Mapping
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share import offset_changes

Errors = Mapping[tuple[UUID, int], BrokerError | None]


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the states are stored."""
    if not offset_changes.may_serve(context, request):
        return
    body = request.body()
    image = context.metadata.image
    starts: dict[tuple[UUID, int], int] = {}
    for each in body.topics:
        topic = image.topic(each.topic_name)
        for partition in each.partitions:
            index = partition.partition_index
            if topic is not None and 0 <= index < len(topic.partitions):
                starts[topic.topic_id, index] = partition.start_offset

    def on_done(outcome: Errors | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            offset_changes.refuse(request, outcome)
        else:
            _answer(context, request, outcome)

    context.share_groups.alter_offsets(body.group_id, starts, request.guard(on_done))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    offset_changes.fail(request, code)


def _answer(context: HandlerContext, request: Request, errors: Errors) -> None:
    unknown = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    responses = []
    for each in request.body().topics:
        topic = context.metadata.image.topic(each.topic_name)
        topic_id = UUID(int=0) if topic is None else topic.topic_id
        partitions = [
            {
                "partition_index": partition.partition_index,
                **_code(errors.get((topic_id, partition.partition_index), unknown)),
            }
            for partition in each.partitions
        ]
        responses.append(
            {"topic_name": each.topic_name, "topic_id": topic_id, "partitions": partitions}
        )
    request.answer(error_code=ErrorCode.NONE, responses=responses)


def _code(error: BrokerError | None) -> dict[str, object]:
    if error is None:
        return {"error_code": ErrorCode.NONE}
    return {"error_code": error.code, "error_message": error.message}
