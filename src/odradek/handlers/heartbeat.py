"""Heartbeat (12), versions 0 to 4: a sign of life, answered at once.

The code tells the member what to do: REBALANCE_IN_PROGRESS to join again, UNKNOWN_MEMBER_ID
and ILLEGAL_GENERATION to join anew.

Version notes: 3 adds static members, 4 is flexible.
"""

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    body = request.body()
    code = context.groups.heartbeat(
        body.group_id,
        body.member_id,
        getattr(body, "group_instance_id", None),
        body.generation_id,
    )
    request.answer(error_code=code)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(error_code=code)
