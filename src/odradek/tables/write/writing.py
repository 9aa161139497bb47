"""Writes records to topics from one thread: batches by partition, acknowledged before it returns.

What a task of Spark's sink does. An idempotent producer: every batch has a sequence, and is sent
again as it is until its leader has it, so a lost answer makes no second copy. One batch of a
partition is under way at a time, which keeps the order; batches that are ready go to all
leaders at once. Who ends before `flush` has returned does not know what arrived.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from odradek.client.addresses import Address
from odradek.client.apis import INIT_PRODUCER_ID, PRODUCE
from odradek.client.blocking import BlockingConnection, Cluster
from odradek.client.core.metadata import TopicMetadata
from odradek.client.errors import NetworkError, error_for, raise_for
from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.primitives import ProtocolError
from odradek.protocol.produce import (
    TOPIC_ID_VERSION,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)
from odradek.records.builder import RecordBatchBuilder
from odradek.tables.write.record_accumulator import OpenBatch, RecordAccumulator, Rows

_ALL_REPLICAS: Final = -1
_LAST_WITH_ADDED_PARTITIONS: Final = 11
_ARRIVED: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


@dataclass(frozen=True)
class WriteOptions:
    """How records are written; sizes in bytes, times in milliseconds."""

    codec: int = 0
    # None is the codec's usual one.
    level: int | None = None
    batch_bytes: int = 262_144
    # All batches in the making together: with very many partitions each gets less.
    buffer_bytes: int = 33_554_432
    request_timeout_ms: int = 30_000


class Transaction(Protocol):
    """What records are written in, if anything: `transaction.BatchTransaction`."""

    @property
    def transactional_id(self) -> str:
        """Named in every request."""
        ...

    def producer(self) -> tuple[int, int]:
        """Whose records they are: id and epoch."""
        ...

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Told before the first records of a partition are sent."""
        ...


class TopicWriter:
    """Appends rows and sends them when there are enough; `flush` sends the rest.

    After an error it is to be given up, and what was appended may have arrived or not.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: WriteOptions,
        clock: Clock,
        transaction: Transaction | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = clock
        self._transaction = transaction
        self._producer = None if transaction is None else transaction.producer()
        self._accumulator = RecordAccumulator(
            self,
            random.Random(),
            batch_bytes=options.batch_bytes,
            buffer_bytes=options.buffer_bytes,
        )

    def append(self, rows: Rows) -> None:
        """Adds rows; one without a partition goes where its key says, without a key by chance.

        Raises:
            KafkaError: a topic or a partition is not there, or the broker refused a batch.
        """
        self._accumulator.append(rows, self._clock.wall_ms())

    def flush(self) -> None:
        """Sends what is left; all is acknowledged when it returns.

        Raises:
            KafkaError: the broker refused a batch, or did not answer in time.
        """
        self.send(self._accumulator.unsent())

    def topic(self, name: str) -> TopicMetadata:
        """Asked by the accumulator."""
        return self._cluster.retrying(lambda: self._cluster.topic(name))

    def new_builder(self, sequence: int) -> RecordBatchBuilder:
        """Asked by the accumulator."""
        producer_id, epoch = self._producer_id()
        return RecordBatchBuilder(
            self._options.codec,
            level=self._options.level,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=self._transaction is not None,
        )

    def send(self, batches: Iterable[OpenBatch]) -> None:
        """Asked by the accumulator: sends batches and waits until they are acknowledged."""
        waiting = {batch.partition: self._accumulator.take(batch) for batch in batches}
        if waiting and self._transaction is not None:
            self._transaction.add_partitions(waiting)
        if waiting:
            self._cluster.retrying(lambda: self._attempt(waiting))
        assert not waiting, f"{len(waiting)} batches were given up without an error"

    def _producer_id(self) -> tuple[int, int]:
        if self._producer is None:
            self._producer = self._cluster.retrying(self._ask_producer_id)
        return self._producer

    def _ask_producer_id(self) -> tuple[int, int]:
        connection = self._cluster.any_connection()
        version = connection.agree(INIT_PRODUCER_ID)
        values = {"transactional_id": None, "transaction_timeout_ms": 0}
        body = messages.encode_request(INIT_PRODUCER_ID.key, version, values)
        answer = connection.request(INIT_PRODUCER_ID, version, [body])
        try:
            response = messages.decode_response(INIT_PRODUCER_ID.key, version, *answer)
        except ProtocolError as error:
            raise NetworkError(str(error)) from error
        raise_for(response.error_code)
        return response.producer_id, response.producer_epoch

    def _attempt(self, waiting: dict[TopicPartition, bytes]) -> None:
        """Sends what is still waiting, to all leaders, and takes out what has arrived."""
        by_leader: dict[Address, dict[TopicPartition, bytes]] = {}
        for part, batch in waiting.items():
            by_leader.setdefault(self._cluster.leader_of(part), {})[part] = batch
        asked = [
            (self._ask(self._cluster.connection(address), batches), batches)
            for address, batches in by_leader.items()
        ]
        refused: list[tuple[TopicPartition, int, str | None]] = []
        for connection, batches in asked:
            for part, code, text in self._answers(connection, batches):
                if code in _ARRIVED:
                    del waiting[part]
                else:
                    refused.append((part, code, text))
        for part, code, text in refused:
            raise error_for(code, f"{part}: {text or ErrorCode(code).text}")

    def _ask(
        self, connection: BlockingConnection, batches: Mapping[TopicPartition, bytes]
    ) -> BlockingConnection:
        version = self._version(connection)
        by_topic: dict[str, list[ProducePartition]] = {}
        for part, batch in batches.items():
            by_topic.setdefault(part.topic, []).append(ProducePartition(part.partition, batch))
        by_id = version >= TOPIC_ID_VERSION
        topics = [
            ProduceTopic(
                None if by_id else name, self._cluster.topic(name).topic_id if by_id else None, each
            )
            for name, each in by_topic.items()
        ]
        transaction = self._transaction
        request = ProduceRequest(
            transaction.transactional_id if transaction is not None else None,
            _ALL_REPLICAS,
            self._options.request_timeout_ms,
            topics,
        )
        connection.send(PRODUCE, version, encode_produce_request(request, version))
        return connection

    def _version(self, connection: BlockingConnection) -> int:
        """From version 12 on partitions add themselves to a transaction; ours are added before."""
        version = connection.agree(PRODUCE)
        return version if self._transaction is None else min(version, _LAST_WITH_ADDED_PARTITIONS)

    def _answers(
        self, connection: BlockingConnection, batches: Mapping[TopicPartition, bytes]
    ) -> list[tuple[TopicPartition, int, str | None]]:
        answer = connection.receive()
        try:
            version = self._version(connection)
            response = decode_produce_response(answer.frame, version, answer.position)
        except ProtocolError as error:
            raise NetworkError(str(error)) from error
        names = {self._cluster.topic(part.topic).topic_id: part.topic for part in batches}
        return _outcomes(response, names)


def _outcomes(
    response: ProduceResponse, names: Mapping[UUID | None, str]
) -> list[tuple[TopicPartition, int, str | None]]:
    return [
        (
            TopicPartition(topic.name or names[topic.topic_id], each.index),
            each.error_code,
            each.error_message,
        )
        for topic in response.topics
        for each in topic.partitions
    ]
