"""SyncGroup (14), versions 0 to 5: a leader sends the assignment, the other members fetch it.

Behaviour: the answer leaves when the leader's assignment has been committed to
`__consumer_offsets`.

Version notes: 3 adds static members, 4 is flexible, 5 has both sides name the protocol.
"""

from typing import Final

from odradek.coordinator.classic.requests import SyncRequest, SyncResult
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request

PROTOCOL_VERSION: Final = 5


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the group is stable."""
    body = request.body()
    if request.api_version >= PROTOCOL_VERSION and None in (body.protocol_type, body.protocol_name):
        fail(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return
    sync = SyncRequest(
        group_id=body.group_id,
        generation_id=body.generation_id,
        member_id=body.member_id,
        group_instance_id=getattr(body, "group_instance_id", None),
        protocol_type=getattr(body, "protocol_type", None),
        protocol_name=getattr(body, "protocol_name", None),
        assignments={each.member_id: each.assignment for each in body.assignments},
    )
    context.groups.sync(sync, request.guard(lambda result: _answer(request, result)))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    _answer(request, SyncResult(code))


def _answer(request: Request, result: SyncResult) -> None:
    request.answer(**result._asdict())
