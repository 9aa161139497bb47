"""Writes records to topics from one thread: batches by partition, acknowledged before it returns.

The producer of a task of Spark's sink. An idempotent producer: every batch has a sequence, and is
sent again as it is until its leader has it, so a lost answer makes no second copy. One batch of a
partition is under way at a time, which keeps the order; batches that are ready go to all leaders at
once. A batch that is too large for its topic goes in halves. If the task ends before `flush` has
returned, it does not know what arrived.
"""

import random
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from odradek.client.apis import INIT_PRODUCER_ID
from odradek.client.core.metadata import TopicMetadata
from odradek.client.core.producing import requests
from odradek.client.errors import KafkaError, error_for, raise_for, unanswered
from odradek.client.sync import BlockingConnection, Cluster
from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.direct.produce import decode_produce_response
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import read_batch
from odradek.tables.write.record_accumulator import (
    LAST_SEQUENCE,
    OpenBatch,
    RecordAccumulator,
    Rows,
)

_ALL_REPLICAS: Final = -1
_ARRIVED: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
# For a batch: a code, and the broker's message.
Outcome = tuple[int, str | None]


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
    """The transaction around written records, if any: `transaction.BatchTransaction`."""

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

    After an error it must not be used any more, and appended records may have arrived or not.
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
        self._terms = requests.Terms(
            None if transaction is None else transaction.transactional_id,
            _ALL_REPLICAS,
            options.request_timeout_ms,
        )
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
        known = self._cluster.metadata.topics.get(name)
        return known if known is not None else self._cluster.topics([name])[name]

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
        waiting = {batch.partition: deque([self._accumulator.take(batch)]) for batch in batches}
        if waiting and self._transaction is not None:
            self._transaction.add_partitions(waiting)
        while waiting:
            self._cluster.retrying(lambda: self._attempt(waiting))

    def _producer_id(self) -> tuple[int, int]:
        if self._producer is None:
            self._producer = self._cluster.retrying(self._ask_producer_id)
        return self._producer

    def _ask_producer_id(self) -> tuple[int, int]:
        values = {"transactional_id": None, "transaction_timeout_ms": 0}
        response = self._cluster.call(None, INIT_PRODUCER_ID, values)
        raise_for(response.error_code)
        return response.producer_id, response.producer_epoch

    def _attempt(self, waiting: dict[TopicPartition, deque[bytes]]) -> None:
        """Sends the first batch of every partition, to all leaders, and takes out what arrives."""
        by_leader: dict[int, dict[TopicPartition, bytes]] = {}
        for part, unsent in waiting.items():
            by_leader.setdefault(self._cluster.leader_id(part), {})[part] = unsent[0]
        asked = [
            (batches, self._ask(self._cluster.connection(node_id), batches))
            for node_id, batches in by_leader.items()
        ]
        refused: list[KafkaError] = []
        for batches, connection in asked:
            answers = self._answers(connection)
            for part in batches:
                outcome = answers.get(part)
                if outcome is None:
                    refused.append(unanswered(part))
                    continue
                code, text = outcome
                if code in _ARRIVED:
                    waiting[part].popleft()
                elif code not in _TOO_LARGE or not self._halve(waiting[part]):
                    refused.append(error_for(code, f"{part}: {text or ErrorCode(code).text}"))
                if not waiting[part]:
                    del waiting[part]
        if refused:
            raise refused[0]

    def _halve(self, unsent: deque[bytes]) -> bool:
        """Puts two batches in the place of the first; False when it has a single record."""
        [header] = split_batches(unsent[0])
        records = read_batch(unsent[0], header)
        if len(records) < 2:
            return False
        unsent.popleft()
        middle = len(records) // 2
        for first, last in ((middle, len(records)), (0, middle)):
            builder = self.new_builder((header.base_sequence + first) & LAST_SEQUENCE)
            for record in records[first:last]:
                builder.append(record.timestamp, record.key, record.value, record.headers)
            unsent.appendleft(builder.build())
        return True

    def _ask(
        self, connection: BlockingConnection, batches: Mapping[TopicPartition, bytes]
    ) -> BlockingConnection:
        version = connection.agree(self._terms.api)
        metadata = self._cluster.metadata
        body = requests.encode_request(self._terms, batches.items(), metadata, version)
        connection.send(self._terms.api, version, body)
        return connection

    def _answers(self, connection: BlockingConnection) -> dict[TopicPartition, Outcome]:
        answer = connection.receive()
        api = self._terms.api
        response = self._cluster.decoded(
            connection, api, connection.agree(api), answer, decode_produce_response
        )
        answers = requests.answers_in(response, self._cluster.metadata)
        return {part: (each.error_code, each.error_message) for part, each in answers.items()}
