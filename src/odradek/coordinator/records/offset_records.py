"""A committed offset in `__consumer_offsets`: Kafka's formats, key versions 0-1, values 0-4.

    key    int16 version, group, topic: string, partition: int32
    v0 v2  int64 offset, metadata: string, int64 commit timestamp
    v1     as 0, then int64 expire timestamp (clients that sent a retention time)
    v3     int64 offset, int32 leader epoch, metadata, commit timestamp
    v4     as 3 with compact lengths, and the topic's id as tagged field 0

All are read; 4 is written, or 1 if an offset has its own expiry. This is the hot one of the
formats: a reload of a million offsets walks through here, so it is written out by hand over
`struct`.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Final, final
from uuid import UUID

from mypy_extensions import mypyc_attr

from odradek.coordinator.records.record import CoordinatorRecord, RecordError
from odradek.model import NO_LEADER_EPOCH
from odradek.protocol.primitives import ProtocolError, Reader, uuid_from_bytes, uvarint_bytes

OFFSET_COMMIT_KEY_VERSION: Final = 1
EXPIRE_TIMESTAMP_VERSION: Final = 1
CURRENT_VERSION: Final = 4
NO_EXPIRY: Final = -1
MAX_TIMESTAMP_MS: Final = (1 << 63) - 1

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_KEY_HEAD: Final = Struct(">hh")  # version, size of the group's name
_VALUE_HEAD: Final = Struct(">hqi")  # version, offset, leader epoch
_OLD_HEAD: Final = Struct(">hqh")  # version, offset, size of the metadata
_V3_HEAD: Final = Struct(">hqih")
_NO_TAGS: Final = b"\x00"
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"  # one tagged field, number 0, sixteen bytes
_HEAD_V4: Final = 14
_MAX_TEXT_BYTES: Final = 0x7FFF
_MAX_BYTES_PER_CHARACTER: Final = 4


@final
class OffsetCommitKey:
    """Whose offset of what."""

    def __init__(self, group_id: str, topic: str, partition: int) -> None:
        self.group_id = group_id
        self.topic = topic
        self.partition = partition

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, OffsetCommitKey)
            and self.group_id == other.group_id
            and self.topic == other.topic
            and self.partition == other.partition
        )

    def __repr__(self) -> str:
        return f"OffsetCommitKey({self.group_id!r}, {self.topic!r}, {self.partition})"


@final
@mypyc_attr(acyclic=True)
class OffsetAndMetadata:
    """A committed offset. `expire_timestamp_ms` is -1 unless the client set it.

    A broker keeps one for every partition of every group: compiled, the cyclic collector passes
    them over.
    """

    def __init__(
        self,
        offset: int,
        leader_epoch: int = NO_LEADER_EPOCH,
        metadata: str = "",
        commit_timestamp_ms: int = -1,
        expire_timestamp_ms: int = NO_EXPIRY,
        topic_id: UUID | None = None,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        self.topic_id = topic_id

    def _fields(self) -> tuple[int, int, str, int, int, UUID | None]:
        return (
            self.offset,
            self.leader_epoch,
            self.metadata,
            self.commit_timestamp_ms,
            self.expire_timestamp_ms,
            self.topic_id,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetAndMetadata) and self._fields() == other._fields()

    def __repr__(self) -> str:
        return f"OffsetAndMetadata{self._fields()}"


def tombstone(key: OffsetCommitKey) -> CoordinatorRecord:
    """The record that removes an offset."""
    return CoordinatorRecord(key, None)


def is_storable(metadata: str) -> bool:
    """Whether a record has room for that much metadata, whatever a broker's setting allows."""
    return (
        _MAX_BYTES_PER_CHARACTER * len(metadata) <= _MAX_TEXT_BYTES
        or len(metadata.encode()) <= _MAX_TEXT_BYTES
    )


def encode_offset_key(key: OffsetCommitKey) -> bytes:
    """The key's bytes.

    Raises:
        ValueError: a name does not fit.
    """
    group, topic = _text(key.group_id), _text(key.topic)
    return b"".join(
        (
            _KEY_HEAD.pack(OFFSET_COMMIT_KEY_VERSION, len(group)),
            group,
            _INT16.pack(len(topic)),
            topic,
            _INT32.pack(key.partition),
        )
    )


