"""A transactional id in `__transaction_state`: Kafka's formats, key version 0, values 0 and 1.

    key  int16 0, transactional id: string
    v0   int64 producer id, int16 epoch, int32 time-out, int8 state, nullable partitions by
         topic, int64 last update, int64 start of the transaction
    v1   the same with compact lengths; tagged: 0 previous producer id, 1 next producer id,
         2 the client's transaction version, 3 next producer epoch

Both are read. 1 is written where a tagged field has something to say, else 0, which every
Kafka reads. A tombstone forgets the id.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from odradek.coordinator.records.record import RecordError
from odradek.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from odradek.protocol.primitives import ProtocolError, Reader, Writer

TRANSACTION_KEY_VERSION: Final = 0
_FLEXIBLE_VERSION: Final = 1
_TOPIC_BYTES: Final = 2
_PARTITION_BYTES: Final = 4


class TransactionState(IntEnum):
    """The states that a log may name, by Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


class TransactionKey(NamedTuple):
    """A transactional id."""

    transactional_id: str


class TransactionValue(NamedTuple):
    """The state of a transactional id. `partitions` is None where no transaction is open.

    `last_producer_epoch` is not stored: the epoch that a producer had which may ask again.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...] | None
    last_update_timestamp_ms: int
    start_timestamp_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH


def encode_transaction_key(key: TransactionKey) -> bytes:
    """The key's bytes."""
    writer = Writer()
    writer.int16(TRANSACTION_KEY_VERSION)
    writer.string(key.transactional_id, False)
    return writer.to_bytes()


def decode_transaction_key(data: bytes) -> TransactionKey:
    """Reads a key.

    Raises:
        RecordError: it is malformed, or of another version.
    """
    try:
        reader = Reader(memoryview(data))
        version = reader.int16()
        if version != TRANSACTION_KEY_VERSION:
            raise RecordError(f"a transaction's key has the unknown version {version}")
        return TransactionKey(reader.string(False))
    except ProtocolError as error:
        raise RecordError(f"a transaction's key is malformed: {error}") from error


def encode_transaction_value(value: TransactionValue) -> bytes:
    """The value's bytes, in the oldest version that says everything."""
    tags = _tags(value)
    flexible = bool(tags)
    writer = Writer()
    writer.int16(_FLEXIBLE_VERSION if flexible else 0)
    writer.int64(value.producer_id)
    writer.int16(value.producer_epoch)
    writer.int32(value.timeout_ms)
    writer.int8(value.state)
    _encode_partitions(writer, value.partitions, flexible)
    writer.int64(value.last_update_timestamp_ms)
    writer.int64(value.start_timestamp_ms)
    if flexible:
        writer.uvarint(len(tags))
        for tag, data in tags:
            writer.tagged(tag, data)
    return writer.to_bytes()


def decode_transaction_value(data: bytes) -> TransactionValue:
    """Reads a value of any version.

    Raises:
        RecordError: it is malformed, or of a version or state that is not known.
    """
    try:
        reader = Reader(memoryview(data))
        version = reader.int16()
        if not 0 <= version <= _FLEXIBLE_VERSION:
            raise RecordError(f"a transaction has the unknown version {version}")
        return _decode_value(reader, version >= _FLEXIBLE_VERSION)
    except (ProtocolError, ValueError) as error:
        raise RecordError(f"a transaction is malformed: {error}") from error


def _tags(value: TransactionValue) -> list[tuple[int, bytes]]:
    """The tagged fields that differ from their defaults."""
    fields = (
        (0, value.previous_producer_id, NO_PRODUCER_ID, 8),
        (1, value.next_producer_id, NO_PRODUCER_ID, 8),
        (2, value.client_transaction_version, 0, 2),
        (3, value.next_producer_epoch, NO_PRODUCER_EPOCH, 2),
    )
    return [
        (tag, number.to_bytes(size, "big", signed=True))
        for tag, number, absent, size in fields
        if number != absent
    ]


def _encode_partitions(
    writer: Writer, partitions: tuple[TopicPartition, ...] | None, flexible: bool
) -> None:
    if partitions is None:
        writer.array_length(-1, flexible)
        return
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    writer.array_length(len(topics), flexible)
    for topic, indexes in topics.items():
        writer.string(topic, flexible)
        writer.array_length(len(indexes), flexible)
        for index in indexes:
            writer.int32(index)
        writer.no_tags(flexible)


def _decode_value(reader: Reader, flexible: bool) -> TransactionValue:
    value = TransactionValue(
        producer_id=reader.int64(),
        producer_epoch=reader.int16(),
        timeout_ms=reader.int32(),
        state=TransactionState(reader.int8()),
        partitions=_decode_partitions(reader, flexible),
        last_update_timestamp_ms=reader.int64(),
        start_timestamp_ms=reader.int64(),
    )
    return _with_tags(reader, value) if flexible else value


def _decode_partitions(reader: Reader, flexible: bool) -> tuple[TopicPartition, ...] | None:
    count = reader.nullable_array_length(flexible, _TOPIC_BYTES)
    if count < 0:
        return None
    partitions: list[TopicPartition] = []
    for _ in range(count):
        topic = reader.string(flexible)
        indexes = range(reader.array_length(flexible, _PARTITION_BYTES))
        partitions += [TopicPartition(topic, reader.int32()) for _ in indexes]
        if flexible:
            reader.skip_tags()
    return tuple(partitions)


def _with_tags(reader: Reader, value: TransactionValue) -> TransactionValue:
    for _ in range(reader.tag_count()):
        tag = reader.uvarint()
        if tag > 3:
            reader.skip_tagged_field()
            continue
        end = reader.tagged_end()
        if tag == 0:
            value = value._replace(previous_producer_id=reader.int64())
        elif tag == 1:
            value = value._replace(next_producer_id=reader.int64())
        elif tag == 2:
            value = value._replace(client_transaction_version=reader.int16())
        else:
            value = value._replace(next_producer_epoch=reader.int16())
        reader.check_at(end)
    return value
