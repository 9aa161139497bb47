"""The rules of transactional ids: which producer may do what, and which record results.

A command looks at the id's value and either refuses or returns the next value. Every answer is
Kafka's, state by state. While a change of an id is being written, or its end is decided and the
markers are not written yet, producers are answered CONCURRENT_TRANSACTIONS.

A command that needs a new producer id, which has to be fetched, answers None, and runs again with
one.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.records.transaction_records import (
    TransactionKey,
    TransactionState,
    TransactionValue,
)
from odradek.coordinator.runtime.shard import CoordinatorResult
from odradek.coordinator.transactions import transaction
from odradek.coordinator.transactions.requests import (
    AddPartitionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProducerAnswer,
    ProducerIdAndEpoch,
)
from odradek.coordinator.transactions.states import STATE_NAMES, is_prepared, may_expire
from odradek.errors import BrokerError, ErrorCode
from odradek.model import NO_PRODUCER_EPOCH, TopicPartition, TransactionResult

logger = logging.getLogger(__name__)

R = TypeVar("R")

OptionalAnswer = CoordinatorResult[ProducerAnswer | None]


class TransactionCommands:
    """The commands on the transactional ids of one partition.

    `is_changing` says whether a change of an id is being written.
    """

    def __init__(
        self, transactions: Mapping[str, TransactionValue], is_changing: Callable[[str], bool]
    ) -> None:
        self._transactions = transactions
        self._is_changing = is_changing

    # A producer takes an id over

    def init_producer_id(
        self, request: InitProducerIdRequest, version: int, now_ms: int, spare_id: int | None
    ) -> OptionalAnswer:
        """InitProducerId. An open transaction is aborted first, and the producer asks again.

        Raises:
            BrokerError: PRODUCER_FENCED or CONCURRENT_TRANSACTIONS.
        """
        value = self._transactions.get(request.transactional_id)
        if value is not None:
            _check_expected(value, request.expected)
        self._check_settled(request.transactional_id)
        if value is None:
            if spare_id is None:
                return CoordinatorResult([], None)
            value = transaction.created(spare_id, request.timeout_ms, now_ms)
        if is_prepared(value.state):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if value.state is TransactionState.ONGOING:
            answer = ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
            return _fence(request.transactional_id, value, version, now_ms, spare_id, answer)
        return self._hand_out(request, value, now_ms, spare_id)

    def _hand_out(
        self,
        request: InitProducerIdRequest,
        value: TransactionValue,
        now_ms: int,
        spare_id: int | None,
    ) -> OptionalAnswer:
        expected = request.expected
        expected_epoch = None if expected is None else expected.producer_epoch
        epoch = value.producer_epoch
        if transaction.is_exhausted(epoch) and expected_epoch in (None, epoch):
            if spare_id is None:
                return CoordinatorResult([], None)
            after = transaction.with_next_producer_id(
                value, spare_id, request.timeout_ms, expected is not None, now_ms
            )
        else:
            after = transaction.with_next_epoch(value, request.timeout_ms, expected_epoch, now_ms)
        return _change(request.transactional_id, after, _answer(after))

    # Partitions

    def add_partitions(
        self, request: AddPartitionsRequest, now_ms: int
    ) -> CoordinatorResult[ErrorCode]:
        """AddPartitionsToTxn and AddOffsetsToTxn.

        Raises:
            BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        value = self._of_producer(request.transactional_id, request.producer)
        self._check_settled(request.transactional_id)
        if is_prepared(value.state):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_open = value.state is TransactionState.ONGOING
        if is_open and set(value.partitions or ()).issuperset(request.partitions):
            return CoordinatorResult([], ErrorCode.NONE)
        after = transaction.with_partitions(
            value, request.partitions, request.transaction_version, now_ms
        )
        return _change(request.transactional_id, after, ErrorCode.NONE)

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
    ) -> list[ErrorCode]:
        """Returns which partitions belong to the open transaction of a producer. A change that is
        being written is not valid yet: the append asks once more.

        Raises:
            BrokerError: as `add_partitions`.
        """
        value = self._of_producer(transactional_id, producer)
        if is_prepared(value.state):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        known = set(value.partitions or ())
        return [
            ErrorCode.NONE if each in known else ErrorCode.TRANSACTION_ABORTABLE
            for each in partitions
        ]

    def _of_producer(self, transactional_id: str, producer: ProducerIdAndEpoch) -> TransactionValue:
        """The value of an id that this producer owns."""
        value = self._known(transactional_id)
        if value.producer_id != producer.producer_id:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if value.producer_epoch != producer.producer_epoch:
            raise BrokerError(ErrorCode.PRODUCER_FENCED)
        return value

    def _check_settled(self, transactional_id: str) -> None:
        if self._is_changing(transactional_id):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _known(self, transactional_id: str) -> TransactionValue:
        value = self._transactions.get(transactional_id)
        if value is None:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return value

    # The end

    def end(self, request: EndTxnRequest, now_ms: int, spare_id: int | None) -> OptionalAnswer:
        """EndTxn, by the rules of the request's version of transactions.

        Raises:
            BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS or
                INVALID_TXN_STATE.
        """
        value = self._known(request.transactional_id)
        if request.transaction_version < transaction.EPOCH_BUMP_VERSION:
            _check_end_of_version_1(request, value)
            self._check_settled(request.transactional_id)
            return _end_by_version_1(request, value, now_ms)
        is_retry = _is_retry(request, value)
        _check_end_of_version_2(request, value, is_retry)
        self._check_settled(request.transactional_id)
        return _end_by_version_2(request, value, is_retry, now_ms, spare_id)

    def completed(self, transactional_id: str, now_ms: int) -> CoordinatorRecord:
        """The record saying that the markers of a decided transaction are written."""
        after = transaction.completed(self._transactions[transactional_id], now_ms)
        return CoordinatorRecord(TransactionKey(transactional_id), after)

    # Time

    def abort_timed_out(
        self, transactional_id: str, version: int, now_ms: int, spare_id: int | None
    ) -> OptionalAnswer:
        """Aborts a transaction that its producer has not ended in time.

        Raises:
            BrokerError: CONCURRENT_TRANSACTIONS.
        """
        self._check_settled(transactional_id)
        value = self._transactions.get(transactional_id)
        answer = ProducerAnswer(ErrorCode.NONE)
        if value is None or not transaction.is_timed_out(value, now_ms):
            return CoordinatorResult([], answer)
        logger.info(
            "transactional id %s: its transaction has been open for %d ms and is aborted",
            transactional_id,
            now_ms - value.start_timestamp_ms,
        )
        return _fence(transactional_id, value, version, now_ms, spare_id, answer)

    def expired(self, now_ms: int, expiration_ms: int) -> list[str]:
        """The ids that were not used for so long."""
        return [
            transactional_id
            for transactional_id, value in self._transactions.items()
            if _is_expired(value, now_ms, expiration_ms)
        ]

    def expire(
        self, transactional_id: str, now_ms: int, expiration_ms: int
    ) -> CoordinatorResult[None]:
        """Forgets an id, unless it was used meanwhile."""
        value = self._transactions.get(transactional_id)
        if value is None or not _is_expired(value, now_ms, expiration_ms):
            return CoordinatorResult([], None)
        return CoordinatorResult([CoordinatorRecord(TransactionKey(transactional_id), None)], None)


