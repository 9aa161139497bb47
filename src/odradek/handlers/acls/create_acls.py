"""CreateAcls (30), versions 1 to 3: adds ACLs, and answers each separately.

Version notes: 2 is flexible, 3 knows users as resources.
"""

from collections.abc import Iterable

from odradek.acl import AclBinding
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.acls.acl_fields import SECURITY_DISABLED, binding
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import in_list
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when this broker decides by the new ACLs."""
    acls = context.acls

    def create(bindings: list[AclBinding]) -> None:
        def on_created(outcome: list[BrokerError | None] | BrokerError) -> None:
            if isinstance(outcome, BrokerError):
                outcome = [outcome for _ in bindings]
            _answer(request, outcome)

        if acls is None:
            on_created(SECURITY_DISABLED)
        else:
            acls.create(bindings, request.guard(on_created))

    in_list(request, map(binding, request.body().creations), create)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every ACL."""
    _answer(request, [BrokerError(code, code.text) for _ in request.body().creations])


def _answer(request: Request, outcomes: Iterable[BrokerError | None]) -> None:
    request.answer(
        results=(
            {} if error is None else {"error_code": error.code, "error_message": error.message}
            for error in outcomes
        )
    )
