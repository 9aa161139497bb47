"""Sends what the accumulator has: one task decides what goes now; answers come by callbacks.

The task sleeps until a batch is due, an answer came or somebody knocks (`wake`). It also sees to
what must come first: metadata of topics, the producer's id, and of a transaction the partitions.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.connection import AsyncConnection
from odradek.client.aio.transactions import TransactionManager
from odradek.client.apis import PRODUCE, ClientApi
from odradek.client.core.connection import Answer
from odradek.client.core.metadata import Node
from odradek.client.core.producing.accumulator import Accumulator, ProducerBatch
from odradek.client.core.producing.transaction_state import TransactionState
from odradek.client.core.retries import ExponentialBackoff
from odradek.client.errors import (
    KafkaError,
    NetworkError,
    RequestTimedOut,
    StaleMetadata,
    TransactionAborted,
    error_for,
)
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.primitives import Buffer, ProtocolError
from odradek.protocol.produce import (
    TOPIC_ID_VERSION,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)

_LOGGER: Final = logging.getLogger(__name__)
# Transactional batches of newer versions add their partition to the transaction by themselves;
# partitions are added by AddPartitionsToTxn here, which every broker understands.
_TRANSACTIONAL_PRODUCE: Final = ClientApi(
    PRODUCE.key, PRODUCE.name, PRODUCE.min_version, 11, PRODUCE.flexible_from
)
_LOST_PLACE: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
)
_ENDING: Final = frozenset(
    {TransactionState.ABORTABLE, TransactionState.ABORTING, TransactionState.FATAL}
)
Delivered = Callable[[ProducerBatch, ProducePartitionResponse | None, KafkaError | None], None]


class Sender:
    """The background of a producer. `delivered` is called once for every batch, at its end."""

    def __init__(
        self,
        cluster: ClusterClient,
        accumulator: Accumulator,
        transactions: TransactionManager,
        delivered: Delivered,
    ) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._accumulator = accumulator
        self._transactions = transactions
        self._delivered = delivered
        acks = settings.text("acks")
        self._acks = -1 if acks == "all" else int(acks)
        self._request_max_bytes = settings.number("max.request.size")
        self._max_in_flight = settings.number("max.in.flight.requests.per.connection")
        self._delivery_timeout_ms = settings.number("delivery.timeout.ms")
        self._retries = settings.number("retries")
        self._backoff = ExponentialBackoff(
            settings.number("retry.backoff.ms"),
            settings.number("retry.backoff.max.ms"),
            cluster.dice,
        )
        self._requests: dict[int, set[asyncio.Future[Any]]] = {}
        self._woken = asyncio.Event()
        self._stale_topics: set[str] = set()
        self._task = self._begin()

    def wake(self) -> None:
        """There may be something to do."""
        self._woken.set()

    def _begin(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run())
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Ends at once; what is not delivered by then fails."""
        tasks = [self._task, *(task for tasks in self._requests.values() for task in tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closed = KafkaError("the producer was closed before the record was delivered")
        self._give_up(self._accumulator.unfinished(), closed)

    # --- the loop ---------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while True:
            self._woken.clear()
            try:
                due_ms = await self._send_ready()
                failures = 0
            except TimeoutError:
                due_ms = self._now_ms()
            except KafkaError as error:
                due_ms = self._now_ms() + self._backoff.wait_ms(failures)
                failures += 1
                self._on_trouble(error)
            await self._sleep_until(due_ms)

    def _patience_s(self) -> float | None:
        """How long to wait for a broker before looking at what has expired meanwhile."""
        expiry_ms = self._next_expiry_ms()
        return None if expiry_ms is None else max(1, expiry_ms - self._now_ms()) / 1000

    async def _sleep_until(self, due_ms: int | None) -> None:
        timer: asyncio.TimerHandle | None = None
        if due_ms is not None:
            wait_s = max(0, due_ms - self._now_ms()) / 1000
            timer = asyncio.get_running_loop().call_later(wait_s, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _on_trouble(self, error: KafkaError) -> None:
        """Metadata or the producer's id cannot be had; what waits fails when it is for good."""
        _LOGGER.debug("nothing can be sent now: %s", error)
        if not error.retriable:
            self._transactions.life.fail(error)
            self._give_up(self._accumulator.pending(), error)

    async def _send_ready(self) -> int | None:
        """Sends what is due; when to look again, None if something else will wake us.

        Raises:
            KafkaError: metadata or the producer's id cannot be had.
        """
        now_ms = self._now_ms()
        self._expire(now_ms)
        if self._transactions.life.state in _ENDING:
            self._drop_pending()
        ready, due_ms = self._accumulator.ready(now_ms)
        if ready:
            if not await self._prepare(ready):
                return due_ms
            by_node = self._by_leader(ready)
            if self._stale_topics:
                again_ms = now_ms + self._backoff.wait_ms(0)
                due_ms = again_ms if due_ms is None else min(due_ms, again_ms)
            for node_id, partitions in by_node.items():
                self._send_to(node_id, partitions)
        expiry_ms = self._next_expiry_ms()
        dues = [each for each in (due_ms, expiry_ms) if each is not None]
        return min(dues, default=None)

    async def _prepare(self, ready: list[TopicPartition]) -> bool:
        """Sees to all that comes before sending, almost always nothing; whether the batches may
        leave now."""
        await self._refresh(ready)
        if not self._transactions.numbers_batches:
            return True
        if self._transactions.needs_new_epoch:
            if self._transactions.is_transactional or self._accumulator.in_flight_count:
                return False  # the abort, or their answers, wake us
            await self._patiently(self._transactions.obtain_id())
        elif not self._transactions.has_id:
            await self._patiently(self._transactions.obtain_id())
        if self._transactions.is_transactional:
            await self._patiently(self._transactions.add_partitions(ready))
        return True

    async def _patiently(self, question: Coroutine[Any, Any, object]) -> None:
        """Waits for a broker, but looks at what expires meanwhile.

        Raises:
            TimeoutError: something has.
        """
        async with asyncio.timeout(self._patience_s()):
            await question

    async def _refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Asks for what is unknown, stale, or old."""
        metadata = self._cluster.metadata
        wanted = {each.topic for each in partitions if metadata.leader_of(each) is None}
        wanted |= self._stale_topics
        if self._cluster.is_metadata_old:
            wanted |= self._accumulator.topics()
        if wanted:
            stale, self._stale_topics = self._stale_topics, set()
            try:
                await self._patiently(self._cluster.refresh(wanted))
            except BaseException:
                self._stale_topics |= stale
                raise

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._cluster.metadata.leader_of(partition)
            if leader is None:
                self._stale_topics.add(partition.topic)
            else:
                found.setdefault(leader.id, []).append(partition)
        return found

    # --- one request ------------------------------------------------------------------------

    def _send_to(self, node_id: int, partitions: list[TopicPartition]) -> None:
        requests = self._requests.setdefault(node_id, set())
        waiting = list(partitions)
        while waiting and len(requests) < self._max_in_flight:
            batches: list[ProducerBatch] = []
            size_bytes = 0
            while waiting and size_bytes < self._request_max_bytes:
                batch = self._accumulator.drain(waiting.pop(0))
                size_bytes += batch.size_bytes
                batches.append(batch)
            connection = self._cluster.connection_at_hand(node_id)
            # What waits for a connection yet goes before what comes after it.
            is_awaited = any(isinstance(each, asyncio.Task) for each in requests)
            if connection is None or is_awaited or self._acks == 0:
                task = asyncio.create_task(self._produce(node_id, batches))
                requests.add(task)
                task.add_done_callback(partial(self._request_ended, requests, batches))
            else:
                self._produce_at_once(connection, requests, batches)

    def _produce_at_once(
        self,
        connection: AsyncConnection,
        requests: set[asyncio.Future[Any]],
        batches: list[ProducerBatch],
    ) -> None:
        """As `_produce`, on a connection that is there: without a task."""
        try:
            version, answered = self._sent(connection, batches)
        except Exception as fault:  # noqa: BLE001 - a mistake of ours, the sender is not to die of
            self._request_failed(batches, fault)
            self.wake()
            return
        requests.add(answered)

        def on_answer(answered: asyncio.Future[Answer]) -> None:
            requests.discard(answered)
            if answered.cancelled():
                return
            try:
                self._on_response(batches, self._read(connection, version, answered.result()))
            except Exception as fault:  # noqa: BLE001 - a mistake of ours, batches are not to hang
                self._request_failed(batches, fault)
            self.wake()

        answered.add_done_callback(on_answer)

    async def _produce(self, node_id: int, batches: list[ProducerBatch]) -> None:
        try:
            response = await self._ask(node_id, batches)
        except KafkaError as error:
            self._all_failed(batches, error)
        else:
            self._on_response(batches, response)

    async def _ask(self, node_id: int, batches: list[ProducerBatch]) -> ProduceResponse | None:
        connection = await self._cluster.connection(node_id)
        if self._acks == 0:
            api, version, body = self._encoded(connection, batches)
            connection.send_unanswered(api, version, body)
            return None
        version, answered = self._sent(connection, batches)
        return self._read(connection, version, await answered)

    def _sent(
        self, connection: AsyncConnection, batches: list[ProducerBatch]
    ) -> tuple[int, asyncio.Future[Answer]]:
        """Sends batches; in which version, and what will be answered."""
        api, version, body = self._encoded(connection, batches)
        return version, connection.request(api, version, body, self._cluster.request_timeout_ms)

    def _encoded(
        self, connection: AsyncConnection, batches: list[ProducerBatch]
    ) -> tuple[ClientApi, int, list[Buffer]]:
        api = _TRANSACTIONAL_PRODUCE if self._transactions.is_transactional else PRODUCE
        version = connection.agree(api)
        return api, version, encode_produce_request(self._request(batches, version), version)

    def _read(self, connection: AsyncConnection, version: int, answer: Answer) -> ProduceResponse:
        try:
            return decode_produce_response(answer.frame, version, answer.position)
        except ProtocolError as error:
            broken = NetworkError(f"{connection.address}: {error}")
            connection.close(broken)
            raise broken from error

    def _request(self, batches: list[ProducerBatch], version: int) -> ProduceRequest:
        transactions = self._transactions
        topics: dict[str, ProduceTopic] = {}
        for batch in batches:
            topic = topics.get(batch.partition.topic)
            if topic is None:
                topic = topics[batch.partition.topic] = self._topic(batch.partition.topic, version)
            records = batch.encoded(
                transactions.producer_id,
                transactions.producer_epoch,
                transactions.is_transactional,
            )
            topic.partitions.append(ProducePartition(batch.partition.partition, records))
        return ProduceRequest(
            transactions.transactional_id,
            self._acks,
            self._cluster.request_timeout_ms,
            list(topics.values()),
        )

    def _topic(self, name: str, version: int) -> ProduceTopic:
        if version < TOPIC_ID_VERSION:
            return ProduceTopic(name, None, [])
        known = self._cluster.metadata.topics.get(name)
        if known is None or known.topic_id is None:
            raise StaleMetadata(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return ProduceTopic(None, known.topic_id, [])

    def _request_ended(
        self,
        requests: set[asyncio.Future[Any]],
        batches: list[ProducerBatch],
        task: asyncio.Task[None],
    ) -> None:
        requests.discard(task)
        # Not before: of requests that end together none would make room for the next.
        self.wake()
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._broke(batches, fault)

    def _request_failed(self, batches: list[ProducerBatch], fault: Exception) -> None:
        """A request failed, by an error of Kafka's or a mistake of ours."""
        if isinstance(fault, KafkaError):
            self._all_failed(batches, fault)
        else:
            self._broke(batches, fault)

    def _broke(self, batches: list[ProducerBatch], fault: BaseException) -> None:
        """A mistake of ours: the batches are owed an end all the same."""
        _LOGGER.error("a produce request failed unexpectedly", exc_info=fault)
        left = [batch for batch in batches if batch in self._accumulator.unfinished()]
        self._give_up(left, KafkaError(f"the producer failed: {fault!r}"))

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            _LOGGER.error("the sender failed unexpectedly", exc_info=fault)
            error = KafkaError(f"the producer failed: {fault!r}")
            self._give_up(self._accumulator.pending(), error)
            self._task = self._begin()  # whoever sends more is owed an end of that, too

    # --- answers ----------------------------------------------------------------------------

    def _on_response(self, batches: list[ProducerBatch], response: ProduceResponse | None) -> None:
        answers = {} if response is None else self._answers(response)
        for batch in batches:
            answer = answers.get(batch.partition)
            if response is None:
                self._succeeded(batch, None)
            elif answer is None:
                self._failed(batch, NetworkError(f"no answer about {batch.partition}"))
            elif answer.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._succeeded(batch, answer)
            else:
                self._learn_leader(batch.partition, answer, response)
                self._failed(batch, error_for(answer.error_code, answer.error_message), answer)

    def _answers(self, response: ProduceResponse) -> dict[TopicPartition, ProducePartitionResponse]:
        by_id = self._cluster.metadata.topics_by_id
        found = {}
        for topic in response.topics:
            name = topic.name
            if name is None and topic.topic_id is not None and topic.topic_id in by_id:
                name = by_id[topic.topic_id].name
            if name is not None:
                for answer in topic.partitions:
                    found[TopicPartition(name, answer.index)] = answer
        return found

    def _learn_leader(
        self,
        partition: TopicPartition,
        answer: ProducePartitionResponse,
        response: ProduceResponse,
    ) -> None:
        if answer.current_leader_id < 0:
            return
        cluster = self._cluster
        nodes = [
            Node(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints
        ]
        cluster.metadata = cluster.metadata.with_nodes(nodes).with_leader(
            partition, answer.current_leader_id, answer.current_leader_epoch
        )

    def _succeeded(self, batch: ProducerBatch, answer: ProducePartitionResponse | None) -> None:
        self._accumulator.done(batch)
        self._delivered(batch, answer, None)

    def _all_failed(self, batches: list[ProducerBatch], error: KafkaError) -> None:
        for batch in batches:
            self._failed(batch, error)

    def _failed(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        answer: ProducePartitionResponse | None = None,
    ) -> None:
        if isinstance(error, StaleMetadata | NetworkError):
            self._stale_topics.add(batch.partition.topic)
        if error.code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._accumulator.split(batch)
            self.wake()
        elif self._may_retry(batch, error):
            wait_ms = self._backoff.wait_ms(batch.attempts - 1)
            self._accumulator.retry(batch, self._now_ms() + wait_ms)
        else:
            self._give_up([batch], error, answer)

    def _may_retry(self, batch: ProducerBatch, error: KafkaError) -> bool:
        age_ms = self._now_ms() - batch.created_ms
        if age_ms >= self._delivery_timeout_ms or batch.attempts > self._retries:
            return False
        if error.retriable:
            return True
        if error.code not in _LOST_PLACE or not self._transactions.numbers_batches:
            return False
        if not self._accumulator.has_earlier_failure(batch):
            if self._transactions.is_transactional:
                return False
            # The broker has forgotten us, or lost what it had acknowledged: begin a new epoch.
            self._transactions.needs_new_epoch = True
        return True

    def _give_up(
        self,
        batches: Iterable[ProducerBatch],
        error: KafkaError,
        answer: ProducePartitionResponse | None = None,
    ) -> None:
        for batch in list(batches):
            if batch.attempts:
                # What follows has later numbers: the broker would wait for this one for ever.
                self._transactions.lost_batch(error)
            self._accumulator.done(batch)
            self._delivered(batch, answer, error)

    def _expire(self, now_ms: int) -> None:
        for batch in self._accumulator.expired(now_ms - self._delivery_timeout_ms):
            age_ms = now_ms - batch.created_ms
            text = f"{batch.record_count} records for {batch.partition} were {age_ms} ms old"
            self._give_up([batch], RequestTimedOut(text))

    def _next_expiry_ms(self) -> int | None:
        oldest_ms = self._accumulator.oldest_pending_ms
        return None if oldest_ms is None else oldest_ms + self._delivery_timeout_ms

    def _drop_pending(self) -> None:
        """The transaction is being aborted: what has not left will not leave."""
        aborted = TransactionAborted("the transaction was aborted before the record was sent")
        self._give_up(self._accumulator.pending(), self._transactions.life.error or aborted)

    def _now_ms(self) -> int:
        return self._cluster.clock.monotonic_ms()
