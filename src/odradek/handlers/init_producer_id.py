"""InitProducerId (22), versions 0 to 5: an id for an idempotent producer.

Behaviour: every call gets an id that nobody had before, with epoch 0; what the client says
about an id it already has (from version 3) matters to transactions only, but must be whole.

Transactions are not served. A transactional id is answered with UNSUPPORTED_VERSION: every
client takes that for final and says so at once, while COORDINATOR_NOT_AVAILABLE or
NOT_COORDINATOR would let it look for a coordinator until it times out. An empty one is
INVALID_REQUEST, as with Kafka.
"""

from typing import Any, Final

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

FIRST_EPOCH: Final = 0


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once while the block of ids lasts, else when a new one is there."""
    error = _error(request.body())
    if error is not ErrorCode.NONE:
        fail(request, error)
        return

    def on_id(outcome: int | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            fail(request, outcome.code)
        else:
            request.answer(producer_id=outcome, producer_epoch=FIRST_EPOCH)

    context.producer_ids.next_id(request.guard(on_id))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error and no id."""
    request.answer(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def _error(body: Any) -> ErrorCode:
    if body.transactional_id is not None:
        known = bool(body.transactional_id)
        return ErrorCode.UNSUPPORTED_VERSION if known else ErrorCode.INVALID_REQUEST
    producer_id = getattr(body, "producer_id", NO_PRODUCER_ID)
    producer_epoch = getattr(body, "producer_epoch", NO_PRODUCER_EPOCH)
    if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE
