"""The life of a transactional producer, as one table.

    UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> SETTLING -> COMMITTING -> READY
                                                    or ABORTING -> READY

A commit accepts nothing more (SETTLING), waits for accepted records and calls that have begun, and
only then ends the transaction (COMMITTING). An error of one transaction makes it ABORTABLE:
`abort_transaction` leads back to READY. FATAL is the end: another producer has the transactional
id, or the coordinator refuses for good.

A call that was cancelled, or that had no answer in time, may have been carried out all the same: it
has to be repeated before any other call.
"""

from enum import Enum
from typing import Final

from odradek.client.errors import KafkaError, TransactionAborted, TransactionError, UsageError
from odradek.errors import ErrorCode


class TransactionState(Enum):
    """The states of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    SETTLING = "delivering what is to be committed"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE = "in a transaction that can only be aborted"
    FATAL = "failed for good"


_STATES = TransactionState
TRANSITIONS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _STATES.UNINITIALIZED: frozenset({_STATES.INITIALIZING}),
    _STATES.INITIALIZING: frozenset(
        {_STATES.INITIALIZING, _STATES.READY, _STATES.UNINITIALIZED, _STATES.FATAL}
    ),
    _STATES.READY: frozenset({_STATES.IN_TRANSACTION, _STATES.FATAL}),
    _STATES.IN_TRANSACTION: frozenset(
        {_STATES.SETTLING, _STATES.ABORTING, _STATES.ABORTABLE, _STATES.FATAL}
    ),
    _STATES.SETTLING: frozenset(
        {
            _STATES.SETTLING,
            _STATES.COMMITTING,
            _STATES.ABORTING,
            _STATES.ABORTABLE,
            _STATES.FATAL,
        }
    ),
    _STATES.COMMITTING: frozenset(
        {_STATES.COMMITTING, _STATES.READY, _STATES.ABORTABLE, _STATES.FATAL}
    ),
    _STATES.ABORTABLE: frozenset({_STATES.ABORTING, _STATES.FATAL}),
    _STATES.ABORTING: frozenset(
        {_STATES.ABORTING, _STATES.READY, _STATES.ABORTABLE, _STATES.FATAL}
    ),
    _STATES.FATAL: frozenset({_STATES.FATAL}),
}

_FATAL_CODES: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)


class TransactionLife:
    """The state of one producer, and the error that stopped it."""

    def __init__(self) -> None:
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        self.number = 0
        """How many transactions were begun: a caller that has waited can see that its own has
        ended."""

    def move(self, target: TransactionState) -> None:
        """Goes to `target`.

        Raises:
            KafkaError: the error that prevents it.
            UsageError: the present state does not allow it.
        """
        if target not in TRANSITIONS[self.state]:
            if self.error is not None:
                raise self.error
            raise UsageError(
                f"a producer that is {self.state.value} cannot become {target.value}",
                ErrorCode.INVALID_TXN_STATE,
            )
        self.state = target
        if target is TransactionState.READY:
            self.error = None
        elif target is TransactionState.IN_TRANSACTION:
            self.number += 1

    def takes_records(self, number: int) -> bool:
        """Whether records of the transaction of that number may yet be sent."""
        taking = (TransactionState.IN_TRANSACTION, TransactionState.SETTLING)
        return number == self.number and self.state in taking

    def is_over(self, number: int) -> bool:
        """Whether the transaction of that number is being ended, or was."""
        ending = (TransactionState.COMMITTING, TransactionState.ABORTING, TransactionState.READY)
        return number != self.number or self.state in ending

    def check_sending(self, number: int, *, was_begun: bool = False) -> None:
        """Whether records and offsets of the transaction of that number may be sent now. Calls that
        began before its commit are still accepted.

        Raises:
            KafkaError: they may not.
        """
        if number != self.number:
            raise TransactionAborted("the transaction had ended before the record was sent")
        if was_begun and self.state is TransactionState.SETTLING:
            return
        if self.state is not TransactionState.IN_TRANSACTION:
            if self.error is not None:
                raise self.error
            raise UsageError(
                f"nothing can be sent by a producer that is {self.state.value}",
                ErrorCode.INVALID_TXN_STATE,
            )

    def fail(self, error: KafkaError) -> None:
        """Records an error: of the transaction, or of the producer for good."""
        if self.state is TransactionState.FATAL:
            return
        if error.code in _FATAL_CODES:
            target = TransactionState.FATAL
        else:
            target = TransactionState.ABORTABLE
            if error.retriable:  # but nothing of this transaction is
                text = f"the transaction can only be aborted: {error.message}"
                error = TransactionError(text, ErrorCode.TRANSACTION_ABORTABLE)
        if target in TRANSITIONS[self.state]:
            self.state, self.error = target, error
