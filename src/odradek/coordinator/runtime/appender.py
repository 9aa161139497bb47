"""`BatchAppender`: carries a coordinator's records to the log and replays what is committed.

Records that may linger are collected in the partition's open batch until `flush`; all others are
appended at once, behind the collected ones. Appended records cannot be taken back, so a write
itself has no time-out; its waiters have one, `DelayedWrite`.
"""

from collections.abc import Callable, Sequence
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Final, Generic, TypeVar

from odradek.background import do_each, ignore
from odradek.clock import Clock
from odradek.coordinator.records.record import CoordinatorRecord, RecordCodec
from odradek.coordinator.runtime.batches import (
    NO_PRODUCER,
    Answer,
    Batch,
    EndMarker,
    Producer,
    Write,
)
from odradek.coordinator.runtime.context import ShardContext
from odradek.coordinator.runtime.delayed_write import DelayedWrite, WriteKey
from odradek.coordinator.runtime.partition_writer import OnCommitted, PartitionWriter
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.runtime.shard import CoordinatorShard
from odradek.errors import BrokerError, ErrorCode
from odradek.purgatory import DelayedOperationPurgatory

_RECORD_OVERHEAD_BYTES: Final = 32

S = TypeVar("S", bound=CoordinatorShard)
_Encoded = list[tuple[bytes, bytes | None]]


