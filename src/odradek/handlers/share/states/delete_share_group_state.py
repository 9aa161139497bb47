"""DeleteShareGroupState (86), version 0: a group coordinator deletes the states of a deleted group,
or of topics that the group no longer reads.
"""

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share.states.state_answers import answer_each, fail_each


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when every state is deleted."""
    states = context.share_states
    answer_each(
        context,
        request,
        lambda key, _data, on_done: states.delete(key, on_done),
        lambda _: {},
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    fail_each(request, code)
