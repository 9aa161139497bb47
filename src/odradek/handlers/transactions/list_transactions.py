"""ListTransactions (66), versions 0 to 2: the transactional ids that this broker coordinates.

Version notes: 1 brings the filter by duration, 2 the pattern of transactional ids.
"""

from typing import Any, Final

from odradek.coordinator.transactions.requests import TransactionFilter
from odradek.coordinator.transactions.states import STATE_NAMES
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request

_STATES: Final = {name: state for state, name in STATE_NAMES.items()}


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    body = request.body()
    unknown = [each for each in body.state_filters if each not in _STATES]
    try:
        found = context.transactions.list_transactions(
            _filter(body), getattr(body, "transactional_id_pattern", None)
        )
    except BrokerError as error:
        fail(request, error.code)
        return
    request.answer(
        unknown_state_filters=unknown,
        transaction_states=(
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "transaction_state": STATE_NAMES[each.state],
            }
            for each in found
        ),
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(error_code=code, unknown_state_filters=[], transaction_states=[])


def _filter(body: Any) -> TransactionFilter:
    return TransactionFilter(
        states=frozenset(_STATES[each] for each in body.state_filters if each in _STATES),
        has_states=bool(body.state_filters),
        producer_ids=frozenset(body.producer_id_filters),
        duration_ms=getattr(body, "duration_filter", -1),
    )
