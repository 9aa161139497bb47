"""The rules of the APIs about share groups: like those of other groups, and of fetches."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final
from uuid import UUID

from odradek.handlers.authorization.access import REFUSALS, Fields, Guarded
from odradek.handlers.authorization.groups import (
    GroupOfTopics,
    describe_with_members,
    heartbeat,
    serve_groups,
)
from odradek.handlers.share import share_acknowledge, share_fetch
from odradek.handlers.share.describe_share_group_offsets import UNKNOWN_LAG
from odradek.model import AclOperation, ResourceType

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_READ, _DELETE, _DESCRIBE = AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE
_REFUSED: Final[Fields] = {
    "error_code": REFUSALS[_TOPIC],
    "error_message": REFUSALS[_TOPIC].text,
}
_NO_ID: Final = UUID(int=0)


def _read_as_member(handler: Any, guarded: Guarded) -> None:
    """A session outlives its request, so the handler asks for every topic that it holds."""
    if guarded.may(_READ, _GROUP, guarded.request.body().group_id or ""):
        handler.handle_allowed(
            guarded.context,
            guarded.request,
            lambda topic: not guarded.may(_READ, _TOPIC, topic),
        )
    else:
        guarded.fail(REFUSALS[_GROUP])


def _of_one_group(
    operation: AclOperation, refused: Callable[[Any], Fields], guarded: Guarded
) -> None:
    """The rule of an API that changes where one group reads topics."""
    body = guarded.request.body()
    if not guarded.may(operation, _GROUP, body.group_id):
        guarded.fail(REFUSALS[_GROUP])
        return

    def serve(denied: Collection[str]) -> None:
        guarded.serve_allowed(
            "topics",
            [each for each in body.topics if each.topic_name not in denied],
            "responses",
            [refused(each) for each in body.topics if each.topic_name in denied],
        )

    guarded.find_denied(_READ, _TOPIC, (each.topic_name for each in body.topics), serve)


def _not_altered(topic: Any) -> Fields:
    partitions = [
        {"partition_index": each.partition_index, **_REFUSED} for each in topic.partitions
    ]
    return {"topic_name": topic.topic_name, "topic_id": _NO_ID, "partitions": partitions}


def _not_deleted(topic: Any) -> Fields:
    return {"topic_name": topic.topic_name, "topic_id": _NO_ID, **_REFUSED}


def _describe_offsets(guarded: Guarded) -> None:
    names = (group.group_id for group in guarded.request.body().groups)
    guarded.find_denied(_DESCRIBE, _GROUP, names, partial(_describe_allowed, guarded))


def _describe_allowed(guarded: Guarded, denied: Collection[str]) -> None:
    groups = guarded.request.body().groups
    refused: list[Fields] = []
    if denied:
        left = tuple(group for group in groups if group.group_id in denied)
        refused = [
            {**each, "error_message": None}
            for each in guarded.refusals("groups", REFUSALS[_GROUP], groups=left)
        ]
    allowed = [_described(guarded, each) for each in groups if each.group_id not in denied]
    serve_groups(guarded, allowed, refused)


def _described(guarded: Guarded, group: Any) -> GroupOfTopics:
    return GroupOfTopics(
        group,
        lambda topic: not guarded.may(_DESCRIBE, _TOPIC, topic.topic_name),
        _not_described,
        lambda topic: not guarded.may_see(_DESCRIBE, _TOPIC, topic["topic_name"]),
    )


def _not_described(topic: Any) -> Fields:
    partitions = [
        {
            "partition_index": index,
            "start_offset": -1,
            "leader_epoch": 0,
            "lag": UNKNOWN_LAG,
            **_REFUSED,
        }
        for index in topic.partitions
    ]
    return {"topic_name": topic.topic_name, "topic_id": _NO_ID, "partitions": partitions}


RULES: Final[dict[int, Callable[[Guarded], None]]] = {
    76: heartbeat,
    77: describe_with_members,
    78: partial(_read_as_member, share_fetch),
    79: partial(_read_as_member, share_acknowledge),
    90: _describe_offsets,
    91: partial(_of_one_group, _READ, _not_altered),
    92: partial(_of_one_group, _DELETE, _not_deleted),
}