def encode_offset_value(value: OffsetAndMetadata) -> bytes:
    """The value's bytes.

    Raises:
        ValueError: the metadata does not fit.
    """
    metadata = _text(value.metadata)
    commit_timestamp = _INT64.pack(value.commit_timestamp_ms)
    if value.expire_timestamp_ms != NO_EXPIRY:
        head = _OLD_HEAD.pack(EXPIRE_TIMESTAMP_VERSION, value.offset, len(metadata))
        return head + metadata + commit_timestamp + _INT64.pack(value.expire_timestamp_ms)
    tags = _NO_TAGS if value.topic_id is None else _TOPIC_ID_TAG + value.topic_id.bytes
    return b"".join(
        (
            _VALUE_HEAD.pack(CURRENT_VERSION, value.offset, value.leader_epoch),
            uvarint_bytes(len(metadata) + 1),
            metadata,
            commit_timestamp,
            tags,
        )
    )


def decode_offset_key(data: bytes) -> OffsetCommitKey:
    """Reads a key of version 0 or 1.

    Raises:
        RecordError: it is malformed.
    """
    try:
        _, size = _KEY_HEAD.unpack_from(data)
        topic_at = 4 + size
        topic_size = _INT16.unpack_from(data, topic_at)[0]
        end = topic_at + 2 + topic_size
        partition = _INT32.unpack_from(data, end)[0]
        if size < 0 or topic_size < 0:
            raise RecordError("a name in an offset's key is null")
        return OffsetCommitKey(
            data[4:topic_at].decode(), data[topic_at + 2 : end].decode(), partition
        )
    except (StructError, UnicodeDecodeError) as error:
        raise RecordError(f"an offset's key is malformed: {error}") from error


def decode_offset_value(data: bytes) -> OffsetAndMetadata:
    """Reads a value of version 0 to 4.

    Raises:
        RecordError: it is malformed.
    """
    try:
        version = _INT16.unpack_from(data)[0]
        if version == CURRENT_VERSION:
            return _decode_v4(data)
        if 0 <= version < CURRENT_VERSION:
            return _decode_old(data, version)
    except (StructError, UnicodeDecodeError, IndexError, ProtocolError) as error:
        raise RecordError(f"a committed offset is malformed: {error}") from error
    raise RecordError(f"a committed offset has the unknown version {version}")


def _decode_v4(data: bytes) -> OffsetAndMetadata:
    _, offset, leader_epoch = _VALUE_HEAD.unpack_from(data)
    start = _HEAD_V4 + 1
    size = data[_HEAD_V4] - 1
    if size >= 0x7F:
        reader = Reader(memoryview(data), _HEAD_V4)
        size = reader.uvarint() - 1
        start = reader.position
    end = start + size
    commit_timestamp_ms = _INT64.unpack_from(data, end)[0]
    tags_at = end + 8
    topic_id = None if data[tags_at] == 0 else _topic_id(data, tags_at)
    metadata = data[start:end].decode() if size > 0 else ""
    return OffsetAndMetadata(
        offset, leader_epoch, metadata, commit_timestamp_ms, NO_EXPIRY, topic_id
    )


def _topic_id(data: bytes, tags_at: int) -> UUID | None:
    if data.startswith(_TOPIC_ID_TAG, tags_at) and len(data) >= tags_at + 19:
        return uuid_from_bytes(data[tags_at + 3 : tags_at + 19])
    reader = Reader(memoryview(data), tags_at)
    topic_id = None
    for _ in range(reader.tag_count()):
        if reader.uvarint() == 0:
            end = reader.tagged_end()
            topic_id = reader.uuid()
            reader.check_at(end)
        else:
            reader.skip_tagged_field()
    return topic_id


def _decode_old(data: bytes, version: int) -> OffsetAndMetadata:
    leader_epoch = NO_LEADER_EPOCH
    if version == 3:
        _, offset, leader_epoch, size = _V3_HEAD.unpack_from(data)
        start = _V3_HEAD.size
    else:
        _, offset, size = _OLD_HEAD.unpack_from(data)
        start = _OLD_HEAD.size
    end = start + max(size, 0)
    commit_timestamp_ms = _INT64.unpack_from(data, end)[0]
    expire_timestamp_ms = NO_EXPIRY
    if version == EXPIRE_TIMESTAMP_VERSION:
        expire_timestamp_ms = _INT64.unpack_from(data, end + 8)[0]
    return OffsetAndMetadata(
        offset, leader_epoch, data[start:end].decode(), commit_timestamp_ms, expire_timestamp_ms
    )


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > _MAX_TEXT_BYTES:
        raise ValueError(f"text of {len(data)} bytes does not fit a string field")
    return data
