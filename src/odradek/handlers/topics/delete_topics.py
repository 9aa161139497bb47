"""DeleteTopics (20), versions 1 to 6: by name, or (from version 6) by id.

Behaviour: clients do not see the topic any more when the answer leaves, unless that took longer
than the request's time-out; its files are removed later. An entry with both a name and an id makes
the whole request INVALID_REQUEST. Where deletion is switched off, clients before version 3 are told
INVALID_REQUEST too, since they do not know TOPIC_DELETION_DISABLED.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from odradek.controller.results import DeleteTopicResult, TopicReference
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.topics.mutations import charge_of
from odradek.metadata.image import ZERO_UUID
from odradek.protocol.messages import milliseconds

TOPIC_STATES_VERSION: Final = 6
STRICT_VERSION: Final = 5
DELETION_DISABLED_VERSION: Final = 3


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the topics are gone."""
    references = _references(request)
    if any((reference.name is None) == (reference.topic_id.int == 0) for reference in references):
        fail(request, ErrorCode.INVALID_REQUEST)
        return

    def on_deleted(results: Sequence[DeleteTopicResult]) -> None:
        _answer(request, dict.fromkeys(results))

    context.controller.delete_topics(
        references,
        milliseconds(request.body().timeout),
        request.guard(on_deleted),
        defer=request.defer,
        charge=charge_of(request, strict_from=STRICT_VERSION),
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every topic."""
    _answer(request, [DeleteTopicResult(*each, code, code.text) for each in _references(request)])


def _references(request: Request) -> list[TopicReference]:
    body: Any = request.body()
    if request.api_version < TOPIC_STATES_VERSION:
        return [TopicReference(name) for name in body.topic_names]
    return [TopicReference(topic.name, topic.topic_id or ZERO_UUID) for topic in body.topics]


def _answer(request: Request, results: Iterable[DeleteTopicResult]) -> None:
    request.answer(
        responses=(
            {
                "name": result.name,
                "topic_id": result.topic_id,
                "error_code": _code(request, result.error_code),
                "error_message": result.message,
            }
            for result in results
        )
    )


def _code(request: Request, code: ErrorCode) -> ErrorCode:
    disabled = code is ErrorCode.TOPIC_DELETION_DISABLED
    older = request.api_version < DELETION_DISABLED_VERSION
    return ErrorCode.INVALID_REQUEST if disabled and older else code
