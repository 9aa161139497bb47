"""ExpireDelegationToken (40), versions 1 and 2: ends a token after a while, or at once.

Version notes: 2 is flexible.
"""

from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.tokens.requests_about_tokens import change_expiry, fail_change
from odradek.metadata.store import OnDone
from odradek.protocol import messages

if TYPE_CHECKING:
    from odradek.security.delegation_tokens import DelegationTokens


def handle(context: HandlerContext, request: Request) -> None:
    """Answers with the new expiry time."""
    body = request.body()
    period_ms = messages.milliseconds(body.expiry_time_period)
    caller = request.exchange.principal

    def expire(tokens: "DelegationTokens", on_done: OnDone[int]) -> None:
        tokens.expire(body.hmac, caller, period_ms, on_done)

    change_expiry(context, request, expire)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    fail_change(request, code)
