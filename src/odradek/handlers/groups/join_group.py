"""JoinGroup (11), versions 0 to 9: become, or stay, a member of a group.

Behaviour: the answer leaves when all members have joined, or the rebalance time-out is over;
see `coordinator.classic.coordinated_group`. The leader's answer has everybody's metadata.

Version notes: 0 has no rebalance time-out (the session's counts), 4 requires that a new member
comes back with the id that it is given (KIP-394), 5 adds static members, 6 is flexible, 7 adds the
protocol type and nullable protocol names, 8 reasons, 9 tells a leader to leave the assignment as it
is.
"""

from typing import Final

from odradek.coordinator.classic.requests import JoinRequest, JoinResult
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.protocol.messages import milliseconds

KNOWN_MEMBER_ID_VERSION: Final = 4
NULLABLE_PROTOCOL_VERSION: Final = 7
SKIP_ASSIGNMENT_VERSION: Final = 9


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the group's next generation begins, or at once with the current one."""
    context.groups.join(
        _join_request(request), request.guard(lambda result: _answer(request, result))
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    _answer(request, JoinResult(code, request.body().member_id))


def _join_request(request: Request) -> JoinRequest:
    body = request.body()
    session_timeout_ms = milliseconds(body.session_timeout)
    rebalance_timeout = getattr(body, "rebalance_timeout", body.session_timeout)
    return JoinRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        group_instance_id=getattr(body, "group_instance_id", None),
        client_id=request.client_id or "",
        client_host=f"/{request.exchange.client_host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=max(milliseconds(rebalance_timeout), 1),
        protocol_type=body.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in body.protocols),
        reason=getattr(body, "reason", None) or "",
        requires_known_member_id=request.api_version >= KNOWN_MEMBER_ID_VERSION,
        supports_skipping_assignment=request.api_version >= SKIP_ASSIGNMENT_VERSION,
    )


def _answer(request: Request, result: JoinResult) -> None:
    protocol_name = result.protocol_name
    if protocol_name is None and request.api_version < NULLABLE_PROTOCOL_VERSION:
        protocol_name = ""
    request.answer(
        error_code=result.error_code,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[member._asdict() for member in result.members],
    )
