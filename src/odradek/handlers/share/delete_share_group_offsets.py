"""DeleteShareGroupOffsets (92), version 0: a share group without members forgets some topics.

Its next member to read them begins where `share.auto.offset.reset` says.
"""

from collections.abc import Mapping
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share import offset_changes

Errors = Mapping[UUID, BrokerError | None]


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the states are gone."""
    if not offset_changes.may_serve(context, request):
        return
    body = request.body()
    image = context.metadata.image
    topics = [image.topic(each.topic_name) for each in body.topics]
    topic_ids = [topic.topic_id for topic in topics if topic is not None]

    def on_done(outcome: Errors | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            offset_changes.refuse(request, outcome)
        else:
            _answer(context, request, outcome)

    context.share_groups.delete_offsets(body.group_id, topic_ids, request.guard(on_done))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    offset_changes.fail(request, code)


def _answer(context: HandlerContext, request: Request, errors: Errors) -> None:
    unknown = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    responses = []
    for each in request.body().topics:
        topic = context.metadata.image.topic(each.topic_name)
        topic_id = UUID(int=0) if topic is None else topic.topic_id
        error = errors.get(topic_id, unknown)
        fields: dict[str, object] = {"topic_name": each.topic_name, "topic_id": topic_id}
        if error is not None:
            fields["error_message"] = error.message
        fields["error_code"] = ErrorCode.NONE if error is None else error.code
        responses.append(fields)
    request.answer(error_code=ErrorCode.NONE, responses=responses)
