"""InitProducerId (22), versions 0 to 5: an id for an idempotent or transactional producer.

Without a transactional id every call gets a new id, with epoch 0. With one the transaction
coordinator answers: the id stays, the epoch is raised, and its previous producer is fenced. If the
client names its id (from version 3), it must name its epoch as well. An empty transactional id is
INVALID_REQUEST, as with Kafka.

Version notes: 2 is flexible, 3 brings the producer's own id and epoch, 4 PRODUCER_FENCED.
"""

from typing import Any, Final

from odradek.coordinator.transactions.requests import (
    InitProducerIdRequest,
    ProducerAnswer,
    ProducerIdAndEpoch,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.transactions.transaction_errors import as_known
from odradek.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.protocol.messages import milliseconds

FIRST_EPOCH: Final = 0
PRODUCER_FENCED_VERSION: Final = 4


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once while the block of ids lasts, else when a new block has arrived."""
    body = request.body()
    expected = _expected(body)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.producer_epoch == NO_PRODUCER_EPOCH):
        fail(request, ErrorCode.INVALID_REQUEST)
    elif body.transactional_id is None:
        _hand_out(context, request)
    else:
        has_id = expected.producer_id != NO_PRODUCER_ID
        _initialize(context, request, body, expected if has_id else None)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error and no id."""
    request.answer(
        error_code=as_known(code, request.api_version, PRODUCER_FENCED_VERSION),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
    )


def _expected(body: Any) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(
        getattr(body, "producer_id", NO_PRODUCER_ID),
        getattr(body, "producer_epoch", NO_PRODUCER_EPOCH),
    )


def _hand_out(context: HandlerContext, request: Request) -> None:
    def on_id(outcome: int | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            fail(request, outcome.code)
        else:
            request.answer(producer_id=outcome, producer_epoch=FIRST_EPOCH)

    context.producer_ids.next_id(request.guard(on_id))


def _initialize(
    context: HandlerContext, request: Request, body: Any, expected: ProducerIdAndEpoch | None
) -> None:
    def on_done(answer: ProducerAnswer) -> None:
        if answer.error_code is not ErrorCode.NONE:
            fail(request, answer.error_code)
            return
        producer = answer.producer
        request.answer(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)

    timeout_ms = milliseconds(body.transaction_timeout)
    context.transactions.init_producer_id(
        InitProducerIdRequest(body.transactional_id, timeout_ms, expected), request.guard(on_done)
    )
