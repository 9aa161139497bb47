"""The common part of the four APIs: who may ask, and principals in messages."""

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.model import ANONYMOUS, KafkaPrincipal
from odradek.security.principal import TokenPrincipal


def refusal(context: HandlerContext, request: Request) -> ErrorCode | None:
    """Why nothing is done. A token makes no other tokens, and they are for those who are known."""
    principal = request.exchange.principal
    if principal == ANONYMOUS or isinstance(principal, TokenPrincipal):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if context.tokens is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    return None


def principal_fields(principal: KafkaPrincipal, prefix: str = "") -> dict[str, object]:
    """A principal as messages have it."""
    return {
        f"{prefix}principal_type": principal.principal_type,
        f"{prefix}principal_name": principal.name,
    }
