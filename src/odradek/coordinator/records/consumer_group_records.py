"""A group of the newer protocol (KIP-848) in `__consumer_offsets`: Kafka 4.3's formats.

| key | stands for | value |
|---|---|---|
| 3 | the group | epoch; hash of its topics (tag 0) |
| 4 | the topics that it reads, as it saw them (no longer written by Kafka 4.1) | topics |
| 5 | a member | what it subscribes to, and the classic part of a classic member (tag 0) |
| 6 | the target assignment | its epoch; when it was made (tag 0) |
| 7 | a member's target | partitions by topic id |
| 8 | a member's current assignment | epochs, state, partitions |
| 16 | a regular expression | the topics that it matches |

Keys are a version and plain strings; values are version 0 with compact lengths.
"""

from typing import Final, NamedTuple
from uuid import UUID

from odradek.coordinator.records.record_formats import (
    FLEXIBLE,
    RecordFormat,
    read_int32s,
    write_int32s,
)
from odradek.protocol.primitives import Reader, Writer

_NOT_NULL: Final = 1
_NULL: Final = b"\x00"


class ConsumerGroupMetadataKey(NamedTuple):
    """Key 3."""

    group_id: str


class ConsumerGroupMetadataValue(NamedTuple):
    """The group's epoch, and the hash of the topics that it was computed for (0: unknown)."""

    epoch: int
    metadata_hash: int = 0


class ConsumerGroupPartitionMetadataKey(NamedTuple):
    """Key 4."""

    group_id: str


class SubscribedTopic(NamedTuple):
    """A topic as the group saw it; racks by partition."""

    topic_id: UUID | None
    topic_name: str
    num_partitions: int
    racks: tuple[tuple[int, tuple[str, ...]], ...] = ()


class ConsumerGroupPartitionMetadataValue(NamedTuple):
    """The topics that the group subscribes to."""

    topics: tuple[SubscribedTopic, ...]


class ConsumerGroupMemberMetadataKey(NamedTuple):
    """Key 5."""

    group_id: str
    member_id: str


class ClassicMemberMetadata(NamedTuple):
    """The metadata of a member that uses the classic protocol in such a group."""

    session_timeout_ms: int
    supported_protocols: tuple[tuple[str, bytes], ...]


class ConsumerGroupMemberMetadataValue(NamedTuple):
    """The subscription of a member."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = None


class ConsumerGroupTargetAssignmentMetadataKey(NamedTuple):
    """Key 6."""

    group_id: str


class ConsumerGroupTargetAssignmentMetadataValue(NamedTuple):
    """The epoch of the target assignment, and when it was computed (0: unknown)."""

    assignment_epoch: int
    assignment_timestamp_ms: int = 0


class ConsumerGroupTargetAssignmentMemberKey(NamedTuple):
    """Key 7."""

    group_id: str
    member_id: str


class TopicPartitions(NamedTuple):
    """Partitions of a topic; the epochs at which they were assigned, where they are kept."""

    topic_id: UUID | None
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = None


class ConsumerGroupTargetAssignmentMemberValue(NamedTuple):
    """The target assignment of a member."""

    topic_partitions: tuple[TopicPartitions, ...]


class ConsumerGroupCurrentMemberAssignmentKey(NamedTuple):
    """Key 8."""

    group_id: str
    member_id: str


class ConsumerGroupCurrentMemberAssignmentValue(NamedTuple):
    """The partitions a member owns, and those it was asked to revoke; `state` is Kafka's number."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[TopicPartitions, ...]
    partitions_pending_revocation: tuple[TopicPartitions, ...]


class ConsumerGroupRegularExpressionKey(NamedTuple):
    """Key 16."""

    group_id: str
    regular_expression: str


class ConsumerGroupRegularExpressionValue(NamedTuple):
    """The topics that an expression matched, in which version of the metadata, and when."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


def _write_group(writer: Writer, value: ConsumerGroupMetadataValue) -> None:
    writer.int32(value.epoch)
    _write_tagged_int64(writer, value.metadata_hash)


def _read_group(reader: Reader) -> ConsumerGroupMetadataValue:
    return ConsumerGroupMetadataValue(reader.int32(), _read_tagged_int64(reader))


def _write_target_metadata(
    writer: Writer, value: ConsumerGroupTargetAssignmentMetadataValue
) -> None:
    writer.int32(value.assignment_epoch)
    _write_tagged_int64(writer, value.assignment_timestamp_ms)


def _read_target_metadata(reader: Reader) -> ConsumerGroupTargetAssignmentMetadataValue:
    return ConsumerGroupTargetAssignmentMetadataValue(reader.int32(), _read_tagged_int64(reader))


def _write_tagged_int64(writer: Writer, value: int) -> None:
    """A structure's only tagged field, left out at its default of zero."""
    writer.uvarint(1 if value else 0)
    if value:
        writer.tagged(0, value.to_bytes(8, "big", signed=True))


