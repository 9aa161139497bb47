"""ExpireDelegationToken (40), versions 1 and 2: ends a token after a while, or at once.

Version notes: 2 is flexible.
"""

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.tokens.requests_about_tokens import refusal
from odradek.protocol import messages

NOT_SAID = 0
NEVER = -1


def handle(context: HandlerContext, request: Request) -> None:
    """Answers until when it is good."""
    body = request.body()
    code = refusal(context, request)
    if code is not None:
        fail(request, code)
        return
    assert context.tokens is not None, "else there was a refusal"

    def on_done(outcome: int | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            request.answer(error_code=outcome.code, expiry_timestamp_ms=NOT_SAID)
        else:
            request.answer(error_code=ErrorCode.NONE, expiry_timestamp_ms=outcome)

    period_ms = messages.milliseconds(body.expiry_time_period)
    caller = request.exchange.principal
    context.tokens.expire(body.hmac, caller, period_ms, request.guard(on_done))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(error_code=code, expiry_timestamp_ms=NEVER)
