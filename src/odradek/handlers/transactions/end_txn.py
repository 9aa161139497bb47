"""EndTxn (26), versions 0 to 5: a producer commits or aborts its transaction.

The answer leaves when the decision is stored; the markers that carry it into the partitions
follow. A request that is repeated because its answer was lost gets the same answer again.

Version notes: 2 brings PRODUCER_FENCED, 3 is flexible; 5 says that the producer speaks version 2
of transactions, and is answered with the id and epoch of the next one.
"""

from typing import Final

from odradek.coordinator.transactions.requests import (
    EndTxnRequest,
    ProducerAnswer,
    ProducerIdAndEpoch,
)
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.transactions.transaction_errors import as_known
from odradek.model import TransactionResult

PRODUCER_FENCED_VERSION: Final = 2
TRANSACTION_V2_VERSION: Final = 5


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the decision is stored."""
    body = request.body()
    result = TransactionResult.COMMIT if body.committed else TransactionResult.ABORT
    version = 2 if request.api_version >= TRANSACTION_V2_VERSION else 0
    producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    context.transactions.end(
        EndTxnRequest(body.transactional_id, producer, result, version),
        request.guard(lambda answer: _answer(request, answer)),
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    _answer(request, ProducerAnswer(code))


def _answer(request: Request, answer: ProducerAnswer) -> None:
    request.answer(
        error_code=as_known(answer.error_code, request.api_version, PRODUCER_FENCED_VERSION),
        producer_id=answer.producer.producer_id,
        producer_epoch=answer.producer.producer_epoch,
    )
