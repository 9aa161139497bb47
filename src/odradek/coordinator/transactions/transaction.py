"""The transitions of a transactional id: functions from one of its values to the next.

They decide epochs and ids, nothing else; `commands` decides what a producer may do. Each takes its
step in the state table. The previous value stays valid: values never change.

With version 2 of transactions each end raises the epoch, so that a late request of one transaction
cannot be taken for one of the next (KIP-890). With earlier versions an epoch lasts as long as the
producer.
"""

from collections.abc import Iterable
from typing import Final

from odradek.coordinator.records.transaction_records import TransactionState, TransactionValue
from odradek.coordinator.transactions.states import TransactionEvent, transition
from odradek.errors import BrokerError, ErrorCode
from odradek.model import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
    TransactionResult,
)

MAX_EPOCH: Final = 0x7FFF
EPOCH_BUMP_VERSION: Final = 2
"""The version of transactions from which on every end raises the epoch."""
NO_TIMEOUT_MS: Final = 0x7FFFFFFF
"""A time-out that means: an outside coordinator decides, and nobody else."""


def is_exhausted(epoch: int) -> bool:
    """Whether a producer id has no epoch left to hand out; the last one is kept for fencing."""
    return epoch >= MAX_EPOCH - 1


def uses_up_epochs(value: TransactionValue, version: int) -> bool:
    """Whether the end of its transaction raises the epoch to the last one, which no producer gets:
    late requests of its last owner could not be fenced. Another producer id is needed for it
    then."""
    return version >= EPOCH_BUMP_VERSION and is_exhausted(value.producer_epoch)


def created(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionValue:
    """A new transactional id; its first epoch is still to be handed out."""
    return TransactionValue(
        producer_id,
        NO_PRODUCER_EPOCH,
        timeout_ms,
        TransactionState.EMPTY,
        None,
        now_ms,
        NO_TIMESTAMP,
    )


def with_next_epoch(
    value: TransactionValue, timeout_ms: int, expected_epoch: int | None, now_ms: int
) -> TransactionValue:
    """The id with the next epoch, for a producer that takes it over.

    A producer that continues after an error names the epoch that it expects. If that is the
    previous one, the producer repeats a request whose answer was lost: the epoch stays.

    Raises:
        BrokerError: PRODUCER_FENCED, the epoch that is expected is over.
    """
    epoch = value.producer_epoch
    if expected_epoch is None:
        epoch, last_epoch = epoch + 1, NO_PRODUCER_EPOCH
    elif epoch in (NO_PRODUCER_EPOCH, expected_epoch):
        epoch, last_epoch = epoch + 1, epoch
    elif expected_epoch == value.last_producer_epoch:
        last_epoch = value.last_producer_epoch
    else:
        raise BrokerError(ErrorCode.PRODUCER_FENCED)
    return _initialized(value, value.producer_id, epoch, last_epoch, timeout_ms, now_ms)


def with_next_producer_id(
    value: TransactionValue, producer_id: int, timeout_ms: int, keeps_last: bool, now_ms: int
) -> TransactionValue:
    """The id with a new producer id, because the epochs of the old one are used up."""
    last_epoch = value.producer_epoch if keeps_last else NO_PRODUCER_EPOCH
    return _initialized(value, producer_id, 0, last_epoch, timeout_ms, now_ms)


def _initialized(
    value: TransactionValue,
    producer_id: int,
    epoch: int,
    last_epoch: int,
    timeout_ms: int,
    now_ms: int,
) -> TransactionValue:
    return value._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=transition(value.state, TransactionEvent.INITIALIZED),
        partitions=None,
        last_update_timestamp_ms=now_ms,
        start_timestamp_ms=NO_TIMESTAMP,
        previous_producer_id=value.producer_id,
        last_producer_epoch=last_epoch,
    )


def with_partitions(
    value: TransactionValue,
    added: Iterable[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionValue:
    """The id with partitions added to its transaction, which begins if there is none."""
    is_open = value.state is TransactionState.ONGOING
    return value._replace(
        state=transition(value.state, TransactionEvent.PARTITIONS_ADDED),
        partitions=tuple(dict.fromkeys((*(value.partitions or ()), *added))),
        last_update_timestamp_ms=now_ms,
        start_timestamp_ms=value.start_timestamp_ms if is_open else now_ms,
        previous_producer_id=value.producer_id,
        client_transaction_version=client_version,
    )


def ended(
    value: TransactionValue,
    result: TransactionResult,
    version: int,
    now_ms: int,
    spare_id: int | None,
) -> TransactionValue:
    """The id with the end of its transaction decided; it continues with the spare producer id if
    that uses up the epochs.

    From version 2 on a producer may abort without having added anything; then the transaction
    begins and ends now.
    """
    next_producer_id = NO_PRODUCER_ID
    if uses_up_epochs(value, version):
        assert spare_id is not None, f"no producer id follows {value.producer_id}"
        next_producer_id = spare_id
    is_commit = result is TransactionResult.COMMIT
    event = TransactionEvent.COMMIT if is_commit else TransactionEvent.ABORT
    epoch, last_epoch = value.producer_epoch, value.last_producer_epoch
    if version >= EPOCH_BUMP_VERSION:
        epoch, last_epoch = min(epoch + 1, MAX_EPOCH), epoch
    begun = value.state in (TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE)
    return value._replace(
        producer_epoch=epoch,
        state=transition(value.state, event),
        partitions=value.partitions or (),
        last_update_timestamp_ms=now_ms,
        start_timestamp_ms=value.start_timestamp_ms if begun else now_ms,
        previous_producer_id=value.producer_id,
        next_producer_id=next_producer_id,
        client_transaction_version=version if version >= EPOCH_BUMP_VERSION else 0,
        last_producer_epoch=last_epoch,
    )


def fenced(
    value: TransactionValue, version: int, now_ms: int, spare_id: int | None
) -> TransactionValue:
    """The id with its open transaction taken away: an epoch that no producer has, and abort.

    The markers carry that epoch, so that from them on the partitions refuse the old producer.
    """
    taken = value._replace(state=transition(value.state, TransactionEvent.FENCED))
    if version < EPOCH_BUMP_VERSION:
        epoch = min(value.producer_epoch + 1, MAX_EPOCH)
        taken = taken._replace(producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
    return ended(taken, TransactionResult.ABORT, version, now_ms, spare_id)


def completed(value: TransactionValue, now_ms: int) -> TransactionValue:
    """The id with the markers of its transaction written."""
    rotates = (
        value.client_transaction_version >= EPOCH_BUMP_VERSION
        and value.next_producer_id != NO_PRODUCER_ID
    )
    return value._replace(
        producer_id=value.next_producer_id if rotates else value.producer_id,
        producer_epoch=0 if rotates else value.producer_epoch,
        state=transition(value.state, TransactionEvent.MARKED),
        partitions=(),
        last_update_timestamp_ms=now_ms,
        previous_producer_id=value.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def is_timed_out(value: TransactionValue, now_ms: int) -> bool:
    """Whether a transaction has been open for longer than its producer has allowed."""
    return (
        value.state is TransactionState.ONGOING
        and value.timeout_ms != NO_TIMEOUT_MS
        and value.start_timestamp_ms + value.timeout_ms < now_ms
    )
