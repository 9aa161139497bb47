"""A share partition in `__share_group_state`: Kafka's formats, keys 0 and 1, values version 0.

    key    int16 0 snapshot or 1 update, group: string, topic id: uuid, int32 partition
    0      int32 snapshot epoch, state epoch, leader epoch, int64 start, created, written, batches
    1      int32 snapshot epoch, leader epoch, int64 start, batches
    batch  int64 first and last offset, int8 state, int16 delivery count

Values have compact lengths; tag 0 is how many records have come to their end, -1 where it is not
known. In a batch our own tag, which Kafka ignores, says when delayed records are due. An update
says what has changed since the snapshot before; a start of -1 has not. The tombstone of a snapshot
forgets the partition.
"""

from typing import Final, NamedTuple, cast
from uuid import UUID

from odradek.coordinator.records.record import CoordinatorRecord, RecordCodec, RecordError
from odradek.protocol.primitives import ProtocolError, Reader, Writer
from odradek.protocol.share_messages import DUE_TAG
from odradek.replication.share.persister import (
    NO_DELIVERY_COMPLETE_COUNT,
    SharePartitionKey,
    StateBatch,
)
from odradek.replication.share.states import RecordState

_FLEXIBLE: Final = True
_VERSION: Final = 0
_BATCH_BYTES: Final = 20


class ShareSnapshotKey(NamedTuple):
    """The whole state of a share partition."""

    partition: SharePartitionKey


class ShareUpdateKey(NamedTuple):
    """The key of an update."""

    partition: SharePartitionKey


class ShareSnapshotValue(NamedTuple):
    """The whole state; the timestamps are those of the snapshot and of the last write."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    batches: tuple[StateBatch, ...]


class ShareUpdateValue(NamedTuple):
    """The changed part of a state; -1 is a start that has not changed."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


ShareStateKey = ShareSnapshotKey | ShareUpdateKey
ShareStateValue = ShareSnapshotValue | ShareUpdateValue

_KEY_TYPES: Final[dict[int, type[ShareStateKey]]] = {0: ShareSnapshotKey, 1: ShareUpdateKey}


class ShareStateRecordCodec(RecordCodec):
    """The formats of `__share_group_state`; unknown kinds are skipped."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """See `RecordCodec`."""
        value = None if record.value is None else encode_value(cast(ShareStateValue, record.value))
        return encode_key(cast(ShareStateKey, record.key)), value

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """See `RecordCodec`."""
        try:
            reader = Reader(memoryview(key))
            number = reader.int16()
            kind = _KEY_TYPES.get(number)
            if kind is None:
                return None
            partition = _read_partition(reader)
            decoded = None if value is None else _decode_value(number, value)
            return CoordinatorRecord(kind(partition), decoded)
        except (ProtocolError, ValueError) as error:
            raise RecordError(f"a share state is malformed: {error}") from error


def encode_key(key: ShareStateKey) -> bytes:
    """The key's bytes."""
    writer = Writer()
    writer.int16(0 if isinstance(key, ShareSnapshotKey) else 1)
    partition = key.partition
    writer.string(partition.group_id, False)
    writer.uuid(partition.topic_id)
    writer.int32(partition.partition)
    return writer.to_bytes()


def encode_value(value: ShareStateValue) -> bytes:
    """The value's bytes."""
    writer = Writer()
    writer.int16(_VERSION)
    writer.int32(value.snapshot_epoch)
    if isinstance(value, ShareSnapshotValue):
        writer.int32(value.state_epoch)
    writer.int32(value.leader_epoch)
    writer.int64(value.start_offset)
    if isinstance(value, ShareSnapshotValue):
        writer.int64(value.create_timestamp_ms)
        writer.int64(value.write_timestamp_ms)
    _write_batches(writer, value.batches)
    if value.delivery_complete_count == NO_DELIVERY_COMPLETE_COUNT:
        writer.uvarint(0)
    else:
        writer.uvarint(1)
        writer.tagged(0, value.delivery_complete_count.to_bytes(4, "big", signed=True))
    return writer.to_bytes()


def _read_partition(reader: Reader) -> SharePartitionKey:
    group_id, topic_id, partition = reader.string(False), reader.uuid(), reader.int32()
    return SharePartitionKey(group_id, UUID(int=0) if topic_id is None else topic_id, partition)


def _decode_value(number: int, data: bytes) -> ShareStateValue:
    reader = Reader(memoryview(data))
    version = reader.int16()
    if version != _VERSION:
        raise RecordError(f"a value for key {number} has the unknown version {version}")
    return _read_snapshot(reader) if number == 0 else _read_update(reader)


def _read_snapshot(reader: Reader) -> ShareSnapshotValue:
    snapshot_epoch, state_epoch, leader_epoch = reader.int32(), reader.int32(), reader.int32()
    start_offset, created_ms, written_ms = reader.int64(), reader.int64(), reader.int64()
    batches = _read_batches(reader)
    return ShareSnapshotValue(
        snapshot_epoch,
        state_epoch,
        leader_epoch,
        start_offset,
        _read_count(reader),
        created_ms,
        written_ms,
        batches,
    )


def _read_update(reader: Reader) -> ShareUpdateValue:
    snapshot_epoch, leader_epoch, start_offset = reader.int32(), reader.int32(), reader.int64()
    batches = _read_batches(reader)
    return ShareUpdateValue(
        snapshot_epoch, leader_epoch, start_offset, _read_count(reader), batches
    )


def _write_batches(writer: Writer, batches: tuple[StateBatch, ...]) -> None:
    writer.array_length(len(batches), _FLEXIBLE)
    for batch in batches:
        writer.int64(batch.first_offset)
        writer.int64(batch.last_offset)
        writer.int8(batch.state)
        writer.int16(batch.delivery_count)
        if batch.due_ms:
            writer.uvarint(1)
            writer.tagged(DUE_TAG, batch.due_ms.to_bytes(8, "big", signed=True))
        else:
            writer.no_tags(_FLEXIBLE)


def _read_batches(reader: Reader) -> tuple[StateBatch, ...]:
    batches = []
    for _ in range(reader.array_length(_FLEXIBLE, _BATCH_BYTES)):
        first, last = reader.int64(), reader.int64()
        state, count = RecordState(reader.int8()), reader.int16()
        batches.append(StateBatch(first, last, state, count, _read_due(reader)))
    return tuple(batches)


def _read_due(reader: Reader) -> int:
    """When the records of a batch are due: the only tagged field that is known there."""
    due_ms = 0
    for _ in range(reader.tag_count()):
        if reader.uvarint() == DUE_TAG:
            end = reader.tagged_end()
            due_ms = reader.int64()
            reader.check_at(end)
        else:
            reader.skip_tagged_field()
    return due_ms


def _read_count(reader: Reader) -> int:
    """The structure's only tagged field."""
    count = NO_DELIVERY_COMPLETE_COUNT
    for _ in range(reader.tag_count()):
        if reader.uvarint() == 0:
            end = reader.tagged_end()
            count = reader.int32()
            reader.check_at(end)
        else:
            reader.skip_tagged_field()
    return count
