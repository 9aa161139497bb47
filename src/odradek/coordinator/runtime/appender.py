"""`BatchAppender`: carries a coordinator's records to the log and replays what is committed.

Records that may linger gather in the partition's open batch until `flush`; all others are
appended at once, behind what has gathered before. What is appended cannot be taken back, so a
write itself has no time-out; those who wait for it have one, `DelayedWrite`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from odradek.clock import Clock
from odradek.coordinator.records.record import CoordinatorRecord, RecordCodec
from odradek.coordinator.runtime.batches import NO_PRODUCER, Batch, EndMarker, Producer, Write
from odradek.coordinator.runtime.context import ShardContext
from odradek.coordinator.runtime.delayed_write import DelayedWrite, WriteKey
from odradek.coordinator.runtime.partition_writer import OnCommitted, PartitionWriter
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.runtime.shard import CoordinatorShard, ignore_outcome
from odradek.errors import BrokerError, ErrorCode
from odradek.purgatory import DelayedOperationPurgatory

_RECORD_OVERHEAD_BYTES: Final = 32

S = TypeVar("S", bound=CoordinatorShard)


class BatchAppender(Generic[S]):
    """Answers wait for replicas in `writes`."""

    def __init__(
        self,
        writer: PartitionWriter,
        codec: RecordCodec,
        clock: Clock,
        settings: RuntimeSettings,
        writes: DelayedOperationPurgatory,
    ) -> None:
        self._writer = writer
        self._codec = codec
        self._clock = clock
        self._settings = settings
        self._writes = writes
        self._write_number = 0
        self._lingering: dict[int, ShardContext[S]] = {}

    def append(
        self,
        context: ShardContext[S],
        records: Sequence[CoordinatorRecord],
        on_committed: OnCommitted,
        linger: bool = False,
        on_late: Callable[[], None] | None = None,
        producer: Producer = NO_PRODUCER,
    ) -> None:
        """Writes records; `on_committed` is called once, when they are replayed or lost."""
        if not context.is_led:
            on_committed(not_coordinator())
            return
        try:
            encoded = [self._codec.encode(record) for record in records]
        except ValueError as error:
            on_committed(BrokerError(ErrorCode.INVALID_REQUEST, str(error)))
            return
        if producer is not NO_PRODUCER:
            self._flush(context)
            context.shard.on_transactional_append(producer.producer_id, records)
        limit = self._settings.max_batch_bytes()
        if context.open_batch is None:
            context.open_batch = Batch(self._settings.compression, producer)
        first = 0
        for index, (key, value) in enumerate(encoded):
            size = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
            batch = context.open_batch
            if batch.builder.record_count and batch.builder.size_bytes + size > limit:
                batch.writes.append(Write(records[first:index], ignore_outcome, _nobody_waits))
                first = index
                self._flush(context)
                context.open_batch = batch = Batch(self._settings.compression, producer)
            batch.builder.append(self._clock.wall_ms(), key, value)
        context.open_batch.writes.append(
            Write(records[first:] if first else records, on_committed, on_late or _nobody_waits)
        )
        if linger:
            self._lingering[context.partition] = context
        else:
            self._flush(context)

    def append_end_marker(
        self,
        context: ShardContext[S],
        marker: EndMarker,
        on_committed: OnCommitted,
    ) -> None:
        """Ends a producer's transaction in the partition, once the marker is committed."""
        if not context.is_led:
            on_committed(not_coordinator())
            return

        def on_written(error: BrokerError | None) -> None:
            if error is None and not context.is_led:
                error = not_coordinator()
            if error is None:
                context.shard.replay_end_transaction_marker(
                    marker.producer_id, marker.producer_epoch, marker.result
                )
            on_committed(error)

        self._flush(context)
        batch = marker.batch(self._clock.wall_ms())
        self._writer.append(context.partition, batch, on_written, marker.transaction_version)

    def flush(self) -> None:
        """Appends everything that lingers."""
        lingering, self._lingering = self._lingering, {}
        for context in lingering.values():
            self._flush(context)

    def drop(self, context: ShardContext[S]) -> None:
        """The partition is led elsewhere: what lingers there is refused."""
        self._lingering.pop(context.partition, None)
        lost, context.open_batch = context.open_batch, None
        refusal = not_coordinator()
        for write in lost.writes if lost is not None else ():
            write.on_committed(refusal)

    def _flush(self, context: ShardContext[S]) -> None:
        batch, context.open_batch = context.open_batch, None
        if batch is None:
            return
        self._writer.append(
            context.partition,
            bytearray(batch.builder.build()),
            lambda error: self._on_committed(context, batch, error),
        )
        if not batch.is_done:
            context.in_flight.append(batch)
            self._limit_answers(context.partition, batch)

    def _limit_answers(self, partition: int, batch: Batch) -> None:
        """The replicas take their time: those who wait for the batch do not wait for ever."""
        self._write_number += 1
        batch.key = WriteKey(partition, self._write_number)
        batch.delayed = DelayedWrite(self._settings.write_timeout_ms, batch.on_late)
        self._writes.try_complete_else_watch(batch.delayed, [batch.key])

    def _on_committed(
        self, context: ShardContext[S], batch: Batch, error: BrokerError | None
    ) -> None:
        batch.is_done = True
        if batch.delayed is not None and batch.key is not None:
            context.in_flight.remove(batch)
            batch.delayed.is_written = True
            self._writes.check_and_complete(batch.key, "committed")
        if error is None and not context.is_led:
            error = not_coordinator()
        shard, producer_id = context.shard, batch.producer.producer_id
        for write in batch.writes:
            if error is None:
                for record in write.records:
                    shard.replay(record, producer_id)
            elif batch.is_transactional:
                shard.on_transactional_failure(producer_id, write.records)
            write.on_committed(error)


def not_coordinator() -> BrokerError:
    """The refusal of a broker that does not lead the partition."""
    return BrokerError(ErrorCode.NOT_COORDINATOR)


def _nobody_waits() -> None:
    """A shard's own write is late: nobody is told, since what it says happens all the same."""
