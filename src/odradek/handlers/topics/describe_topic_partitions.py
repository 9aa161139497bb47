"""DescribeTopicPartitions (75), version 0: topics in pieces of a limited number of partitions.

Behaviour: topics come in the order of their names, whatever order they were asked in; asking
for none means all. The answer holds at most `response_partition_limit` partitions, never more
than `max.request.partition.size.limit`, and a cursor that says where to go on: a topic and
the first partition that is missing. A cursor may name a topic that is gone by now; the
answer goes on behind it. A topic that does not exist is answered with an error.
What may be done with a topic is always told.
"""

from typing import Any

from odradek.errors import ErrorCode
from odradek.handlers.authorized_operations import TOPIC_OPERATIONS
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.topics.partition_state import partition_fields
from odradek.handlers.unknown_topics import unknown_name_error
from odradek.metadata.image import MetadataImage, TopicImage

# Kafka 4.2's Java admin client fails on null lists here, though the schema allows them.
NO_ELIGIBLE_REPLICAS: dict[str, object] = {"eligible_leader_replicas": (), "last_known_elr": ()}

# A topic to show, if it is there: its first partition, and how many at most.
_Span = tuple[str, TopicImage | None, int, int]

TOLD_OPERATIONS: dict[str, object] = {"topic_authorized_operations": TOPIC_OPERATIONS}


def handle(context: HandlerContext, request: Request) -> None:
    """Answers from the published image."""
    body = request.body()
    if body.cursor is not None and body.cursor.partition_index < 0:
        fail(request, ErrorCode.INVALID_REQUEST)
        return
    image = context.metadata.image
    room: int = context.config["max.request.partition.size.limit"]
    room = max(1, min(body.response_partition_limit, room))
    spans: list[_Span] = []
    next_cursor: dict[str, object] | None = None
    for name, first in _wanted(image, body):
        topic = image.topic(name)
        if topic is None or room > 0:
            spans.append((name, topic, first, room))
        if topic is None:
            continue
        end = min(len(topic.partitions), first + room)
        room -= end - first
        if end < len(topic.partitions):
            next_cursor = {"topic_name": name, "partition_index": end}
            break
    topics = (_topic_fields(image, *span, request.exchange.listener_name) for span in spans)
    request.answer(topics=topics, next_cursor=next_cursor)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every topic that was named."""
    topics = request.body().topics
    request.answer(topics=[{"error_code": code, "name": topic.name} for topic in topics])


def _wanted(image: MetadataImage, body: Any) -> list[tuple[str, int]]:
    """The topics to show, by name, each with its first partition."""
    names = sorted({topic.name for topic in body.topics} or image.topics)
    if body.cursor is None:
        return [(name, 0) for name in names]
    at = body.cursor.topic_name
    first = body.cursor.partition_index
    return [(name, first if name == at else 0) for name in names if name >= at]


def _topic_fields(
    image: MetadataImage,
    name: str,
    topic: TopicImage | None,
    first: int,
    most: int,
    listener_name: str,
) -> dict[str, object]:
    if topic is None:
        return {"error_code": unknown_name_error(name), "name": name, **TOLD_OPERATIONS}
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        **TOLD_OPERATIONS,
        "partitions": [
            partition_fields(image, partition, listener_name, ErrorCode.LISTENER_NOT_FOUND)
            | NO_ELIGIBLE_REPLICAS
            for partition in topic.partitions[first : first + most]
        ],
    }
