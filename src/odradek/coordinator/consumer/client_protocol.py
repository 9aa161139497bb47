"""What members of the classic protocol put into their metadata and find in their assignment.

Subscription: version, topics, user data; from 1 on owned partitions, 2 a generation, 3 a rack.
Assignment: version, partitions, user data. A coordinator that assigns on their behalf reads
the one and writes the other.
"""

from typing import NamedTuple

from odradek.coordinator.assignors import Partitions
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage
from odradek.protocol.primitives import ProtocolError, Reader, Writer

_OWNED_VERSION = 1
_GENERATION_VERSION = 2
_RACK_VERSION = 3


class Subscription(NamedTuple):
    """What a member reads, and what it has at present."""

    version: int
    topics: frozenset[str]
    owned: dict[str, frozenset[int]]
    rack_id: str | None


def decode_subscription(data: bytes) -> Subscription:
    """Reads a subscription of any version; what newer ones add at the end is passed over.

    Raises:
        BrokerError: INCONSISTENT_GROUP_PROTOCOL, it is not one.
    """
    reader = Reader(memoryview(data))
    try:
        version = reader.int16()
        topics = frozenset([reader.string(False) for _ in range(reader.array_length(False, 2))])
        reader.nullable_bytes(False)
        owned = _read_partitions(reader) if version >= _OWNED_VERSION else {}
        if version >= _GENERATION_VERSION:
            reader.int32()
        rack_id = reader.nullable_string(False) if version >= _RACK_VERSION else None
    except ProtocolError as error:
        raise _malformed("subscription", error) from error
    return Subscription(version, topics, owned, rack_id)


class Assignment(NamedTuple):
    """What a member was given; `user_data` is between its assignor's two halves."""

    partitions: dict[str, frozenset[int]]
    user_data: bytes


def decode_assignment(data: bytes) -> Assignment:
    """Reads an assignment; an empty one is nothing.

    Raises:
        BrokerError: INCONSISTENT_GROUP_PROTOCOL, it is not one.
    """
    if not data:
        return Assignment({}, b"")
    reader = Reader(memoryview(data))
    try:
        reader.int16()
        partitions = _read_partitions(reader)
        return Assignment(partitions, bytes(reader.nullable_bytes(False) or b""))
    except ProtocolError as error:
        raise _malformed("assignment", error) from error


def encode_assignment(version: int, partitions: Partitions, image: MetadataImage) -> bytes:
    """Writes an assignment; topics that are gone are left out."""
    topics = [(image.topic_by_id(topic_id), indexes) for topic_id, indexes in partitions.items()]
    known = [(topic.name, indexes) for topic, indexes in topics if topic is not None]
    writer = Writer()
    writer.int16(version)
    writer.array_length(len(known), False)
    for name, indexes in known:
        writer.string(name, False)
        writer.array_length(len(indexes), False)
        for index in sorted(indexes):
            writer.int32(index)
    writer.int32(-1)  # no user data
    return writer.to_bytes()


def by_topic_id(partitions: dict[str, frozenset[int]], image: MetadataImage) -> Partitions:
    """Partitions by the ids of their topics; topics that are gone are left out."""
    topics = {name: image.topic(name) for name in partitions}
    return {
        topic.topic_id: partitions[name]
        for name, topic in topics.items()
        if topic is not None and partitions[name]
    }


def _read_partitions(reader: Reader) -> dict[str, frozenset[int]]:
    found = {}
    for _ in range(reader.array_length(False, 6)):
        name = reader.string(False)
        found[name] = frozenset([reader.int32() for _ in range(reader.array_length(False, 4))])
    return found


def _malformed(what: str, error: ProtocolError) -> BrokerError:
    return BrokerError(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"a member's {what} is malformed: {error}"
    )
