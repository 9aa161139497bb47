"""CreatePartitions (37), versions 0 to 3: adds partitions to topics.

Behaviour: `count` is the new total number of partitions; assignments are for the new ones. With
`validate_only` nothing changes. When the answer leaves, the new partitions can be appended to.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from odradek.controller.results import NamedResult, PartitionsRequest
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import in_list
from odradek.handlers.request import Request
from odradek.handlers.topics.mutations import charge_of
from odradek.protocol.messages import milliseconds

STRICT_VERSION: Final = 3


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the partitions are there."""
    body = request.body()

    def on_created(results: Sequence[NamedResult]) -> None:
        _answer(request, dict.fromkeys(results))

    def create(wishes: list[PartitionsRequest]) -> None:
        context.controller.create_partitions(
            wishes,
            milliseconds(body.timeout),
            request.guard(on_created),
            validate_only=body.validate_only,
            defer=request.defer,
            charge=charge_of(request, strict_from=STRICT_VERSION),
        )

    in_list(request, map(_wish, body.topics), create)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every topic."""
    names = dict.fromkeys(topic.name for topic in request.body().topics)
    _answer(request, [NamedResult(name, code, code.text) for name in names])


def _wish(topic: Any) -> PartitionsRequest:
    if topic.assignments is None:
        return PartitionsRequest(topic.name, topic.count)
    assignments = [assignment.broker_ids for assignment in topic.assignments]
    return PartitionsRequest(topic.name, topic.count, assignments)


def _answer(request: Request, results: Iterable[NamedResult]) -> None:
    request.answer(
        results=(
            {"name": result.name, "error_code": result.error_code, "error_message": result.message}
            for result in results
        )
    )
