"""WriteShareGroupState (85), versions 0 and 1: the leader of a partition stores the states of
records.

Version notes: 1 adds the number of finished records (KIP-1226).
"""

from typing import Any

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share.states.state_answers import (
    OnOutcome,
    answer_each,
    fail_each,
    state_batch,
)
from odradek.replication.share.persister import (
    NO_DELIVERY_COMPLETE_COUNT,
    SharePartitionKey,
    ShareState,
)


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when everything is stored."""
    states = context.share_states

    def write(key: SharePartitionKey, data: Any, on_done: OnOutcome) -> None:
        try:
            state = _state(data)
        except BrokerError as error:
            on_done(error)
            return
        states.write(key, data.leader_epoch, state, on_done)

    answer_each(context, request, write, lambda _: {})


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    fail_each(request, code)


def _state(data: Any) -> ShareState:
    return ShareState(
        data.state_epoch,
        data.start_offset,
        tuple([state_batch(each) for each in data.state_batches]),
        getattr(data, "delivery_complete_count", NO_DELIVERY_COMPLETE_COUNT),
    )
