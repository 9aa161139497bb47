"""A share group in `__consumer_offsets`: Kafka's formats, keys 10 to 15, values version 0.

    10  a member: its rack, client and topics          11  the group: epoch, hash of its topics
    12  the epoch of the target assignment             13  the target of a member
    14  what a member has                              15  which partitions have a state

All values have compact lengths. A tombstone removes the object of its key.
"""

from typing import Final, NamedTuple
from uuid import UUID

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.records.record_formats import (
    FLEXIBLE,
    RecordFormat,
    read_int32s,
    write_int32s,
)
from odradek.protocol.primitives import Reader, Writer


class ShareGroupMemberMetadataKey(NamedTuple):
    """A member and what it reads."""

    group_id: str
    member_id: str


class ShareGroupMemberMetadataValue(NamedTuple):
    """The subscription of a member."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


class ShareGroupMetadataKey(NamedTuple):
    """A group."""

    group_id: str


class ShareGroupMetadataValue(NamedTuple):
    """Its epoch, and a hash of the topics that it reads."""

    epoch: int
    metadata_hash: int


class ShareGroupTargetAssignmentMetadataKey(NamedTuple):
    """The target assignment as a whole."""

    group_id: str


class ShareGroupTargetAssignmentMetadataValue(NamedTuple):
    """For which epoch it was computed, and when."""

    assignment_epoch: int
    assignment_timestamp_ms: int = 0


class ShareGroupTargetAssignmentMemberKey(NamedTuple):
    """The target of a member."""

    group_id: str
    member_id: str


class ShareGroupTargetAssignmentMemberValue(NamedTuple):
    """The target assignment of a member."""

    partitions: Partitions


class ShareGroupCurrentMemberAssignmentKey(NamedTuple):
    """The key of a member's assignment."""

    group_id: str
    member_id: str


