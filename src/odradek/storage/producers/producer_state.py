"""The log's memory of each idempotent producer, so that a retry is not written twice.

A producer numbers its records per partition; a batch carries the sequence of its first one.
For each producer id the log keeps the epoch and the last five batches: a batch that is among
them is a retry and is answered with the offsets of the first time; a batch that does not
follow the last one is refused, so that nothing is lost in between. Five, because a client
sends at most five requests before the first is answered. Sequences wrap from 2^31 - 1 to 0.

An unknown producer may begin with any sequence: its state may have been removed with the records,
with the topic before this one of its name, or after `producer.id.expiration.ms`
(docs/decisions/0011-first-sequence.md). A `Verification` bounds that by the lowest sequence it has
seen.

The checks of a batch depend on its origin (`AppendOrigin`), as in Kafka:

| origin      | retries are recognised | sequence | epoch | coordinator epoch of end markers |
|-------------|------------------------|----------|-------|----------------------------------|
| CLIENT      | yes                    | yes      | yes   | clients write none               |
| COORDINATOR | no: they all have -1   | no       | yes   | yes                              |
| REPLICATION | no                     | no       | no    | no: the leader has checked       |

States are replaced, never changed. The states that an append has replaced are kept until `commit`,
and `rollback` restores them if the disk refused it; a snapshot can be written on another thread
while appends continue. Open transactions are tracked here too: the first offset of the oldest
undecided one bounds readers of committed data.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from odradek.errors import BrokerError, ErrorCode
from odradek.model import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    UNKNOWN_OFFSET,
    AppendOrigin,
)
from odradek.records.batch import BatchHeader

WINDOW_BATCHES: Final = 5
MAX_SEQUENCE: Final = 0x7FFFFFFF
NO_COORDINATOR_EPOCH: Final = -1
# From this version of transactions on, each end marker has a new epoch (KIP-890).
_EPOCH_BUMPING_VERSION: Final = 2
_LAST_EPOCH: Final = 0x7FFF
_CLIENT: Final = AppendOrigin.CLIENT
_REPLICATION: Final = AppendOrigin.REPLICATION


class BatchMetadata:
    """One batch of a producer: its sequences, its offsets, its largest timestamp."""

    def __init__(
        self,
        first_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
    ) -> None:
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.timestamp = timestamp


class ProducerState:
    """One producer id: immutable. `batches` are the last ones of `epoch`, oldest first.

    `txn_first_offset` is -1 unless a transaction is open.
    """

    def __init__(
        self,
        producer_id: int,
        epoch: int,
        batches: list[BatchMetadata],
        last_timestamp: int = NO_TIMESTAMP,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        txn_first_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches = batches
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = coordinator_epoch
        self.txn_first_offset = txn_first_offset

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 when no batch of this epoch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The offset of the last record, -1 when no batch of this epoch is known."""
        return self.batches[-1].last_offset if self.batches else UNKNOWN_OFFSET

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch of the window that `header` repeats."""
        if header.producer_epoch != self.epoch:
            return None
        first_sequence = header.base_sequence
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None


class CompletedTransaction:
    """A transaction whose marker is in the log; `last_offset` is the marker's."""

    def __init__(
        self, producer_id: int, first_offset: int, last_offset: int, is_aborted: bool
    ) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.is_aborted = is_aborted


