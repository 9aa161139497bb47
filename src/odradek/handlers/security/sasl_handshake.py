"""SaslHandshake (17), versions 0 and 1: chooses the mechanism of a login.

Behaviour: a login is carried out before requests come here (`network.authentication`). A request
that arrives here is on a listener without SASL, or follows a login too soon: ILLEGAL_SASL_STATE.
"""

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:  # noqa: ARG001
    """Refuses."""
    request.body()
    fail(request, ErrorCode.ILLEGAL_SASL_STATE)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(error_code=code)
