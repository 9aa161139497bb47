"""The rules of the APIs about topics. A caller that may not describe a topic does not learn whether
it exists: it gets TOPIC_AUTHORIZATION_FAILED in either case."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from itertools import compress
from operator import not_
from types import SimpleNamespace
from typing import Any, Final

from odradek.errors import ErrorCode
from odradek.handlers.authorization.access import REFUSALS, Fields, Guarded
from odradek.handlers.authorization.operations import amend_cluster_operations, amend_operations
from odradek.handlers.long_requests import do_in_slices, in_list
from odradek.model import AclOperation, ResourceType

_TOPIC: Final = ResourceType.TOPIC
_DESCRIBE: Final = AclOperation.DESCRIBE
_OPERATIONS: Final = "topic_authorized_operations"
_REFUSED: Final = REFUSALS[_TOPIC]
_TOPIC_STATES_VERSION: Final = 6


def by_topic(
    name_of: Callable[[Any], str], operation: AclOperation, answered: str
) -> Callable[[Guarded], None]:
    """The rule of an API whose `topics` are each answered in a field."""

    def rule(guarded: Guarded) -> None:
        asked = guarded.request.body().topics

        def serve(denied: Collection[str]) -> None:
            _serve_without(guarded, [name_of(each) in denied for each in asked], answered)

        guarded.find_denied(operation, _TOPIC, map(name_of, asked), serve)

    return rule


def _serve_without(guarded: Guarded, denied: list[bool], answered: str) -> None:
    asked = guarded.request.body().topics
    if not any(denied):
        guarded.serve()
        return
    pairs = list(zip(asked, denied, strict=True))
    refused = tuple(each for each, is_denied in pairs if is_denied)
    guarded.serve_allowed(
        "topics",
        [each for each, is_denied in pairs if not is_denied],
        answered,
        guarded.refusals(answered, _REFUSED, topics=refused),
    )


# Metadata


def _metadata(guarded: Guarded) -> None:
    body = guarded.request.body()
    _tell_operations(guarded)
    if body.topics is None or (guarded.request.api_version == 0 and not body.topics):
        guarded.keep("topics", lambda topic: guarded.may_see(_DESCRIBE, _TOPIC, topic["name"]))
        guarded.serve()
        return
    is_denied = partial(_is_denied, guarded)
    in_list(guarded.request, map(is_denied, body.topics), partial(_serve_described, guarded))


def _serve_described(guarded: Guarded, denied: list[bool]) -> None:
    body = guarded.request.body()
    pairs = list(zip(body.topics, denied, strict=True))
    refused = [_refused_topic(topic) for topic, is_denied in pairs if is_denied]
    allowed = [topic for topic, is_denied in pairs if not is_denied]
    if refused:
        names = {topic.name for topic in allowed}
        ids = {getattr(topic, "topic_id", None) for topic in allowed} - {None}
        # In version 0 an empty list of topics means all.
        guarded.keep("topics", lambda each: each["name"] in names or each.get("topic_id") in ids)
        guarded.request.narrow(replace(body, topics=tuple(allowed)))
        guarded.append("topics", _once(refused))
    guarded.serve()


def _is_denied(guarded: Guarded, topic: Any) -> bool:
    """Whether the caller may not describe a topic of a Metadata request, or may not create it."""
    topic_id = getattr(topic, "topic_id", None)
    image = guarded.context.metadata.image
    if topic_id:
        found = image.topic_by_id(topic_id)
        return found is not None and not guarded.may(_DESCRIBE, _TOPIC, found.name)
    if topic.name is None:
        return False
    if not guarded.may(_DESCRIBE, _TOPIC, topic.name):
        return True
    wanted = getattr(guarded.request.body(), "allow_auto_topic_creation", True)
    creates = wanted and guarded.context.config.auto_create_topics_enable
    if not creates or image.topic(topic.name) is not None:
        return False
    create = AclOperation.CREATE
    return not (guarded.may_see_in_cluster(create) or guarded.may(create, _TOPIC, topic.name))


def _refused_topic(topic: Any) -> Fields:
    """The refusal of a topic, with only the name or the id from the request."""
    topic_id = getattr(topic, "topic_id", None)
    return {
        "error_code": _REFUSED,
        "name": None if topic_id else topic.name,
        "topic_id": topic_id or None,
    }


def _once(topics: list[Fields]) -> list[Fields]:
    return list({(each["name"], each["topic_id"]): each for each in topics}.values())


def _tell_operations(guarded: Guarded) -> None:
    def tell(topic: Fields) -> None:
        if topic.get("error_code", ErrorCode.NONE) != _REFUSED and topic.get("name"):
            amend_operations(guarded, topic, _OPERATIONS, _TOPIC, topic["name"])

    guarded.amend(lambda fields: amend_cluster_operations(guarded, fields))
    guarded.amend_each("topics", tell)


def _describe_topic_partitions(guarded: Guarded) -> None:
    body = guarded.request.body()
    _tell_operations(guarded)
    if body.topics:
        by_topic(lambda topic: str(topic.name), _DESCRIBE, "topics")(guarded)
        return
    seen: list[SimpleNamespace] = []

    def look(name: str) -> None:
        if guarded.may_see(_DESCRIBE, _TOPIC, name):
            seen.append(SimpleNamespace(name=name))

    def serve() -> None:
        if seen:
            guarded.request.narrow(replace(body, topics=tuple(seen)))
            guarded.serve()
        else:
            guarded.request.answer(topics=[], next_cursor=None)

    do_in_slices(guarded.request, guarded.context.metadata.image.topics, look, serve)


# Making, growing and removing topics


def _create_topics(guarded: Guarded) -> None:
    guarded.amend_each("topics", partial(_hide_settings, guarded))
    if guarded.may_see_in_cluster(AclOperation.CREATE):
        guarded.serve()
    else:
        by_topic(lambda topic: str(topic.name), AclOperation.CREATE, "topics")(guarded)


def _hide_settings(guarded: Guarded, topic: Fields) -> None:
    """Hides the settings and the size of a created topic from a caller that may not describe
    them."""
    operation = AclOperation.DESCRIBE_CONFIGS
    is_made = topic["error_code"] == ErrorCode.NONE
    if is_made and not guarded.may_see(operation, _TOPIC, topic["name"]):
        topic.update(num_partitions=-1, replication_factor=-1, configs=())
        topic["topic_config_error_code"] = _REFUSED


def _delete_topics(guarded: Guarded) -> None:
    if guarded.may_see_in_cluster(AclOperation.DELETE):
        guarded.serve()
        return
    body = guarded.request.body()
    if guarded.request.api_version < _TOPIC_STATES_VERSION:
        _delete_allowed(guarded, "topic_names", partial(_may_not_delete, guarded))
    elif any((topic.name is None) == (topic.topic_id is None) for topic in body.topics):
        guarded.serve()  # the handler refuses the whole request
    else:
        _delete_allowed(guarded, "topics", partial(_is_not_to_be_deleted, guarded))


def _delete_allowed(guarded: Guarded, field: str, is_denied: Callable[[Any], bool]) -> None:
    asked = getattr(guarded.request.body(), field)

    def serve(denied: list[bool]) -> None:
        refused = tuple(compress(asked, denied))
        allowed = list(compress(asked, map(not_, denied)))
        answers = guarded.refusals("responses", _REFUSED, **{field: refused}) if refused else []
        guarded.serve_allowed(field, allowed, "responses", answers)

    in_list(guarded.request, map(is_denied, asked), serve)


def _is_not_to_be_deleted(guarded: Guarded, topic: Any) -> bool:
    if topic.name is not None:
        return _may_not_delete(guarded, topic.name)
    found = guarded.context.metadata.image.topic_by_id(topic.topic_id) if topic.topic_id else None
    return found is not None and _may_not_delete(guarded, found.name)


def _may_not_delete(guarded: Guarded, name: str) -> bool:
    """A caller that may describe a topic learns that it does not exist."""
    if not guarded.may(_DESCRIBE, _TOPIC, name):
        return True
    is_there = guarded.context.metadata.image.topic(name) is not None
    return is_there and not guarded.may(AclOperation.DELETE, _TOPIC, name)


def _offset_for_leader_epoch(guarded: Guarded) -> None:
    if guarded.may_see_in_cluster(AclOperation.CLUSTER_ACTION):
        guarded.serve()
    else:
        by_topic(lambda topic: str(topic.topic), _DESCRIBE, "topics")(guarded)


def _name(topic: Any) -> str:
    return str(topic.name)


RULES: Final = {
    3: _metadata,
    19: _create_topics,
    20: _delete_topics,
    21: by_topic(_name, AclOperation.DELETE, "topics"),
    23: _offset_for_leader_epoch,
    37: by_topic(_name, AclOperation.ALTER, "results"),
    61: by_topic(_name, AclOperation.READ, "topics"),
    75: _describe_topic_partitions,
}
