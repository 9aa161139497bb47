"""Gathers rows in batches, by partition. Compiled, since this is the work done for each row.

Keys and values come as Arrow lays them out, and go from there into a batch without an object
that outlives the row. The writer decides where and when a batch is sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from zlib import crc32

from librt.strings import read_i32_le
from mypy_extensions import i64

from odradek.client.core.metadata import TopicMetadata
from odradek.client.core.producing.partitioner import (
    PartitionRng,
    StickyPartitioner,
    partition_for_key,
)
from odradek.model import TopicPartition
from odradek.records.builder import Headers, RecordBatchBuilder

_OFFSET_BYTES: Final = 4
# Behind it sequences begin at 0 again.
LAST_SEQUENCE: Final = 0x7FFFFFFF
# Any number that no checksum of a short key is.
_BETWEEN: Final = 0x5BD1E995


class BinaryColumn:
    """Values of bytes, one behind the other.

    `offsets` are 32-bit numbers, little-endian: where each value begins in `data`, and where the
    last one ends. `is_null` has a byte other than 0 for every value that is none.
    """

    def __init__(self, data: bytes, offsets: bytes, is_null: bytes | None = None) -> None:
        self._data: Final = data
        self._offsets: Final = offsets
        self._is_null: Final = is_null

    def value(self, row: i64) -> bytes | None:
        """The value of a row.

        Raises:
            IndexError: there are not that many.
        """
        is_null = self._is_null
        if is_null is not None and is_null[row] != 0:
            return None
        begin = i64(read_i32_le(self._offsets, row * _OFFSET_BYTES))
        end = i64(read_i32_le(self._offsets, (row + 1) * _OFFSET_BYTES))
        return self._data[begin:end]


@dataclass
class Rows:
    """Records in columns, so many of each; a column that is not there is null in every row.

    `topics` is one name for all rows, or one for each.
    """

    count: int
    topics: str | Sequence[str]
    values: BinaryColumn
    keys: BinaryColumn | None = None
    partitions: Sequence[int | None] | None = None
    headers: Sequence[Headers] | None = None
    timestamps_ms: Sequence[int | None] | None = None


def checksum_of(rows: Rows) -> int:
    """A sum over keys and values, the same in whatever order the rows come."""
    keys, values = rows.keys, rows.values
    count: i64 = rows.count
    total: i64 = 0
    row: i64 = 0
    while row < count:
        key = None if keys is None else keys.value(row)
        value = values.value(row)
        # None is not what is empty, nor is a byte of the key one of the value.
        checksum = 1 if key is None else crc32(key) ^ _BETWEEN
        total += checksum + 1 if value is None else crc32(value, checksum)
        row += 1
    return total


class OpenBatch:
    """A partition's unfinished batch, and the sequence that its next one begins with."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition: Final = partition
        self.sequence = 0
        self.builder: RecordBatchBuilder | None = None
        # Of the builder, as it was when this was last looked at.
        self.size_bytes: i64 = 0


class BatchSender(Protocol):
    """The sender of accumulated batches."""

    def topic(self, name: str) -> TopicMetadata:
        """The topic as it is now.

        Raises:
            KafkaError: it is not there, or nobody answers.
        """
        ...

    def new_builder(self, sequence: int) -> RecordBatchBuilder:
        """For the next batch of a partition."""
        ...

    def send(self, batches: Sequence[OpenBatch]) -> None:
        """Sends batches; when it returns they are acknowledged, and `take`n.

        Raises:
            KafkaError: one was refused, or is not acknowledged in time.
        """
        ...


class _Topic:
    """The destination of a topic's rows. Its metadata is read after every send."""

    def __init__(self, name: str, sticky: StickyPartitioner) -> None:
        self.name: Final = name
        self.sticky: Final = sticky
        self.partition_count: i64 = 0
        self.led: Sequence[int] = ()
        self.open: Final[dict[int, OpenBatch]] = {}


