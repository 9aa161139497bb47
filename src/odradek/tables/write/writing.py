"""Writes records to topics from one thread: batches by partition, acknowledged before it returns.

What a task of Spark's sink does. An idempotent producer: every batch has a sequence, and is sent
again as it is until its leader has it, so a lost answer makes no second copy. One batch of a
partition is under way at a time, which keeps the order; batches that are ready go to all
leaders at once. Who ends before `flush` has returned does not know what arrived.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from odradek.client.addresses import Address
from odradek.client.apis import INIT_PRODUCER_ID, PRODUCE
from odradek.client.blocking import BlockingConnection, Cluster
from odradek.client.core.metadata import TopicMetadata
from odradek.client.core.producing.partitioner import StickyPartitioner, partition_for_key
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

_ALL_REPLICAS: Final = -1
_LAST_WITH_ADDED_PARTITIONS: Final = 11
_ARRIVED: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)

RecordHeaders = Sequence[tuple[str, bytes | None]]


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


class _Open:
    """A partition's batch in the making, and the sequence that its next one begins with."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.sequence = 0
        self.builder: RecordBatchBuilder | None = None
        # Of the builder, as it was when this was last looked at.
        self.size_bytes = 0


class TopicWriter:
    """Appends records and sends them when there are enough; `flush` sends the rest.

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
        # By topic and number: a partition's name is not made for every record.
        self._open: dict[tuple[str, int], _Open] = {}
        self._buffered_bytes = 0
        self._dice = random.Random()
        self._sticky: dict[str, StickyPartitioner] = {}
        # As of the batches that were sent last; not asked for with every record.
        self._topics: dict[str, TopicMetadata] = {}

    def append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: RecordHeaders = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Adds a record; without a partition its key says where it goes, without one chance.

        Raises:
            KafkaError: the topic or the partition is not there, or the broker refused a batch.
        """
        size_bytes = 16 + (len(key) if key else 0) + (len(value) if value else 0)
        if partition is None:
            partition = self._place(topic, key, size_bytes)
        opened = self._open.get((topic, partition))
        if opened is None:
            opened = self._open[topic, partition] = _Open(TopicPartition(topic, partition))
        if (
            opened.size_bytes + size_bytes > self._options.batch_bytes
            or self._buffered_bytes >= self._options.buffer_bytes
        ):
            self._make_room(opened)
        builder = opened.builder
        if builder is None:
            builder = opened.builder = self._builder(opened.sequence)
        builder.append(
            self._clock.wall_ms() if timestamp_ms is None else timestamp_ms, key, value, headers
        )
        grown_bytes = builder.size_bytes - opened.size_bytes
        opened.size_bytes += grown_bytes
        self._buffered_bytes += grown_bytes

    def flush(self) -> None:
        """Sends what is left; all is acknowledged when it returns.

        Raises:
            KafkaError: the broker refused a batch, or did not answer in time.
        """
        self._send([each for each in self._open.values() if each.builder is not None])

    def _place(self, topic: str, key: bytes | None, size_bytes: int) -> int:
        metadata = self._topics.get(topic)
        if metadata is None:
            metadata = self._cluster.retrying(lambda: self._cluster.topic(topic))
            self._topics[topic] = metadata
        if key is not None:
            return partition_for_key(key, len(metadata.partition_metadata))
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = StickyPartitioner(self._options.batch_bytes, self._dice)
            self._sticky[topic] = sticky
        chosen = sticky.choose(metadata.led_partitions or [0], lambda _: 0)
        sticky.produced(size_bytes)
        return chosen

    def _make_room(self, opened: _Open) -> None:
        """Sends a batch that would grow too large, and others that are well filled with it."""
        if self._buffered_bytes >= self._options.buffer_bytes:
            self.flush()
        elif opened.builder is not None:
            well_filled = self._options.batch_bytes // 2
            self._send(
                [
                    each
                    for each in self._open.values()
                    if each is opened or (each.builder and each.size_bytes > well_filled)
                ]
            )

    def _builder(self, sequence: int) -> RecordBatchBuilder:
        producer_id, epoch = self._producer_id()
        return RecordBatchBuilder(
            self._options.codec,
            level=self._options.level,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=self._transaction is not None,
        )

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

    def _send(self, batches: Iterable[_Open]) -> None:
        waiting: dict[TopicPartition, bytes] = {}
        for opened in batches:
            assert opened.builder is not None, f"{opened.partition} has nothing to send"
            self._buffered_bytes -= opened.size_bytes
            opened.size_bytes = 0
            opened.sequence = (opened.sequence + opened.builder.record_count) & 0x7FFFFFFF
            waiting[opened.partition] = opened.builder.build()
            opened.builder = None
        if waiting and self._transaction is not None:
            self._transaction.add_partitions(waiting)
        if waiting:
            self._topics.clear()
            self._cluster.retrying(lambda: self._attempt(waiting))
        assert not waiting, f"{len(waiting)} batches were given up without an error"

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
