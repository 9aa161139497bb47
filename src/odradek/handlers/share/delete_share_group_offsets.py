"""DeleteShareGroupOffsets (92), version 0: a share group without members forgets some topics.

Its next member to read them begins where `share.auto.offset.reset` says.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import do_in_slices
from odradek.handlers.request import Request
from odradek.handlers.share import offset_changes
from odradek.metadata.image import MetadataImage

Errors = Mapping[UUID, BrokerError | None]


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the states are gone; many topics are found and answered in slices."""
    if not offset_changes.may_serve(context, request):
        return
    body = request.body()
    image = context.metadata.image
    topic_ids: list[UUID] = []

    def find(asked: Any) -> None:
        topic = image.topic(asked.topic_name)
        if topic is not None:
            topic_ids.append(topic.topic_id)

    def on_done(outcome: Errors | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            offset_changes.refuse(request, outcome)
        else:
            image = context.metadata.image
            responses = (_response(image, each.topic_name, outcome) for each in body.topics)
            request.answer(error_code=ErrorCode.NONE, responses=responses)

    def delete() -> None:
        context.share_groups.delete_offsets(body.group_id, topic_ids, request.guard(on_done))

    do_in_slices(request, body.topics, find, delete)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    offset_changes.fail(request, code)


def _response(image: MetadataImage, name: str, errors: Errors) -> dict[str, object]:
    topic = image.topic(name)
    topic_id = UUID(int=0) if topic is None else topic.topic_id
    error = errors.get(topic_id, BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    fields: dict[str, object] = {"topic_name": name, "topic_id": topic_id}
    if error is not None:
        fields["error_message"] = error.message
    fields["error_code"] = ErrorCode.NONE if error is None else error.code
    return fields