class RecordAccumulator:
    """The unfinished batches; full ones are handed to the sender.

    Sizes in bytes: `batch_bytes` of one batch, `buffer_bytes` of all together.
    """

    def __init__(
        self, sender: BatchSender, rng: PartitionRng, *, batch_bytes: int, buffer_bytes: int
    ) -> None:
        self._sender: Final = sender
        self._rng: Final = rng
        self._batch_bytes: Final[i64] = batch_bytes
        self._buffer_bytes: Final[i64] = buffer_bytes
        self._buffered_bytes: i64 = 0
        self._topics: Final[dict[str, _Topic]] = {}

    def append(self, rows: Rows, now_ms: int) -> None:
        """Adds rows; one without a partition goes where its key says, without a key by chance.

        `now_ms` is the time of a row that has none.

        Raises:
            KafkaError: a topic or a partition is not there, or a full batch was refused.
        """
        topics, keys, values = rows.topics, rows.keys, rows.values
        partitions, headers, timestamps = rows.partitions, rows.headers, rows.timestamps_ms
        count: i64 = rows.count
        topic: _Topic | None = self._topic(topics) if isinstance(topics, str) else None
        row: i64 = 0
        while row < count:
            into = topic if topic is not None else self._topic(topics[row])
            partition = None if partitions is None else partitions[row]
            timestamp_ms = None if timestamps is None else timestamps[row]
            self._append(
                into,
                partition,
                now_ms if timestamp_ms is None else timestamp_ms,
                None if keys is None else keys.value(row),
                values.value(row),
                () if headers is None else headers[row],
            )
            row += 1

    def unsent(self) -> list[OpenBatch]:
        """The batches that have records."""
        return [
            batch
            for topic in self._topics.values()
            for batch in topic.open.values()
            if batch.builder is not None
        ]

    def take(self, batch: OpenBatch) -> bytes:
        """Takes the batch as it is sent; the partition's next one begins after it."""
        builder = batch.builder
        assert builder is not None, f"{batch.partition} has nothing to send"
        self._buffered_bytes -= batch.size_bytes
        batch.size_bytes = 0
        batch.sequence = (batch.sequence + builder.record_count) & LAST_SEQUENCE
        batch.builder = None
        return builder.build()

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = _Topic(name, StickyPartitioner(self._batch_bytes, self._rng))
            self._topics[name] = topic
        return topic

    def _append(
        self,
        topic: _Topic,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> None:
        size_bytes: i64 = 16
        if key is not None:
            size_bytes += len(key)
        if value is not None:
            size_bytes += len(value)
        if partition is None:
            partition = self._place(topic, key, size_bytes)
        batch = topic.open.get(partition)
        if batch is None:
            batch = topic.open[partition] = OpenBatch(TopicPartition(topic.name, partition))
        if (
            batch.size_bytes + size_bytes > self._batch_bytes
            or self._buffered_bytes >= self._buffer_bytes
        ):
            self._make_room(batch)
        builder = batch.builder
        if builder is None:
            builder = batch.builder = self._sender.new_builder(batch.sequence)
        builder.append(timestamp_ms, key, value, headers)
        grown_bytes = builder.size_bytes - batch.size_bytes
        batch.size_bytes += grown_bytes
        self._buffered_bytes += grown_bytes

    def _place(self, topic: _Topic, key: bytes | None, size_bytes: i64) -> int:
        if topic.partition_count == 0:
            metadata = self._sender.topic(topic.name)
            topic.partition_count = len(metadata.partition_metadata)
            topic.led = metadata.led_partitions or [0]
        if key is not None:
            return partition_for_key(key, topic.partition_count)
        chosen = topic.sticky.choose(topic.led, _no_queue)
        topic.sticky.produced(size_bytes)
        return chosen

    def _make_room(self, full: OpenBatch) -> None:
        """Sends a batch that would grow too large, and others that are well filled with it."""
        batches = self.unsent()
        if self._buffered_bytes < self._buffer_bytes:
            if full.builder is None:
                return
            well_filled = self._batch_bytes // 2
            batches = [each for each in batches if each is full or each.size_bytes > well_filled]
        for topic in self._topics.values():
            topic.partition_count = 0
        self._sender.send(batches)


def _no_queue(_partition: int) -> int:
    return 0
