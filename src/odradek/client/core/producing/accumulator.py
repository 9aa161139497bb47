"""Records on their way out: gathered into batches by partition, sent, sent again, given up.

Each partition has a queue. Its last batch takes records until it is full; its first is sent once it
is full, or `linger.ms` old, or another follows it. Up to five batches of a partition may be under
way at once, as soon as its broker knows the producer. After a failure nothing more of that
partition leaves until everything under way has come back; then what failed goes again, one after
the other, in its order and with its sequence numbers. So records keep their order, and with
idempotence each is in the log once. A batch that is too large for its broker goes again in two
halves.

A sequence has a gap when a batch that had left is given up, or when the log has lost what it had.
The batches behind a gap begin a new epoch of this partition, at 0, without asking the coordinator,
as in Kafka's producers (KIP-360); but not before all batches sent by the old numbers have been
answered, since they may be in the log. A batch that may be in the log is never numbered again, and
an overtaken one is given up: behind the records that follow it, it would be out of order.

The sender passes the time, the producer's id and the leaders; nothing is sent from here.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, cast
from uuid import UUID

from odradek.client.core.producing.deliveries import BulkDelivery, Delivery
from odradek.client.record_metadata import RecordMetadata
from odradek.clock import LONG_AGO_MS
from odradek.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from odradek.records.batch import split_batches
from odradek.records.builder import Headers, RecordBatchBuilder
from odradek.records.reader import read_batch

# The most bytes of a record beyond its key, value and headers: six varints and the attributes.
RECORD_OVERHEAD_BYTES: Final = 36
_SEQUENCES: Final = 1 << 31
LAST_PRODUCER_EPOCH: Final = 0x7FFF


class ProducerBatch:
    """Records of one partition that travel together. `contexts` are the waiters, in order; a call
    identifies a record by the number in `indexes`."""

    def __init__(
        self, partition: TopicPartition, builder: RecordBatchBuilder, created_ms: int
    ) -> None:
        self.partition = partition
        self.builder = builder
        self.created_ms = created_ms
        self.contexts: list[object] = []
        self.indexes: list[int] = []
        self.timestamps: list[int] = []
        self.size_bytes = 0
        self.attempts = 0
        self.unanswered = 0  # of them: copies that may yet arrive, or have
        self.is_perhaps_in_log = False  # an answer did not say that it is not
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.drained_ms = 0  # when it left last
        self.node_id = -1  # where to
        self.topic_id: UUID | None = None  # of the topic that it was sent to last
        self.serial = 0  # its place among those of its partition that have been sent
        self.first_index = 0  # of a half: how many records of the whole are before it
        self.halves: list[ProducerBatch] = []  # its parts after a split
        self.is_full = False
        self.is_in_flight = False
        self.is_told = False  # the futures of its records have their results
        self.is_done = False  # in the log, given up, or split
        self._encoded: bytes | None = None
        self._encoded_as: tuple[int, int, int] | None = None

    @property
    def record_count(self) -> int:
        """How many records are in it."""
        return len(self.contexts)

    def metadata(self, base_offset: int, append_time_ms: int) -> list[RecordMetadata]:
        """The metadata of its records, the first of them at `base_offset` unless that is -1; with
        the append time, or their own timestamps if that is -1."""
        topic, partition = self.partition
        make = tuple.__new__  # of a named tuple, without its Python-made constructor
        offset = base_offset
        found: list[RecordMetadata] = []
        for own_ms in self.timestamps:
            time_ms = own_ms if append_time_ms < 0 else append_time_ms
            found.append(make(RecordMetadata, (topic, partition, offset, time_ms)))
            if offset >= 0:
                offset += 1
        return found

    def deliver(self, base_offset: int, append_time_ms: int) -> None:
        """Tells all waiters that their records are in the log."""
        places = self.metadata(base_offset, append_time_ms)
        for number, context in enumerate(self.contexts):
            if isinstance(context, BulkDelivery):
                context.delivered(self.indexes[number], places[number])
                continue
            delivery: Delivery = cast(Delivery, context)
            if not delivery.done():
                delivery.set_result(places[number])

    @property
    def is_numbered(self) -> bool:
        """Whether the batch has a sequence of its producer."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def is_undecided(self) -> bool:
        """Whether the batch may be in the log under its sequence, or still get there."""
        return self.unanswered > 0 or self.is_perhaps_in_log

    @property
    def encoded_bytes(self) -> int:
        """Its last size on the wire."""
        return 0 if self._encoded is None else len(self._encoded)

    def encoded(self, is_transactional: bool) -> bytes:
        """The batch as it goes over the wire; compressed once, as long as nothing changes."""
        state = (self.producer_id, self.producer_epoch, self.base_sequence)
        if self._encoded is None or self._encoded_as != state:
            self.builder.set_producer(*state, is_transactional=is_transactional)
            self._encoded, self._encoded_as = self.builder.build(), state
        return self._encoded

    def split(self, codec: int, level: int | None) -> "list[ProducerBatch]":
        """Its records in two batches of half as many, with the sequence numbers that they have."""
        data = self.builder.build()
        [header] = split_batches(data)
        records = read_batch(data, header)
        middle = len(records) // 2
        for start, end in ((0, middle), (middle, len(records))):
            half = ProducerBatch(self.partition, RecordBatchBuilder(codec, level=level), 0)
            for record in records[start:end]:
                half.builder.append(record.timestamp, record.key, record.value, record.headers)
                half.size_bytes += record_bytes(record.key, record.value, record.headers)
            half.contexts = self.contexts[start:end]
            half.indexes = self.indexes[start:end]
            half.timestamps = self.timestamps[start:end]
            half.created_ms, half.attempts, half.serial = self.created_ms, 1, self.serial
            half.unanswered = self.unanswered
            half.is_perhaps_in_log = self.is_perhaps_in_log
            half.first_index = self.first_index + start
            half.is_full = True
            half.producer_id, half.producer_epoch = self.producer_id, self.producer_epoch
            if self.is_numbered:
                half.base_sequence = (self.base_sequence + start) % _SEQUENCES
            self.halves.append(half)
        return self.halves