def _is_expired(value: TransactionValue, now_ms: int, expiration_ms: int) -> bool:
    return may_expire(value.state) and value.last_update_timestamp_ms <= now_ms - expiration_ms


def _change(transactional_id: str, after: TransactionValue, response: R) -> CoordinatorResult[R]:
    return CoordinatorResult([CoordinatorRecord(TransactionKey(transactional_id), after)], response)


def _fence(
    transactional_id: str,
    value: TransactionValue,
    version: int,
    now_ms: int,
    spare_id: int | None,
    answer: ProducerAnswer,
) -> OptionalAnswer:
    """Takes an open transaction away from its producer."""
    if spare_id is None and transaction.uses_up_epochs(value, version):
        return CoordinatorResult([], None)
    after = transaction.fenced(value, version, now_ms, spare_id)
    return _change(transactional_id, after, answer)


def _answer(value: TransactionValue) -> ProducerAnswer:
    return ProducerAnswer(
        ErrorCode.NONE, ProducerIdAndEpoch(value.producer_id, value.producer_epoch)
    )


def _check_expected(value: TransactionValue, expected: ProducerIdAndEpoch | None) -> None:
    """Checks that a producer that names its id and epoch may still own the transactional id.

    Its epoch is checked later. It may name the previous producer id if the epochs of that are used
    up, since it may not know the new one; and any id if the transactional id was just created,
    since the coordinator has forgotten the earlier one.
    """
    if expected is None or value.producer_epoch == NO_PRODUCER_EPOCH:
        return
    if expected.producer_id == value.producer_id:
        return
    was_used_up = transaction.is_exhausted(expected.producer_epoch)
    if expected.producer_id != value.previous_producer_id or not was_used_up:
        raise BrokerError(ErrorCode.PRODUCER_FENCED)