def _read_tagged_int64(reader: Reader) -> int:
    value = 0
    for _ in range(reader.tag_count()):
        if reader.uvarint() == 0:
            end = reader.tagged_end()
            value = reader.int64()
            reader.check_at(end)
        else:
            reader.skip_tagged_field()
    return value


def _write_partition_metadata(writer: Writer, value: ConsumerGroupPartitionMetadataValue) -> None:
    writer.array_length(len(value.topics), FLEXIBLE)
    for topic in value.topics:
        writer.uuid(topic.topic_id)
        writer.string(topic.topic_name, FLEXIBLE)
        writer.int32(topic.num_partitions)
        writer.array_length(len(topic.racks), FLEXIBLE)
        for partition, racks in topic.racks:
            writer.int32(partition)
            _write_strings(writer, racks)
            writer.no_tags(FLEXIBLE)
        writer.no_tags(FLEXIBLE)
    writer.no_tags(FLEXIBLE)


def _read_partition_metadata(reader: Reader) -> ConsumerGroupPartitionMetadataValue:
    topics = []
    for _ in range(reader.array_length(FLEXIBLE, 23)):
        topic_id, name, count = reader.uuid(), reader.string(FLEXIBLE), reader.int32()
        racks = []
        for _ in range(reader.array_length(FLEXIBLE, 6)):
            racks.append((reader.int32(), _read_strings(reader)))
            reader.skip_tags()
        reader.skip_tags()
        topics.append(SubscribedTopic(topic_id, name, count, tuple(racks)))
    reader.skip_tags()
    return ConsumerGroupPartitionMetadataValue(tuple(topics))


def _write_member(writer: Writer, value: ConsumerGroupMemberMetadataValue) -> None:
    writer.nullable_string(value.instance_id, FLEXIBLE)
    writer.nullable_string(value.rack_id, FLEXIBLE)
    writer.string(value.client_id, FLEXIBLE)
    writer.string(value.client_host, FLEXIBLE)
    _write_strings(writer, value.subscribed_topic_names)
    writer.nullable_string(value.subscribed_topic_regex, FLEXIBLE)
    writer.int32(value.rebalance_timeout_ms)
    writer.nullable_string(value.server_assignor, FLEXIBLE)
    # Null is written too: Kafka reads an absent field as an empty one.
    writer.uvarint(1)
    classic = value.classic_member_metadata
    writer.tagged(0, _NULL if classic is None else _classic_member(classic))


def _classic_member(classic: ClassicMemberMetadata) -> bytes:
    writer = Writer()
    writer.uvarint(_NOT_NULL)
    writer.int32(classic.session_timeout_ms)
    writer.array_length(len(classic.supported_protocols), FLEXIBLE)
    for name, metadata in classic.supported_protocols:
        writer.string(name, FLEXIBLE)
        writer.buffers([metadata], FLEXIBLE)
        writer.no_tags(FLEXIBLE)
    writer.no_tags(FLEXIBLE)
    return writer.to_bytes()


def _read_member(reader: Reader) -> ConsumerGroupMemberMetadataValue:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=reader.nullable_string(FLEXIBLE),
        rack_id=reader.nullable_string(FLEXIBLE),
        client_id=reader.string(FLEXIBLE),
        client_host=reader.string(FLEXIBLE),
        subscribed_topic_names=_read_strings(reader),
        subscribed_topic_regex=reader.nullable_string(FLEXIBLE),
        rebalance_timeout_ms=reader.int32(),
        server_assignor=reader.nullable_string(FLEXIBLE),
    )
    for _ in range(reader.tag_count()):
        if reader.uvarint() == 0:
            end = reader.tagged_end()
            value = value._replace(classic_member_metadata=_read_classic_member(reader))
            reader.check_at(end)
        else:
            reader.skip_tagged_field()
    return value


