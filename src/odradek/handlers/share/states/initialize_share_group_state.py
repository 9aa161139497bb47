"""InitializeShareGroupState (83), version 0: a group coordinator creates states for partitions that
a share group is about to read, or replaces them if an operator has set its offsets.
"""

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share.states.state_answers import answer_each, fail_each


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when every state is stored."""
    states = context.share_states
    answer_each(
        context,
        request,
        lambda key, data, on_done: states.initialize(
            key, data.state_epoch, data.start_offset, on_done
        ),
        lambda _: {},
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    fail_each(request, code)
