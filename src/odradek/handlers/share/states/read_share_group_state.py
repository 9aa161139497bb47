"""ReadShareGroupState (84), version 0: a new leader of a partition reads the states of the records
that a share group was handed out.

Earlier leaders may not write from here on.
"""

from typing import Any

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share.states.state_answers import answer_each, fail_each


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the new leader's epoch is stored."""
    states = context.share_states
    answer_each(
        context,
        request,
        lambda key, data, on_done: states.read(key, data.leader_epoch, on_done),
        _fields,
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    fail_each(request, code)


def _fields(state: Any) -> dict[str, object]:
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": [
            {
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
                "delivery_state": int(each.state),
                "delivery_count": each.delivery_count,
                "due_ms": each.due_ms,
            }
            for each in state.batches
        ],
    }
