"""What members of the classic protocol put into their metadata and find in their assignment.

    subscription   version, topics, user data; from 1 on owned partitions, 2 a generation, 3 a rack
    assignment     version, partitions, user data

The bytes are those of Kafka's own consumer, in its order: topics and owned partitions sorted, so
that members of any client understand each other. The coordinator's twin reads the same bytes
for its own purposes, by topic id.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from odradek.client.errors import GroupError
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.primitives import ProtocolError, Reader, Writer

SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 3
NO_GENERATION: Final = -1


@dataclass(frozen=True)
class Subscription:
    """What a member reads, what it has, since which generation, and where it stands."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    instance_id: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Assignment:
    """What a member is given."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = SUBSCRIPTION_VERSION) -> bytes:
    """Writes a subscription."""
    writer = Writer()
    writer.int16(version)
    topics = sorted(subscription.topics)
    writer.array_length(len(topics), False)
    for topic in topics:
        writer.string(topic, False)
    _write_user_data(writer, subscription.user_data)
    if version >= 1:
        _write_partitions(writer, sorted(subscription.owned))
    if version >= 2:
        writer.int32(subscription.generation_id)
    if version >= 3:
        writer.nullable_string(subscription.rack_id, False)
    return writer.to_bytes()


def decode_subscription(data: bytes) -> Subscription:
    """Reads a subscription of any version; what newer ones add at the end is passed over.

    Raises:
        GroupError: INCONSISTENT_GROUP_PROTOCOL, it is not one.
    """
    reader = Reader(memoryview(data))
    try:
        version = reader.int16()
        topics = tuple([reader.string(False) for _ in range(reader.array_length(False, 2))])
        user_data = _read_user_data(reader)
        owned = _read_partitions(reader) if version >= 1 else ()
        generation_id = reader.int32() if version >= 2 else NO_GENERATION
        rack_id = reader.nullable_string(False) if version >= 3 else None
    except ProtocolError as error:
        raise _malformed("subscription", error) from error
    return Subscription(topics, owned, user_data, generation_id, rack_id)


def encode_assignment(assignment: Assignment, version: int = ASSIGNMENT_VERSION) -> bytes:
    """Writes an assignment; partitions keep their order within a topic."""
    writer = Writer()
    writer.int16(version)
    _write_partitions(writer, assignment.partitions)
    _write_user_data(writer, assignment.user_data)
    return writer.to_bytes()


def decode_assignment(data: bytes) -> Assignment:
    """Reads an assignment; an empty one is nothing.

    Raises:
        GroupError: INCONSISTENT_GROUP_PROTOCOL, it is not one.
    """
    if not data:
        return Assignment(())
    reader = Reader(memoryview(data))
    try:
        reader.int16()
        return Assignment(_read_partitions(reader), _read_user_data(reader))
    except ProtocolError as error:
        raise _malformed("assignment", error) from error


def _write_user_data(writer: Writer, user_data: bytes | None) -> None:
    if user_data is None:
        writer.null_bytes(False)
    else:
        writer.buffers([user_data], False)


def _read_user_data(reader: Reader) -> bytes | None:
    data = reader.nullable_bytes(False)
    return None if data is None else bytes(data)


def _write_partitions(writer: Writer, partitions: Iterable[TopicPartition]) -> None:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    writer.array_length(len(by_topic), False)
    for topic, indexes in by_topic.items():
        writer.string(topic, False)
        writer.array_length(len(indexes), False)
        for index in indexes:
            writer.int32(index)


def _read_partitions(reader: Reader) -> tuple[TopicPartition, ...]:
    partitions = []
    for _ in range(reader.array_length(False, 6)):
        topic = reader.string(False)
        count = reader.array_length(False, 4)
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(count)]
    return tuple(partitions)


def _malformed(what: str, error: ProtocolError) -> GroupError:
    return GroupError(
        f"a member's {what} is malformed: {error}", ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
