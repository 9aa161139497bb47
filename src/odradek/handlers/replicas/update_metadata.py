"""UpdateMetadata (6), versions 0 to 8: the controller sends the metadata for clients.

Behaviour: an earlier controller or broker epoch is refused (STALE_CONTROLLER_EPOCH,
STALE_BROKER_EPOCH), and no client sees any of the request.

Version notes: 1 has several end points a broker, 2 racks, 3 names of listeners, 4 offline replicas,
5 the broker's epoch, 7 topic ids.
"""

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.replicas.control_values import (
    control_header,
    controlled,
    is_late,
    live_brokers,
    partition_states,
)
from odradek.handlers.request import Request
from odradek.metadata.control import UpdateMetadata


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when clients see the change."""
    if is_late(context, request):
        return
    body = request.body()

    def on_done(outcome: BrokerError | None) -> None:
        fail(request, ErrorCode.NONE if outcome is None else outcome.code)

    command = UpdateMetadata(control_header(body), partition_states(body), live_brokers(body))
    controlled(context).on_update_metadata(command, request.guard(on_done))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(error_code=code)
