"""Reads the metadata of members of the classic protocol for a coordinator that assigns: by topic
ids, with an error if it is malformed.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from odradek.coordinator.assignors import Partitions
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from odradek.protocol.primitives import ProtocolError

T = TypeVar("T")


def read_subscription(data: bytes) -> Subscription:
    """A member's subscription.

    Raises:
        BrokerError: INCONSISTENT_GROUP_PROTOCOL, it is not one.
    """
    return _read(decode_subscription, data, "subscription")


def read_assignment(data: bytes) -> Assignment:
    """A member's assignment.

    Raises:
        BrokerError: INCONSISTENT_GROUP_PROTOCOL, it is not one.
    """
    return _read(decode_assignment, data, "assignment")


def _read(decode: Callable[[bytes], T], data: bytes, what: str) -> T:
    try:
        return decode(data)
    except ProtocolError as error:
        raise BrokerError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"a member's {what} is malformed: {error}"
        ) from error


def write_assignment(version: int, partitions: Partitions, image: MetadataImage) -> bytes:
    """An assignment for a member that speaks this version; deleted topics are left out."""
    topics = [(image.topic_by_id(topic_id), indexes) for topic_id, indexes in partitions.items()]
    named = [
        TopicPartition(topic.name, index)
        for topic, indexes in topics
        if topic is not None
        for index in sorted(indexes)
    ]
    return encode_assignment(Assignment(tuple(named), None, version))


def by_topic_id(partitions: Iterable[TopicPartition], image: MetadataImage) -> Partitions:
    """Partitions by the ids of their topics; deleted topics are left out."""
    found: dict[UUID, set[int]] = {}
    for name, index in partitions:
        topic = image.topic(name)
        if topic is not None:
            found.setdefault(topic.topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}
