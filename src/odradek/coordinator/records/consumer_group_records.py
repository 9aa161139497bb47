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

from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from odradek.coordinator.records.record import RecordError
from odradek.protocol.primitives import ProtocolError, Reader, Writer

_VERSION: Final = 0
_FLEXIBLE: Final = True
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


ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

KEY_TYPES: Final[dict[int, type[ConsumerGroupKey]]] = {
    3: ConsumerGroupMetadataKey,
    4: ConsumerGroupPartitionMetadataKey,
    5: ConsumerGroupMemberMetadataKey,
    6: ConsumerGroupTargetAssignmentMetadataKey,
    7: ConsumerGroupTargetAssignmentMemberKey,
    8: ConsumerGroupCurrentMemberAssignmentKey,
    16: ConsumerGroupRegularExpressionKey,
}
_KEY_NUMBERS: Final[dict[type, int]] = {kind: number for number, kind in KEY_TYPES.items()}


def encode_key(key: ConsumerGroupKey) -> bytes:
    """The key's bytes: its number, then its one or two names."""
    writer = Writer()
    writer.int16(_KEY_NUMBERS[type(key)])
    for name in key:
        writer.string(name, False)
    return writer.to_bytes()


def decode_key(number: int, data: bytes) -> ConsumerGroupKey:
    """Reads a key whose number is in `KEY_TYPES`.

    Raises:
        RecordError: it is malformed.
    """
    kind = KEY_TYPES[number]
    reader = Reader(memoryview(data), 2)
    try:
        return kind(*[reader.string(False) for _ in kind._fields])
    except ProtocolError as error:
        raise RecordError(f"a {kind.__name__} is malformed: {error}") from error


def encode_value(value: object) -> bytes:
    """The bytes of one of the values above."""
    writer = Writer()
    writer.int16(_VERSION)
    _WRITERS[type(value)](writer, value)
    return writer.to_bytes()


def decode_value(number: int, data: bytes) -> object:
    """Reads the value that belongs to the key of that number.

    Raises:
        RecordError: it is malformed.
    """
    reader = Reader(memoryview(data))
    try:
        version = reader.int16()
        if version != _VERSION:
            raise RecordError(f"a value for key {number} has the unknown version {version}")
        return _READERS[number](reader)
    except ProtocolError as error:
        raise RecordError(f"a value for key {number} is malformed: {error}") from error


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
    writer.array_length(len(value.topics), _FLEXIBLE)
    for topic in value.topics:
        writer.uuid(topic.topic_id)
        writer.string(topic.topic_name, _FLEXIBLE)
        writer.int32(topic.num_partitions)
        writer.array_length(len(topic.racks), _FLEXIBLE)
        for partition, racks in topic.racks:
            writer.int32(partition)
            _write_strings(writer, racks)
            writer.no_tags(_FLEXIBLE)
        writer.no_tags(_FLEXIBLE)
    writer.no_tags(_FLEXIBLE)


def _read_partition_metadata(reader: Reader) -> ConsumerGroupPartitionMetadataValue:
    topics = []
    for _ in range(reader.array_length(_FLEXIBLE, 23)):
        topic_id, name, count = reader.uuid(), reader.string(_FLEXIBLE), reader.int32()
        racks = []
        for _ in range(reader.array_length(_FLEXIBLE, 6)):
            racks.append((reader.int32(), _read_strings(reader)))
            reader.skip_tags()
        reader.skip_tags()
        topics.append(SubscribedTopic(topic_id, name, count, tuple(racks)))
    reader.skip_tags()
    return ConsumerGroupPartitionMetadataValue(tuple(topics))


def _write_member(writer: Writer, value: ConsumerGroupMemberMetadataValue) -> None:
    writer.nullable_string(value.instance_id, _FLEXIBLE)
    writer.nullable_string(value.rack_id, _FLEXIBLE)
    writer.string(value.client_id, _FLEXIBLE)
    writer.string(value.client_host, _FLEXIBLE)
    _write_strings(writer, value.subscribed_topic_names)
    writer.nullable_string(value.subscribed_topic_regex, _FLEXIBLE)
    writer.int32(value.rebalance_timeout_ms)
    writer.nullable_string(value.server_assignor, _FLEXIBLE)
    # Null is written too: Kafka reads an absent field as an empty one.
    writer.uvarint(1)
    classic = value.classic_member_metadata
    writer.tagged(0, _NULL if classic is None else _classic_member(classic))


def _classic_member(classic: ClassicMemberMetadata) -> bytes:
    writer = Writer()
    writer.uvarint(_NOT_NULL)
    writer.int32(classic.session_timeout_ms)
    writer.array_length(len(classic.supported_protocols), _FLEXIBLE)
    for name, metadata in classic.supported_protocols:
        writer.string(name, _FLEXIBLE)
        writer.buffers([metadata], _FLEXIBLE)
        writer.no_tags(_FLEXIBLE)
    writer.no_tags(_FLEXIBLE)
    return writer.to_bytes()


