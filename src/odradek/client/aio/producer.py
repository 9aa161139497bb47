"""`Producer`: sends records, on an event loop.

`send` gives a future of the record's place in the log as soon as the record is in a batch; it waits
only while the buffer is full or the topic unknown (`max.block.ms`). Delivery is decided within
`delivery.timeout.ms`: the future has a `RecordMetadata`, or the `KafkaError` that kept the record
out of the log. Idempotence is on: a repeated batch is in the log once, and in order.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol

from odradek.client.aio.closing import AsyncClosing
from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.sender import Sender
from odradek.client.aio.transactions import TransactionManager
from odradek.client.core.accumulator import Accumulator, ProducerBatch, record_bytes
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.group_metadata import GroupMetadata
from odradek.client.core.metadata import TopicMetadata
from odradek.client.core.partitioner import StickyPartitioner, partition_for_key
from odradek.client.core.transaction_state import TransactionState
from odradek.client.errors import (
    BufferExhausted,
    ClientClosed,
    KafkaError,
    RecordTooLarge,
    RequestError,
    RequestTimedOut,
    UsageError,
    error_for,
)
from odradek.client.settings import PRODUCER_SETTINGS, ClientSettings
from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.model import UNKNOWN_OFFSET, TopicPartition
from odradek.protocol.produce import ProducePartitionResponse
from odradek.records.builder import Headers
from odradek.records.compression import Compression

_LOGGER: Final = logging.getLogger(__name__)
Serializer = Callable[[Any], bytes | None]
_OPEN: Final = (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE)


class RecordMetadata(NamedTuple):
    """Where a record is; the offset is -1 without acknowledgements."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ProducerRecord(NamedTuple):
    """What `send` was given, as interceptors see it."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class ProducerInterceptor(Protocol):
    """Sees records before they are serialized, and what became of them. Exceptions are logged."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """May change a record; gives the one to send."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """A record is in the log, or failed (its offset is -1 then)."""
        ...


class Producer(AsyncClosing):
    """Sends records.

        async with Producer("localhost:9092") as producer:
            delivery = await producer.send("orders", b"value", key=b"key")
            metadata = await delivery

    `async with` flushes at its end. Settings have Kafka's names, in `config` or with underscores as
    keywords. Keys and values are bytes unless serializers are given.
    """

    def __init__(
        self,
        bootstrap_servers: str = "",
        config: Mapping[str, object] = {},
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        clock: Clock | None = None,
        dice: random.Random | None = None,
        **settings: object,
    ) -> None:
        """Connects to nobody yet.

        Raises:
            ValueError: a setting is illegal, or contradicts another.
        """
        if bootstrap_servers:
            settings["bootstrap_servers"] = bootstrap_servers
        self._settings = ClientSettings(PRODUCER_SETTINGS, config, settings)
        _check_consistent(self._settings)
        self._dice = dice if dice is not None else random.Random()
        self._cluster = ClusterClient(self._settings, kind="producer", clock=clock, dice=self._dice)
        self._transactions = TransactionManager(self._cluster)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._interceptors = tuple(interceptors)
        self._batch_bytes = self._settings.number("batch.size")
        self._buffer_bytes = self._settings.number("buffer.memory")
        self._record_max_bytes = min(self._settings.number("max.request.size"), self._buffer_bytes)
        self._max_block_ms = self._settings.number("max.block.ms")
        self._accumulator = Accumulator(
            codec=Compression.from_name(self._settings.text("compression.type")),
            batch_bytes=self._batch_bytes,
            linger_ms=self._settings.number("linger.ms"),
            max_in_flight=self._settings.number("max.in.flight.requests.per.connection"),
            numbers_sequences=self._transactions.numbers_batches,
        )
        self._sticky: dict[str, StickyPartitioner] = {}
        self._sender: Sender | None = None
        self._room: asyncio.Event = asyncio.Event()
        self._idle: asyncio.Event = asyncio.Event()
        self._hurried = 0
        self._is_closed = False

    async def close(self, timeout_ms: int | None = None) -> None:
        """Sends what waits, and aborts a transaction that is open, then disconnects.

        That takes `timeout_ms` at most; what remains fails.
        """
        self._is_closed = True
        await self._close_once(lambda: self._close(timeout_ms))

    async def _close(self, timeout_ms: int | None) -> None:
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._settled()
                if self._transactions.life.state in _OPEN:
                    await self.abort_transaction()
        except TimeoutError:
            _LOGGER.debug("closing with records that were not delivered")
        except KafkaError as error:
            _LOGGER.debug("the open transaction is left to its coordinator: %s", error)
        finally:
            if self._sender is not None:
                await self._sender.close()
            await self._cluster.close()

    # --- sending ----------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Puts a record into a batch; the future is of its delivery.

        Raises:
            KafkaError: it cannot be put into a batch: too large, no such partition, no room or
                no metadata for `max.block.ms`, not in a transaction.
        """
        self._check_sending()
        if self._interceptors:
            record = ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            topic, value, key, partition, timestamp_ms, headers = self._intercept(record)
        key_bytes = _serialized(key, self._key_serializer, "key")
        value_bytes = _serialized(value, self._value_serializer, "value")
        size = record_bytes(key_bytes, value_bytes, headers)
        if size > self._record_max_bytes:
            raise RecordTooLarge(
                f"a record of {size} bytes is larger than max.request.size or buffer.memory: "
                f"{self._record_max_bytes}",
                ErrorCode.MESSAGE_TOO_LARGE,
            )
        known = self._cluster.metadata.topics.get(topic)
        if known is None or self._accumulator.used_bytes + size > self._buffer_bytes:
            known = await self._wait_for_metadata_and_room(topic, size)
            self._check_sending()
        target = self._choose(known, partition, key_bytes, size)
        delivery: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        clock = self._cluster.clock
        has_news = self._accumulator.append(
            target,
            clock.wall_ms() if timestamp_ms is None else timestamp_ms,
            key_bytes,
            value_bytes,
            headers,
            delivery,
            clock.monotonic_ms(),
        )
        if has_news:
            self._wake()
        return delivery

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Sends a record and waits until it is delivered.

        Raises:
            KafkaError: it was not.
        """
        delivery = await self.send(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
        )
        return await delivery

    async def flush(self) -> None:
        """Waits until every record sent so far is delivered or has failed; none lingers."""
        await self._settled()

    async def partitions_for(self, topic: str) -> TopicMetadata:
        """A topic with its partitions.

        Raises:
            KafkaError: it cannot be had within `max.block.ms`.
        """
        known = self._cluster.metadata.topics.get(topic)
        return known if known is not None else await self._wait_for_metadata(topic)

    # --- transactions -----------------------------------------------------------------------

    async def init_transactions(self) -> None:
        """Makes this producer the one of its transactional id; needed once, before the first.

        Raises:
            KafkaError: it cannot.
        """
        self._check_transactional()
        await self._transactions.init_transactions()

    def begin_transaction(self) -> None:
        """Begins a transaction.

        Raises:
            KafkaError: there is one already, or there can be none.
        """
        self._check_transactional()
        self._transactions.begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> None:
        """Commits a group's offsets together with the records of the transaction.

        Raises:
            KafkaError: the transaction can only be aborted then.
        """
        self._check_transactional()
        if offsets:
            await self._transactions.send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Delivers what was sent, and commits it.

        Who is cancelled here, or gets a retriable error, calls it again: whether the transaction is
        committed is not known then.

        Raises:
            KafkaError: the transaction is to be aborted, or the producer has been replaced.
        """
        self._check_transactional()
        await self._settled()
        self._transactions.life.move(TransactionState.COMMITTING)
        await self._transactions.end(commit=True)

    async def abort_transaction(self) -> None:
        """Takes everything back; what was not sent yet fails with `TransactionAborted`.

        Who is cancelled here, or gets a retriable error, calls it again.

        Raises:
            KafkaError: the producer has been replaced.
        """
        self._check_transactional()
        self._transactions.life.move(TransactionState.ABORTING)
        await self._settled()
        await self._transactions.end(commit=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction for the length of an `async with` block: aborted if the block raises."""
        self.begin_transaction()
        try:
            yield
        except BaseException:
            if self._transactions.life.state is not TransactionState.FATAL:
                await self.abort_transaction()
            raise
        await self.commit_transaction()

    def _check_transactional(self) -> None:
        if not self._transactions.is_transactional:
            raise UsageError("transactions need a transactional.id", ErrorCode.INVALID_TXN_STATE)

    # --- inside -----------------------------------------------------------------------------

    def _check_sending(self) -> None:
        if self._is_closed:
            raise ClientClosed("the producer was closed")
        if self._transactions.is_transactional:
            self._transactions.life.check_sending()

    def _wake(self) -> None:
        if self._sender is None:
            self._sender = Sender(
                self._cluster, self._accumulator, self._transactions, self._delivered
            )
        self._sender.wake()

    async def _settled(self) -> None:
        """Waits until nothing that is there now is left; nothing lingers meanwhile."""
        waiting = deque(self._accumulator.unfinished())
        self._hurry(1)
        try:
            while waiting:
                self._wake()
                self._idle.clear()
                while waiting and waiting[0].is_done:
                    waiting.extendleft(reversed(waiting.popleft().halves))
                if waiting:
                    await self._idle.wait()
        finally:
            self._hurry(-1)

    def _hurry(self, change: int) -> None:
        self._hurried += change
        self._accumulator.hurries = self._hurried > 0

    async def _wait_for_metadata_and_room(self, topic: str, size: int) -> TopicMetadata:
        known = await self.partitions_for(topic)
        if self._accumulator.used_bytes + size <= self._buffer_bytes:
            return known
        self._hurry(1)
        self._wake()
        try:
            async with asyncio.timeout(self._max_block_ms / 1000):
                while self._accumulator.used_bytes + size > self._buffer_bytes:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise BufferExhausted(
                f"buffer.memory ({self._buffer_bytes} bytes) was full for {self._max_block_ms} ms"
            ) from None
        finally:
            self._hurry(-1)
        return known

    async def _wait_for_metadata(self, topic: str) -> TopicMetadata:
        async def attempt() -> TopicMetadata:
            answer = await self._cluster.refresh([topic], allow_auto_topic_creation=True)
            found = answer.topics.get(topic)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error_code
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # It may be about to be created: worth the whole time, not only a moment.
                raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, topic)
            if code:
                raise error_for(code, topic)
            return self._cluster.metadata.topics[topic]

        try:
            return await self._cluster.retrying(attempt, self._max_block_ms)
        except KafkaError as error:
            if not error.retriable:
                raise
            raise RequestTimedOut(
                f"topic {topic} is not in the metadata after {self._max_block_ms} ms: {error}"
            ) from error

    def _choose(
        self, topic: TopicMetadata, partition: int | None, key: bytes | None, size: int
    ) -> TopicPartition:
        count = len(topic.partition_metadata)
        if partition is not None:
            if partition not in topic.partition_metadata:
                raise RequestError(
                    f"{partition} is none of the {count} partitions of {topic.name}",
                    ErrorCode.INVALID_PARTITIONS,
                )
            return topic.by_index[partition]
        if key is not None:
            chosen = partition_for_key(key, count)
            return topic.by_index.get(chosen) or TopicPartition(topic.name, chosen)
        sticky = self._sticky.get(topic.name)
        if sticky is None:
            sticky = StickyPartitioner(max(1, self._batch_bytes), self._dice)
            self._sticky[topic.name] = sticky
        chosen = sticky.choose(
            topic.led_partitions or sorted(topic.partition_metadata),
            lambda index: self._accumulator.queue_length(topic.by_index[index]),
        )
        sticky.produced(size)
        return topic.by_index[chosen]

    def _delivered(
        self,
        batch: ProducerBatch,
        answer: ProducePartitionResponse | None,
        error: KafkaError | None,
    ) -> None:
        base_offset = UNKNOWN_OFFSET if answer is None else answer.base_offset
        append_time_ms = -1 if answer is None else answer.log_append_time_ms
        topic, partition = batch.partition
        for index, delivery in enumerate(batch.contexts):
            assert isinstance(delivery, asyncio.Future), f"{delivery!r} is no future"
            offset = base_offset + index if base_offset >= 0 and error is None else UNKNOWN_OFFSET
            timestamp = append_time_ms if append_time_ms >= 0 else batch.timestamps[index]
            metadata = RecordMetadata(topic, partition, offset, timestamp)
            if not delivery.done():
                if error is None:
                    delivery.set_result(metadata)
                else:
                    delivery.set_exception(error)
                    delivery.exception()  # whoever does not ask does not want to know
            for interceptor in self._interceptors:
                self._tell(interceptor, metadata, error)
        self._room.set()
        self._idle.set()

    def _intercept(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:
                _LOGGER.warning("an interceptor failed; the record goes on", exc_info=True)
        return record

    def _tell(
        self,
        interceptor: ProducerInterceptor,
        metadata: RecordMetadata,
        error: KafkaError | None,
    ) -> None:
        try:
            interceptor.on_acknowledgement(metadata, error)
        except Exception:
            _LOGGER.warning("an interceptor failed on an acknowledgement", exc_info=True)


def _serialized(value: Any, serializer: Serializer | None, what: str) -> bytes | None:
    if serializer is not None:
        value = serializer(value)
    if isinstance(value, bytes) or value is None:
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a record's {what} is bytes or None, not {type(value).__name__}")


def _check_consistent(settings: ClientSettings) -> None:
    """What Kafka's producer refuses, too."""
    is_idempotent = settings.flag("enable.idempotence")
    if is_idempotent and settings.text("acks") not in ("all", "-1"):
        if "enable.idempotence" in settings.given or settings.text("transactional.id"):
            raise ValueError("Must set acks to all in order to use the idempotent producer.")
        settings.override("enable.idempotence", False)
    if settings.text("transactional.id") and not settings.flag("enable.idempotence"):
        raise ValueError("Cannot set a transactional.id without also enabling idempotence.")
    in_flight = settings.number("max.in.flight.requests.per.connection")
    if settings.flag("enable.idempotence") and in_flight > 5:
        raise ValueError(
            "Must set max.in.flight.requests.per.connection to at most 5 to use the "
            "idempotent producer."
        )
    linger_ms, request_ms = settings.number("linger.ms"), settings.number("request.timeout.ms")
    delivery_ms = settings.number("delivery.timeout.ms")
    if delivery_ms < linger_ms + request_ms:
        if "delivery.timeout.ms" in settings.given:
            raise ValueError(
                "delivery.timeout.ms should be equal to or larger than linger.ms + "
                "request.timeout.ms"
            )
        settings.override("delivery.timeout.ms", linger_ms + request_ms)
