"""Sends the accumulator's batches: one task decides which are due; answers come by callbacks.

The task sleeps until a batch is due, an answer arrives or somebody calls `wake`. Before it sends,
it obtains the producer's id and adds partitions to the transaction. It looks up unknown and moved
leaders in the background: only their partitions wait.

It awaits nothing between the choice of ready batches and sending them: the choice would be
outdated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.connection import AsyncConnection
from odradek.client.aio.producing.transactions import TransactionManager
from odradek.client.apis import ClientApi
from odradek.client.core.metadata import ClusterMetadata
from odradek.client.core.network.handshake import Answer
from odradek.client.core.producing import requests
from odradek.client.core.producing.accumulator import Accumulator, ProducerBatch
from odradek.client.core.producing.producer_metrics import ProducerMetrics
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
from odradek.protocol.direct.produce import (
    ProducePartitionResponse,
    ProduceResponse,
    decode_produce_response,
)
from odradek.protocol.primitives import Buffer

_LOGGER: Final = logging.getLogger(__name__)
_LOST_PLACE: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
)
# Errors from before the append. Any other error may have happened after it.
_NOT_APPENDED: Final = _LOST_PLACE | {
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
_ENDING: Final = frozenset(
    {TransactionState.ABORTABLE, TransactionState.ABORTING, TransactionState.FATAL}
)
_BEGINS_ANEW_S: Final = 0.1
# An election is over by then, as a rule.
_QUIET_ATTEMPTS: Final = 3
Delivered = Callable[[ProducerBatch, ProducePartitionResponse | None, KafkaError | None], None]


class _Connecting(NamedTuple):
    """A connection that is being opened, and the requests that wait for it, in their order."""

    task: asyncio.Task[AsyncConnection]
    waiting: list[list[ProducerBatch]]


class Sender:
    """The background of a producer.

    `delivered` is called for every batch when its outcome is known, and again when a batch comes
    back that was given up while it was under way.
    """

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
            cluster.rng,
        )
        self._requests: dict[int, set[asyncio.Future[Any]]] = {}
        self._connecting: dict[int, _Connecting] = {}
        self._woken = asyncio.Event()
        # Partitions whose leader is not known, or not where it was, since when they were marked so.
        self._leaderless: set[TopicPartition] = set()
        self._refreshing: asyncio.Task[ClusterMetadata] | None = None
        self._metrics = ProducerMetrics(cluster.metrics)
        cluster.metrics.gauge(
            "requests-in-flight", lambda: sum(len(each) for each in self._requests.values())
        )
        self._is_closed = False
        self._task = self._begin()

    def wake(self) -> None:
        """Makes the task look for batches to send; begins it again after somebody else has
        cancelled it."""
        if self._task.done() and not self._is_closed:
            self._task = self._begin()
        self._woken.set()

    def _begin(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run())
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Ends the sender at once; undelivered records fail."""
        self._is_closed = True
        tasks = [self._task, *set().union(*self._requests.values())]
        tasks += [each.task for each in self._connecting.values()]
        if self._refreshing is not None:
            tasks.append(self._refreshing)
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
        """How long to wait for a broker before checking for expired batches."""
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
        """Metadata or the producer's id cannot be obtained; waiting records fail if that is
        permanent."""
        _LOGGER.debug("nothing can be sent now: %s", error)
        if not error.retriable:
            self._transactions.failed(error)
            self._give_up(self._accumulator.pending(), error)

    async def _send_ready(self) -> int | None:
        """Sends the due batches; returns when to look again, None if an event will wake the task.

        Raises:
            KafkaError: the producer's id cannot be had, or a partition not be added.
            TimeoutError: something has expired meanwhile.
        """
        now_ms = self._now_ms()
        self._expire(now_ms)
        if self._transactions.life.state in _ENDING:
            self._drop_pending()
        ready, due_ms = self._accumulator.ready(now_ms)
        by_node = self._by_leader(ready)
        throttled_ms = self._without_throttled(by_node)
        self._refresh(ready)
        if by_node:
            preparation = self._preparation([each for some in by_node.values() for each in some])
            if preparation is not None:
                async with asyncio.timeout(self._patience_s()):
                    await preparation
                return now_ms
            for node_id, partitions in by_node.items():
                self._send_to(node_id, partitions)
        throttled_until_ms = None if throttled_ms is None else now_ms + throttled_ms
        dues = (due_ms, throttled_until_ms, self._next_expiry_ms())
        return min([each for each in dues if each is not None], default=None)

    def _preparation(self, ready: list[TopicPartition]) -> Awaitable[None] | None:
        """The steps due before sending to these partitions; almost always none."""
        transactions = self._transactions
        if not transactions.numbers_batches:
            return None
        if transactions.producer_id == self._accumulator.spent_producer_id:
            return transactions.obtain_id()
        if transactions.is_transactional and transactions.lacks(ready):
            return transactions.add_partitions(ready)
        return None

    # --- leaders ----------------------------------------------------------------------------

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._cluster.metadata.leader_of(partition)
            if leader is None:
                self._leaderless.add(partition)
            elif (
                partition not in self._leaderless
                and not self._accumulator.is_under_way_to_another(
                    partition, leader.id, self._topic_id(partition)
                )
            ):
                found.setdefault(leader.id, []).append(partition)
        return found

    def _without_throttled(self, by_node: dict[int, list[TopicPartition]]) -> int | None:
        """Removes brokers that throttle this client; returns the shortest of their times."""
        throttled = {each: self._cluster.throttled_ms(each) for each in by_node}
        for node_id, wait_ms in throttled.items():
            if wait_ms:
                del by_node[node_id]
        return min((wait_ms for wait_ms in throttled.values() if wait_ms), default=None)

    def _refresh(self, ready: Iterable[TopicPartition]) -> None:
        """Asks for metadata of partitions without a known leader, or with one that is doubted or
        old; the others continue meanwhile."""
        wanted = {each.topic for each in self._leaderless}
        wanted |= self._cluster.outdated({each.topic for each in ready})
        if wanted and self._refreshing is None:
            self._refreshing = asyncio.create_task(self._cluster.refresh(wanted))
            self._refreshing.add_done_callback(partial(self._refreshed, set(self._leaderless)))

    def _refreshed(
        self, asked: set[TopicPartition], refreshing: asyncio.Task[ClusterMetadata]
    ) -> None:
        self._refreshing = None
        fault = _fault_of(refreshing)
        if fault is None:
            self._leaderless -= asked
        elif isinstance(fault, KafkaError):
            self._on_trouble(fault)
        else:
            _LOGGER.error("asking for leaders failed unexpectedly", exc_info=fault)
        self.wake()

    # --- one request ------------------------------------------------------------------------

    def _send_to(self, node_id: int, partitions: list[TopicPartition]) -> None:
        waiting = list(partitions)
        while waiting and self._request_count(node_id) < self._max_in_flight:
            self._send_in_turn(node_id, self._next_request(node_id, waiting))

    def _request_count(self, node_id: int) -> int:
        count = len(self._requests.setdefault(node_id, set()))
        connecting = self._connecting.get(node_id)
        return count if connecting is None else count + len(connecting.waiting)

    def _next_request(self, node_id: int, waiting: list[TopicPartition]) -> list[ProducerBatch]:
        """Takes the next batches of as many partitions as go into one request; at least one."""
        batches: list[ProducerBatch] = []
        left_bytes = self._request_max_bytes
        while waiting and (not batches or self._accumulator.next_bytes(waiting[0]) <= left_bytes):
            batch = self._drain(waiting.pop(0), node_id)
            left_bytes -= batch.size_bytes
            batches.append(batch)
        return batches

    def _send_in_turn(self, node_id: int, batches: list[ProducerBatch]) -> None:
        """Sends batches, behind those that wait for a connection."""
        connecting = self._connecting.get(node_id)
        if connecting is not None:
            connecting.waiting.append(batches)
        elif (connection := self._cluster.connection_at_hand(node_id)) is not None:
            self._produce(connection, self._requests[node_id], batches)
        else:
            task = asyncio.create_task(self._cluster.connection(node_id))
            self._connecting[node_id] = _Connecting(task, [batches])
            task.add_done_callback(partial(self._connected, node_id))

    def _connected(self, node_id: int, task: asyncio.Task[AsyncConnection]) -> None:
        waiting = self._connecting.pop(node_id).waiting
        fault = _fault_of(task)
        for batches in () if self._is_closed else waiting:
            if fault is not None:
                self._request_failed(batches, fault)
            elif left := self._without_expired(batches):
                self._produce(task.result(), self._requests[node_id], left)
        self.wake()

    def _without_expired(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Gives up the batches that were reported as failed before they were sent."""
        text = "the record expired before its broker was connected"
        self._give_up([each for each in batches if each.is_told], RequestTimedOut(text))
        return [each for each in batches if not each.is_done]

    def _drain(self, partition: TopicPartition, node_id: int) -> ProducerBatch:
        return self._accumulator.drain(
            partition,
            self._transactions.producer_id,
            self._transactions.producer_epoch,
            self._now_ms(),
            node_id,
            self._topic_id(partition),
        )

    def _topic_id(self, partition: TopicPartition) -> UUID | None:
        topic = self._cluster.metadata.topics.get(partition.topic)
        return None if topic is None else topic.topic_id

    def _produce(
        self,
        connection: AsyncConnection,
        requests: set[asyncio.Future[Any]],
        batches: list[ProducerBatch],
    ) -> None:
        if self._acks:
            self._ask(connection, requests, batches)
            return
        task = asyncio.create_task(self._send_unanswered(connection, batches))
        requests.add(task)
        task.add_done_callback(partial(self._unanswered_ended, requests, batches))

    def _ask(
        self,
        connection: AsyncConnection,
        requests: set[asyncio.Future[Any]],
        batches: list[ProducerBatch],
    ) -> None:
        """Sends batches; the callback of the answer handles it."""
        metadata = self._cluster.metadata
        try:
            api, version, body = self._encoded(connection, batches)
            answered = connection.request(api, version, body, self._cluster.request_timeout_ms)
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
                response = self._read(connection, api, version, answered.result())
                self._on_response(batches, response, metadata)
            except Exception as fault:  # noqa: BLE001 - a mistake of ours, batches are not to hang
                self._request_failed(batches, fault)
            self.wake()

        answered.add_done_callback(on_answer)

    async def _send_unanswered(
        self, connection: AsyncConnection, batches: list[ProducerBatch]
    ) -> None:
        api, version, body = self._encoded(connection, batches)
        # Bytes that the transport still has are in memory, and dropped with it.
        await connection.send_unanswered(api, version, body, self._cluster.request_timeout_ms)
        for batch in batches:
            self._succeeded(batch, None)

    def _unanswered_ended(
        self,
        requests: set[asyncio.Future[Any]],
        batches: list[ProducerBatch],
        task: asyncio.Task[None],
    ) -> None:
        requests.discard(task)
        fault = _fault_of(task)
        if fault is not None and not self._is_closed:
            self._request_failed(batches, fault)
        # Not before: of requests that end together none would make room for the next.
        self.wake()

    def _encoded(
        self, connection: AsyncConnection, batches: list[ProducerBatch]
    ) -> tuple[ClientApi, int, list[Buffer]]:
        terms = requests.Terms(
            self._transactions.transactional_id, self._acks, self._cluster.request_timeout_ms
        )
        api = terms.api
        version = connection.agree(api)
        body = requests.encode_request(
            terms,
            [
                (each.partition, each.encoded(self._transactions.is_transactional))
                for each in batches
            ],
            self._cluster.metadata,
            version,
        )
        self._metrics.sent(batches)
        for batch in batches:
            batch.unanswered += 1
        return api, version, body

    def _read(
        self, connection: AsyncConnection, api: ClientApi, version: int, answer: Answer
    ) -> ProduceResponse:
        return self._cluster.decoded(connection, api, version, answer, decode_produce_response)

    def _request_failed(self, batches: list[ProducerBatch], fault: BaseException) -> None:
        """A request failed, by an error of Kafka's or a mistake of ours."""
        if isinstance(fault, KafkaError):
            self._all_failed(batches, fault)
        else:
            self._broke(batches, fault)

    def _broke(self, batches: list[ProducerBatch], fault: BaseException) -> None:
        """Ends the batches after a mistake of ours."""
        _LOGGER.error("a produce request failed unexpectedly", exc_info=fault)
        left = [batch for batch in batches if not batch.is_done]
        self._give_up(left, KafkaError(f"the producer failed: {fault!r}"))

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # By a program that cancels all tasks. If its loop goes on, so does the sender.
            if not self._is_closed:
                asyncio.get_running_loop().call_later(_BEGINS_ANEW_S, self.wake)
        elif (fault := task.exception()) is not None:
            _LOGGER.error("the sender failed unexpectedly", exc_info=fault)
            error = KafkaError(f"the producer failed: {fault!r}")
            self._give_up(self._accumulator.pending(), error)
            self._task = self._begin()  # later records need an end as well

    # --- answers ----------------------------------------------------------------------------

    def _on_response(
        self,
        batches: list[ProducerBatch],
        response: ProduceResponse,
        metadata: ClusterMetadata,
    ) -> None:
        """Topics are called in `response` what they were called in `metadata`, when it was asked
        for: they may be unknown by now, or be others."""
        answers = requests.answers_in(response, metadata)
        latency_ms = self._now_ms() - batches[0].drained_ms
        self._metrics.answered(latency_ms, response.throttle_time_ms)
        for batch in batches:
            answer = answers.get(batch.partition)
            if answer is None:
                self._failed(batch, NetworkError(f"no answer about {batch.partition}"))
                continue
            batch.unanswered -= 1
            batch.is_perhaps_in_log |= answer.error_code not in _NOT_APPENDED
            if answer.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._succeeded(batch, answer)
            else:
                self._cluster.metadata = requests.with_leader_of(
                    self._cluster.metadata, metadata, batch.partition, answer, response
                )
                self._failed(batch, error_for(answer.error_code, answer.error_message), answer)

    def _succeeded(self, batch: ProducerBatch, answer: ProducePartitionResponse | None) -> None:
        self._accumulator.done(batch)
        self._delivered(batch, answer, None)
        self._give_up_overtaken(batch.partition)

    def _all_failed(self, batches: list[ProducerBatch], error: KafkaError) -> None:
        for batch in batches:
            self._failed(batch, error)

    def _failed(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        answer: ProducePartitionResponse | None = None,
    ) -> None:
        # A broker that does not answer cannot say that another leads by now.
        is_unanswered = answer is None and error.retriable
        if is_unanswered or isinstance(error, StaleMetadata | NetworkError):
            self._leaderless.add(batch.partition)
            self._cluster.doubt([batch.partition.topic])
        if batch.is_told:
            self._give_up([batch], error)
        elif error.code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._accumulator.split(batch)
            self._metrics.splits.add()
            self.wake()
        elif self._may_retry(batch, error):
            wait_ms = self._backoff.wait_ms(batch.attempts - 1)
            self._accumulator.retry(batch, self._now_ms() + wait_ms)
            self._metrics.tried_again(batch)
            if answer is not None and batch.attempts > _QUIET_ATTEMPTS:
                self._cluster.warn(f"records for {batch.partition} are not written yet: {error}")
        else:
            self._give_up([batch], error, answer)
        self._give_up_overtaken(batch.partition)

    def _give_up_overtaken(self, partition: TopicPartition) -> None:
        overtaken = self._accumulator.overtaken(partition)
        if overtaken:
            text = "The log lost the records before these, and has later ones."
            self._give_up(overtaken, error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text))

    def _may_retry(self, batch: ProducerBatch, error: KafkaError) -> bool:
        age_ms = self._now_ms() - batch.created_ms
        if age_ms >= self._delivery_timeout_ms or batch.attempts > self._retries:
            return False
        if error.retriable:
            return True
        if error.code not in _LOST_PLACE or not self._transactions.numbers_batches:
            return False
        if not self._accumulator.has_earlier(batch):
            if self._transactions.is_transactional:
                return False
            if not self._accumulator.may_be_numbered_anew(batch):
                return False
            # The broker has forgotten us, or lost what it had acknowledged.
            self._accumulator.lost_place(batch)
        return True

    def _give_up(
        self,
        batches: Iterable[ProducerBatch],
        error: KafkaError,
        answer: ProducePartitionResponse | None = None,
    ) -> None:
        for batch in list(batches):
            if not batch.is_told:
                self._fail(batch, error)
            self._accumulator.give_up(batch)
            self._delivered(batch, answer, error)

    def _fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        self._transactions.lost_batch(error, was_sent=bool(batch.attempts))
        self._metrics.failed(batch)

    def _expire(self, now_ms: int) -> None:
        for batch in self._accumulator.expired(now_ms - self._delivery_timeout_ms):
            error = RequestTimedOut(
                f"{batch.record_count} records for {batch.partition} were not delivered within "
                f"{self._delivery_timeout_ms} ms (delivery.timeout.ms)"
            )
            if batch.is_in_flight:
                # Its place in the sequence is not known before its request has an end.
                self._fail(batch, error)
                self._delivered(batch, None, error)
            else:
                self._give_up([batch], error)

    def _next_expiry_ms(self) -> int | None:
        oldest_ms = self._accumulator.oldest_ms
        return None if oldest_ms is None else oldest_ms + self._delivery_timeout_ms

    def _drop_pending(self) -> None:
        """Fails the unsent records of a transaction that is being aborted."""
        aborted = TransactionAborted("the transaction was aborted before the record was sent")
        self._give_up(self._accumulator.pending(), self._transactions.life.error or aborted)

    def _now_ms(self) -> int:
        return self._cluster.clock.monotonic_ms()


def _fault_of(task: asyncio.Task[Any]) -> BaseException | None:
    """Why a task failed. A program that cancels all its tasks is like a network that fails."""
    if task.cancelled():
        return NetworkError("the request was cancelled by somebody else")
    return task.exception()