def _read_classic_member(reader: Reader) -> ClassicMemberMetadata | None:
    if reader.uvarint() != _NOT_NULL:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.array_length(FLEXIBLE, 3)):
        name = reader.string(FLEXIBLE)
        protocols.append((name, bytes(reader.nullable_bytes(FLEXIBLE) or b"")))
        reader.skip_tags()
    reader.skip_tags()
    return ClassicMemberMetadata(session_timeout_ms, tuple(protocols))


def _write_target_member(writer: Writer, value: ConsumerGroupTargetAssignmentMemberValue) -> None:
    writer.array_length(len(value.topic_partitions), FLEXIBLE)
    for topic in value.topic_partitions:
        writer.uuid(topic.topic_id)
        write_int32s(writer, topic.partitions)
        writer.no_tags(FLEXIBLE)
    writer.no_tags(FLEXIBLE)


def _read_target_member(reader: Reader) -> ConsumerGroupTargetAssignmentMemberValue:
    topics = _read_topics(reader)
    reader.skip_tags()
    return ConsumerGroupTargetAssignmentMemberValue(topics)


def _write_current(writer: Writer, value: ConsumerGroupCurrentMemberAssignmentValue) -> None:
    writer.int32(value.member_epoch)
    writer.int32(value.previous_member_epoch)
    writer.int8(value.state)
    _write_topics(writer, value.assigned_partitions)
    _write_topics(writer, value.partitions_pending_revocation)
    writer.no_tags(FLEXIBLE)


def _read_current(reader: Reader) -> ConsumerGroupCurrentMemberAssignmentValue:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        reader.int32(),
        reader.int32(),
        reader.int8(),
        _read_topics(reader),
        _read_topics(reader),
    )
    reader.skip_tags()
    return value


def _write_topics(writer: Writer, topics: tuple[TopicPartitions, ...]) -> None:
    writer.array_length(len(topics), FLEXIBLE)
    for topic in topics:
        writer.uuid(topic.topic_id)
        write_int32s(writer, topic.partitions)
        writer.uvarint(0 if topic.assignment_epochs is None else 1)
        if topic.assignment_epochs is not None:
            epochs = Writer()
            write_int32s(epochs, topic.assignment_epochs)
            writer.tagged(0, epochs.to_bytes())


def _read_topics(reader: Reader) -> tuple[TopicPartitions, ...]:
    topics = []
    for _ in range(reader.array_length(FLEXIBLE, 18)):
        topic_id, partitions = reader.uuid(), read_int32s(reader)
        epochs = None
        for _ in range(reader.tag_count()):
            if reader.uvarint() == 0:
                end = reader.tagged_end()
                epochs = read_int32s(reader)
                reader.check_at(end)
            else:
                reader.skip_tagged_field()
        topics.append(TopicPartitions(topic_id, partitions, epochs))
    return tuple(topics)


def _write_expression(writer: Writer, value: ConsumerGroupRegularExpressionValue) -> None:
    _write_strings(writer, value.topics)
    writer.int64(value.version)
    writer.int64(value.timestamp_ms)
    writer.no_tags(FLEXIBLE)


def _read_expression(reader: Reader) -> ConsumerGroupRegularExpressionValue:
    value = ConsumerGroupRegularExpressionValue(
        _read_strings(reader), reader.int64(), reader.int64()
    )
    reader.skip_tags()
    return value


def _write_strings(writer: Writer, texts: tuple[str, ...]) -> None:
    writer.array_length(len(texts), FLEXIBLE)
    for text in texts:
        writer.string(text, FLEXIBLE)


def _read_strings(reader: Reader) -> tuple[str, ...]:
    return tuple([reader.string(FLEXIBLE) for _ in range(reader.array_length(FLEXIBLE, 1))])


FORMATS: Final[tuple[RecordFormat, ...]] = (
    RecordFormat(3, ConsumerGroupMetadataKey, _write_group, _read_group),
    RecordFormat(
        4, ConsumerGroupPartitionMetadataKey, _write_partition_metadata, _read_partition_metadata
    ),
    RecordFormat(5, ConsumerGroupMemberMetadataKey, _write_member, _read_member),
    RecordFormat(
        6, ConsumerGroupTargetAssignmentMetadataKey, _write_target_metadata, _read_target_metadata
    ),
    RecordFormat(
        7, ConsumerGroupTargetAssignmentMemberKey, _write_target_member, _read_target_member
    ),
    RecordFormat(8, ConsumerGroupCurrentMemberAssignmentKey, _write_current, _read_current),
    RecordFormat(16, ConsumerGroupRegularExpressionKey, _write_expression, _read_expression),
)
