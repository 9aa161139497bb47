"""Metadata (3), versions 0 to 13: brokers, topics, and who leads which partition.

Behaviour: everything is answered from the published image, where a partition appears only
when it can be appended to. Which topics: all when the list is null (in version 0: empty),
none when it is empty. A topic that is missing is created if the broker
(`auto.create.topics.enable`) and the client (from version 4) allow it; where Kafka answers
with an error and lets the client ask again, the answer here waits for the creation, for five
seconds at most. Brokers are shown by the end point of the listener that the request came in by. A
new broker that has not received the metadata from its controller names neither brokers nor topics,
and creates none.

Version notes: 1 adds the controller, racks and the internal flag, 2 the cluster id, 5 offline
replicas, 7 leader epochs, 9 is flexible, 10 adds topic ids, and topics may be asked for by
id, which are never created, from 12 on; 11 drops the cluster's authorized operations, 12 allows
null names, 13 adds a top-level error. Authorized operations are included on request, from version 8
on.
"""

from collections.abc import Generator, Sequence
from typing import Any, Final
from uuid import UUID

from odradek.controller.results import CreateTopicResult
from odradek.errors import ErrorCode
from odradek.handlers.authorized_operations import cluster_operations, topic_operations
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import SLICE_ENTRIES
from odradek.handlers.request import Request
from odradek.handlers.topics.partition_state import broker_fields, partition_fields
from odradek.handlers.unknown_topics import unknown_name_error
from odradek.metadata.image import MetadataImage, TopicImage

NULL_NAME_VERSION: Final = 12
LISTENER_ERROR_VERSION: Final = 6
CREATION_TIMEOUT_MS: Final = 5_000

_Fields = dict[str, object]


def handle(context: HandlerContext, request: Request) -> None:
    """Answers now, or when the missing topics have been created."""
    body = request.body()
    image = context.metadata.image
    if request.api_version < NULL_NAME_VERSION and _names_ids(body):
        fail(request, ErrorCode.INVALID_REQUEST)
        return
    if not context.metadata.is_told:
        # Without brokers: clients ignore such an answer and ask again, here or elsewhere.
        request.answer(topics=_refused(request, ErrorCode.LEADER_NOT_AVAILABLE))
        return
    if body.topics is None or (request.api_version == 0 and not body.topics):
        every = (_known(image, topic, request) for topic in _all(image))
        _answer(context, request, body, image, every)
        return
    ids = [topic.topic_id for topic in body.topics if getattr(topic, "topic_id", None)]
    if ids:
        asked = (_by_id(image, topic_id, request) for topic_id in _once(ids))
        _answer(context, request, body, image, asked)
        return
    names = _once([topic.name for topic in body.topics if topic.name is not None])
    missing = _creatable(context, body, image, names)
    if missing:
        _create(context, request, body, names, missing)
    else:
        _answer_names(context, request, body, names, {})


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error in place of every topic that was asked for."""
    request.answer(error_code=code, topics=_refused(request, code))


def _refused(request: Request, code: ErrorCode) -> list[_Fields]:
    asked = request.body().topics or ()
    return [
        {
            "error_code": code,
            "name": getattr(topic, "name", None) or _no_name(request),
            "topic_id": getattr(topic, "topic_id", None),
        }
        for topic in asked
    ]


def _names_ids(body: Any) -> bool:
    """Whether the request names a topic by its id."""
    topics = body.topics or ()
    return any(topic.name is None or getattr(topic, "topic_id", None) for topic in topics)


def _once(values: list[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _all(image: MetadataImage) -> list[TopicImage]:
    return list(image.topics.values())


def _creatable(
    context: HandlerContext, body: Any, image: MetadataImage, names: list[str]
) -> list[str]:
    """The names of missing topics that may be created."""
    allowed = getattr(body, "allow_auto_topic_creation", True)
    if not (allowed and context.config.auto_create_topics_enable):
        return []
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [
        name for name in names if image.topic(name) is None and unknown_name_error(name) is unknown
    ]


def _create(
    context: HandlerContext, request: Request, body: Any, names: list[str], missing: list[str]
) -> None:
    """Creates topics, some at a time, and others are served in between. After the time-out the
    remaining ones are answered with a retriable error."""
    errors = dict.fromkeys(missing, ErrorCode.NONE)
    deadline_ms = context.clock.monotonic_ms() + CREATION_TIMEOUT_MS
    starts = iter(range(0, len(missing), SLICE_ENTRIES))

    def create_some() -> None:
        start, left_ms = next(starts, None), deadline_ms - context.clock.monotonic_ms()
        if start is None or left_ms <= 0:
            _answer_names(context, request, body, names, errors)
            return
        some = missing[start : start + SLICE_ENTRIES]
        context.controller.auto_create_topics(some, left_ms, request.guard(on_created))

    def on_created(results: Sequence[CreateTopicResult]) -> None:
        errors.update((each.name, each.error_code) for each in results)
        if len(missing) <= SLICE_ENTRIES:
            create_some()
        else:
            context.background.defer(request.guard(create_some))

    create_some()


def _answer_names(
    context: HandlerContext,
    request: Request,
    body: Any,
    names: list[str],
    errors: dict[str, ErrorCode],
) -> None:
    image = context.metadata.image
    asked = (_by_name(image, name, request, errors) for name in names)
    _answer(context, request, body, image, asked)


def _by_name(
    image: MetadataImage, name: str, request: Request, errors: dict[str, ErrorCode]
) -> _Fields:
    topic = image.topic(name)
    if topic is not None:
        return _known(image, topic, request)
    return {"error_code": _missing_error(name, errors.get(name)), "name": name}


def _missing_error(name: str, creation_error: ErrorCode | None) -> ErrorCode:
    """The error for a missing topic; retriable while its creation is under way."""
    if creation_error is None:
        return unknown_name_error(name)
    if creation_error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return creation_error


def _known(image: MetadataImage, topic: TopicImage, request: Request) -> _Fields:
    unlisted = (
        ErrorCode.LISTENER_NOT_FOUND
        if request.api_version >= LISTENER_ERROR_VERSION
        else ErrorCode.LEADER_NOT_AVAILABLE
    )
    listener_name = request.exchange.listener_name
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "topic_authorized_operations": topic_operations(request.body()),
        "partitions": [
            partition_fields(image, partition, listener_name, unlisted)
            for partition in topic.partitions
        ],
    }


def _by_id(image: MetadataImage, topic_id: UUID, request: Request) -> _Fields:
    topic = image.topic_by_id(topic_id)
    if topic is not None:
        return _known(image, topic, request)
    return {
        "error_code": ErrorCode.UNKNOWN_TOPIC_ID,
        "name": _no_name(request),
        "topic_id": topic_id,
    }


def _no_name(request: Request) -> str | None:
    return None if request.api_version >= NULL_NAME_VERSION else ""


def _answer(
    context: HandlerContext,
    request: Request,
    body: Any,
    image: MetadataImage,
    topics: Generator[_Fields, None, None],
) -> None:
    """Answers from one image, however long it takes to list the topics."""
    request.answer(
        brokers=broker_fields(image, request.exchange.listener_name, "node_id"),
        cluster_id=image.cluster_id,
        controller_id=context.metadata.controller_id,
        cluster_authorized_operations=cluster_operations(body),
        topics=topics,
    )
