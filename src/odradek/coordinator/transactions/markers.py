"""End markers on their way: a decided transaction is over when each of its partitions has one.

The decision is stored before the first marker is written, and cannot be taken back; so markers are
sent until they are written, and the record that says so is written until the coordinator's log has
it. No request waits for them: EndTxn is answered when the decision is stored. A `DelayedMarkers`
waits, so that `Broker.waiting()` can say which partitions a transaction waits for.

A deleted partition needs no marker. A partition with a later epoch of the producer got its marker
before. After any other error of a leader, or of the coordinator's own log, and after an exception,
the marker is sent again after a while.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from mypy_extensions import mypyc_attr

from odradek.background import do_each
from odradek.coordinator.records.transaction_records import TransactionState, TransactionValue
from odradek.coordinator.runtime.batches import EndMarker
from odradek.coordinator.runtime.partition_writer import OnCommitted
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition, TransactionResult
from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""How long it takes until a log that could not be written to is asked again."""
_NEVER_MS: Final = 2**31 - 1
_NAMED_PARTITIONS: Final = 3


OnMarked = Callable[[TopicPartition, ErrorCode], None]
MarkerWrite = tuple[EndMarker, Sequence[TopicPartition], OnMarked]
Complete = Callable[[str, OnCommitted], None]
"""Writes that the markers of a transactional id are written."""


@mypyc_attr(allow_interpreted_subclasses=True)
class MarkerWriter(ABC):
    """The port to the leaders of partitions, on any broker."""

    @abstractmethod
    def write(
        self, marker: EndMarker, partitions: Sequence[TopicPartition], on_done: OnMarked
    ) -> None:
        """Writes a marker into each partition; `on_done` is called exactly once for each, maybe
        before this returns.

        UNKNOWN_TOPIC_OR_PARTITION is only for partitions that the metadata does not know either.
        """

    def write_each(self, writes: Sequence[MarkerWrite]) -> None:
        """Writes several markers, in their order."""
        do_each(writes, lambda each: self.write(*each))


@dataclass(frozen=True, slots=True)
class TransactionalIdKey:
    """A transactional id whose transaction is ending."""

    transactional_id: str