class Verification:
    """A verification by the coordinator that a producer may write, until the producer writes or the
    transaction ends.

    A failed write is sent again, so no write may come before the one with the `lowest_sequence`
    that was seen. With `bumps_epochs` the producer raises its epoch with every transaction.
    """

    def __init__(
        self, number: int, epoch: int, sequence: int, bumps_epochs: bool, begun_ms: int
    ) -> None:
        self.number = number
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.bumps_epochs = bumps_epochs
        self.begun_ms = begun_ms

    def note(self, epoch: int, sequence: int) -> None:
        """Adds a write that waits for the same answer."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class ProducerStateManager:
    """The producers of one log. It reads and writes no files (see `producer_snapshot`).

    `map_end_offset` is the offset up to which the log has been taken in, `snapshot_offset` that
    of the latest snapshot on the disk. `first_unstable_offset` is the first offset of the oldest
    undecided transaction, -1 for none; a transaction whose marker is not replicated yet is
    undecided.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._states: dict[int, ProducerState] = {}
        # Producer id to the first offset of its open transaction, in the order of the offsets: the
        # first is found at once, however many are open.
        self._open: OrderedDict[int, int] = OrderedDict()
        # Decided, but the marker is not below the high watermark yet.
        self._unreplicated: list[CompletedTransaction] = []
        self.first_unstable_offset = UNKNOWN_OFFSET
        # Producers whose first write in a transaction is being verified elsewhere, or was not
        # verified. An end marker removes it: a later result of the verification does not count.
        self._verifications: dict[int, Verification] = {}
        self._verification_count = 0
        # The states replaced by the batches since the last `commit`.
        self._replaced: dict[int, ProducerState | None] = {}
        self._verifications_ended: dict[int, Verification] = {}
        self.map_end_offset = 0
        self.snapshot_offset = 0

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> ProducerState | None:
        """The state of a producer."""
        return self._states.get(producer_id)

    def active(self) -> list[ProducerState]:
        """All producers, for DescribeProducers and snapshots."""
        return list(self._states.values())

    def check(self, header: BatchHeader, origin: AppendOrigin) -> BatchMetadata | None:
        """Checks that a batch of records may be appended; returns the earlier batch if it repeats
        one.

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER; INVALID_TXN_STATE
                for records outside of the producer's open transaction.
        """
        if origin is _REPLICATION:
            return None
        state = self._states.get(header.producer_id)
        from_client = origin is _CLIENT
        if state is None:
            if from_client:
                self._check_verified(header, False)
            return None
        if from_client:
            duplicate = state.duplicate_of(header)
            if duplicate is not None:
                return duplicate
        if header.producer_epoch < state.epoch:
            raise self._stale_epoch(header, state.epoch)
        if from_client:
            self._check_verified(header, bool(state.batches))
            self._check_sequence(header, state)
        if state.txn_first_offset >= 0 and not header.is_transactional:
            raise self._refused(
                ErrorCode.INVALID_TXN_STATE,
                header,
                f"its transaction has been open since offset {state.txn_first_offset}",
            )
        return None

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of the producer is open here already."""
        state = self._states.get(producer_id)
        return state is not None and state.txn_first_offset >= 0 and state.epoch == producer_epoch

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, bumps_epochs: bool, now_ms: int
    ) -> int:
        """Begins a verification by the coordinator; returns its number, by which
        `is_verification_valid` tells whether the answer is still valid."""
        verification = self._verifications.get(producer_id)
        if verification is None:
            self._verification_count += 1
            verification = Verification(
                self._verification_count, epoch, sequence, bumps_epochs, now_ms
            )
            self._verifications[producer_id] = verification
        verification.note(epoch, sequence)
        return verification.number

    def is_verification_valid(self, producer_id: int, producer_epoch: int, number: int) -> bool:
        """Whether no transaction of the producer has ended here since the verification began.

        `check` refuses an earlier epoch, with a better error.
        """
        state = self._states.get(producer_id)
        if state is not None and producer_epoch < state.epoch:
            return True
        if self.is_in_transaction(producer_id, producer_epoch):
            return True
        verification = self._verifications.get(producer_id)
        return verification is not None and verification.number == number

    def check_marker(
        self,
        header: BatchHeader,
        coordinator_epoch: int,
        origin: AppendOrigin,
        transaction_version: int,
    ) -> None:
        """Checks that the end marker of a transaction may be appended.

        Up to transaction version 1 a marker has the epoch of the records that it decides;
        from 2 on it has the next one, so that a late one cannot end the transaction after. A
        coordinator whose answer was lost writes the marker again, which changes nothing.

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH; TRANSACTION_COORDINATOR_FENCED for a
                coordinator that was replaced.
        """
        if origin is _REPLICATION:
            return
        state = self._states.get(header.producer_id)
        if state is None:
            if header.producer_id >= 0 and header.producer_epoch < NO_PRODUCER_EPOCH:
                raise self._stale_epoch(header, NO_PRODUCER_EPOCH)
            return
        bumps = transaction_version >= _EPOCH_BUMPING_VERSION
        least = state.epoch + (1 if bumps and not _is_repeated(header, state) else 0)
        if header.producer_epoch < least:
            raise self._stale_epoch(header, state.epoch)
        if coordinator_epoch < state.coordinator_epoch:
            raise self._refused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                header,
                f"the coordinator's epoch {coordinator_epoch} is over, "
                f"the current one is {state.coordinator_epoch}",
            )

    def update(self, header: BatchHeader) -> None:
        """Takes in a batch that has its offsets; control batches go to `complete`."""
        state = self._states.get(header.producer_id)
        metadata = BatchMetadata(
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        batches = [metadata]
        txn_first_offset = UNKNOWN_OFFSET
        coordinator_epoch = NO_COORDINATOR_EPOCH
        if state is not None:
            coordinator_epoch = state.coordinator_epoch
            txn_first_offset = state.txn_first_offset
            if state.epoch == header.producer_epoch:
                batches = [*state.batches[-(WINDOW_BATCHES - 1) :], metadata]
        if header.is_transactional and txn_first_offset < 0:
            txn_first_offset = header.base_offset
            self._open[header.producer_id] = txn_first_offset
            self._end_verification(header.producer_id)
            if self.first_unstable_offset < 0:
                self.first_unstable_offset = txn_first_offset
        self._put(
            ProducerState(
                header.producer_id,
                header.producer_epoch,
                batches,
                header.max_timestamp,
                coordinator_epoch,
                txn_first_offset,
            )
        )

    def complete(
        self, header: BatchHeader, is_commit: bool, coordinator_epoch: int
    ) -> CompletedTransaction | None:
        """Takes in a transaction's end marker; None when the producer had none open."""
        producer_id = header.producer_id
        self._end_verification(producer_id)
        state = self._states.get(producer_id)
        completed = None
        if state is not None and state.txn_first_offset >= 0:
            completed = CompletedTransaction(
                producer_id, state.txn_first_offset, header.base_offset, not is_commit
            )
            self._open.pop(producer_id, None)
            self._unreplicated.append(completed)
        same_epoch = state is not None and state.epoch == header.producer_epoch
        self._put(
            ProducerState(
                producer_id,
                header.producer_epoch,
                state.batches if state is not None and same_epoch else [],
                header.max_timestamp,
                coordinator_epoch,
            )
        )
        self._find_first_unstable()
        return completed

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The last stable offset once `completed` is decided, for the transaction index."""
        return next(iter(self._open.values()), completed.last_offset + 1)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forgets the decided transactions whose markers are replicated."""
        if self._unreplicated:
            self._unreplicated = [
                txn for txn in self._unreplicated if txn.last_offset >= high_watermark
            ]
            self._find_first_unstable()

    def commit(self) -> None:
        """Commits the prepared states: their batches are in the log."""
        if self._replaced:
            self._replaced = {}
            self._verifications_ended = {}

    def rollback(self) -> None:
        """Restores the states of the last `commit`, after a failed append."""
        self._verifications.update(self._verifications_ended)
        self._verifications_ended = {}
        replaced = self._replaced
        self._replaced = {}
        for producer_id, state in replaced.items():
            self._open.pop(producer_id, None)
            if state is None:
                del self._states[producer_id]
                continue
            self._states[producer_id] = state
            if state.txn_first_offset >= 0:
                self._open[producer_id] = state.txn_first_offset
                self._unreplicated = [
                    txn
                    for txn in self._unreplicated
                    if txn.producer_id != producer_id or txn.first_offset != state.txn_first_offset
                ]
        self._open = _in_order(self._open.items())
        self._find_first_unstable()

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers without an open transaction that were silent for so long, and
        verifications that no write has followed."""
        expired = [
            state.producer_id
            for state in self._states.values()
            if state.txn_first_offset < 0 and now_ms - state.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._states[producer_id]
        self._verifications = {
            producer_id: verification
            for producer_id, verification in self._verifications.items()
            if now_ms - verification.begun_ms < expiration_ms
        }
        return len(expired)

    def load(self, states: list[ProducerState], map_end_offset: int) -> None:
        """Starts from the snapshot at `map_end_offset`, or from nothing."""
        self._states = {state.producer_id: state for state in states}
        self._open = _in_order(
            (state.producer_id, state.txn_first_offset)
            for state in states
            if state.txn_first_offset >= 0
        )
        self._unreplicated = []
        self._replaced = {}
        self._verifications_ended = {}
        self.map_end_offset = map_end_offset
        self.snapshot_offset = map_end_offset
        self._find_first_unstable()

    def _check_verified(self, header: BatchHeader, has_batches: bool) -> None:
        """Checks, before the first write of a transaction, that no earlier write is still to
        come."""
        verification = self._verifications.get(header.producer_id)
        if verification is None:
            return
        if verification.bumps_epochs and header.base_sequence != 0 and not has_batches:
            raise self._refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                header,
                "0 is expected of a producer of which nothing is known",
            )
        if header.base_sequence > verification.lowest_sequence:
            raise self._refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                header,
                f"sequence {verification.lowest_sequence} has not been written yet",
            )

    def _check_sequence(self, header: BatchHeader, state: ProducerState) -> None:
        first_sequence = header.base_sequence
        if header.producer_epoch != state.epoch:
            if first_sequence != 0 and state.epoch != NO_PRODUCER_EPOCH:
                raise self._refused(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    header,
                    f"a new epoch begins at 0, the last one was {state.epoch}",
                )
            return
        last_sequence = state.last_sequence
        if last_sequence == NO_SEQUENCE:
            # Only markers of this epoch are known: its first data batch begins at 0.
            expected = 0
        else:
            expected = 0 if last_sequence == MAX_SEQUENCE else last_sequence + 1
        if first_sequence != expected:
            raise self._refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, header, f"{expected} is expected"
            )

    def _stale_epoch(self, header: BatchHeader, current: int) -> BrokerError:
        return self._refused(
            ErrorCode.INVALID_PRODUCER_EPOCH, header, f"the current epoch is {current}"
        )

    def _refused(self, code: ErrorCode, header: BatchHeader, reason: str) -> BrokerError:
        return BrokerError(
            code,
            f"{self._name}: producer {header.producer_id}, epoch {header.producer_epoch}, "
            f"sequence {header.base_sequence}: {reason}",
        )

    def _end_verification(self, producer_id: int) -> None:
        verification = self._verifications.pop(producer_id, None)
        if verification is not None:
            self._verifications_ended[producer_id] = verification

    def _put(self, state: ProducerState) -> None:
        if state.producer_id not in self._replaced:
            self._replaced[state.producer_id] = self._states.get(state.producer_id)
        self._states[state.producer_id] = state

    def _find_first_unstable(self) -> None:
        first = next(iter(self._open.values()), UNKNOWN_OFFSET)
        for transaction in self._unreplicated:
            if first < 0 or transaction.first_offset < first:
                first = transaction.first_offset
        self.first_unstable_offset = first


def _in_order(transactions: Iterable[tuple[int, int]]) -> OrderedDict[int, int]:
    return OrderedDict(sorted(transactions, key=lambda entry: entry[1]))


def _is_repeated(header: BatchHeader, state: ProducerState) -> bool:
    """Whether the log has this end marker already, or its epoch is the last one, which repeats
    until the transactional id gets another producer id."""
    if header.producer_epoch != state.epoch:
        return False
    return state.txn_first_offset < 0 or header.producer_epoch == _LAST_EPOCH
