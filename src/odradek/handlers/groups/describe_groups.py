"""DescribeGroups (15), versions 0 to 6: classic groups with their members.

A group that does not exist is shown as Dead; version 6 adds GROUP_ID_NOT_FOUND.

Version notes: 3 has authorized operations if asked, 4 adds instance ids, 5 is flexible, 6 adds
error texts.
"""

from typing import Final

from odradek.coordinator.classic.requests import GroupDescription
from odradek.coordinator.classic.states import GroupState
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.authorized_operations import NOT_TOLD, group_operations
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request

NOT_FOUND_VERSION: Final = 6


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    body = request.body()
    operations = group_operations(body)
    groups = (_describe(context, request, group_id) for group_id in body.groups)
    request.answer(groups=(_fields(group, operations) for group in groups))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every group with an error."""
    groups = [GroupDescription(each, "", error_code=code) for each in request.body().groups]
    request.answer(groups=[_fields(group, NOT_TOLD) for group in groups])


def _describe(context: HandlerContext, request: Request, group_id: str) -> GroupDescription:
    try:
        return context.groups.describe_group(group_id)
    except BrokerError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return GroupDescription(group_id, "", error_code=error.code)
        code = error.code if request.api_version >= NOT_FOUND_VERSION else ErrorCode.NONE
        return GroupDescription(
            group_id, GroupState.DEAD.value, error_code=code, error_message=error.message
        )


def _fields(group: GroupDescription, operations: int) -> dict[str, object]:
    return {
        "error_code": group.error_code,
        "error_message": group.error_message,
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name,
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.group_instance_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "member_metadata": each.metadata,
                "member_assignment": each.assignment,
            }
            for each in group.members
        ],
        "authorized_operations": operations if group.error_code is ErrorCode.NONE else NOT_TOLD,
    }
