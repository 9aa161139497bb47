"""A record's way from `send` into a batch: checked, given a partition, and put there. Compiled.

What `send` does for every record is here; what it has to wait for is not.
"""

from enum import IntEnum
from typing import Any, Final

from odradek.client.core.accumulator import Accumulator, record_bytes
from odradek.client.core.metadata import TopicMetadata
from odradek.client.core.partitioner import PartitionDice, StickyPartitioner, partition_for_key
from odradek.client.errors import RecordTooLarge, RequestError
from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.records.builder import Headers


class Outcome(IntEnum):
    """What came of a record: it is in a batch that the sender knows of, or that it is to hear of,
    or there was no room for it."""

    PUT = 0
    NEWS = 1
    NO_ROOM = 2


class _Topic:
    """A topic as records meet it, as long as its metadata are the same."""

    def __init__(self, metadata: TopicMetadata, sticky: StickyPartitioner) -> None:
        self.metadata = metadata
        self.by_index: Final = dict(metadata.by_index)
        self.available: Final = metadata.led_partitions or sorted(metadata.partition_metadata)
        self.sticky = sticky
        self.stuck_to: TopicPartition | None = None


class Intake:
    """Puts records into an accumulator."""

    def __init__(
        self,
        accumulator: Accumulator,
        clock: Clock,
        dice: PartitionDice,
        *,
        batch_bytes: int,
        buffer_bytes: int,
        record_max_bytes: int,
    ) -> None:
        self._accumulator = accumulator
        self._clock = clock
        self._dice = dice
        self._batch_bytes = max(1, batch_bytes)
        self._buffer_bytes = buffer_bytes
        self._record_max_bytes = record_max_bytes
        self._topics: dict[str, _Topic] = {}
        self.refused_bytes = 0
        """The size of the record for which there was no room last."""

    def put(
        self,
        metadata: TopicMetadata,
        partition: int | None,
        timestamp_ms: int | None,
        key: object,
        value: object,
        headers: Headers,
        context: object,
    ) -> Outcome:
        """Puts a record into a batch; `context` is whom to tell of its end.

        Raises:
            TypeError: the key or the value is not of bytes.
            RecordTooLarge: it fits into no request, or not into the buffer.
            RequestError: there is no such partition.
        """
        key_bytes = key if isinstance(key, bytes) else _as_bytes(key, "key")
        value_bytes = value if isinstance(value, bytes) else _as_bytes(value, "value")
        size = record_bytes(key_bytes, value_bytes, headers)
        if size > self._record_max_bytes:
            raise RecordTooLarge(
                f"a record of {size} bytes is larger than max.request.size or buffer.memory: "
                f"{self._record_max_bytes}",
                ErrorCode.MESSAGE_TOO_LARGE,
            )
        accumulator = self._accumulator
        if not self.has_room(size):
            self.refused_bytes = size
            return Outcome.NO_ROOM
        topic = self._topics.get(metadata.name)
        if topic is None or topic.metadata is not metadata:
            topic = self._met(metadata)
        target = self._choose(topic, partition, key_bytes, size)
        has_news = accumulator.append(
            target,
            self._clock.wall_ms() if timestamp_ms is None else timestamp_ms,
            key_bytes,
            value_bytes,
            headers,
            context,
            self._clock.monotonic_ms(),
        )
        return Outcome.NEWS if has_news else Outcome.PUT

    def has_room(self, size_bytes: int) -> bool:
        """Whether so much fits into `buffer.memory` now."""
        return self._accumulator.used_bytes + size_bytes <= self._buffer_bytes

    def _met(self, metadata: TopicMetadata) -> _Topic:
        known = self._topics.get(metadata.name)
        sticky = StickyPartitioner(self._batch_bytes, self._dice) if known is None else known.sticky
        topic = self._topics[metadata.name] = _Topic(metadata, sticky)
        return topic

    def _choose(
        self, topic: _Topic, partition: int | None, key: bytes | None, size: int
    ) -> TopicPartition:
        if partition is not None:
            asked = topic.by_index.get(partition)
            if asked is None:
                raise RequestError(
                    f"{partition} is none of the {len(topic.by_index)} partitions of "
                    f"{topic.metadata.name}",
                    ErrorCode.INVALID_PARTITIONS,
                )
            return asked
        if key is not None:
            chosen = partition_for_key(key, len(topic.by_index))
            return topic.by_index.get(chosen) or TopicPartition(topic.metadata.name, chosen)
        stuck_to = topic.stuck_to
        if stuck_to is None or topic.sticky.is_due:
            index = topic.sticky.choose(
                topic.available, lambda each: self._accumulator.queue_length(topic.by_index[each])
            )
            stuck_to = topic.stuck_to = topic.by_index[index]
        topic.sticky.produced(size)
        return stuck_to


def _as_bytes(given: Any, what: str) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"a record's {what} is bytes or None, not {type(given).__name__}")