def _read_member(reader: Reader) -> ConsumerGroupMemberMetadataValue:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=reader.nullable_string(_FLEXIBLE),
        rack_id=reader.nullable_string(_FLEXIBLE),
        client_id=reader.string(_FLEXIBLE),
        client_host=reader.string(_FLEXIBLE),
        subscribed_topic_names=_read_strings(reader),
        subscribed_topic_regex=reader.nullable_string(_FLEXIBLE),
        rebalance_timeout_ms=reader.int32(),
        server_assignor=reader.nullable_string(_FLEXIBLE),
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
    for _ in range(reader.array_length(_FLEXIBLE, 3)):
        name = reader.string(_FLEXIBLE)
        protocols.append((name, bytes(reader.nullable_bytes(_FLEXIBLE) or b"")))
        reader.skip_tags()
    reader.skip_tags()
    return ClassicMemberMetadata(session_timeout_ms, tuple(protocols))


def _write_target_member(writer: Writer, value: ConsumerGroupTargetAssignmentMemberValue) -> None:
    writer.array_length(len(value.topic_partitions), _FLEXIBLE)
    for topic in value.topic_partitions:
        writer.uuid(topic.topic_id)
        _write_int32s(writer, topic.partitions)
        writer.no_tags(_FLEXIBLE)
    writer.no_tags(_FLEXIBLE)


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
    writer.no_tags(_FLEXIBLE)


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
    writer.array_length(len(topics), _FLEXIBLE)
    for topic in topics:
        writer.uuid(topic.topic_id)
        _write_int32s(writer, topic.partitions)
        writer.uvarint(0 if topic.assignment_epochs is None else 1)
        if topic.assignment_epochs is not None:
            epochs = Writer()
            _write_int32s(epochs, topic.assignment_epochs)
            writer.tagged(0, epochs.to_bytes())


def _read_topics(reader: Reader) -> tuple[TopicPartitions, ...]:
    topics = []
    for _ in range(reader.array_length(_FLEXIBLE, 18)):
        topic_id, partitions = reader.uuid(), _read_int32s(reader)
        epochs = None
        for _ in range(reader.tag_count()):
            if reader.uvarint() == 0:
                end = reader.tagged_end()
                epochs = _read_int32s(reader)
                reader.check_at(end)
            else:
                reader.skip_tagged_field()
        topics.append(TopicPartitions(topic_id, partitions, epochs))
    return tuple(topics)


def _write_expression(writer: Writer, value: ConsumerGroupRegularExpressionValue) -> None:
    _write_strings(writer, value.topics)
    writer.int64(value.version)
    writer.int64(value.timestamp_ms)
    writer.no_tags(_FLEXIBLE)


def _read_expression(reader: Reader) -> ConsumerGroupRegularExpressionValue:
    value = ConsumerGroupRegularExpressionValue(
        _read_strings(reader), reader.int64(), reader.int64()
    )
    reader.skip_tags()
    return value


def _write_strings(writer: Writer, texts: tuple[str, ...]) -> None:
    writer.array_length(len(texts), _FLEXIBLE)
    for text in texts:
        writer.string(text, _FLEXIBLE)


def _read_strings(reader: Reader) -> tuple[str, ...]:
    return tuple([reader.string(_FLEXIBLE) for _ in range(reader.array_length(_FLEXIBLE, 1))])


def _write_int32s(writer: Writer, numbers: tuple[int, ...]) -> None:
    writer.array_length(len(numbers), _FLEXIBLE)
    for number in numbers:
        writer.int32(number)


def _read_int32s(reader: Reader) -> tuple[int, ...]:
    return tuple([reader.int32() for _ in range(reader.array_length(_FLEXIBLE, 4))])


_WRITERS: Final[dict[type, Callable[..., None]]] = {
    ConsumerGroupMetadataValue: _write_group,
    ConsumerGroupPartitionMetadataValue: _write_partition_metadata,
    ConsumerGroupMemberMetadataValue: _write_member,
    ConsumerGroupTargetAssignmentMetadataValue: _write_target_metadata,
    ConsumerGroupTargetAssignmentMemberValue: _write_target_member,
    ConsumerGroupCurrentMemberAssignmentValue: _write_current,
    ConsumerGroupRegularExpressionValue: _write_expression,
}
_READERS: Final[dict[int, Callable[[Reader], object]]] = {
    3: _read_group,
    4: _read_partition_metadata,
    5: _read_member,
    6: _read_target_metadata,
    7: _read_target_member,
    8: _read_current,
    16: _read_expression,
}
