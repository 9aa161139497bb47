"""ListGroups (16), versions 0 to 5: the groups that this broker coordinates.

Version notes: 3 is flexible, 4 filters by state, 5 by type ("classic", "consumer").
"""

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    body = request.body()
    states = getattr(body, "states_filter", ())
    types = getattr(body, "types_filter", ())
    try:
        groups = context.groups.list_groups(states, types)
    except BrokerError as error:
        fail(request, error.code)
        return
    request.answer(
        groups=(
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.type,
            }
            for group in groups
        )
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error and no groups."""
    request.answer(error_code=code)
