"""OffsetCommit, versions 2 to 10: the request in, the response out. Hot: every consumer commits.

Version notes: 2 to 4 bring a retention time, 6 a leader epoch, 7 a group instance id; 8 is
flexible, 10 names topics by id.
"""

from struct import Struct
from typing import Final
from uuid import UUID

from odradek.protocol.primitives import Reader, Writer

LAST_RETENTION_VERSION: Final = 4
THROTTLE_VERSION: Final = 3
LEADER_EPOCH_VERSION: Final = 6
INSTANCE_ID_VERSION: Final = 7
FLEXIBLE_VERSION: Final = 8
TOPIC_ID_VERSION: Final = 10
NO_RETENTION: Final = -1

_ANSWER: Final = Struct(">ih")  # index, error code


class OffsetCommitPartition:
    """An offset to commit."""

    def __init__(self, index: int, offset: int, leader_epoch: int, metadata: str) -> None:
        self.index = index
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata


class OffsetCommitTopic:
    """The offsets to commit of a topic, named by `name` or, from version 10 on, by `topic_id`."""

    def __init__(
        self, name: str, topic_id: UUID | None, partitions: list[OffsetCommitPartition]
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class OffsetCommitMessage:
    """A whole request; `retention_ms` is -1 where it is not given."""

    def __init__(
        self,
        group_id: str,
        generation_or_epoch: int,
        member_id: str,
        group_instance_id: str | None,
        retention_ms: int,
        topics: list[OffsetCommitTopic],
    ) -> None:
        self.group_id = group_id
        self.generation_or_epoch = generation_or_epoch
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.retention_ms = retention_ms
        self.topics = topics


def decode_offset_commit_request(
    frame: memoryview, version: int, position: int
) -> OffsetCommitMessage:
    """Reads the body of a request, which begins at `position`; nothing refers to the frame.

    Raises:
        ProtocolError: it is malformed.
    """
    reader = Reader(frame, position)
    flexible = version >= FLEXIBLE_VERSION
    group_id = reader.string(flexible)
    generation_or_epoch = reader.int32()
    member_id = reader.string(flexible)
    instance_id = reader.nullable_string(flexible) if version >= INSTANCE_ID_VERSION else None
    retention_ms = reader.int64() if version <= LAST_RETENTION_VERSION else NO_RETENTION
    topics: list[OffsetCommitTopic] = []
    count = reader.array_length(flexible, 6)
    while count > 0:
        topics.append(_decode_topic(reader, version, flexible))
        count -= 1
    if flexible:
        reader.skip_tags()
    return OffsetCommitMessage(
        group_id, generation_or_epoch, member_id, instance_id, retention_ms, topics
    )


def _decode_topic(reader: Reader, version: int, flexible: bool) -> OffsetCommitTopic:
    name = ""
    topic_id: UUID | None = None
    if version >= TOPIC_ID_VERSION:
        topic_id = reader.uuid()
    else:
        name = reader.string(flexible)
    partitions: list[OffsetCommitPartition] = []
    count = reader.array_length(flexible, 13)
    while count > 0:
        index = reader.int32()
        offset = reader.int64()
        leader_epoch = reader.int32() if version >= LEADER_EPOCH_VERSION else -1
        metadata = reader.nullable_string(flexible)
        if flexible:
            reader.skip_tags()
        partitions.append(OffsetCommitPartition(index, offset, leader_epoch, metadata or ""))
        count -= 1
    if flexible:
        reader.skip_tags()
    return OffsetCommitTopic(name, topic_id, partitions)


def encode_offset_commit_response(
    message: OffsetCommitMessage,
    codes: list[list[int]],
    version: int,
    correlation_id: int,
    throttle_time_ms: int = 0,
) -> bytes:
    """The response with its header: an error code for each partition of the request."""
    writer = Writer()
    flexible = version >= FLEXIBLE_VERSION
    writer.int32(correlation_id)
    writer.no_tags(flexible)
    if version >= THROTTLE_VERSION:
        writer.int32(throttle_time_ms)
    writer.array_length(len(message.topics), flexible)
    for topic, topic_codes in zip(message.topics, codes, strict=True):
        if version >= TOPIC_ID_VERSION:
            writer.uuid(topic.topic_id)
        else:
            writer.string(topic.name, flexible)
        writer.array_length(len(topic.partitions), flexible)
        for partition, code in zip(topic.partitions, topic_codes, strict=True):
            writer.raw(_ANSWER.pack(partition.index, code))
            writer.no_tags(flexible)
        writer.no_tags(flexible)
    writer.no_tags(flexible)
    return writer.to_bytes()
