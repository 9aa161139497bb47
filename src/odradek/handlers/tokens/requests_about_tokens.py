"""The common part of the four APIs: permissions, changes of the expiry, principals in messages."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.store import OnDone
from odradek.model import ANONYMOUS, KafkaPrincipal
from odradek.security.principal import TokenPrincipal

if TYPE_CHECKING:
    from odradek.security.delegation_tokens import DelegationTokens

_NOT_SAID = 0
_NEVER = -1


def refusal(context: HandlerContext, request: Request) -> ErrorCode | None:
    """The error for a caller that may not use tokens, or None. A login by a token cannot make
    others, and an anonymous client has none."""
    principal = request.exchange.principal
    if principal == ANONYMOUS or isinstance(principal, TokenPrincipal):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if context.tokens is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    return None


def change_expiry(
    context: HandlerContext,
    request: Request,
    change: "Callable[[DelegationTokens, OnDone[int]], None]",
) -> None:
    """Changes when a token expires; answers with the new time."""
    code = refusal(context, request)
    if code is not None:
        fail_change(request, code)
        return
    assert context.tokens is not None, "else there was a refusal"

    def on_done(outcome: int | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            request.answer(error_code=outcome.code, expiry_timestamp_ms=_NOT_SAID)
        else:
            request.answer(error_code=ErrorCode.NONE, expiry_timestamp_ms=outcome)

    change(context.tokens, request.guard(on_done))


def fail_change(request: Request, code: ErrorCode) -> None:
    """Answers a change of an expiry with an error."""
    request.answer(error_code=code, expiry_timestamp_ms=_NEVER)


def principal_fields(principal: KafkaPrincipal, prefix: str = "") -> dict[str, object]:
    """The fields of a principal in messages."""
    return {
        f"{prefix}principal_type": principal.principal_type,
        f"{prefix}principal_name": principal.name,
    }
