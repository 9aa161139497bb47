"""DescribeTransactions (65), version 0: the states of transactional ids."""

from typing import Final

from odradek.coordinator.records.transaction_records import TransactionValue
from odradek.coordinator.transactions.commands import partitions_by_topic
from odradek.coordinator.transactions.states import STATE_NAMES
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request

_UNKNOWN: Final[dict[str, object]] = {
    "transaction_state": "",
    "transaction_timeout_ms": 0,
    "transaction_start_time_ms": 0,
    "producer_id": 0,
    "producer_epoch": 0,
    "topics": [],
}


def handle(context: HandlerContext, request: Request) -> None:
    """Answers every id at once."""
    ids = request.body().transactional_ids
    request.answer(transaction_states=(_describe(context, each) for each in ids))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every id with an error."""
    ids = request.body().transactional_ids
    request.answer(transaction_states=[_refusal(each, code) for each in ids])


def _describe(context: HandlerContext, transactional_id: str) -> dict[str, object]:
    try:
        value = context.transactions.describe(transactional_id)
    except BrokerError as error:
        return _refusal(transactional_id, error.code)
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        **_fields(value),
    }


def _fields(value: TransactionValue) -> dict[str, object]:
    topics = partitions_by_topic(value.partitions or ())
    return {
        "transaction_state": STATE_NAMES[value.state],
        "transaction_timeout_ms": value.timeout_ms,
        "transaction_start_time_ms": value.start_timestamp_ms,
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": partitions} for topic, partitions in topics.items()
        ],
    }


def _refusal(transactional_id: str, code: ErrorCode) -> dict[str, object]:
    return {"error_code": code, "transactional_id": transactional_id, **_UNKNOWN}