class BatchAppender(Generic[S]):
    """Answers wait for replicas in `writes`; `on_broken` is called if records cannot be replayed,
    and returns the error to answer."""

    def __init__(
        self,
        writer: PartitionWriter,
        codec: RecordCodec,
        clock: Clock,
        settings: RuntimeSettings,
        writes: DelayedOperationPurgatory,
        on_broken: Callable[[ShardContext[S], Exception], BrokerError],
    ) -> None:
        self._writer = writer
        self._codec = codec
        self._clock = clock
        self._settings = settings
        self._writes = writes
        self._on_broken = on_broken
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

        `on_committed` is called once, when they are replayed or lost; a write that the log cannot
        take as a whole is refused. `on_late` is called if the outcome is not known in time.
        """
        # A late write of the shard itself has no waiter: its records still count.
        write = Write(records, on_committed, on_late or ignore)
        try:
            self._append(context, write, linger, producer)
        except Exception:
            # Otherwise its waiters would never be answered.
            write.end(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise

    def _append(
        self, context: ShardContext[S], write: Write, linger: bool, producer: Producer
    ) -> None:
        if not context.is_in_charge:
            write.end(not_coordinator())
            return
        try:
            encoded = self._encode(write.records)
            if producer is not NO_PRODUCER:
                self._flush(context)
            batch = self._batch_with_room(context, _size_bytes(encoded), producer)
        except BrokerError as error:
            write.end(error)
            return
        if producer is not NO_PRODUCER:
            context.shard.on_transactional_append(producer.producer_id, write.records)
        now_ms = self._clock.wall_ms()
        for key, value in encoded:
            batch.builder.append(now_ms, key, value)
        batch.writes.append(write)
        if linger:
            self._lingering[context.partition] = context
        else:
            self._flush(context)

    def _encode(self, records: Sequence[CoordinatorRecord]) -> _Encoded:
        try:
            return [self._codec.encode(record) for record in records]
        except (ValueError, OverflowError, StructError) as error:
            # A client has sent a text or number that is too large for the format.
            raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _batch_with_room(
        self, context: ShardContext[S], size_bytes: int, producer: Producer
    ) -> Batch:
        """The open batch, or a new one if these records would make it too large. The log itself
        refuses a single write that is too large."""
        batch = context.open_batch
        while batch is not None and not batch.has_room(size_bytes):
            self._flush(context)
            batch = context.open_batch  # an answer may have caused another write
        if batch is None:
            limit_bytes = self._writer.max_batch_bytes(context.partition)
            batch = Batch(self._settings.compression, limit_bytes, producer)
            context.open_batch = batch
        return batch

    def append_end_marker(
        self,
        context: ShardContext[S],
        marker: EndMarker,
        timeout_ms: int,
        on_done: OnCommitted,
    ) -> None:
        """Ends a producer's transaction in the partition, once the marker is committed.

        `on_done` is called once, with REQUEST_TIMED_OUT if the outcome is not known in time. A
        marker that is committed later counts all the same.
        """
        answer = Answer(None, on_done)
        try:
            self._append_end_marker(context, marker, timeout_ms, answer)
        except Exception:
            # As above.
            answer.on_committed(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise

    def _append_end_marker(
        self, context: ShardContext[S], marker: EndMarker, timeout_ms: int, answer: Answer[None]
    ) -> None:
        if not context.is_in_charge:
            answer.on_committed(not_coordinator())
            return
        wait = self._new_wait(context.partition, answer.on_late, timeout_ms)

        def on_written(error: BrokerError | None) -> None:
            self.end_wait(wait)
            answer.on_committed(self._replay_marker(context, marker) if error is None else error)

        self._flush(context)
        batch = marker.batch(self._clock.wall_ms())
        self._writer.append(context.partition, batch, on_written, marker.transaction_version)
        self._writes.try_complete_else_watch(wait, [wait.key])

    def flush(self) -> None:
        """Appends everything that lingers."""
        lingering, self._lingering = self._lingering, {}
        do_each(lingering.values(), self._flush)

    def drop(self, context: ShardContext[S]) -> None:
        """Refuses the lingering records of a partition that is led elsewhere."""
        self._lingering.pop(context.partition, None)
        lost, context.open_batch = context.open_batch, None
        refusal = not_coordinator()
        if lost is not None:
            do_each(lost.writes, lambda write: write.end(refusal))

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
            # Otherwise the owners of its records would never be answered.
            if not batch.is_done:
                self._on_committed(context, batch, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        if not batch.is_done:
            context.in_flight.append(batch)
            batch.delayed = self.await_write(context.partition, batch.on_late)

    def await_write(self, partition: int, on_late: Callable[[], None]) -> DelayedWrite:
        """Lets a request wait for the replicas, for a limited time."""
        wait = self._new_wait(partition, on_late, self._settings.write_timeout_ms)
        self._writes.try_complete_else_watch(wait, [wait.key])
        return wait

    def _new_wait(
        self, partition: int, on_late: Callable[[], None], timeout_ms: int
    ) -> DelayedWrite:
        self._write_number += 1
        return DelayedWrite(WriteKey(partition, self._write_number), timeout_ms, on_late)

    def end_wait(self, delayed: DelayedWrite) -> bool:
        """Ends a wait after the commit or its failure; False if it had timed out."""
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
        shard, producer_id = context.shard, batch.producer.producer_id

        def end(write: Write) -> None:
            outcome = error
            if outcome is None:
                outcome = self._replay(context, write.records, producer_id)
            elif batch.is_transactional:
                shard.on_transactional_failure(producer_id, write.records)
            write.end(outcome)

        do_each(batch.writes, end)

    # A shard that cannot be replayed answers no request.

    def _replay(
        self, context: ShardContext[S], records: Sequence[CoordinatorRecord], producer_id: int
    ) -> BrokerError | None:
        if not context.is_in_charge:
            return not_coordinator()
        try:
            for record in records:
                context.shard.replay(record, producer_id)
        except Exception as error:  # noqa: BLE001 - any exception here ends the broker
            return self._on_broken(context, error)
        return None

    def _replay_marker(self, context: ShardContext[S], marker: EndMarker) -> BrokerError | None:
        if not context.is_in_charge:
            return not_coordinator()
        try:
            context.shard.replay_end_transaction_marker(
                marker.producer_id, marker.producer_epoch, marker.result
            )
        except Exception as error:  # noqa: BLE001 - as above
            return self._on_broken(context, error)
        return None


def _size_bytes(encoded: _Encoded) -> int:
    """The largest size of the records in a batch."""
    return sum([len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES for key, value in encoded])


def not_coordinator() -> BrokerError:
    """The refusal of a broker that does not lead the partition."""
    return BrokerError(ErrorCode.NOT_COORDINATOR)
