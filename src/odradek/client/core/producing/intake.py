"""A record's way from `send` into a batch: checked, given a partition, and put there. Compiled.

The work of `send` and `send_many` for every record, without their waiting. A record is checked
completely before any of it is written.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from odradek.client.core.metadata import TopicMetadata
from odradek.client.core.producing.accumulator import Accumulator, record_bytes
from odradek.client.core.producing.deliveries import BulkDelivery
from odradek.client.core.producing.partitioner import (
    PartitionRng,
    StickyPartitioner,
    partition_for_key,
)
from odradek.client.errors import RecordTooLarge, RequestError
from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.records.builder import Headers

# Chooses a partition by the key, all partitions, and those with a leader.
Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
GivenHeaders = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]
_LATEST_MS: Final = (1 << 63) - 1


class Outcome(IntEnum):
    """The result of adding a record: it is in a batch that the sender knows, or that the sender has
    to be woken for, or there was no room for it."""

    PUT = 0
    NEWS = 1
    NO_ROOM = 2


class Lot:
    """Records for one topic, in columns. `next` is the index of the first that is in no batch."""

    def __init__(
        self,
        topic: str,
        partition: int | None,
        values: Sequence[object],
        keys: Sequence[object] | None = None,
        headers: Sequence[GivenHeaders | None] | None = None,
        timestamps_ms: Sequence[int | None] | None = None,
        *,
        first_index: int = 0,
    ) -> None:
        """`first_index` is the number of the first record in its call.

        Raises:
            TypeError: a key, a value, a header or a timestamp is none.
            ValueError: the columns are not of one length, or a timestamp is negative.
        """
        for name, column in (
            ("keys", keys),
            ("headers", headers),
            ("timestamps_ms", timestamps_ms),
        ):
            if column is not None and len(column) != len(values):
                raise ValueError(f"there are {len(column)} {name} for {len(values)} values")
        self.topic = topic
        self.partition = partition
        self.values = _all_bytes(values, "value")
        self.keys = None if keys is None else _all_bytes(keys, "key")
        self.headers = None if headers is None else [as_headers(each) for each in headers]
        for timestamp_ms in timestamps_ms or ():
            check_timestamp(timestamp_ms)
        self.timestamps_ms = timestamps_ms
        self.first_index = first_index
        self.next = 0

    @property
    def is_empty(self) -> bool:
        """Whether all its records are in batches, or cannot be."""
        return self.next >= len(self.values)


class _Topic:
    """The facts about a topic that records need, as long as its metadata are the same."""

    def __init__(self, metadata: TopicMetadata, sticky: StickyPartitioner) -> None:
        self.metadata = metadata
        self.by_index: Final = dict(metadata.by_index)
        self.all: Final = sorted(metadata.partition_metadata)
        self.available: Final = metadata.led_partitions or self.all
        self.sticky = sticky
        self.stuck_to: TopicPartition | None = None


class Intake:
    """Puts records into an accumulator."""

    def __init__(
        self,
        accumulator: Accumulator,
        clock: Clock,
        rng: PartitionRng,
        *,
        batch_bytes: int,
        buffer_bytes: int,
        record_max_bytes: int,
        partitioner: Partitioner | None = None,
    ) -> None:
        self._accumulator = accumulator
        self._clock = clock
        self._rng = rng
        self._batch_bytes = max(1, batch_bytes)
        self._buffer_bytes = buffer_bytes
        self._record_max_bytes = record_max_bytes
        self._partitioner = partitioner
        self._topics: dict[str, _Topic] = {}
        self.refused_bytes = 0
        """The size of the record for which there was no room last."""
        self.waiting_count = 0
        """How many callers wait for room: a record of another has none before they have theirs."""

    def put(
        self,
        metadata: TopicMetadata,
        partition: int | None,
        timestamp_ms: int | None,
        key: object,
        value: object,
        given_headers: GivenHeaders | None,
        context: object,
        has_turn: bool,
    ) -> Outcome:
        """Puts a record into a batch; `context` gets its result. `has_turn` says that the caller
        has waited for room, and those that still do are behind it.

        Raises:
            TypeError: the key, the value, a header or the timestamp is none.
            ValueError: the timestamp is negative.
            RecordTooLarge: it fits into no request, or not into the buffer.
            RequestError: there is no such partition.
        """
        key_bytes = key if isinstance(key, bytes) else _as_bytes(key, "key")
        value_bytes = value if isinstance(value, bytes) else _as_bytes(value, "value")
        headers: Headers = as_headers(given_headers) if given_headers else ()
        if timestamp_ms is not None:
            check_timestamp(timestamp_ms)
        size = record_bytes(key_bytes, value_bytes, headers)
        if size > self._record_max_bytes:
            raise self._too_large(size)
        if not self._admits(size, has_turn=has_turn):
            return Outcome.NO_ROOM
        topic = self._met(metadata)
        has_news = self._accumulator.append(
            self._choose(topic, partition, key_bytes, size),
            self._clock.wall_ms() if timestamp_ms is None else timestamp_ms,
            key_bytes,
            value_bytes,
            headers,
            context,
            self._clock.monotonic_ms(),
        )
        return Outcome.NEWS if has_news else Outcome.PUT

    def put_many(
        self, metadata: TopicMetadata, lot: Lot, bulk: BulkDelivery, *, has_turn: bool
    ) -> Outcome:
        """Puts records of a lot into batches, until one of them is full. The first may have its
        turn, as in `put`.

        A record that is too large fails alone. Returns the result of the last one, or that of one
        that the sender has to be woken for.

        Raises:
            RequestError: there is no such partition.
        """
        accumulator = self._accumulator
        topic = self._met(metadata)
        values, keys, all_headers, times_ms = lot.values, lot.keys, lot.headers, lot.timestamps_ms
        partition, first_index = lot.partition, lot.first_index
        wall_ms, now_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        outcome = Outcome.PUT
        while lot.next < len(values) and not accumulator.has_full:
            index = lot.next
            key = None if keys is None else keys[index]
            value = values[index]
            headers: Headers = () if all_headers is None else all_headers[index]
            time_ms = None if times_ms is None else times_ms[index]
            size = record_bytes(key, value, headers)
            if size > self._record_max_bytes:
                lot.next += 1
                bulk.failed(first_index + index, self._too_large(size))
                continue
            if not self._admits(size, has_turn=has_turn):
                return Outcome.NO_ROOM
            has_turn = False
            target = self._choose(topic, partition, key, size)
            lot.next += 1
            if accumulator.append(
                target,
                wall_ms if time_ms is None else time_ms,
                key,
                value,
                headers,
                bulk,
                now_ms,
                first_index + index,
            ):
                outcome = Outcome.NEWS
        return outcome

    def has_room(self, size_bytes: int) -> bool:
        """Whether so much fits into `buffer.memory` now."""
        return self._accumulator.used_bytes + size_bytes <= self._buffer_bytes

    def _admits(self, size: int, *, has_turn: bool) -> bool:
        """Whether a record has room, and it is its turn."""
        if (has_turn or not self.waiting_count) and self.has_room(size):
            return True
        self.refused_bytes = size
        return False

    def _met(self, metadata: TopicMetadata) -> _Topic:
        known = self._topics.get(metadata.name)
        if known is not None and known.metadata is metadata:
            return known
        sticky = StickyPartitioner(self._batch_bytes, self._rng) if known is None else known.sticky
        topic = self._topics[metadata.name] = _Topic(metadata, sticky)
        return topic

    def _too_large(self, size: int) -> RecordTooLarge:
        is_buffer = self._record_max_bytes == self._buffer_bytes
        setting = "buffer.memory" if is_buffer else "max.request.size"
        return RecordTooLarge(
            f"a record of {size} bytes is larger than {setting} ({self._record_max_bytes})",
            ErrorCode.MESSAGE_TOO_LARGE,
        )

    def _choose(
        self, topic: _Topic, partition: int | None, key: bytes | None, size: int
    ) -> TopicPartition:
        if partition is None and self._partitioner is not None:
            partition = self._partitioner(key, topic.all, topic.available)
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


def _all_bytes(given: Sequence[object], what: str) -> list[bytes | None]:
    return [each if isinstance(each, bytes) else _as_bytes(each, what) for each in given]


def _as_bytes(given: Any, what: str) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"a record's {what} is bytes or None, not {type(given).__name__}")


def as_headers(given: GivenHeaders | None) -> list[tuple[str, bytes | None]]:
    """Headers as they are written, of pairs or of a mapping; text is written as UTF-8.

    Raises:
        TypeError: they are none.
    """
    if given is None:
        return []
    pairs: Any = given.items() if isinstance(given, Mapping) else given
    found: list[tuple[str, bytes | None]] = []
    try:
        for pair in pairs:
            # Text of two letters and a mapping of two entries can be unpacked, too.
            if not isinstance(pair, tuple | list):
                raise TypeError(f"a header is a pair, not {type(pair).__name__}")
            name, content = pair
            if not isinstance(name, str):
                raise TypeError(f"a header's name is text, not {type(name).__name__}")
            name.encode()  # not all text can be
            value = content.encode() if isinstance(content, str) else content
            found.append((name, _as_bytes(value, f"header {name!r}")))
    except (TypeError, ValueError) as error:
        raise TypeError(f"headers are pairs of a name and bytes, text or None: {error}") from error
    return found


def check_timestamp(given: Any) -> None:
    """Whether a record may have this timestamp.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is negative, or too large for 64 bits.
    """
    if given is None:
        return
    if not isinstance(given, int):
        raise TypeError(f"a record's timestamp is in whole ms, not {type(given).__name__}")
    if not 0 <= given <= _LATEST_MS:
        raise ValueError(f"a record's timestamp is at least 0 and has 64 bits: {given}")
