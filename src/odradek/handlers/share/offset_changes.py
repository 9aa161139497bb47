"""The refusals that AlterShareGroupOffsets and DeleteShareGroupOffsets share."""

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share.share_version import serves_share_groups


def may_serve(context: HandlerContext, request: Request) -> bool:
    """Refuses a request that is wrong as a whole; returns whether it may be served."""
    if not serves_share_groups(context):
        fail(request, ErrorCode.UNSUPPORTED_VERSION)
        return False
    if not request.body().group_id:
        fail(request, ErrorCode.INVALID_GROUP_ID)
        return False
    return True


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    refuse(request, BrokerError(code, code.text))


def refuse(request: Request, error: BrokerError) -> None:
    """Answers with an error and its own text."""
    request.answer(error_code=error.code, error_message=error.message, responses=())
