"""SaslAuthenticate (36), versions 0 to 2: the messages of a SASL mechanism.

Behaviour: like SaslHandshake, these are handled before requests come here: ILLEGAL_SASL_STATE.
"""

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:  # noqa: ARG001
    """Refuses."""
    request.body()
    request.answer(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(error_code=code, error_message=code.text, auth_bytes=b"")
