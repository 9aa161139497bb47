"""DeleteAcls (31), versions 1 to 3: removes what filters mean, and tells what that was.

Version notes: 2 is flexible, 3 knows users as resources.
"""

from odradek.acl import AclBinding
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.acls.acl_fields import SECURITY_DISABLED, acl_filter, binding_fields
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when this broker decides without them."""
    filters = [acl_filter(each) for each in request.body().filters]

    def on_deleted(outcome: list[list[AclBinding]] | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            _refuse(request, outcome)
        else:
            found = [{"matching_acls": binding_fields(each)} for each in outcome]
            request.answer(filter_results=found)

    if context.acls is None:
        on_deleted(SECURITY_DISABLED)
    else:
        context.acls.delete(filters, request.guard(on_deleted))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every filter."""
    _refuse(request, BrokerError(code, code.text))


def _refuse(request: Request, error: BrokerError) -> None:
    refused = {"error_code": error.code, "error_message": error.message}
    request.answer(filter_results=[refused for _ in request.body().filters])
