"""Rules for delegation tokens: creating and describing other principals' tokens needs
permission."""

from collections.abc import Callable, Mapping
from typing import Final

from odradek.errors import ErrorCode
from odradek.handlers.authorization.access import Fields, Guarded
from odradek.handlers.tokens.create_delegation_token import owner_of
from odradek.handlers.tokens.requests_about_tokens import refusal
from odradek.model import AclOperation, KafkaPrincipal, ResourceType


def _create(guarded: Guarded) -> None:
    owner = owner_of(guarded.request)
    code = refusal(guarded.context, guarded.request)
    if code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
        guarded.fail(code)
    elif owner == guarded.request.exchange.principal or guarded.may(
        AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        guarded.serve()
    else:
        guarded.fail(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


def _serve(guarded: Guarded) -> None:
    """Serves the request: the token's owner decides, and no ACL."""
    guarded.serve()


def _describe(guarded: Guarded) -> None:
    guarded.keep("tokens", lambda token: _may_see(guarded, token))
    guarded.serve()


def _may_see(guarded: Guarded, token: Fields) -> bool:
    caller = guarded.request.exchange.principal
    people = [_principal(token), _principal(token, "token_requester_")]
    people += map(_principal, token["renewers"])
    return (
        caller in people
        or guarded.may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token["token_id"])
        or guarded.may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(_principal(token)))
    )


def _principal(fields: Fields, prefix: str = "") -> KafkaPrincipal:
    return KafkaPrincipal(fields[f"{prefix}principal_type"], fields[f"{prefix}principal_name"])


RULES: Final[Mapping[int, Callable[[Guarded], None]]] = {
    38: _create,
    39: _serve,
    40: _serve,
    41: _describe,
}
"""By API key."""