def _check_end_of_version_1(request: EndTxnRequest, value: TransactionValue) -> None:
    if value.producer_id != request.producer.producer_id:
        raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if value.producer_epoch != request.producer.producer_epoch:
        raise BrokerError(ErrorCode.PRODUCER_FENCED)


def _end_by_version_1(
    request: EndTxnRequest, value: TransactionValue, now_ms: int
) -> OptionalAnswer:
    """Ends a transaction without a new epoch; a repeated request gets the same answer."""
    if value.state is TransactionState.ONGOING:
        after = transaction.ended(value, request.result, request.transaction_version, now_ms, None)
        return _change(request.transactional_id, after, ProducerAnswer(ErrorCode.NONE))
    if value.state is _completed_state(request.result):
        return CoordinatorResult([], ProducerAnswer(ErrorCode.NONE))
    raise _refused_end(request, value)


def _end_by_version_2(
    request: EndTxnRequest,
    value: TransactionValue,
    is_retry: bool,
    now_ms: int,
    spare_id: int | None,
) -> OptionalAnswer:
    """Ends a transaction and raises the epoch. A producer that names the previous epoch repeats its
    request.

    A producer may abort without having added anything: it may not know whether its first write
    was added before it failed.
    """
    if value.state is not TransactionState.ONGOING:
        if is_retry and value.state is _completed_state(request.result):
            return CoordinatorResult([], _answer(value))
        is_abort = request.result is TransactionResult.ABORT
        if is_retry or not is_abort or is_prepared(value.state):
            raise _refused_end(request, value)
    version = request.transaction_version
    if spare_id is None and transaction.uses_up_epochs(value, version):
        return CoordinatorResult([], None)
    after = transaction.ended(value, request.result, version, now_ms, spare_id)
    seen = _answer(transaction.completed(after, now_ms))
    return _change(request.transactional_id, after, seen)


def _is_retry(request: EndTxnRequest, value: TransactionValue) -> bool:
    producer = request.producer
    was_raised = value.producer_epoch == producer.producer_epoch + 1
    return was_raised or _was_rotated(producer, value)


def _was_rotated(producer: ProducerIdAndEpoch, value: TransactionValue) -> bool:
    """Whether the previous end used up the epochs, so that the producer got another id."""
    return (
        value.previous_producer_id == producer.producer_id
        and producer.producer_epoch == transaction.MAX_EPOCH - 1
        and value.producer_epoch == 0
    )


def _check_end_of_version_2(
    request: EndTxnRequest, value: TransactionValue, is_retry: bool
) -> None:
    producer = request.producer
    if value.producer_id != producer.producer_id and not _was_rotated(producer, value):
        raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_current = producer.producer_epoch == value.producer_epoch
    if is_prepared(value.state):
        is_valid = value.producer_epoch == producer.producer_epoch + 1
    elif may_expire(value.state) and value.state is not TransactionState.EMPTY:
        is_valid = is_retry or is_current
    else:
        is_valid = is_current
    if not is_valid:
        raise BrokerError(ErrorCode.PRODUCER_FENCED)


def _completed_state(result: TransactionResult) -> TransactionState:
    if result is TransactionResult.COMMIT:
        return TransactionState.COMPLETE_COMMIT
    return TransactionState.COMPLETE_ABORT


def _prepared_state(result: TransactionResult) -> TransactionState:
    if result is TransactionResult.COMMIT:
        return TransactionState.PREPARE_COMMIT
    return TransactionState.PREPARE_ABORT


def _refused_end(request: EndTxnRequest, value: TransactionValue) -> BrokerError:
    """The error for an end that is already under way, or not possible."""
    if value.state is _prepared_state(request.result):
        return BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
    logger.info(
        "transactional id %s: %s is refused, it is %s",
        request.transactional_id,
        request.result.name.lower(),
        STATE_NAMES[value.state],
    )
    return BrokerError(ErrorCode.INVALID_TXN_STATE)


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions by topic, as in responses."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
