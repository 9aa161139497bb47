"""A classic group in `__consumer_offsets`: Kafka's formats, key version 2, values 0-4.

    key  int16 2, group: string
    v0   protocol type, int32 generation, nullable protocol and leader, members
    v1   members have a rebalance time-out, v2 adds the time of the current state,
    v3   members have a group instance id, v4 has compact lengths

All are read; 3 is written, as Kafka does. A tombstone removes the group.
"""

from typing import Final, NamedTuple

from odradek.coordinator.records.record import RecordError
from odradek.protocol.primitives import ProtocolError, Reader, Writer

GROUP_METADATA_KEY_VERSION: Final = 2
CURRENT_VERSION: Final = 3
_REBALANCE_TIMEOUT_VERSION: Final = 1
_STATE_TIMESTAMP_VERSION: Final = 2
_INSTANCE_ID_VERSION: Final = 3
_FLEXIBLE_VERSION: Final = 4
_MEMBER_BYTES: Final = 4
NO_TIMESTAMP: Final = -1


class GroupMetadataKey(NamedTuple):
    """A classic group."""

    group_id: str


class MemberMetadataValue(NamedTuple):
    """A member as the log keeps it; `rebalance_timeout_ms` was the session's in version 0."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(NamedTuple):
    """A generation of a classic group."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    current_state_timestamp_ms: int
    members: tuple[MemberMetadataValue, ...]


def encode_group_key(key: GroupMetadataKey) -> bytes:
    """The key's bytes."""
    writer = Writer()
    writer.int16(GROUP_METADATA_KEY_VERSION)
    writer.string(key.group_id, False)
    return writer.to_bytes()


def decode_group_key(data: bytes) -> GroupMetadataKey:
    """Reads a key."""
    try:
        return GroupMetadataKey(Reader(memoryview(data), 2).string(False))
    except ProtocolError as error:
        raise RecordError(f"a group's key is malformed: {error}") from error


def encode_group_value(value: GroupMetadataValue, version: int = CURRENT_VERSION) -> bytes:
    """The value's bytes, in the current version unless another is asked for."""
    flexible = version >= _FLEXIBLE_VERSION
    writer = Writer()
    writer.int16(version)
    writer.string(value.protocol_type, flexible)
    writer.int32(value.generation_id)
    writer.nullable_string(value.protocol_name, flexible)
    writer.nullable_string(value.leader_id, flexible)
    if version >= _STATE_TIMESTAMP_VERSION:
        writer.int64(value.current_state_timestamp_ms)
    writer.array_length(len(value.members), flexible)
    for member in value.members:
        _encode_member(writer, member, version, flexible)
    writer.no_tags(flexible)
    return writer.to_bytes()


def _encode_member(
    writer: Writer, member: MemberMetadataValue, version: int, flexible: bool
) -> None:
    writer.string(member.member_id, flexible)
    if version >= _INSTANCE_ID_VERSION:
        writer.nullable_string(member.group_instance_id, flexible)
    writer.string(member.client_id, flexible)
    writer.string(member.client_host, flexible)
    if version >= _REBALANCE_TIMEOUT_VERSION:
        writer.int32(member.rebalance_timeout_ms)
    writer.int32(member.session_timeout_ms)
    writer.buffers([member.subscription], flexible)
    writer.buffers([member.assignment], flexible)
    writer.no_tags(flexible)


def decode_group_value(data: bytes) -> GroupMetadataValue:
    """Reads a value of any version.

    Raises:
        RecordError: it is malformed.
    """
    reader = Reader(memoryview(data))
    try:
        version = reader.int16()
        if not 0 <= version <= _FLEXIBLE_VERSION:
            raise RecordError(f"a group has the unknown version {version}")
        return _decode_group(reader, version)
    except ProtocolError as error:
        raise RecordError(f"a group is malformed: {error}") from error


def _decode_group(reader: Reader, version: int) -> GroupMetadataValue:
    flexible = version >= _FLEXIBLE_VERSION
    protocol_type = reader.string(flexible)
    generation_id = reader.int32()
    protocol_name = reader.nullable_string(flexible)
    leader_id = reader.nullable_string(flexible)
    timestamp_ms = reader.int64() if version >= _STATE_TIMESTAMP_VERSION else NO_TIMESTAMP
    count = reader.array_length(flexible, _MEMBER_BYTES)
    members = tuple([_decode_member(reader, version, flexible) for _ in range(count)])
    return GroupMetadataValue(
        protocol_type, generation_id, protocol_name, leader_id, timestamp_ms, members
    )


def _decode_member(reader: Reader, version: int, flexible: bool) -> MemberMetadataValue:
    member_id = reader.string(flexible)
    group_instance_id = (
        reader.nullable_string(flexible) if version >= _INSTANCE_ID_VERSION else None
    )
    client_id = reader.string(flexible)
    client_host = reader.string(flexible)
    rebalance_timeout_ms = reader.int32() if version >= _REBALANCE_TIMEOUT_VERSION else -1
    session_timeout_ms = reader.int32()
    if version < _REBALANCE_TIMEOUT_VERSION:
        rebalance_timeout_ms = session_timeout_ms
    subscription = bytes(reader.nullable_bytes(flexible) or b"")
    assignment = bytes(reader.nullable_bytes(flexible) or b"")
    if flexible:
        reader.skip_tags()
    return MemberMetadataValue(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
