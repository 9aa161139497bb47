"""AllocateProducerIds (67), version 0: a broker asks the controller for a block of producer ids.

Behaviour: blocks of 1000, as Kafka's controller gives them. Our brokers take their blocks from the
metadata store; Kafka's brokers in the same cluster send this request.
"""

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.image import MetadataImage


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the block is stored."""
    body = request.body()
    image = context.metadata.image
    refusal = _refusal(image, context.broker_id, body.broker_id, body.broker_epoch)

    def on_done(outcome: range | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            fail(request, outcome.code)
        else:
            request.answer(producer_id_start=outcome.start, producer_id_len=len(outcome))

    if refusal is None:
        context.producer_ids.allocate_block(request.guard(on_done))
    else:
        fail(request, refusal)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error and no block."""
    request.answer(error_code=code)


def _refusal(
    image: MetadataImage, own_id: int, broker_id: int, broker_epoch: int
) -> ErrorCode | None:
    if image.controller_id != own_id:
        return ErrorCode.NOT_CONTROLLER
    broker = image.brokers.get(broker_id)
    if broker is None:
        return ErrorCode.BROKER_ID_NOT_REGISTERED
    return None if broker.epoch == broker_epoch else ErrorCode.STALE_BROKER_EPOCH
