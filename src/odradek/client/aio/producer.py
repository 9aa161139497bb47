"""`Producer`: sends records, on an event loop.

`send` gives a future of the record's place in the log as soon as the record is in a batch; it waits
only while the buffer is full or the topic unknown (`max.block.ms`). Delivery is decided within
`delivery.timeout.ms`: the future has a `RecordMetadata`, or the `KafkaError` of a record that is
not in the log. Idempotence is on: a repeated batch is in the log once, and in order.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from odradek.client.aio.closing import ClosingTimeout
from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.producing.delivery_reports import (
    DeliveryReports,
    OnDelivery,
    call_back,
    nowhere,
    tell_together,
)
from odradek.client.aio.producing.sender import Sender
from odradek.client.aio.producing.transacting import OPEN_STATES, Transacting
from odradek.client.aio.producing.transactions import TransactionManager
from odradek.client.core.metadata import TopicMetadata
from odradek.client.core.processes import tell_of_forks
from odradek.client.core.producing.accumulator import Accumulator, ProducerBatch
from odradek.client.core.producing.consistency import check_consistent
from odradek.client.core.producing.deliveries import BulkDelivery
from odradek.client.core.producing.delivery_time import (
    DeliverAfter,
    DeliverAt,
    with_delivery_time,
)
from odradek.client.core.producing.intake import (
    GivenHeaders,
    Intake,
    Lot,
    Outcome,
    Partitioner,
)
from odradek.client.core.producing.preparing import (
    Preparation,
    ProducerInterceptor,
    ProducerRecord,
    Serializer,
)
from odradek.client.core.producing.transaction_state import TransactionState
from odradek.client.errors import (
    BufferExhausted,
    ClientClosed,
    KafkaError,
    RequestTimedOut,
    TransactionAborted,
    UsageError,
    error_about,
    error_for,
)
from odradek.client.record_metadata import RecordMetadata
from odradek.client.settings import PRODUCER_SETTINGS, ClientSettings
from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.protocol.direct.produce import ProducePartitionResponse
from odradek.records.compression import Compression

T = TypeVar("T")
_LOGGER: Final = logging.getLogger(__name__)


class Producer(Transacting):
    """Sends records.

        async with Producer("localhost:9092") as producer:
            delivery = await producer.send("orders", b"value", key=b"key")
            metadata = await delivery

    `async with` flushes at its end. Settings have Kafka's names, in a mapping or with underscores
    as keywords. Keys and values are bytes unless serializers are given. A partitioner gets the
    key's bytes, all partitions, and those with a leader; `on_delivery` is called at every record's
    end with its error, or None, and its place.
    """

    def __init__(
        self,
        bootstrap_servers: str | Mapping[str, object] = "",
        config: Mapping[str, object] = {},
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        partitioner: Partitioner | None = None,
        on_delivery: OnDelivery | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **settings: object,
    ) -> None:
        """Connects to nobody yet.

        Raises:
            ValueError: a setting is illegal, or contradicts another.
        """
        self._settings = ClientSettings(PRODUCER_SETTINGS, config, settings, bootstrap_servers)
        check_consistent(self._settings)
        self._rng = rng if rng is not None else random.Random()
        self._cluster = ClusterClient(self._settings, kind="producer", clock=clock, rng=self._rng)
        self._preparation = Preparation(key_serializer, value_serializer, interceptors)
        self._reports = DeliveryReports(
            self._preparation.interceptors, on_delivery, self._cluster.clock
        )
        codec = self._settings.text("compression.type")
        level = f"compression.{codec}.level"
        batch_bytes = self._settings.number("batch.size")
        self._buffer_bytes = self._settings.number("buffer.memory")
        self._accumulator = Accumulator(
            codec=Compression.from_name(codec),
            level=self._settings.number(level) if level in PRODUCER_SETTINGS else None,
            batch_bytes=batch_bytes,
            linger_ms=self._settings.number("linger.ms"),
            max_in_flight=self._settings.number("max.in.flight.requests.per.connection"),
            numbers_sequences=self._settings.flag("enable.idempotence"),
        )
        self._transactions = TransactionManager(self._cluster)
        self._intake = Intake(
            self._accumulator,
            self._cluster.clock,
            self._rng,
            batch_bytes=batch_bytes,
            buffer_bytes=self._buffer_bytes,
            record_max_bytes=min(self._settings.number("max.request.size"), self._buffer_bytes),
            partitioner=partitioner,
        )
        self._new_delivery: Callable[[], asyncio.Future[RecordMetadata]] | None = None
        self._sender: Sender | None = None
        self._room: asyncio.Event = asyncio.Event()
        # Whoever waits for room has it in turn: small records would take that of a large one.
        self._room_in_turn = asyncio.Lock()
        self._idle: asyncio.Event = asyncio.Event()
        self._hurried = 0
        self._turns_given = 0
        self._is_closed = False
        self._measure()
        tell_of_forks(self, Producer._on_forked)

    def _on_forked(self) -> None:
        """Refuses records: in this process they would not be sent."""
        self._is_closed = True

    async def close(self, timeout_ms: int | None = None) -> None:
        """Sends the waiting records, and aborts an open transaction, or completes its requested
        commit, then disconnects.

        That takes `timeout_ms` at most; the remaining records fail. Without it the last record is
        decided after `delivery.timeout.ms` at the latest; the transaction may take `max.block.ms`
        more.
        """
        self._is_closed = True
        await self._close_once(self._close, timeout_ms)

    async def _close(self, timeout: ClosingTimeout) -> None:
        try:
            async with timeout.limit():
                await self._settled()
                if self._transactions.life.state in OPEN_STATES:
                    await self.abort_transaction()
                elif self._transactions.life.state is TransactionState.COMMITTING:
                    await self.commit_transaction()
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
        headers: GivenHeaders | None = (),
        on_delivery: OnDelivery | None = None,
        deliver_after: DeliverAfter | None = None,
        deliver_at: DeliverAt | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Puts a record into a batch; the future is of its delivery, and `on_delivery` is called
        then. For schedule topics `deliver_after="90s"` and `deliver_at` set headers, which other
        topics ignore.

        Raises:
            ValueError: `deliver_after` and `deliver_at` are both given, or that has no zone.
            KafkaError: it cannot be put into a batch: too large, no such partition, no room or
                no metadata for `max.block.ms`, not in a transaction. A transaction can only be
                aborted then.
        """
        transactions = self._transactions
        transaction = transactions.life.number
        if self._is_closed or transactions.is_transactional:
            self._check_sending(transaction)
        if deliver_after is not None or deliver_at is not None:
            headers = with_delivery_time(headers, deliver_after, deliver_at)
        preparation = self._preparation
        if preparation.interceptors:
            record = ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            topic, value, key, partition, timestamp_ms, headers = preparation.intercept(record)
        if preparation.serializes:
            key, value, headers = preparation.serialized(topic, key, value, headers)
        new_delivery = self._new_delivery
        if new_delivery is None:
            # Kept: to ask for the running loop is a system call, up to Python 3.11.
            new_delivery = self._new_delivery = asyncio.get_running_loop().create_future
        delivery = new_delivery()
        outcome, has_turn = Outcome.NO_ROOM, False
        try:
            if self._accumulator.has_full or self._turns_given:
                await self._enter(self._let_sender_run(), transaction)
            while outcome is Outcome.NO_ROOM:
                known = self._known(topic, partition)
                if known is None:
                    known = await self._enter(self._wait_for_metadata(topic), transaction)
                outcome = self._intake.put(
                    known, partition, timestamp_ms, key, value, headers, delivery, has_turn
                )
                if outcome is Outcome.NO_ROOM:
                    await self._enter(self._wait_for_room(), transaction)
                    has_turn = True
        except KafkaError as error:
            self._refused(topic, partition, error, transaction)
            raise
        if on_delivery is not None:
            delivery.add_done_callback(partial(call_back, on_delivery, topic, partition))
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
        headers: GivenHeaders | None = (),
        deliver_after: DeliverAfter | None = None,
        deliver_at: DeliverAt | None = None,
    ) -> RecordMetadata:
        """Sends a record and waits until it is delivered; see `send`.

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
            deliver_after=deliver_after,
            deliver_at=deliver_at,
        )
        return await delivery

    async def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        headers: Sequence[GivenHeaders | None] | None = None,
        timestamps_ms: Sequence[int | None] | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[list[RecordMetadata]]:
        """Puts many records into batches, for a fraction of the cost of as many `send`; the other
        columns are as long as `values`.

        The future is of the delivery of all, in their order. If some are not delivered it has the
        error `NotDelivered`, which has the result of each. A record that is too large fails alone.
        When the rest cannot be put into batches any more (no room for `max.block.ms`, the producer
        closed, the transaction lost) that is their error. A transaction of which a record was not
        taken can only be aborted. A cancelled call has sent a part of them, or none; a transaction
        with a part can only be aborted.

        Raises:
            KafkaError: nothing was sent: no such partition, no metadata for `max.block.ms`, not in
                a transaction.
            TypeError: nothing was sent: a key, a value, a header or a timestamp is none.
            ValueError: nothing was sent: the columns are not of one length, a timestamp is below 0.
        """
        transaction = self._transactions.life.number
        self._check_sending(transaction)
        delivery: asyncio.Future[list[RecordMetadata]] = asyncio.get_running_loop().create_future()
        if not values:
            delivery.set_result([])
            return delivery
        bulk = BulkDelivery(len(values), partial(tell_together, delivery))
        unsent = deque(
            self._preparation.lots(topic, values, keys, headers, timestamps_ms, partition)
        )
        try:
            while unsent:
                await self._put_many(unsent[0], bulk, transaction)
                unsent.popleft()
        except asyncio.CancelledError:
            if unsent[0].first_index + unsent[0].next:
                self._transactions.was_cancelled("sending many records", transaction)
            raise
        except Exception as failure:  # a user's partitioner may raise anything
            error = failure
            if not isinstance(error, KafkaError):
                error = KafkaError(f"the record could not be sent: {failure!r}")
            for lot in unsent:
                for _ in range(lot.next, len(lot.values)):
                    self._refused(lot.topic, lot.partition, error, transaction)
            begun = unsent[0].first_index + unsent[0].next
            if not begun:
                raise
            self._reports.log_undelivered(len(values) - begun, topic, error)
            for index in range(begun, len(values)):
                bulk.failed(index, error)
        return delivery

    async def flush(self) -> None:
        """Waits until every record sent so far is delivered or has failed; none lingers."""
        self._cluster.check_process()
        await self._settled()

    async def partitions_for(self, topic: str) -> TopicMetadata:
        """A topic with its partitions.

        Raises:
            KafkaError: it cannot be had within `max.block.ms`.
        """
        if not self._cluster.outdated([topic]):
            return self._cluster.metadata.topics[topic]
        return await self._wait_for_metadata(topic)

    # --- inside -----------------------------------------------------------------------------

    def _check_sending(self, transaction: int, *, was_begun: bool = False) -> None:
        if self._is_closed:
            self._cluster.check_process()
            raise ClientClosed("the producer was closed")
        if self._transactions.is_transactional:
            self._transactions.life.check_sending(transaction, was_begun=was_begun)

    async def _enter(self, wait: Coroutine[Any, Any, T], transaction: int) -> T:
        """Waits for what a record needs before its batch; a commit waits for both."""
        with self._about_to_enter():
            found = await wait
        self._check_sending(transaction, was_begun=True)
        return found

    def _known(self, topic: str, partition: int | None) -> TopicMetadata | None:
        """The metadata of a topic, unless it lacks the requested partition."""
        known = self._cluster.metadata.topics.get(topic)
        if known is None or partition is None or partition in known.partition_metadata:
            return known
        return None

    async def _put_many(self, lot: Lot, bulk: BulkDelivery, transaction: int) -> None:
        outcome = Outcome.PUT
        while not lot.is_empty:
            has_turn = outcome is Outcome.NO_ROOM  # others would take the room
            if not has_turn and (self._accumulator.has_full or self._turns_given):
                await self._enter(self._let_sender_run(), transaction)
            known = self._known(lot.topic, lot.partition)
            if known is None:
                known = await self._enter(self._wait_for_metadata(lot.topic), transaction)
            begin, errors_before = lot.next, len(bulk.errors)
            outcome = self._intake.put_many(known, lot, bulk, has_turn=has_turn)
            if len(bulk.errors) > errors_before:
                for index in range(begin, lot.next):
                    error = bulk.errors.get(lot.first_index + index)
                    if error is not None:
                        self._refused(lot.topic, lot.partition, error, transaction)
                        self._reports.log_undelivered(1, lot.topic, error)
            if outcome is Outcome.NO_ROOM:
                await self._enter(self._wait_for_room(), transaction)
            elif outcome is Outcome.NEWS:
                self._wake()

    def _wake(self) -> None:
        if self._sender is None:
            self._sender = Sender(
                self._cluster, self._accumulator, self._transactions, self._delivered
            )
        self._sender.wake()

    async def _settled(
        self, *, awaits_answers: bool = False, awaits_entering: bool = False
    ) -> None:
        """Waits until the outcome of all present records is known; nothing lingers meanwhile. If
        wanted also until all their requests have ended, and until all records of a `send_many` are
        in batches."""
        waiting = deque(self._accumulator.unfinished())
        self._hurry(1)
        try:
            while True:
                while waiting and (
                    waiting[0].is_done or (waiting[0].is_told and not awaits_answers)
                ):
                    waiting.extendleft(reversed(waiting.popleft().halves))
                if not waiting and not (awaits_entering and self._entering):
                    break
                self._wake()
                self._idle.clear()
                await self._idle.wait()
                if awaits_entering:
                    waiting = deque(self._accumulator.unfinished())
        finally:
            self._hurry(-1)

    def _hurry(self, change: int) -> None:
        self._hurried += change
        self._accumulator.hurries = self._hurried > 0

    async def _let_sender_run(self) -> None:
        """Lets a full batch leave before the next is filled, and not only when all memory is full.
        Later callers wait behind, so records keep their order."""
        self._accumulator.has_full = False
        self._turns_given += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._turns_given -= 1

    async def _wait_for_room(self) -> None:
        size = self._intake.refused_bytes
        limit = self._cluster.time_limit("max.block.ms")
        self._intake.waiting_count += 1
        self._hurry(1)
        self._wake()
        try:
            async with asyncio.timeout(limit.ms / 1000):
                async with self._room_in_turn:
                    while not self._intake.has_room(size):
                        self._room.clear()
                        await self._room.wait()
                    self._accumulator.has_full = False
        except TimeoutError:
            self._exhausted.add()
            raise BufferExhausted(
                f"buffer.memory ({self._buffer_bytes} bytes) was full for {limit}"
            ) from None
        finally:
            self._hurry(-1)
            self._intake.waiting_count -= 1

    async def _wait_for_metadata(self, topic: str) -> TopicMetadata:
        async def attempt() -> TopicMetadata:
            answer = await self._cluster.refresh([topic], allow_auto_topic_creation=True)
            found = answer.topics.get(topic)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error_code
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # It may be about to be created: worth the whole time, not only a moment.
                raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, "no broker has it")
            if code:
                error = error_for(code)
                raise error if error.retriable else error_about(code, topic)
            return self._cluster.metadata.topics[topic]

        try:
            return await self._cluster.retrying(attempt, self._cluster.time_limit("max.block.ms"))
        except KafkaError as error:
            if not error.retriable:
                raise
            raise RequestTimedOut(
                f"topic {topic} is not in the metadata: {error.message}"
            ) from error

    def _delivered(
        self,
        batch: ProducerBatch,
        answer: ProducePartitionResponse | None,
        error: KafkaError | None,
    ) -> None:
        if not batch.is_told:
            batch.is_told = True
            self._reports.tell_batch(batch, answer, error)
        self._room.set()
        self._idle.set()

    def _refused(
        self, topic: str, partition: int | None, error: KafkaError, transaction: int
    ) -> None:
        """A record is in no batch, and its transaction can only be aborted if it is still there."""
        is_over = isinstance(error, UsageError | TransactionAborted)
        # The transaction of a record that closing refuses on its way in is not over.
        is_failed = isinstance(error, ClientClosed) or not is_over
        if transaction == self._transactions.life.number and is_failed:
            self._transactions.failed(error)
        self._reports.tell(nowhere(topic, partition), error)

    def _measure(self) -> None:
        metrics, accumulator = self._cluster.metrics, self._accumulator
        metrics.gauge("buffer-total-bytes", lambda: self._buffer_bytes)
        metrics.gauge(
            "buffer-available-bytes", lambda: max(0, self._buffer_bytes - accumulator.used_bytes)
        )
        metrics.gauge("waiting-threads", lambda: self._intake.waiting_count)
        self._exhausted = metrics.meter("buffer-exhausted")