@final
class DelayedMarkers(DelayedOperation):
    """A transaction that lacks markers or its last record; the time-out is the next attempt."""

    def __init__(self, ending: "EndingTransaction", delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._ending = ending

    def try_complete(self) -> bool:
        """Completes when the end is written, or when the transaction waits with another
        operation."""
        return not self._ending.waits_with(self) and self.force_complete()

    def on_complete(self) -> None:
        """Does nothing: the code that wrote the last marker continues."""

    def on_expiration(self) -> None:
        """Tries again."""
        self._ending.on_retry_due(self)

    def missing(self) -> str:
        """Which partitions have no marker, or that only the coordinator's log lacks it."""
        return self._ending.missing()


class EndingTransaction:
    """One transaction between its decision and the record that says that it is over."""

    def __init__(
        self,
        transactional_id: str,
        marker: EndMarker,
        partitions: Sequence[TopicPartition],
        writer: MarkerWriter,
        purgatory: DelayedOperationPurgatory,
        complete: Complete,
        on_ended: Callable[[str], None],
    ) -> None:
        self._key = TransactionalIdKey(transactional_id)
        self._marker = marker
        self._writer = writer
        self._purgatory = purgatory
        self._complete = complete
        self._on_ended = on_ended
        self._is_dropped = False
        self._unmarked = dict.fromkeys(partitions)
        self._asked: set[TopicPartition] = set()
        self._is_completing = False
        # The errors that have been logged: a partition may be without a leader for hours.
        self._logged: set[tuple[TopicPartition | None, ErrorCode]] = set()
        self._wait: DelayedMarkers | None = None

    def send(self) -> None:
        """Asks the leaders of all partitions without a marker."""
        partitions = list(self._unmarked)
        self._asked = set(partitions)
        try:
            if partitions:
                self._writer.write(self._marker, partitions, self._on_marked)
        except Exception:
            self._asked.clear()  # an answer may never come
            raise
        finally:
            self._go_on()

    def drop(self) -> None:
        """Stops sending: another broker coordinates now."""
        self._is_dropped = True
        self._await(None)

    def waits_with(self, wait: DelayedMarkers) -> bool:
        """Whether the transaction waits with this operation."""
        return self._wait is wait

    def on_retry_due(self, wait: DelayedMarkers) -> None:
        """Tries again after the pause."""
        if self._wait is wait:
            self._wait = None
            self.send()

    def missing(self) -> str:
        """Which partitions have no marker, the first of them by name."""
        if not self._unmarked:
            return f"the log of the coordinator to say that {self._key.transactional_id} has ended"
        names = [str(each) for each in list(self._unmarked)[:_NAMED_PARTITIONS]]
        more = len(self._unmarked) - len(names)
        return f"markers in {', '.join(names)}" + (f" and {more} more" if more > 0 else "")

    def _on_marked(self, topic_partition: TopicPartition, code: ErrorCode) -> None:
        is_last = self._asked == {topic_partition}
        self._asked.discard(topic_partition)
        if code in _DECIDED:
            self._unmarked.pop(topic_partition, None)
        if code is not ErrorCode.NONE:
            self._log(topic_partition, code)
        if is_last and self._wait is not None:
            self._go_on()

    def _on_completed(self, error: BrokerError | None) -> None:
        self._is_completing = False
        if self._is_dropped:
            return
        if error is None:
            self._await(None)
            self._on_ended(self._key.transactional_id)
        else:
            self._log(None, error.code)
            self._await(DelayedMarkers(self, RETRY_MS))

    def _log(self, topic_partition: TopicPartition | None, code: ErrorCode) -> None:
        if (topic_partition, code) in self._logged:
            return
        self._logged.add((topic_partition, code))
        marker = self._marker
        logger.info(
            "transactional id %s: the %s marker of producer %d, epoch %d for %s: %s",
            self._key.transactional_id,
            marker.result.name.lower(),
            marker.producer_id,
            marker.producer_epoch,
            topic_partition or "its coordinator",
            code.name,
        )

    def _go_on(self) -> None:
        """Ends, waits for answers, or waits until it is time to ask again."""
        if self._is_dropped:
            return
        if self._unmarked:
            self._await(DelayedMarkers(self, _NEVER_MS if self._asked else RETRY_MS))
            return
        self._is_completing = True
        try:
            self._complete(self._key.transactional_id, self._on_completed)
        except Exception:  # of any kind: the coordinator would wait for a callback
            if self._is_completing:
                self._on_completed(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        if self._is_completing:
            self._await(DelayedMarkers(self, _NEVER_MS))

    def _await(self, wait: DelayedMarkers | None) -> None:
        before, self._wait = self._wait, wait
        if before is not None:
            self._purgatory.check_and_complete(self._key, "markers")
        if wait is not None:
            self._purgatory.try_complete_else_watch(wait, [self._key])


_DECIDED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)


class MarkerSender:
    """The ending transactions of one partition of the coordinator."""

    def __init__(
        self,
        coordinator_epoch: int,
        writer: MarkerWriter,
        purgatory: DelayedOperationPurgatory,
        complete: Complete,
    ) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._writer = writer
        self._purgatory = purgatory
        self._complete = complete
        self._ending: dict[str, EndingTransaction] = {}

    def send(self, transactional_id: str, value: TransactionValue) -> None:
        """Begins to send the markers of a decided transaction, unless that is under way."""
        if transactional_id in self._ending:
            return
        ending = EndingTransaction(
            transactional_id,
            self._marker(value),
            value.partitions or (),
            self._writer,
            self._purgatory,
            self._complete,
            self._finish,
        )
        self._ending[transactional_id] = ending
        ending.send()

    def drop_all(self) -> None:
        """Stops all: another broker coordinates from now on."""
        ending, self._ending = self._ending, {}
        for each in ending.values():
            each.drop()

    def _finish(self, transactional_id: str) -> None:
        del self._ending[transactional_id]

    def _marker(self, value: TransactionValue) -> EndMarker:
        is_commit = value.state is TransactionState.PREPARE_COMMIT
        return EndMarker(
            value.producer_id,
            value.producer_epoch,
            self._coordinator_epoch,
            TransactionResult.COMMIT if is_commit else TransactionResult.ABORT,
            value.client_transaction_version,
        )
