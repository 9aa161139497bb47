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
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol, cast

from odradek.client.aio.closing import AsyncClosing
from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.sender import Sender
from odradek.client.aio.transactions import TransactionManager
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.metadata import TopicMetadata
from odradek.client.core.producing.accumulator import Accumulator, ProducerBatch
from odradek.client.core.producing.deliveries import Consignment
from odradek.client.core.producing.intake import Intake, Lot, Outcome
from odradek.client.core.producing.transaction_state import TransactionState
from odradek.client.errors import (
    BufferExhausted,
    ClientClosed,
    KafkaError,
    NotDelivered,
    RequestTimedOut,
    UsageError,
    error_for,
)
from odradek.client.record_metadata import RecordMetadata
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
        """A record is in the log, or failed: its offset is -1 then, and its partition, too, if it
        was given none before."""
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
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._interceptors = tuple(interceptors)
        batch_bytes = self._settings.number("batch.size")
        self._buffer_bytes = self._settings.number("buffer.memory")
        self._max_block_ms = self._settings.number("max.block.ms")
        self._accumulator = Accumulator(
            codec=Compression.from_name(self._settings.text("compression.type")),
            batch_bytes=batch_bytes,
            linger_ms=self._settings.number("linger.ms"),
            max_in_flight=self._settings.number("max.in.flight.requests.per.connection"),
            numbers_sequences=self._settings.flag("enable.idempotence"),
        )
        self._transactions = TransactionManager(self._cluster, self._accumulator.renumber)
        self._intake = Intake(
            self._accumulator,
            self._cluster.clock,
            self._dice,
            batch_bytes=batch_bytes,
            buffer_bytes=self._buffer_bytes,
            record_max_bytes=min(self._settings.number("max.request.size"), self._buffer_bytes),
        )
        self._sender: Sender | None = None
        self._room: asyncio.Event = asyncio.Event()
        self._idle: asyncio.Event = asyncio.Event()
        self._hurried = 0
        self._turns_given = 0
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
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        delivery: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        outcome = Outcome.NO_ROOM
        try:
            if self._accumulator.has_full or self._turns_given:
                await self._let_sender_run()
                self._check_sending()
            while outcome is Outcome.NO_ROOM:
                known = self._cluster.metadata.topics.get(topic)
                if known is None:
                    known = await self._wait_for_metadata(topic)
                    self._check_sending()
                outcome = self._intake.put(
                    known, partition, timestamp_ms, key, value, headers, delivery
                )
                if outcome is Outcome.NO_ROOM:
                    await self._wait_for_room()
                    self._check_sending()
        except KafkaError as error:
            self._tell_refused(topic, partition, error)
            raise
        if outcome is Outcome.NEWS:
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

    async def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps_ms: Sequence[int | None] | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[list[RecordMetadata]]:
        """Puts many records into batches, for a fraction of what as many `send` cost; the other
        columns are as long as `values`.

        The future is of the delivery of all, in their order. If some are not delivered it has the
        error `NotDelivered`, which says of each what became of it. A record that is too large fails
        alone. When the rest cannot be put into batches any more (no room for `max.block.ms`, the
        producer closed, the transaction lost) that is their error. Who is cancelled here has sent a
        part of them.

        Raises:
            KafkaError: nothing was sent: no such partition, no metadata for `max.block.ms`, not in
                a transaction.
            TypeError: nothing was sent: a key or a value is not of bytes.
            ValueError: nothing was sent: the columns are not of one length.
        """
        self._check_sending()
        delivery: asyncio.Future[list[RecordMetadata]] = asyncio.get_running_loop().create_future()
        if not values:
            delivery.set_result([])
            return delivery
        consignment = Consignment(len(values), partial(_tell_together, delivery))
        unsent = deque(self._lots(topic, values, keys, headers, timestamps_ms, partition))
        try:
            while unsent:
                await self._put_many(unsent[0], consignment)
                unsent.popleft()
        except KafkaError as error:
            for lot in unsent:
                for _ in range(lot.next, len(lot.values)):
                    self._tell_refused(lot.topic, lot.partition, error)
            if not unsent[0].first_index + unsent[0].next:
                raise
            for index in range(unsent[0].first_index + unsent[0].next, len(values)):
                consignment.failed(index, error)
        return delivery

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

    def _lots(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        headers: Sequence[Headers] | None,
        timestamps_ms: Sequence[int | None] | None,
        partition: int | None,
    ) -> list[Lot]:
        """What `send_many` was given as it goes out; interceptors may send it to more than one."""
        make_key, make_value = self._key_serializer, self._value_serializer
        absent = (None,) * len(values)
        if not self._interceptors:
            if make_key is not None:
                keys = [make_key(each) for each in (absent if keys is None else keys)]
            if make_value is not None:
                values = [make_value(each) for each in values]
            return [Lot(topic, partition, values, keys, headers, timestamps_ms)]
        records = [
            self._intercept(ProducerRecord(topic, value, key, partition, timestamp_ms, given))
            for value, key, timestamp_ms, given in zip(
                values,
                absent if keys is None else keys,
                absent if timestamps_ms is None else timestamps_ms,
                ((),) * len(values) if headers is None else headers,
                strict=True,
            )
        ]
        lots: list[Lot] = []
        index = 0
        for (name, number), group in groupby(records, lambda each: (each.topic, each.partition)):
            some = list(group)
            lots.append(
                Lot(
                    name,
                    number,
                    [each.value if make_value is None else make_value(each.value) for each in some],
                    [each.key if make_key is None else make_key(each.key) for each in some],
                    [each.headers for each in some],
                    [each.timestamp_ms for each in some],
                    first_index=index,
                )
            )
            index += len(some)
        return lots

    async def _put_many(self, lot: Lot, consignment: Consignment) -> None:
        while not lot.is_empty:
            if self._accumulator.has_full or self._turns_given:
                await self._let_sender_run()
            self._check_sending()
            known = self._cluster.metadata.topics.get(lot.topic)
            if known is None:
                known = await self._wait_for_metadata(lot.topic)
                self._check_sending()
            begin = lot.next
            outcome = self._intake.put_many(known, lot, consignment)
            for index in range(begin, lot.next) if self._interceptors else ():
                error = consignment.errors.get(lot.first_index + index)
                if error is not None:
                    self._tell_refused(lot.topic, lot.partition, error)
            if outcome is Outcome.NO_ROOM:
                await self._wait_for_room()
            elif outcome is Outcome.NEWS:
                self._wake()

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

    async def _let_sender_run(self) -> None:
        """A batch is full: it leaves before the next is filled, and not when all memory is full.
        Who comes meanwhile waits behind, so that records keep the order in which they came."""
        self._accumulator.has_full = False
        self._turns_given += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._turns_given -= 1

    async def _wait_for_room(self) -> None:
        size = self._intake.refused_bytes
        self._hurry(1)
        self._wake()
        try:
            async with asyncio.timeout(self._max_block_ms / 1000):
                while not self._intake.has_room(size):
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise BufferExhausted(
                f"buffer.memory ({self._buffer_bytes} bytes) was full for {self._max_block_ms} ms"
            ) from None
        finally:
            self._hurry(-1)

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

    def _delivered(
        self,
        batch: ProducerBatch,
        answer: ProducePartitionResponse | None,
        error: KafkaError | None,
    ) -> None:
        base_offset, append_time_ms = UNKNOWN_OFFSET, -1
        if answer is not None and error is None:
            base_offset, append_time_ms = answer.base_offset, answer.log_append_time_ms
        if error is None:
            batch.deliver(base_offset, append_time_ms)
        else:
            for index, context in zip(batch.indexes, batch.contexts, strict=True):
                if isinstance(context, Consignment):
                    context.failed(index, error)
                else:
                    assert isinstance(context, asyncio.Future), f"{context!r} is no future"
                    _fail(context, error)
        if self._interceptors:
            for metadata in batch.metadata(base_offset, append_time_ms):
                self._tell(metadata, error)
        self._room.set()
        self._idle.set()

    def _intercept(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:
                _LOGGER.warning("an interceptor failed; the record goes on", exc_info=True)
        return record

    def _tell(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                _LOGGER.warning("an interceptor failed on an acknowledgement", exc_info=True)

    def _tell_refused(self, topic: str, partition: int | None, error: KafkaError) -> None:
        """As `_tell`, of a record that is in no batch."""
        nowhere = -1 if partition is None else partition
        self._tell(RecordMetadata(topic, nowhere, UNKNOWN_OFFSET, -1), error)


def _tell_together(
    delivery: asyncio.Future[list[RecordMetadata]], consignment: Consignment
) -> None:
    if consignment.errors:
        _fail(delivery, NotDelivered(consignment.errors, consignment.places))
    elif not delivery.done():
        delivery.set_result(cast(list[RecordMetadata], consignment.places))


def _fail(delivery: asyncio.Future[Any], error: KafkaError) -> None:
    if not delivery.done():
        delivery.set_exception(error)
        delivery.exception()  # whoever does not ask does not want to know


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
