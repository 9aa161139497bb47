"""ConsumerGroupDescribe (69), versions 0 and 1: consumer groups with their members.

Behaviour: a group that does not exist, or is a classic one, is answered GROUP_ID_NOT_FOUND;
the admin client then asks DescribeGroups. Empty ids come first in the answer. Partitions of topics
that are gone are left out, since there is no name to show them under.

Version notes: 1 says which protocol each member speaks.
"""

from typing import Final

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.consumer.requests import DescribedMember
from odradek.errors import ErrorCode
from odradek.handlers.authorized_operations import group_operations
from odradek.handlers.context import HandlerContext
from odradek.handlers.groups.described_groups import (
    Fields,
    described,
    explanation,
    fail_each,
    group_fields,
    refused,
)
from odradek.handlers.groups.rebalance_protocols import offers_consumer_protocol
from odradek.handlers.request import Request
from odradek.metadata.image import MetadataImage

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    body = request.body()
    operations = group_operations(body)
    group_ids = sorted(body.group_ids, key=bool)
    request.answer(groups=(_group(context, group_id, operations) for group_id in group_ids))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every group with an error."""
    fail_each(request, code)


def _group(context: HandlerContext, group_id: str, operations: int) -> Fields:
    if not offers_consumer_protocol(context):
        return refused(group_id, ErrorCode.UNSUPPORTED_VERSION, None)
    image = context.metadata.image

    def describe(group_id: str) -> Fields:
        group = context.groups.describe_consumer_group(group_id)
        members = [_member(image, each) for each in group.members]
        return group_fields(group, members, operations)

    return described(group_id, describe, explanation)


def _member(image: MetadataImage, member: DescribedMember) -> Fields:
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


def _topics(image: MetadataImage, partitions: Partitions) -> list[Fields]:
    return [
        {"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(indexes)}
        for topic_id, indexes in partitions.items()
        if (topic := image.topic_by_id(topic_id)) is not None
    ]
