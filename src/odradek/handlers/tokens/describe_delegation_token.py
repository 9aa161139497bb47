"""DescribeDelegationToken (41), versions 1 to 3: the tokens of owners, or all that the caller may
see.

Behaviour: without owners all; an empty list means none. A token is returned with its password, to
principals that may see it. These are its owner, its requester, its renewers, and principals whose
ACLs allow DESCRIBE on the token or DESCRIBE_TOKENS on its owner.

Version notes: 2 is flexible, 3 returns the requester of a token.
"""

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.tokens.requests_about_tokens import principal_fields, refusal
from odradek.model import KafkaPrincipal


def handle(context: HandlerContext, request: Request) -> None:
    """Answers from the published image."""
    wanted = request.body().owners
    code = refusal(context, request)
    if code is not None:
        fail(request, code)
        return
    tokens = context.tokens
    assert tokens is not None, "else there was a refusal"
    owners = {KafkaPrincipal(each.principal_type, each.principal_name) for each in wanted or ()}
    found = [
        each for each in tokens.all() if wanted is None or not owners.isdisjoint(each.principals)
    ]
    request.answer(
        error_code=ErrorCode.NONE,
        tokens=(
            {
                **principal_fields(each.owner),
                **principal_fields(each.requester, "token_requester_"),
                "issue_timestamp": each.issue_ms,
                "expiry_timestamp": each.expiry_ms,
                "max_timestamp": each.max_ms,
                "token_id": each.token_id,
                "hmac": tokens.hmac_of(each.token_id),
                "renewers": [principal_fields(renewer) for renewer in each.renewers],
            }
            for each in found
        ),
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(error_code=code, tokens=[])
