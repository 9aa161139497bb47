"""DeleteAcls (31), versions 1 to 3: removes the ACLs that match filters, and returns them.

Version notes: 2 is flexible, 3 knows users as resources.
"""

from odradek.acl import AclBinding, AclFilter
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.acls.acl_fields import SECURITY_DISABLED, acl_filter, binding_fields
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import in_list
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when this broker decides without the removed ACLs."""
    acls = context.acls

    def on_deleted(outcome: list[list[AclBinding]] | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            _refuse(request, outcome)
        else:
            found = ({"matching_acls": binding_fields(each)} for each in outcome)
            request.answer(filter_results=found)

    def delete(filters: list[AclFilter]) -> None:
        if acls is None:
            on_deleted(SECURITY_DISABLED)
            return
        found: list[list[AclBinding]] = []
        request.in_slices(
            acls.find_each(filters, found), lambda _: acls.delete(found, request.guard(on_deleted))
        )

    in_list(request, map(acl_filter, request.body().filters), delete)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every filter."""
    _refuse(request, BrokerError(code, code.text))


def _refuse(request: Request, error: BrokerError) -> None:
    refused = {"error_code": error.code, "error_message": error.message}
    request.answer(filter_results=[refused for _ in request.body().filters])
