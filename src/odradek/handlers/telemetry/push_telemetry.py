"""PushTelemetry (72), version 0: a client's metrics, by its subscription (KIP-714).

Behaviour: see `client_metrics`. Listed in ApiVersions only if the broker has a receiver.
"""

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.telemetry.client_metrics import Push
from odradek.handlers.telemetry.get_telemetry_subscriptions import client_of
from odradek.metadata.image import ZERO_UUID


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when it is read: at once, unless it is large."""
    body = request.body()
    push = Push(body.subscription_id, body.terminating, body.compression_type, body.metrics or b"")
    who = body.client_instance_id or ZERO_UUID

    def answer(code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            request.answer()
        else:
            fail(request, code)

    context.client_metrics.push(who, client_of(context, request), push, request.guard(answer))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(error_code=code)
