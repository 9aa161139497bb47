"""The bytes that consumers of the classic protocol put into JoinGroup and find in SyncGroup.

    subscription   version, topics, user data; from 1 on owned partitions, 2 a generation, 3 a rack
    assignment     version, partitions, user data

Brokers pass both on unread between the members of a classic group. Their readers are members,
including the leader; the coordinator, to find out which topics a group reads, and for members that
it assigns partitions to; and tools. Written they are byte for byte what Kafka's own consumer
writes. A newer version is read as our newest, and the fields that it adds at the end are ignored.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.model import TopicPartition
from odradek.protocol.primitives import ProtocolError, Reader, Writer

NO_GENERATION: Final = -1
NEWEST_VERSION: Final = 3

_OWNED_VERSION: Final = 1
_GENERATION_VERSION: Final = 2
_RACK_VERSION: Final = 3


class Subscription(NamedTuple):
    """The subscription of a member: its topics, owned partitions, generation and rack.

    `instance_id` is not among the bytes: JoinGroup has it beside them.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    instance_id: str | None = None
    version: int = NEWEST_VERSION


class Assignment(NamedTuple):
    """The assignment of a member; `user_data` passes between its assignor's two halves."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None
    version: int = NEWEST_VERSION


def encode_subscription(subscription: Subscription) -> bytes:
    """Writes a subscription, topics and owned partitions sorted."""
    writer = Writer()
    writer.int16(subscription.version)
    topics = sorted(subscription.topics)
    writer.array_length(len(topics), False)
    for topic in topics:
        writer.string(topic, False)
    _write_user_data(writer, subscription.user_data)
    if subscription.version >= _OWNED_VERSION:
        write_partitions(writer, sorted(subscription.owned))
    if subscription.version >= _GENERATION_VERSION:
        writer.int32(subscription.generation_id)
    if subscription.version >= _RACK_VERSION:
        writer.nullable_string(subscription.rack_id, False)
    return writer.to_bytes()


def decode_subscription(data: bytes) -> Subscription:
    """Reads a subscription of any version.

    Raises:
        ProtocolError: it is none.
    """
    reader = Reader(memoryview(data))
    version = _read_version(reader)
    topics, user_data = _read_prefix(reader)
    owned = read_partitions(reader) if version >= _OWNED_VERSION else ()
    generation_id = reader.int32() if version >= _GENERATION_VERSION else NO_GENERATION
    rack_id = reader.nullable_string(False) if version >= _RACK_VERSION else None
    return Subscription(topics, owned, user_data, generation_id, rack_id, None, version)


def decode_subscribed_topics(data: bytes) -> tuple[str, ...]:
    """Returns the topics of a subscription of any version, even of one that only begins like one:
    to read just the topics, later versions need not be known.

    Raises:
        ProtocolError: it is none.
    """
    reader = Reader(memoryview(data))
    reader.int16()
    return _read_prefix(reader)[0]


def encode_assignment(assignment: Assignment) -> bytes:
    """Writes an assignment; partitions keep their order within a topic."""
    writer = Writer()
    writer.int16(assignment.version)
    write_partitions(writer, assignment.partitions)
    _write_user_data(writer, assignment.user_data)
    return writer.to_bytes()


def decode_assignment(data: bytes) -> Assignment:
    """Reads an assignment of any version; no bytes are one of nothing.

    Raises:
        ProtocolError: it is none.
    """
    if not data:
        return Assignment(())
    reader = Reader(memoryview(data))
    version = _read_version(reader)
    return Assignment(read_partitions(reader), _read_user_data(reader), version)


def write_partitions(writer: Writer, partitions: Iterable[TopicPartition]) -> None:
    """Writes partitions by topic, topics in the order in which they come up."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    writer.array_length(len(by_topic), False)
    for topic, indexes in by_topic.items():
        writer.string(topic, False)
        writer.array_length(len(indexes), False)
        for index in indexes:
            writer.int32(index)


def read_partitions(reader: Reader) -> tuple[TopicPartition, ...]:
    """The reverse of `write_partitions`.

    Raises:
        ProtocolError: there are none.
    """
    partitions: list[TopicPartition] = []
    for _ in range(reader.array_length(False, 6)):
        topic = reader.string(False)
        count = reader.array_length(False, 4)
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(count)]
    return tuple(partitions)


def _read_prefix(reader: Reader) -> tuple[tuple[str, ...], bytes | None]:
    """Reads the fields that every version of a subscription begins with."""
    topics = tuple([reader.string(False) for _ in range(reader.array_length(False, 2))])
    return topics, _read_user_data(reader)


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise ProtocolError(f"version {version} of the consumer protocol", 0)
    return min(version, NEWEST_VERSION)


def _write_user_data(writer: Writer, user_data: bytes | None) -> None:
    if user_data is None:
        writer.null_bytes(False)
    else:
        writer.buffers([user_data], False)


def _read_user_data(reader: Reader) -> bytes | None:
    data = reader.nullable_bytes(False)
    return None if data is None else bytes(data)