class ShareGroupCurrentMemberAssignmentValue(NamedTuple):
    """Its epochs and partitions. There is one state only: members get their target at once."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    partitions: Partitions


class ShareGroupStatePartitionMetadataKey(NamedTuple):
    """Which partitions of a group have a state."""

    group_id: str


class ShareGroupStatePartitionMetadataValue(NamedTuple):
    """Partitions whose states are being made, are there, and topics whose states are being
    deleted; each topic with its name."""

    initializing: tuple[tuple[UUID, str, tuple[int, ...]], ...]
    initialized: tuple[tuple[UUID, str, tuple[int, ...]], ...]
    deleting: tuple[tuple[UUID, str], ...]


def _write_member(writer: Writer, value: ShareGroupMemberMetadataValue) -> None:
    writer.nullable_string(value.rack_id, FLEXIBLE)
    writer.string(value.client_id, FLEXIBLE)
    writer.string(value.client_host, FLEXIBLE)
    writer.array_length(len(value.subscribed_topic_names), FLEXIBLE)
    for name in value.subscribed_topic_names:
        writer.string(name, FLEXIBLE)
    writer.no_tags(FLEXIBLE)


def _read_member(reader: Reader) -> ShareGroupMemberMetadataValue:
    rack_id = reader.nullable_string(FLEXIBLE)
    client_id, client_host = reader.string(FLEXIBLE), reader.string(FLEXIBLE)
    names = [reader.string(FLEXIBLE) for _ in range(reader.array_length(FLEXIBLE, 1))]
    reader.skip_tags()
    return ShareGroupMemberMetadataValue(rack_id, client_id, client_host, tuple(names))


def _write_group(writer: Writer, value: ShareGroupMetadataValue) -> None:
    writer.int32(value.epoch)
    writer.int64(value.metadata_hash)
    writer.no_tags(FLEXIBLE)


def _read_group(reader: Reader) -> ShareGroupMetadataValue:
    value = ShareGroupMetadataValue(reader.int32(), reader.int64())
    reader.skip_tags()
    return value


def _write_target_metadata(writer: Writer, value: ShareGroupTargetAssignmentMetadataValue) -> None:
    writer.int32(value.assignment_epoch)
    writer.uvarint(1 if value.assignment_timestamp_ms else 0)
    if value.assignment_timestamp_ms:
        writer.tagged(0, value.assignment_timestamp_ms.to_bytes(8, "big", signed=True))


def _read_target_metadata(reader: Reader) -> ShareGroupTargetAssignmentMetadataValue:
    epoch, timestamp_ms = reader.int32(), 0
    for _ in range(reader.tag_count()):
        if reader.uvarint() == 0:
            end = reader.tagged_end()
            timestamp_ms = reader.int64()
            reader.check_at(end)
        else:
            reader.skip_tagged_field()
    return ShareGroupTargetAssignmentMetadataValue(epoch, timestamp_ms)


def _write_target(writer: Writer, value: ShareGroupTargetAssignmentMemberValue) -> None:
    _write_partitions(writer, value.partitions)
    writer.no_tags(FLEXIBLE)


def _read_target(reader: Reader) -> ShareGroupTargetAssignmentMemberValue:
    partitions = _read_partitions(reader)
    reader.skip_tags()
    return ShareGroupTargetAssignmentMemberValue(partitions)


def _write_current(writer: Writer, value: ShareGroupCurrentMemberAssignmentValue) -> None:
    writer.int32(value.member_epoch)
    writer.int32(value.previous_member_epoch)
    writer.int8(value.state)
    _write_partitions(writer, value.partitions)
    writer.no_tags(FLEXIBLE)


def _read_current(reader: Reader) -> ShareGroupCurrentMemberAssignmentValue:
    epoch, previous, state = reader.int32(), reader.int32(), reader.int8()
    partitions = _read_partitions(reader)
    reader.skip_tags()
    return ShareGroupCurrentMemberAssignmentValue(epoch, previous, state, partitions)


def _write_partitions(writer: Writer, partitions: Partitions) -> None:
    writer.array_length(len(partitions), FLEXIBLE)
    for topic_id in sorted(partitions):
        writer.uuid(topic_id)
        write_int32s(writer, tuple(sorted(partitions[topic_id])))
        writer.no_tags(FLEXIBLE)


def _read_partitions(reader: Reader) -> Partitions:
    found: dict[UUID, frozenset[int]] = {}
    for _ in range(reader.array_length(FLEXIBLE, 18)):
        topic_id, indexes = reader.uuid(), read_int32s(reader)
        reader.skip_tags()
        if topic_id is not None and indexes:
            found[topic_id] = frozenset(indexes)
    return found


def _write_states(writer: Writer, value: ShareGroupStatePartitionMetadataValue) -> None:
    for topics in (value.initializing, value.initialized):
        writer.array_length(len(topics), FLEXIBLE)
        for topic_id, name, indexes in topics:
            writer.uuid(topic_id)
            writer.string(name, FLEXIBLE)
            write_int32s(writer, indexes)
            writer.no_tags(FLEXIBLE)
    writer.array_length(len(value.deleting), FLEXIBLE)
    for topic_id, name in value.deleting:
        writer.uuid(topic_id)
        writer.string(name, FLEXIBLE)
        writer.no_tags(FLEXIBLE)
    writer.no_tags(FLEXIBLE)


def _read_states(reader: Reader) -> ShareGroupStatePartitionMetadataValue:
    both = []
    for _ in range(2):
        topics = []
        for _ in range(reader.array_length(FLEXIBLE, 19)):
            topic_id, name = reader.uuid() or UUID(int=0), reader.string(FLEXIBLE)
            topics.append((topic_id, name, read_int32s(reader)))
            reader.skip_tags()
        both.append(tuple(topics))
    deleting = []
    for _ in range(reader.array_length(FLEXIBLE, 18)):
        deleting.append((reader.uuid() or UUID(int=0), reader.string(FLEXIBLE)))
        reader.skip_tags()
    reader.skip_tags()
    return ShareGroupStatePartitionMetadataValue(both[0], both[1], tuple(deleting))


FORMATS: Final[tuple[RecordFormat, ...]] = (
    RecordFormat(10, ShareGroupMemberMetadataKey, _write_member, _read_member),
    RecordFormat(11, ShareGroupMetadataKey, _write_group, _read_group),
    RecordFormat(
        12, ShareGroupTargetAssignmentMetadataKey, _write_target_metadata, _read_target_metadata
    ),
    RecordFormat(13, ShareGroupTargetAssignmentMemberKey, _write_target, _read_target),
    RecordFormat(14, ShareGroupCurrentMemberAssignmentKey, _write_current, _read_current),
    RecordFormat(15, ShareGroupStatePartitionMetadataKey, _write_states, _read_states),
)
