"""`BatchAppender`: carries a coordinator's records to the log and replays what is committed.

Records that may linger gather in the partition's open batch until `flush`; all others are
appended at once, behind what has gathered before. What is appended cannot be taken back, so a
write itself has no time-out; those who wait for it have one, `DelayedWrite`.
"""

from collections.abc import Callable, Sequence
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Final, Generic, TypeVar

from odradek.background import do_each, ignore
from odradek.clock import Clock
from odradek.coordinator.records.record import CoordinatorRecord, RecordCodec
from odradek.coordinator.runtime.batches import NO_PRODUCER, Batch, EndMarker, Producer, Write
from odradek.coordinator.runtime.context import ShardContext
from odradek.coordinator.runtime.delayed_write import DelayedWrite, WriteKey
from odradek.coordinator.runtime.partition_writer import OnCommitted, PartitionWriter
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.runtime.shard import CoordinatorShard
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
        """Writes records, all of them in one batch or none of them.

        `on_committed` is called once, when they are replayed or lost; a write that the log does not
        take whole is refused. `on_late` is called where that is not known in time.
        """
        if not context.is_led:
            on_committed(not_coordinator())
            return
        try:
            encoded = [self._codec.encode(record) for record in records]
        except (ValueError, OverflowError, StructError) as error:
            # What a client has sent is text or a number that the format has no room for.
            on_committed(BrokerError(ErrorCode.INVALID_REQUEST, str(error)))
            return
        size_bytes = sum(
            [len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES for key, value in encoded]
        )
        if producer is not NO_PRODUCER:
            self._flush(context)
        try:
            batch = self._batch_with_room(context, size_bytes, producer)
        except BrokerError as error:
            on_committed(error)
            return
        if producer is not NO_PRODUCER:
            context.shard.on_transactional_append(producer.producer_id, records)
        now_ms = self._clock.wall_ms()
        for key, value in encoded:
            batch.builder.append(now_ms, key, value)
        # A shard's own write that is late is told to nobody: what it says happens all the same.
        batch.writes.append(Write(records, on_committed, on_late or ignore))
        if linger:
            self._lingering[context.partition] = context
        else:
            self._flush(context)

    def _batch_with_room(
        self, context: ShardContext[S], size_bytes: int, producer: Producer
    ) -> Batch:
        """The open batch, or a new one for what would make that too large. Whether a single write
        is too large the log says."""
        batch = context.open_batch
        while batch is not None and not batch.has_room(size_bytes):
            self._flush(context)
            batch = context.open_batch  # those who were answered may have written again
        if batch is None:
            limit_bytes = self._writer.max_batch_bytes(context.partition)
            batch = Batch(self._settings.compression, limit_bytes, producer)
            context.open_batch = batch
        return batch

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
        do_each(lingering.values(), self._flush)

    def drop(self, context: ShardContext[S]) -> None:
        """The partition is led elsewhere: what lingers there is refused."""
        self._lingering.pop(context.partition, None)
        lost, context.open_batch = context.open_batch, None
        refusal = not_coordinator()
        if lost is not None:
            do_each(lost.writes, lambda write: write.on_committed(refusal))

    def _flush(self, context: ShardContext[S]) -> None:
        batch, context.open_batch = context.open_batch, None
        if batch is None:
            return
        try:
            self._writer.append(
                context.partition,
                bytearray(batch.builder.build()),
                lambda error: self._on_committed(context, batch, error),
            )
        except Exception:
            # Nobody else will ever tell those whose records it had.
            if not batch.is_done:
                self._on_committed(context, batch, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        if not batch.is_done:
            context.in_flight.append(batch)
            batch.delayed = self.await_write(context.partition, batch.on_late)

    def await_write(self, partition: int, on_late: Callable[[], None]) -> DelayedWrite:
        """The replicas take their time: those who wait for them do not wait for ever."""
        self._write_number += 1
        key = WriteKey(partition, self._write_number)
        delayed = DelayedWrite(key, self._settings.write_timeout_ms, on_late)
        self._writes.try_complete_else_watch(delayed, [key])
        return delayed

    def end_wait(self, delayed: DelayedWrite) -> bool:
        """Ends the wait: its condition came, or never will; False when it was too late."""
        if delayed.is_completed:
            return False
        delayed.is_written = True
        self._writes.check_and_complete(delayed.key, "committed")
        return True

    def _on_committed(
        self, context: ShardContext[S], batch: Batch, error: BrokerError | None
    ) -> None:
        batch.is_done = True
        if batch.delayed is not None:
            context.in_flight.remove(batch)
            self.end_wait(batch.delayed)
        if error is None and not context.is_led:
            error = not_coordinator()
        shard, producer_id = context.shard, batch.producer.producer_id

        def end(write: Write) -> None:
            if error is None:
                for record in write.records:
                    shard.replay(record, producer_id)
            elif batch.is_transactional:
                shard.on_transactional_failure(producer_id, write.records)
            write.on_committed(error)

        do_each(batch.writes, end)


def not_coordinator() -> BrokerError:
    """The refusal of a broker that does not lead the partition."""
    return BrokerError(ErrorCode.NOT_COORDINATOR)
