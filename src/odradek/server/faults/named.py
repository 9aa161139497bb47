"""The topics and groups that a request of any API names, to choose faults by.

Looks through the body for the fields that Kafka's messages call by these names. Only done for
faults that ask for it, so it may take its time. An incremental fetch names only changes; its other
partitions are looked up in its session.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from odradek.handlers.records.fetch_sessions import FetchSessionCache
from odradek.handlers.topic_names import topic_name
from odradek.metadata.image import MetadataImage
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.direct.fetch import decode_fetch_request
from odradek.protocol.direct.produce import decode_produce_request
from odradek.protocol.header import RequestHeader
from odradek.protocol.primitives import ProtocolError

_PRODUCE: Final = 0
_FETCH: Final = 1
_TOPIC_FIELDS: Final = ("name", "topic", "topic_name")
_TOPICS_FIELDS: Final = ("topics", "topic_names", "subscribed_topic_names")
_GROUP_FIELDS: Final = ("group_id", "key")
_GROUPS_FIELDS: Final = ("groups", "groups_names", "coordinator_keys")
_PARTITION_FIELDS: Final = ("partition_index", "partition", "index")
_PARTITIONS_FIELDS: Final = ("partitions", "partition_indexes")


class _Numbered(Protocol):
    """A partition within its topic."""

    index: int


class Named:
    """The resources that a request is about."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.partitions: set[TopicPartition] = set()
        self.groups: set[str] = set()

    def has_topic(self, topic: str, partition: int | None) -> bool:
        """Whether the request names the topic, or that partition of it."""
        if partition is None:
            return topic in self.topics
        return TopicPartition(topic, partition) in self.partitions


def named_by(
    header: RequestHeader, frame: memoryview, image: MetadataImage, sessions: FetchSessionCache
) -> Named:
    """Reads the resources a request names; none where its body cannot be read."""
    named = Named()
    try:
        if header.api_key == _PRODUCE:
            produce = decode_produce_request(frame, header.api_version, header.body_position)
            for written in produce.topics:
                _add(named, topic_name(image, written.name, written.topic_id), written.partitions)
        elif header.api_key == _FETCH:
            fetch = decode_fetch_request(frame, header.api_version, header.body_position)
            session = sessions.find(fetch.session_id)
            for known in session.partitions.values() if session is not None else ():
                _add(named, topic_name(image, known.name, known.topic_id), [known])
            for read in fetch.topics:
                _add(named, topic_name(image, read.name, read.topic_id), read.partitions)
        else:
            body = messages.decode_request(
                header.api_key, header.api_version, frame, header.body_position
            )
            _look_through(named, body, image)
    except (ProtocolError, LookupError):
        return named
    return named


def _add(named: Named, name: str | None, partitions: Sequence[_Numbered]) -> None:
    if name is not None:
        named.topics.add(name)
        named.partitions.update(TopicPartition(name, each.index) for each in partitions)


def _look_through(named: Named, message: Any, image: MetadataImage) -> None:
    topic: str | None = None
    for field, value in _fields(message):
        if field in _TOPIC_FIELDS and isinstance(value, str):
            topic = value
        elif field == "topic_id" and isinstance(value, UUID):
            topic = topic_name(image, None, value) or topic
        elif field in _GROUP_FIELDS and isinstance(value, str):
            named.groups.add(value)
        elif isinstance(value, tuple):
            _look_through_all(named, field, value, image)
    if topic is not None:
        named.topics.add(topic)
        named.partitions.update(TopicPartition(topic, index) for index in _indexes(message))


def _look_through_all(
    named: Named, field: str, values: tuple[Any, ...], image: MetadataImage
) -> None:
    for value in values:
        if isinstance(value, str):
            if field in _TOPICS_FIELDS:
                named.topics.add(value)
            elif field in _GROUPS_FIELDS:
                named.groups.add(value)
        else:
            _look_through(named, value, image)


def _indexes(message: Any) -> Iterator[int]:
    for field, value in _fields(message):
        if field in _PARTITIONS_FIELDS and isinstance(value, tuple):
            for each in value:
                if isinstance(each, int):
                    yield each
                else:
                    yield from (index for name, index in _fields(each) if name in _PARTITION_FIELDS)


def _fields(message: Any) -> Iterator[tuple[str, Any]]:
    for field in getattr(message, "__dataclass_fields__", ()):
        yield field, getattr(message, field)
