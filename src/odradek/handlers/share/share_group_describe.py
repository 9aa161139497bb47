"""ShareGroupDescribe (77), version 1: share groups with their members.

A group that does not exist, or is of another kind, is answered GROUP_ID_NOT_FOUND. Partitions of
topics that are gone are left out, since there is no name to show them under.
"""

from odradek.coordinator.share_groups.requests import DescribedShareMember
from odradek.errors import ErrorCode
from odradek.handlers.authorized_operations import group_operations
from odradek.handlers.context import HandlerContext
from odradek.handlers.groups.described_groups import (
    Fields,
    described,
    fail_each,
    group_fields,
    refused,
)
from odradek.handlers.request import Request
from odradek.handlers.share.share_version import serves_share_groups
from odradek.metadata.image import MetadataImage


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    body = request.body()
    operations = group_operations(body)
    request.answer(groups=(_group(context, each, operations) for each in body.group_ids))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every group with an error."""
    fail_each(request, code)


def _group(context: HandlerContext, group_id: str, operations: int) -> Fields:
    if not serves_share_groups(context):
        return refused(group_id, ErrorCode.UNSUPPORTED_VERSION, None)
    image = context.metadata.image

    def describe(group_id: str) -> Fields:
        group = context.share_groups.describe(group_id)
        members = [_member(image, each) for each in group.members]
        return group_fields(group, members, operations)

    return described(group_id, describe)


def _member(image: MetadataImage, member: DescribedShareMember) -> Fields:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "assignment": {
            "topic_partitions": [
                {"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(indexes)}
                for topic_id, indexes in member.assignment.items()
                if (topic := image.topic_by_id(topic_id)) is not None
            ]
        },
    }
