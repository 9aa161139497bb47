"""The part about a group of the responses to ConsumerGroupDescribe and ShareGroupDescribe, without
its members."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from odradek.coordinator.consumer.requests import DescribedGroup
from odradek.coordinator.share_groups.requests import DescribedShareGroup
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.request import Request

Fields = dict[str, object]
_PLAIN: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def fail_each(request: Request, code: ErrorCode) -> None:
    """Answers every group with an error."""
    groups = [refused(group_id, code, code.text) for group_id in request.body().group_ids]
    request.answer(groups=groups)


def described(
    group_id: str,
    describe: Callable[[str], Fields],
    explain: Callable[[BrokerError], str | None] = attrgetter("message"),
) -> Fields:
    """The fields that `describe` gives for a group, or those of the error that it raises."""
    try:
        return describe(group_id)
    except BrokerError as error:
        message = None if error.code is ErrorCode.INVALID_GROUP_ID else explain(error)
        return refused(group_id, error.code, message)


def explanation(error: BrokerError) -> str | None:
    """The text beside an error's code; as in Kafka a broker that is not the coordinator, or not
    yet, adds none."""
    return None if error.code in _PLAIN else error.message


def refused(group_id: str, code: ErrorCode, message: str | None) -> Fields:
    """The fields of a group that is not described, with the error."""
    return {
        "error_code": code,
        "error_message": message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
    }


def group_fields(
    group: DescribedGroup | DescribedShareGroup, members: Sequence[Fields], operations: int
) -> Fields:
    """A group with its members."""
    return {
        "error_code": ErrorCode.NONE,
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor_name,
        "members": members,
        "authorized_operations": operations,
    }