class _Queue:
    """The batches of one partition: waiting, under way, and to be sent again."""

    def __init__(self) -> None:
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.failed: list[ProducerBatch] = []
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.topic_id: UUID | None = None  # as it was when something left last
        # The producer of which the broker has something, in which topic of the name.
        self.known: tuple[int, UUID | None] = (NO_PRODUCER_ID, None)
        # The last place, of those that have left, that is in the log, or may be.
        self.last_done = (0, 0)
        self.next_sequence = 0
        self.has_gap = False
        self.not_before_ms = LONG_AGO_MS

    @property
    def is_empty(self) -> bool:
        return not (self.waiting or self.in_flight or self.failed)

    @property
    def has_numbered(self) -> bool:
        """Whether a numbered batch is under way, or may yet be sent."""
        return bool(self.in_flight) or any(batch.is_numbered for batch in self.failed)

    def number(self, batch: ProducerBatch, producer_id: int, producer_epoch: int) -> None:
        """Gives a batch that has none its place in the sequence of this partition."""
        is_newer = producer_id != self.producer_id or producer_epoch > self.producer_epoch
        if self.has_gap or (is_newer and not self.has_numbered):
            if is_newer:
                self.producer_id, self.producer_epoch = producer_id, producer_epoch
            else:
                assert self.producer_epoch < LAST_PRODUCER_EPOCH, "another id was asked for"
                self.producer_epoch += 1
            self.next_sequence = 0
            self.has_gap = False
        batch.producer_id, batch.producer_epoch = self.producer_id, self.producer_epoch
        batch.base_sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + batch.record_count) % _SEQUENCES

    def batches(self) -> Iterator[ProducerBatch]:
        yield from self.failed
        yield from self.in_flight
        yield from self.waiting


