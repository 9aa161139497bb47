"""ConsumerGroupDescribe (69), versions 0 and 1: consumer groups with their members.

Behaviour: a group that does not exist, or is a classic one, is answered GROUP_ID_NOT_FOUND;
the admin client then asks DescribeGroups. Partitions of topics that are gone are left out,
since there is no name to show them under.

Version notes: 1 says which protocol each member speaks.
"""

from typing import Final

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.consumer.requests import DescribedGroup, DescribedMember
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.authorized_operations import group_operations
from odradek.handlers.context import HandlerContext
from odradek.handlers.groups.rebalance_protocols import offers_consumer_protocol
from odradek.handlers.request import Request
from odradek.metadata.image import MetadataImage

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1

_Fields = dict[str, object]


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    body = request.body()
    operations = group_operations(body)
    request.answer(groups=[_group(context, group_id, operations) for group_id in body.group_ids])


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every group with an error."""
    groups = [_error(group_id, code, code.text) for group_id in request.body().group_ids]
    request.answer(groups=groups)


def _group(context: HandlerContext, group_id: str, operations: int) -> _Fields:
    if not offers_consumer_protocol(context):
        return _error(group_id, ErrorCode.UNSUPPORTED_VERSION, None)
    try:
        group = context.groups.describe_consumer_group(group_id)
    except BrokerError as error:
        message = None if error.code is ErrorCode.INVALID_GROUP_ID else error.message
        return _error(group_id, error.code, message)
    return _fields(context.metadata.image, group) | {"authorized_operations": operations}


def _error(group_id: str, code: ErrorCode, message: str | None) -> _Fields:
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


def _fields(image: MetadataImage, group: DescribedGroup) -> _Fields:
    return {
        "error_code": ErrorCode.NONE,
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor_name,
        "members": [_member(image, member) for member in group.members],
    }


def _member(image: MetadataImage, member: DescribedMember) -> _Fields:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": {"topic_partitions": _topics(image, member.assignment)},
        "target_assignment": {"topic_partitions": _topics(image, member.target_assignment)},
        "member_type": CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    }


def _topics(image: MetadataImage, partitions: Partitions) -> list[_Fields]:
    return [
        {"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(indexes)}
        for topic_id, indexes in partitions.items()
        if (topic := image.topic_by_id(topic_id)) is not None
    ]
