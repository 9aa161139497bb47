"""ReadShareGroupStateSummary (87), versions 0 and 1: the start offset of a share group.

Version notes: 1 adds the number of finished records, from which the lag follows (KIP-1226).
"""

from typing import Any

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share.states.state_answers import answer_each, fail_each


def handle(context: HandlerContext, request: Request) -> None:
    """Answers with the committed state."""
    states = context.share_states
    answer_each(
        context,
        request,
        lambda key, data, on_done: states.summarize(key, data.leader_epoch, on_done),
        _fields,
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    fail_each(request, code)


def _fields(summary: Any) -> dict[str, object]:
    return {
        "state_epoch": summary.state_epoch,
        "leader_epoch": summary.leader_epoch,
        "start_offset": summary.start_offset,
        "delivery_complete_count": summary.delivery_complete_count,
    }
