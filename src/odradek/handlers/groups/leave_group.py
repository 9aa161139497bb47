"""LeaveGroup (13), versions 0 to 5: members leave, or an administrator makes them.

Version notes: up to 2 one member leaves; from 3 on there is a list, static members may be
named by their instance alone, and each gets an answer; 4 is flexible, 5 adds reasons.
"""

from collections.abc import Sequence
from typing import Final

from odradek.coordinator.classic.requests import LeavingMember
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request

BATCH_VERSION: Final = 3


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when it is committed that the members have left."""
    members = _leaving(request)

    def on_done(outcome: list[ErrorCode] | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            fail(request, outcome.code)
        elif request.api_version < BATCH_VERSION:
            fail(request, outcome[0])
        else:
            _answer(request, members, outcome)

    context.groups.leave(request.body().group_id, members, request.guard(on_done))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with one code for all."""
    request.answer(error_code=code)


def _answer(request: Request, members: Sequence[LeavingMember], codes: Sequence[ErrorCode]) -> None:
    request.answer(
        members=[
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "error_code": code,
            }
            for member, code in zip(members, codes, strict=True)
        ]
    )


def _leaving(request: Request) -> list[LeavingMember]:
    body = request.body()
    if request.api_version < BATCH_VERSION:
        return [LeavingMember(body.member_id)]
    return [
        LeavingMember(each.member_id, each.group_instance_id, getattr(each, "reason", None))
        for each in body.members
    ]
