"""CreateDelegationToken (38), versions 1 to 3: makes a token, for the caller or for another.

Version notes: 2 is flexible, 3 names an owner and returns the requester.
"""

from typing import Any

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.tokens.requests_about_tokens import principal_fields, refusal
from odradek.model import KafkaPrincipal
from odradek.protocol import messages

NEVER = -1


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the token can be used at this broker."""
    body = request.body()
    code = refusal(context, request)
    if code is not None:
        fail(request, code)
        return
    tokens = context.tokens
    assert tokens is not None, "else there was a refusal"

    def on_created(outcome: Any) -> None:
        if isinstance(outcome, BrokerError):
            fail(request, outcome.code)
            return
        request.answer(
            **principal_fields(outcome.owner),
            **principal_fields(outcome.requester, "token_requester_"),
            issue_timestamp_ms=outcome.issue_ms,
            expiry_timestamp_ms=outcome.expiry_ms,
            max_timestamp_ms=outcome.max_ms,
            token_id=outcome.token_id,
            hmac=tokens.hmac_of(outcome.token_id),
        )

    renewers = [KafkaPrincipal(each.principal_type, each.principal_name) for each in body.renewers]
    tokens.create(
        owner_of(request),
        request.exchange.principal,
        renewers,
        messages.milliseconds(body.max_lifetime),
        request.guard(on_created),
    )


def owner_of(request: Request) -> KafkaPrincipal:
    """The owner of the token to be: the caller, unless another is named."""
    body = request.body()
    name = getattr(body, "owner_principal_name", None)
    principal = request.exchange.principal
    if not name:
        return KafkaPrincipal(principal.principal_type, principal.name)
    return KafkaPrincipal(body.owner_principal_type or "", name)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(
        error_code=code,
        **principal_fields(owner_of(request)),
        **principal_fields(request.exchange.principal, "token_requester_"),
        issue_timestamp_ms=NEVER,
        expiry_timestamp_ms=NEVER,
        max_timestamp_ms=NEVER,
        token_id="",
        hmac=b"",
    )
