"""The rules of the APIs about groups."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

from odradek.errors import ErrorCode
from odradek.handlers.authorization.access import REFUSALS, Fields, Guarded
from odradek.handlers.authorization.operations import amend_operations
from odradek.handlers.groups.find_coordinator import GROUP_KEY, SHARE_KEY, TRANSACTION_KEY
from odradek.handlers.groups.offset_fetch import refused_topic
from odradek.model import AclOperation, ResourceType

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_READ, _DELETE, _DESCRIBE = AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE
_BATCH_VERSION: Final = 4
_GROUPS_VERSION: Final = 8
_NOTHING: Final[Fields] = {"topic_partitions": ()}
_NO_MEMBERS: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)


def of_one_group(guarded: Guarded) -> None:
    """The rule of an API that is about `group_id` as a whole."""
    permission = guarded.row.permission
    assert permission is not None, "a group is not for everybody"
    if guarded.may(permission.operation, _GROUP, guarded.request.body().group_id):
        guarded.serve()
    else:
        guarded.fail(REFUSALS[_GROUP])


def _join_group(guarded: Guarded) -> None:
    if guarded.may(_READ, _GROUP, guarded.request.body().group_id):
        guarded.serve()
    else:
        guarded.fail(REFUSALS[_GROUP], member_id="")


def by_group(asked: str, answered: str) -> Callable[[Guarded], None]:
    """The rule of an API that names groups in one field and answers each in another."""

    def rule(guarded: Guarded) -> None:
        permission = guarded.row.permission
        assert permission is not None, "groups are not for everybody"
        _serve_names(guarded, asked, answered, permission.operation, _GROUP)

    return rule


def _serve_names(
    guarded: Guarded, asked: str, answered: str, operation: AclOperation, type: ResourceType
) -> None:
    names = getattr(guarded.request.body(), asked)

    def serve(denied: Collection[str]) -> None:
        refused: list[Fields] = []
        if denied:
            left = {asked: tuple(name for name in names if name in denied)}
            refused = [
                {**each, "error_message": None} if "error_message" in each else each
                for each in guarded.refusals(answered, REFUSALS[type], **left)
            ]
        allowed = [name for name in names if name not in denied]
        guarded.serve_allowed(asked, allowed, answered, refused)

    guarded.find_denied(operation, type, names, serve)


# Finding and listing


def _find_coordinator(guarded: Guarded) -> None:
    body = guarded.request.body()
    kind = getattr(body, "key_type", GROUP_KEY)
    if kind == SHARE_KEY:
        allowed = guarded.may_in_cluster(AclOperation.CLUSTER_ACTION)
        guarded.serve() if allowed else guarded.fail(REFUSALS[ResourceType.CLUSTER])
        return
    if kind not in (GROUP_KEY, TRANSACTION_KEY):
        guarded.serve()
        return
    owner = _GROUP if kind == GROUP_KEY else ResourceType.TRANSACTIONAL_ID
    if guarded.request.api_version >= _BATCH_VERSION:
        _serve_names(guarded, "coordinator_keys", "coordinators", _DESCRIBE, owner)
    elif guarded.may(_DESCRIBE, owner, body.key):
        guarded.serve()
    else:
        guarded.fail(REFUSALS[owner])


def _list_groups(guarded: Guarded) -> None:
    if not guarded.may_see_in_cluster(_DESCRIBE):
        guarded.keep("groups", lambda group: guarded.may_see(_DESCRIBE, _GROUP, group["group_id"]))
    guarded.serve()


def _describe_groups(guarded: Guarded) -> None:
    guarded.amend_each("groups", partial(_tell_operations, guarded))
    by_group("groups", "groups")(guarded)


def _tell_operations(guarded: Guarded, group: Fields) -> None:
    amend_operations(guarded, group, "authorized_operations", _GROUP, group["group_id"])


def describe_with_members(guarded: Guarded) -> None:
    """The rule of an API that shows groups with their members' topics."""
    guarded.amend_each("groups", partial(_tell_operations, guarded))
    guarded.amend_each("groups", partial(_hide_members, guarded))
    by_group("group_ids", "groups")(guarded)


def _hide_members(guarded: Guarded, group: Fields) -> None:
    """Hides a group that reads topics which the caller may not describe."""
    names = {name for member in group.get("members", ()) for name in _topics_of(member)}
    if guarded.denied(_DESCRIBE, _TOPIC, sorted(names)):
        group.update(
            {
                "error_code": REFUSALS[_TOPIC],
                "error_message": _NO_MEMBERS,
                "members": (),
            }
        )


def _topics_of(member: Fields) -> list[str]:
    assigned = (member["assignment"], member.get("target_assignment", _NOTHING))
    return [
        *(member["subscribed_topic_names"] or ()),
        *(topic["topic_name"] for each in assigned for topic in each["topic_partitions"]),
    ]


def heartbeat(guarded: Guarded) -> None:
    """The rule of a heartbeat with its member's subscription."""
    body = guarded.request.body()
    if not guarded.may(_READ, _GROUP, body.group_id):
        guarded.fail(REFUSALS[_GROUP], error_message=None)
    elif guarded.denied(_DESCRIBE, _TOPIC, body.subscribed_topic_names or ()):
        guarded.fail(REFUSALS[_TOPIC], error_message=None)
    else:
        guarded.serve()


# Offsets


