"""The rules of the APIs about topics. A caller that may not describe a topic does not learn whether
it exists: it gets TOPIC_AUTHORIZATION_FAILED in either case."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

from odradek.errors import ErrorCode
from odradek.handlers.authorization.access import REFUSALS, Fields, Guarded
from odradek.handlers.authorization.operations import amend_cluster_operations, amend_operations
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
        denied = guarded.denied(operation, _TOPIC, map(name_of, asked))
        _serve_without(guarded, [name_of(each) in denied for each in asked], answered)

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
    guarded.amend(lambda fields: _tell_operations(guarded, fields))
    if body.topics is None or (guarded.request.api_version == 0 and not body.topics):
        guarded.keep("topics", lambda topic: guarded.may_see(_DESCRIBE, _TOPIC, topic["name"]))
        guarded.serve()
        return
    denied = [_is_denied(guarded, topic) for topic in body.topics]
    pairs = list(zip(body.topics, denied, strict=True))
    refused = [_refused_topic(topic) for topic, is_denied in pairs if is_denied]
    allowed = [topic for topic, is_denied in pairs if not is_denied]
    if refused:
        names = {topic.name for topic in allowed}
        ids = {getattr(topic, "topic_id", None) for topic in allowed} - {None}
        # In version 0 nothing would be everything.
        guarded.keep("topics", lambda each: each["name"] in names or each.get("topic_id") in ids)
        guarded.request.narrow(replace(body, topics=tuple(allowed)))
        guarded.append("topics", _once(refused))
    guarded.serve()


def _is_denied(guarded: Guarded, topic: Any) -> bool:
    """Whether a topic that Metadata names is not to be described, nor to be made."""
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
    """By the name or the id that the caller knows, and no more."""
    topic_id = getattr(topic, "topic_id", None)
    return {
        "error_code": _REFUSED,
        "name": None if topic_id else topic.name,
        "topic_id": topic_id or None,
    }


def _once(topics: list[Fields]) -> list[Fields]:
    return list({(each["name"], each["topic_id"]): each for each in topics}.values())


def _tell_operations(guarded: Guarded, fields: Fields) -> None:
    amend_cluster_operations(guarded, fields)
    for topic in fields.get("topics", ()):
        if topic.get("error_code", ErrorCode.NONE) != _REFUSED and topic.get("name"):
            amend_operations(guarded, topic, _OPERATIONS, _TOPIC, topic["name"])


def _describe_topic_partitions(guarded: Guarded) -> None:
    body = guarded.request.body()
    guarded.amend(lambda fields: _tell_operations(guarded, fields))
    if body.topics:
        by_topic(lambda topic: str(topic.name), _DESCRIBE, "topics")(guarded)
        return
    seen = [
        SimpleNamespace(name=name)
        for name in guarded.context.metadata.image.topics
        if guarded.may_see(_DESCRIBE, _TOPIC, name)
    ]
    if seen:
        guarded.request.narrow(replace(body, topics=tuple(seen)))
        guarded.serve()
    else:
        guarded.request.answer(topics=[], next_cursor=None)


# Making, growing and removing topics


def _create_topics(guarded: Guarded) -> None:
    guarded.amend(lambda fields: _hide_settings(guarded, fields))
    if guarded.may_see_in_cluster(AclOperation.CREATE):
        guarded.serve()
    else:
        by_topic(lambda topic: str(topic.name), AclOperation.CREATE, "topics")(guarded)


def _hide_settings(guarded: Guarded, fields: Fields) -> None:
    """Only callers that may describe its settings get the settings and size of a created topic."""
    for topic in fields.get("topics", ()):
        code = topic["error_code"]
        operation = AclOperation.DESCRIBE_CONFIGS
        if code == ErrorCode.NONE and not guarded.may_see(operation, _TOPIC, topic["name"]):
            topic.update(num_partitions=-1, replication_factor=-1, configs=())
            topic["topic_config_error_code"] = _REFUSED


def _delete_topics(guarded: Guarded) -> None:
    if guarded.may_see_in_cluster(AclOperation.DELETE):
        guarded.serve()
        return
    body = guarded.request.body()
    if guarded.request.api_version < _TOPIC_STATES_VERSION:
        names = body.topic_names
        denied = {name for name in names if _may_not_delete(guarded, name)}
        refused = tuple(name for name in names if name in denied)
        allowed = [name for name in names if name not in denied]
        asked = "topic_names"
    else:
        if any((topic.name is None) == (topic.topic_id is None) for topic in body.topics):
            guarded.serve()  # which is refused as a whole
            return
        pairs = [(topic, _is_not_to_be_deleted(guarded, topic)) for topic in body.topics]
        refused = tuple(topic for topic, is_denied in pairs if is_denied)
        allowed = [topic for topic, is_denied in pairs if not is_denied]
        asked = "topics"
    answers = guarded.refusals("responses", _REFUSED, **{asked: refused}) if refused else []
    guarded.serve_allowed(asked, allowed, "responses", answers)


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
