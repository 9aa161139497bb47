"""Heartbeat (12), versions 0 to 4: a sign of life, answered at once.

The code tells the member what to do: REBALANCE_IN_PROGRESS to rejoin, UNKNOWN_MEMBER_ID and
ILLEGAL_GENERATION to join as a new member.

Version notes: 3 adds static members, 4 is flexible.
"""

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.protocol.direct.heartbeat import decode_heartbeat_request, encode_heartbeat_response


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    group_id, generation_id, member_id, instance_id = decode_heartbeat_request(
        request.exchange.frame, request.api_version, request.body_position
    )
    fail(request, context.groups.heartbeat(group_id, member_id, instance_id, generation_id))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with a code, which may be NONE."""
    if code != ErrorCode.NONE:
        request.note_error(code)
    request.respond(
        [
            encode_heartbeat_response(
                code, request.api_version, request.correlation_id, request.throttle_time_ms
            )
        ]
    )
