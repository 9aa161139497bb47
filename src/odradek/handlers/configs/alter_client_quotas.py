"""AlterClientQuotas (49), versions 0 and 1: sets and removes the quotas of users and client ids;
each entity is answered separately.

Version notes: 1 is flexible.
"""

from typing import Any

from odradek.controller.quota_control import QuotaAlteration
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import in_list
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the quotas hold."""
    body = request.body()

    def alter(wishes: list[QuotaAlteration]) -> None:
        context.controller.alter_client_quotas(
            wishes,
            request.guard(lambda outcomes: _answer(request, outcomes)),
            validate_only=body.validate_only,
            defer=request.defer,
        )

    in_list(request, map(_wish, body.entries), alter)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every entity."""
    error = BrokerError(code, code.text)
    _answer(request, [error for _ in request.body().entries])


def _wish(entry: Any) -> QuotaAlteration:
    return QuotaAlteration(
        [(each.entity_type, each.entity_name) for each in entry.entity],
        [(op.key, None if op.remove else float(op.value)) for op in entry.ops],
    )


def _answer(request: Request, outcomes: list[BrokerError | None]) -> None:
    request.answer(
        entries=(
            {
                "error_code": ErrorCode.NONE if error is None else error.code,
                "error_message": None if error is None else error.message,
                "entity": [
                    {"entity_type": each.entity_type, "entity_name": each.entity_name}
                    for each in entry.entity
                ],
            }
            for entry, error in zip(request.body().entries, outcomes, strict=True)
        )
    )
