"""Batches of coordinator records, and the requests that wait for their commit."""

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar, final

from odradek.background import do_each
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.delayed_write import DelayedWrite
from odradek.coordinator.runtime.partition_writer import OnCommitted
from odradek.errors import BrokerError, ErrorCode
from odradek.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TransactionResult
from odradek.records.builder import RecordBatchBuilder, build_end_marker

R = TypeVar("R")


class Producer(NamedTuple):
    """The producer whose transaction the records belong to."""

    producer_id: int
    producer_epoch: int


class EndMarker(NamedTuple):
    """The content of one transaction's markers, and the transaction version that they are checked
    by."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    result: TransactionResult
    transaction_version: int

    def batch(self, timestamp_ms: int) -> bytearray:
        """The marker as a record batch."""
        return bytearray(
            build_end_marker(
                commit=self.result is TransactionResult.COMMIT,
                base_offset=0,
                timestamp_ms=timestamp_ms,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                coordinator_epoch=self.coordinator_epoch,
            )
        )


NO_PRODUCER: Final = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Answer(Generic[R]):
    """The answer to a request, given once: by the commit, a failure, or the time-out."""

    def __init__(self, response: R, on_done: Callable[[R | BrokerError], None]) -> None:
        self._response = response
        self._on_done: Callable[[R | BrokerError], None] | None = on_done

    def on_committed(self, error: BrokerError | None) -> None:
        """Answers after the commit, or its failure."""
        self._give(self._response if error is None else error)

    def on_late(self) -> None:
        """Answers that the outcome is not known in time."""
        self._give(BrokerError(ErrorCode.REQUEST_TIMED_OUT))

    def _give(self, outcome: R | BrokerError) -> None:
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(outcome)


@final
class Write:
    """One command's records in a batch, and the callback that is called once with their outcome."""

    def __init__(
        self,
        records: Sequence[CoordinatorRecord],
        on_committed: OnCommitted,
        on_late: Callable[[], None],
    ) -> None:
        self.records = records
        self.on_late = on_late
        self._on_committed: OnCommitted | None = on_committed

    def end(self, error: BrokerError | None) -> None:
        """Reports that the records are replayed, or lost."""
        on_committed, self._on_committed = self._on_committed, None
        if on_committed is not None:
            on_committed(error)


class Batch:
    """Writes that are appended together; a transaction's records have a batch of their own."""

    def __init__(
        self, compression: int, limit_bytes: int, producer: Producer = NO_PRODUCER
    ) -> None:
        self._limit_bytes = limit_bytes
        self.builder = RecordBatchBuilder(
            compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_transactional=producer is not NO_PRODUCER,
        )
        self.producer = producer
        self.writes: list[Write] = []
        self.is_done = False
        self.delayed: DelayedWrite | None = None

    def has_room(self, size_bytes: int) -> bool:
        """Whether so many more bytes fit into the batch."""
        return self.builder.size_bytes + size_bytes <= self._limit_bytes

    @property
    def is_transactional(self) -> bool:
        """Whether the records wait for an end marker once they are committed."""
        return self.producer is not NO_PRODUCER

    def on_late(self) -> None:
        """Tells the waiting requests that the replicas take too long."""
        do_each(self.writes, lambda write: write.on_late())
