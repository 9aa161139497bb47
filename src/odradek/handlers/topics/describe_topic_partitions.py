"""DescribeTopicPartitions (75), version 0: topics in pieces of a limited number of partitions.

Behaviour: topics come in the order of their names, whatever order they were asked in; asking
for none means all. The answer holds at most `response_partition_limit` partitions, never more
than `max.request.partition.size.limit`, and a cursor for the next request: a topic and its first
missing partition. A cursor may name a deleted topic; the answer continues behind it. A topic that
does not exist is answered with an error. Many topics, and many partitions, are looked at and
answered in slices. Authorized operations are always included.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final

from odradek.errors import ErrorCode
from odradek.handlers.authorized_operations import TOPIC_OPERATIONS
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.topics.partition_state import partition_fields
from odradek.handlers.unknown_topics import unknown_name_error
from odradek.metadata.image import MetadataImage, TopicImage

# Kafka 4.2's Java admin client fails on null lists here, though the schema allows them.
NO_ELIGIBLE_REPLICAS: dict[str, object] = {"eligible_leader_replicas": (), "last_known_elr": ()}

# A topic to show, if it exists, its first partition, and the largest number of partitions.
_Span = tuple[str, TopicImage | None, int, int]

TOLD_OPERATIONS: dict[str, object] = {"topic_authorized_operations": TOPIC_OPERATIONS}


def handle(context: HandlerContext, request: Request) -> None:
    """Answers from the published image."""
    body = request.body()
    if body.cursor is not None and body.cursor.partition_index < 0:
        fail(request, ErrorCode.INVALID_REQUEST)
        return
    shown = _Shown(context.metadata.image, _room(context, body))
    request.in_slices(shown.find(body), lambda _: _answer(request, shown))


def _room(context: HandlerContext, body: Any) -> int:
    asked: int = body.response_partition_limit
    most: int = context.config["max.request.partition.size.limit"]
    return max(1, min(asked, most))


class _Shown:
    """The topics of the answer, up to its limit of partitions, and the next cursor."""

    def __init__(self, image: MetadataImage, room: int) -> None:
        self.image: Final = image
        self.spans: Final[list[_Span]] = []
        self.next_cursor: dict[str, object] | None = None
        self._room = room

    def find(self, body: Any) -> Iterator[int]:
        """Looks up the topics, one at each step."""
        for name, first in _wanted(self.image, body):
            if self.next_cursor is not None:
                return
            self._take(name, first)
            yield 1

    def _take(self, name: str, first: int) -> None:
        topic = self.image.topic(name)
        if topic is None or self._room > 0:
            self.spans.append((name, topic, first, self._room))
        if topic is None:
            return
        end = min(len(topic.partitions), first + self._room)
        self._room -= end - first
        if end < len(topic.partitions):
            self.next_cursor = {"topic_name": name, "partition_index": end}


def _answer(request: Request, shown: _Shown) -> None:
    listener = request.exchange.listener_name
    topics = (_topic_fields(shown.image, *span, listener) for span in shown.spans)
    request.answer(topics=topics, next_cursor=shown.next_cursor)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every topic that was named."""
    topics = request.body().topics
    request.answer(topics=[{"error_code": code, "name": topic.name} for topic in topics])


def _wanted(image: MetadataImage, body: Any) -> Iterator[tuple[str, int]]:
    """The topics to show, by name, each with its first partition."""
    names = sorted({topic.name for topic in body.topics} or image.topics)
    if body.cursor is None:
        return ((name, 0) for name in names)
    at = body.cursor.topic_name
    first = body.cursor.partition_index
    names = names[bisect_left(names, at) :]
    return ((name, first if name == at else 0) for name in names)


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
        "partitions": (
            partition_fields(image, partition, listener_name, ErrorCode.LISTENER_NOT_FOUND)
            | NO_ELIGIBLE_REPLICAS
            for partition in topic.partitions[first : first + most]
        ),
    }
