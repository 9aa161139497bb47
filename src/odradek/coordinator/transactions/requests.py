"""Requests and responses of the transaction coordinator, free of wire versions."""

from collections.abc import Sequence
from typing import NamedTuple

from odradek.coordinator.records.transaction_records import TransactionState, TransactionValue
from odradek.errors import ErrorCode
from odradek.model import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    TransactionResult,
)


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer to the brokers."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER_ID_AND_EPOCH = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class InitProducerIdRequest(NamedTuple):
    """A producer wants a transactional id; `expected` is its current identity, if it has one."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None


class EndTxnRequest(NamedTuple):
    """A producer ends its transaction, by the rules of a version of transactions."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    result: TransactionResult
    transaction_version: int


class AddPartitionsRequest(NamedTuple):
    """A producer is about to write to partitions."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Sequence[TopicPartition]
    transaction_version: int


class ProducerAnswer(NamedTuple):
    """The identity of a producer from now on, or an error."""

    error_code: ErrorCode
    producer: ProducerIdAndEpoch = NO_PRODUCER_ID_AND_EPOCH


class ListedTransaction(NamedTuple):
    """A transactional id, as ListTransactions shows it."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionFilter(NamedTuple):
    """The filter of ListTransactions; an empty or negative field matches everything."""

    states: frozenset[TransactionState] = frozenset()
    has_states: bool = False
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1

    def admits(self, value: TransactionValue, now_ms: int) -> bool:
        """Whether a transactional id matches."""
        return (
            (not self.has_states or value.state in self.states)
            and (not self.producer_ids or value.producer_id in self.producer_ids)
            and (self.duration_ms < 0 or now_ms - value.start_timestamp_ms > self.duration_ms)
        )