class Accumulator:
    """The queues of all partitions, and how many bytes are in them."""

    def __init__(
        self,
        *,
        codec: int = 0,
        level: int | None = None,
        batch_bytes: int = 16_384,
        linger_ms: int = 5,
        max_in_flight: int = 5,
        numbers_sequences: bool = True,
    ) -> None:
        self._codec = codec
        self._level = level
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._max_in_flight = max_in_flight
        self._numbers_sequences = numbers_sequences
        self._queues: dict[TopicPartition, _Queue] = {}
        self._sent_count = 0
        self.used_bytes = 0
        # Set when a batch is full, until the task that fills batches has let the sender run.
        self.has_full = False
        # Set while a caller flushes, or waits for memory: nothing lingers then.
        self.hurries = False
        # A producer's id whose epochs have come to their end in a partition: it needs another.
        self.spent_producer_id = NO_PRODUCER_ID

    # --- in ---------------------------------------------------------------------------------

    def append(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        context: object,
        now_ms: int,
        index: int = 0,
    ) -> bool:
        """Adds a record; returns whether the sender has to be woken."""
        size = record_bytes(key, value, headers)
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue()
        batch = queue.waiting[-1] if queue.waiting else None
        is_new = batch is None or batch.is_full or not self._fits(batch, size)
        if is_new:
            if batch is not None and not batch.is_full:
                batch.is_full = self.has_full = True
            batch = ProducerBatch(
                partition, RecordBatchBuilder(self._codec, level=self._level), now_ms
            )
            queue.waiting.append(batch)
        assert batch is not None, "made above"
        batch.builder.append(timestamp_ms, key, value, headers)
        batch.contexts.append(context)
        batch.indexes.append(index)
        batch.timestamps.append(timestamp_ms)
        batch.size_bytes += size
        self.used_bytes += size
        if batch.builder.size_bytes >= self._batch_bytes:
            batch.is_full = self.has_full = True
        return is_new or batch.is_full

    def _fits(self, batch: ProducerBatch, size: int) -> bool:
        return batch.builder.size_bytes + size <= self._batch_bytes

    # --- out --------------------------------------------------------------------------------

    def ready(self, now_ms: int) -> tuple[list[TopicPartition], int | None]:
        """The partitions that have something to send, and when the next one will, in ms."""
        ready: list[TopicPartition] = []
        next_due_ms: int | None = None
        for partition, queue in self._queues.items():
            due_ms = self._due_ms(queue)
            if due_ms is None:
                continue
            if due_ms <= now_ms:
                ready.append(partition)
            elif next_due_ms is None or due_ms < next_due_ms:
                next_due_ms = due_ms
        return ready, next_due_ms

    def _due_ms(self, queue: _Queue) -> int | None:
        """When a queue's next batch may leave; None while something else has to happen first."""
        if queue.failed:
            return None if queue.in_flight else queue.not_before_ms
        if not queue.waiting or len(queue.in_flight) >= self._max_in_flight:
            return None
        if queue.in_flight and self._waits_for_answers(queue):
            return None
        first = queue.waiting[0]
        if first.is_full or len(queue.waiting) > 1 or self.hurries:
            return LONG_AGO_MS
        return first.created_ms + self._linger_ms

    def _waits_for_answers(self, queue: _Queue) -> bool:
        # A broker without state of a producer accepts any sequence of it: a second batch would pass
        # a first one that was refused temporarily.
        is_unknown = queue.known != (queue.producer_id, queue.topic_id)
        return queue.has_gap or (self._numbers_sequences and is_unknown)

    def drain(
        self,
        partition: TopicPartition,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        now_ms: int = 0,
        node_id: int = -1,
        topic_id: UUID | None = None,
    ) -> ProducerBatch:
        """Takes the next batch of a ready partition: it is under way from now on.

        It is numbered for the producer of that id and epoch, unless it was before.
        """
        # It has had its turn: of those that are ready the others come first.
        queue = self._queues[partition] = self._queues.pop(partition)
        batch = queue.failed.pop(0) if queue.failed else queue.waiting.popleft()
        batch.is_full = batch.is_in_flight = True
        batch.drained_ms = now_ms
        batch.node_id = node_id
        batch.topic_id = queue.topic_id = topic_id
        batch.attempts += 1
        if batch.attempts == 1:
            self._sent_count += 1
            batch.serial = self._sent_count
        if self._numbers_sequences and not batch.is_numbered:
            queue.number(batch, producer_id, producer_epoch)
        queue.in_flight.append(batch)
        return batch

    # --- back -------------------------------------------------------------------------------

    def done(self, batch: ProducerBatch) -> None:
        """Settles a batch that is in the log."""
        queue = self._remove(batch)
        queue.known = batch.producer_id, batch.topic_id
        queue.last_done = max(queue.last_done, _place(batch))
        self.used_bytes -= batch.size_bytes

    def give_up(self, batch: ProducerBatch) -> None:
        """Drops a batch that, as far as is known, is not in the log; it is not sent again."""
        queue = self._remove(batch)
        self.used_bytes -= batch.size_bytes
        if batch.is_undecided:
            queue.last_done = max(queue.last_done, _place(batch))
        # The batches sent behind it get the log's answer about their own numbers.
        if batch.is_numbered and not queue.has_numbered:
            self._mark_gap(queue)

    def retry(self, batch: ProducerBatch, not_before_ms: int) -> None:
        """Puts a batch that was under way back in its place, to be sent again."""
        queue = self._failed(batch, [batch])
        queue.not_before_ms = max(queue.not_before_ms, not_before_ms)

    def split(self, batch: ProducerBatch) -> None:
        """Puts two halves of a batch that was under way in its place, to be sent again."""
        assert batch.record_count > 1, f"{batch.record_count} records cannot be split"
        self._failed(batch, batch.split(self._codec, self._level))
        batch.is_done = True

    def may_be_numbered_anew(self, batch: ProducerBatch) -> bool:
        """Whether no copy of a batch that was refused can come by its old number, nor of what was
        sent behind it."""
        failed = self._queues[batch.partition].failed
        return not batch.unanswered and not any(each.is_undecided for each in failed)

    def overtaken(self, partition: TopicPartition) -> list[ProducerBatch]:
        """Lists the batches that would be numbered again, but behind which something that was sent
        later is in the log, or may be. The answer that says so may come after the one that cost
        them their numbers."""
        queue = self._queues[partition]
        if not self._numbers_sequences:
            return []
        undecided = (_place(each) for each in queue.failed if each.is_undecided)
        last = max([queue.last_done, *undecided])
        return [each for each in queue.failed if not each.is_numbered and _place(each) < last]

    def lost_place(self, batch: ProducerBatch) -> None:
        """The log does not have the records before a batch, which will not be sent any more: the
        batch is numbered again, and so are those sent behind it when they have been answered. It
        does not have the batch either, whatever an earlier answer left open: it would have
        recognised it."""
        queue = self._queues[batch.partition]
        self._mark_gap(queue)
        batch.is_perhaps_in_log = False
        for each in queue.failed:
            each.base_sequence = NO_SEQUENCE

    def has_earlier(self, batch: ProducerBatch) -> bool:
        """Whether a batch that was sent before this one has no end yet: then this one may have to
        be refused."""
        queue = self._queues[batch.partition]
        return any(_place(each) < _place(batch) for each in (*queue.failed, *queue.in_flight))

    def _remove(self, batch: ProducerBatch) -> _Queue:
        queue = self._queues[batch.partition]
        if batch.is_in_flight:
            queue.in_flight.remove(batch)
        elif batch in queue.failed:
            queue.failed.remove(batch)
        else:
            queue.waiting.remove(batch)
        batch.is_done = True
        batch.is_in_flight = False
        return queue

    def _failed(self, batch: ProducerBatch, again: list[ProducerBatch]) -> _Queue:
        queue = self._queues[batch.partition]
        queue.in_flight.remove(batch)
        batch.is_in_flight = False
        for each in again:
            if queue.has_gap and not each.is_undecided:
                each.base_sequence = NO_SEQUENCE
        queue.failed += again
        queue.failed.sort(key=_place)
        return queue

    def _mark_gap(self, queue: _Queue) -> None:
        queue.has_gap = True
        if queue.producer_epoch == LAST_PRODUCER_EPOCH:
            self.spent_producer_id = queue.producer_id

    # --- looking ----------------------------------------------------------------------------

    def is_under_way_to_another(
        self, partition: TopicPartition, node_id: int, topic_id: UUID | None = None
    ) -> bool:
        """Whether a batch of a partition is in flight to another broker, or to another topic of
        that name: batches sent to this one meanwhile could overtake it."""
        return any(
            batch.node_id != node_id or batch.topic_id != topic_id
            for batch in self._queues[partition].in_flight
        )

    def next_bytes(self, partition: TopicPartition) -> int:
        """The size of the next batch of a ready partition, uncompressed."""
        queue = self._queues[partition]
        return (queue.failed[0] if queue.failed else queue.waiting[0]).size_bytes

    def queue_length(self, partition: TopicPartition) -> int:
        """How many batches of a partition wait to be sent."""
        queue = self._queues.get(partition)
        return 0 if queue is None else len(queue.waiting) + len(queue.failed)

    def unfinished(self) -> list[ProducerBatch]:
        """Every batch that is neither in the log nor given up."""
        return [batch for queue in self._queues.values() for batch in queue.batches()]

    def pending(self) -> list[ProducerBatch]:
        """Lists the batches that are not under way."""
        return [
            batch for queue in self._queues.values() for batch in (*queue.failed, *queue.waiting)
        ]

    def expired(self, before_ms: int) -> list[ProducerBatch]:
        """Lists batches that were made before a moment and are still unsettled."""
        oldest_ms = self.oldest_ms
        if oldest_ms is None or oldest_ms > before_ms:
            return []
        return [
            batch
            for batch in self.unfinished()
            if batch.created_ms <= before_ms and not batch.is_told
        ]

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest batch without a reported result was created."""
        oldest_ms: int | None = None
        for queue in self._queues.values():
            for batches in (queue.failed, queue.in_flight, queue.waiting):
                for batch in batches:
                    if batch.is_told:
                        continue
                    if oldest_ms is None or batch.created_ms < oldest_ms:
                        oldest_ms = batch.created_ms
                    break  # those behind it are younger
        return oldest_ms

    def topics(self) -> set[str]:
        """The topics that have something to send."""
        return {partition.topic for partition, queue in self._queues.items() if not queue.is_empty}


def _place(batch: ProducerBatch) -> tuple[int, int]:
    return batch.serial, batch.first_index


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The largest size of a record, uncompressed."""
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    if headers:
        for name, content in headers:
            size += len(name.encode()) + len(content or b"") + 10
    return size