class GroupOfTopics:
    """A group of a request about some topics, or all (`None`), and the topics that the caller may
    see. Each step checks one topic."""

    def __init__(
        self,
        asked: Any,
        is_denied: Callable[[Any], bool],
        refused: Callable[[Any], Fields],
        is_hidden: Callable[[Fields], bool],
    ) -> None:
        """Requested topics are left to the handler or answered with `refused`; if all were
        requested, each is shown or left out."""
        self._asked: Final = asked
        self._is_denied: Final = is_denied
        self._refuse: Final = refused
        self._is_hidden: Final = is_hidden
        self._allowed: Final[list[Any]] = []
        self._refused: Final[list[Fields]] = []

    def look(self) -> Iterator[int]:
        """Checks the requested topics."""
        yield 1
        for topic in self._asked.topics or ():
            if self._is_denied(topic):
                self._refused.append(self._refuse(topic))
            else:
                self._allowed.append(topic)
            yield 1

    def allowed(self) -> Any:
        """The group with its allowed topics, for the handler."""
        if self._asked.topics is None:
            return self._asked
        return replace(self._asked, topics=tuple(self._allowed))

    def amend(self, fields: Fields) -> Iterator[int]:
        """Drops hidden topics from the handler's answer, and adds the refused ones."""
        yield 1
        if fields.get("error_code", ErrorCode.NONE) != ErrorCode.NONE:
            return
        answered = fields.get("topics", ())
        if self._asked.topics is None:
            fields["topics"] = shown = []
            for topic in answered:
                if not self._is_hidden(topic):
                    shown.append(topic)
                yield 1
        else:
            fields["topics"] = [*answered, *self._refused]


def serve_groups(guarded: Guarded, groups: list[GroupOfTopics], refused: list[Fields]) -> None:
    """Calls the handler with the allowed part of the groups, and puts the refused ones behind its
    answer."""

    def amend(fields: Fields) -> Iterator[int]:
        for group, answer in zip(groups, fields["groups"], strict=False):
            yield from group.amend(answer)
        fields["groups"] = [*fields["groups"], *refused]

    def serve(_is_long: bool) -> None:
        allowed = tuple(each.allowed() for each in groups)
        guarded.request.narrow(replace(guarded.request.body(), groups=allowed))
        guarded.amend_in_steps(amend)
        guarded.serve()

    guarded.request.in_slices(chain.from_iterable(each.look() for each in groups), serve)


def _offset_fetch(guarded: Guarded) -> None:
    body = guarded.request.body()
    if guarded.request.api_version >= _GROUPS_VERSION:
        names = (group.group_id for group in body.groups)
        guarded.find_denied(_DESCRIBE, _GROUP, names, partial(_fetch_groups, guarded))
    elif guarded.may(_DESCRIBE, _GROUP, body.group_id):
        group = _fetched(guarded, body)
        guarded.request.in_slices(group.look(), lambda _: _fetch_group(guarded, group))
    else:
        guarded.fail(REFUSALS[_GROUP])


def _fetch_groups(guarded: Guarded, denied: Collection[str]) -> None:
    groups = guarded.request.body().groups
    left = tuple(each for each in groups if each.group_id in denied)
    refused = guarded.refusals("groups", REFUSALS[_GROUP], groups=left) if left else []
    allowed = [_fetched(guarded, each) for each in groups if each.group_id not in denied]
    serve_groups(guarded, allowed, refused)


def _fetch_group(guarded: Guarded, group: GroupOfTopics) -> None:
    guarded.request.narrow(group.allowed())
    guarded.amend_in_steps(group.amend)
    guarded.serve()


def _fetched(guarded: Guarded, group: Any) -> GroupOfTopics:
    return GroupOfTopics(
        group,
        partial(_is_denied, guarded),
        lambda topic: refused_topic(topic, REFUSALS[_TOPIC]),
        partial(_is_hidden, guarded),
    )


def _is_hidden(guarded: Guarded, topic: Fields) -> bool:
    name = topic.get("name")
    if name is None:
        found = guarded.context.metadata.image.topic_by_id(topic["topic_id"])
        name = None if found is None else found.name
    return name is not None and not guarded.may_see(_DESCRIBE, _TOPIC, name)


def _is_denied(guarded: Guarded, topic: Any) -> bool:
    """Whether the caller may not see the topic; the id of no topic is never denied."""
    name = getattr(topic, "name", None)
    topic_id = getattr(topic, "topic_id", None)
    if name is None and topic_id is not None:
        found = guarded.context.metadata.image.topic_by_id(topic_id)
        name = None if found is None else found.name
    return name is not None and not guarded.may(_DESCRIBE, _TOPIC, name)


def _offset_delete(guarded: Guarded) -> None:
    body = guarded.request.body()
    if not guarded.may(_DELETE, _GROUP, body.group_id):
        guarded.fail(REFUSALS[_GROUP])
        return

    def serve(denied: Collection[str]) -> None:
        refused = [_not_deleted(topic) for topic in body.topics if topic.name in denied]
        allowed = [topic for topic in body.topics if topic.name not in denied]
        guarded.serve_allowed("topics", allowed, "topics", refused)

    guarded.find_denied(_READ, _TOPIC, (topic.name for topic in body.topics), serve)


def _not_deleted(topic: Any) -> Fields:
    partitions = [
        {"partition_index": each.partition_index, "error_code": REFUSALS[_TOPIC]}
        for each in topic.partitions
    ]
    return {"name": topic.name, "partitions": partitions}


RULES: Final = {
    9: _offset_fetch,
    10: _find_coordinator,
    11: _join_group,
    13: of_one_group,
    14: of_one_group,
    15: _describe_groups,
    16: _list_groups,
    42: by_group("groups_names", "results"),
    47: _offset_delete,
    68: heartbeat,
    69: describe_with_members,
}
