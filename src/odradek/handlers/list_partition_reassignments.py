"""ListPartitionReassignments (46), version 0: the reassignments in progress, which are none.

See `alter_partition_reassignments`: what is accepted there is done when it is answered.
"""

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(_context: HandlerContext, request: Request) -> None:
    """Answers at once, with nothing."""
    request.answer()


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(error_code=code, error_message=code.text)
