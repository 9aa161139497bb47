"""DescribeAcls (29), versions 1 to 3: the ACLs that match a filter, by resource pattern.

Version notes: 2 is flexible, 3 knows users as resources.
"""

from odradek.acl import AccessControlEntry, ResourcePattern
from odradek.errors import ErrorCode
from odradek.handlers.acls.acl_fields import acl_filter, entry_fields, pattern_fields
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers from the published image."""
    wanted = acl_filter(request.body())
    if context.acls is None:
        text = "No Authorizer is configured on the broker"
        request.answer(error_code=ErrorCode.SECURITY_DISABLED, error_message=text)
        return
    found: dict[ResourcePattern, list[AccessControlEntry]] = {}
    request.in_slices(context.acls.find(wanted, found), lambda _: _answer(request, found))


def _answer(request: Request, found: dict[ResourcePattern, list[AccessControlEntry]]) -> None:
    request.answer(
        resources=(
            {**pattern_fields(pattern), "acls": [entry_fields(each) for each in found[pattern]]}
            for pattern in sorted(found)
        )
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error and no ACLs."""
    request.answer(error_code=code, error_message=code.text)
