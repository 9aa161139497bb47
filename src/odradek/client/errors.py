"""The errors a client raises: a tree of types over Kafka's table of error codes.

    KafkaError
    ├─ RetriableError           asking again may help; the client did so while it had time
    │  ├─ NetworkError          nobody answers, or what came was no answer
    │  ├─ RequestTimedOut       the broker or the client gave up waiting
    │  ├─ StaleMetadata         leaders moved; the topic is unknown here
    │  └─ CoordinatorError      the group's or the transaction's coordinator moved or loads
    ├─ AuthorizationError
    ├─ AuthenticationError
    ├─ GroupError               membership was lost, or the group refuses: CommitFailed...
    ├─ FencedError              another producer has taken this one's place
    ├─ TransactionError
    ├─ RecordError              one record or batch is at fault: RecordTooLarge...
    ├─ NotDelivered             of records that were sent together some are not in the log
    ├─ RequestError             what was asked for is not legal: names, settings, counts
    ├─ UnsupportedVersion
    └─ UsageError               the client was not used as it may be

Every error has `code` (an `ErrorCode`), `message` and `retriable`. An answer's code becomes its
type in one place, `error_for`. Errors of one item among many are values in the result, not raised.
"""

import copyreg
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.client.record_metadata import RecordMetadata
from odradek.errors import BrokerError, ErrorCode, reason_of
from odradek.model import TopicPartition


class KafkaError(BrokerError):
    """The root: `code` says what exactly it is."""

    def __init__(
        self, message: str | None = None, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    ) -> None:
        super().__init__(code, message)

    def __reduce__(self) -> tuple[Any, ...]:
        # As exceptions are pickled they are made by their type's arguments, which are others.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code.retriable


class RetriableError(KafkaError):
    """Asking again may help."""


class NetworkError(RetriableError):
    """A connection could not be made, broke, or brought a malformed answer."""

    def __init__(
        self, message: str | None = None, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION
    ) -> None:
        super().__init__(message, code)


class RequestTimedOut(RetriableError):
    """The time for a request was over."""

    def __init__(
        self, message: str | None = None, code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
    ) -> None:
        super().__init__(message, code)


class StaleMetadata(RetriableError):
    """The client's metadata of a partition is wrong, or out of date."""


class UnknownTopicOrPartition(StaleMetadata):
    """There is no such partition on the broker that was asked."""


class CoordinatorError(RetriableError):
    """The coordinator is elsewhere, or not ready yet."""


class AuthorizationError(KafkaError):
    """The principal may not do this."""


class AuthenticationError(KafkaError):
    """The broker refuses the login."""


class GroupError(KafkaError):
    """The coordinator of a group refuses."""


class CommitFailed(GroupError):
    """The partitions belong to another member by now: the group has continued without this one."""


class FencedInstance(GroupError):
    """Another member has the same `group.instance.id`."""


class FencedError(KafkaError):
    """Another producer with the same transactional id, or a newer epoch, is at work."""


class TransactionError(KafkaError):
    """A transaction is in a state that does not allow this."""


class TransactionAborted(TransactionError):
    """The record was not sent: its transaction was aborted."""


class RecordError(KafkaError):
    """A record or a batch was refused."""


class BadRecord(RecordError):
    """A record that cannot be read: `partition` and `offset` say which, to `seek` behind it."""

    def __init__(
        self, partition: TopicPartition, offset: int, reason: str, code: ErrorCode
    ) -> None:
        super().__init__(f"{partition} at offset {offset}: {reason}", code)
        self.partition: Final = partition
        self.offset: Final = offset


class RecordTooLarge(RecordError):
    """A record is larger than the client or the broker takes."""


class NotDelivered(KafkaError):
    """Some of the records that were sent together are not in the log.

    `errors` has their errors by index, and `metadata` the places of the others, with None for each
    that failed. The code is the first error's.
    """

    def __init__(
        self, errors: Mapping[int, KafkaError], metadata: Sequence[RecordMetadata | None]
    ) -> None:
        first = min(errors)
        super().__init__(
            f"{len(errors)} of {len(metadata)} records were not delivered; number {first}: "
            f"{errors[first].message}",
            errors[first].code,
        )
        self.errors: Final = errors
        self.metadata: Final = metadata


class RequestError(KafkaError):
    """The request is not legal; asking again does not help."""


class OffsetOutOfRange(KafkaError):
    """There are no records at that offset, and `auto.offset.reset` says not to choose another."""


class NoOffsetForPartition(OffsetOutOfRange):
    """There is no committed offset, and `auto.offset.reset` forbids choosing one."""


class LogTruncated(OffsetOutOfRange):
    """The current leader does not have the records that were read, and `auto.offset.reset` forbids
    choosing where to continue: `offset` is the first that may be another record, -1 if unknown."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"the leader of {partition} does not have what was read of it, from offset {offset} on",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )
        self.partition: Final = partition
        self.offset: Final = offset


class WokenUp(KafkaError):
    """`wakeup` was called."""


class UnsupportedVersion(KafkaError):
    """The broker and this client have no version of an API in common, or a version lacks this."""

    def __init__(
        self, message: str | None = None, code: ErrorCode = ErrorCode.UNSUPPORTED_VERSION
    ) -> None:
        super().__init__(message, code)


class UsageError(KafkaError):
    """The client was used in a way that its documentation excludes."""


class ClientClosed(UsageError):
    """The client has been closed."""


class BufferExhausted(RetriableError):
    """`buffer.memory` stayed full, or metadata away, for `max.block.ms`."""

    def __init__(
        self, message: str | None = None, code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
    ) -> None:
        super().__init__(message, code)


_TYPES: Final[dict[ErrorCode, type[KafkaError]]] = {
    ErrorCode.NETWORK_EXCEPTION: NetworkError,
    ErrorCode.REQUEST_TIMED_OUT: RequestTimedOut,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartition,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicOrPartition,
    ErrorCode.LEADER_NOT_AVAILABLE: StaleMetadata,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: StaleMetadata,
    ErrorCode.REPLICA_NOT_AVAILABLE: StaleMetadata,
    ErrorCode.KAFKA_STORAGE_ERROR: StaleMetadata,
    ErrorCode.LISTENER_NOT_FOUND: StaleMetadata,
    ErrorCode.FENCED_LEADER_EPOCH: StaleMetadata,
    ErrorCode.UNKNOWN_LEADER_EPOCH: StaleMetadata,
    ErrorCode.INCONSISTENT_TOPIC_ID: StaleMetadata,
    ErrorCode.OFFSET_NOT_AVAILABLE: StaleMetadata,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorError,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: CoordinatorError,
    ErrorCode.NOT_COORDINATOR: CoordinatorError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationError,
    ErrorCode.ILLEGAL_GENERATION: GroupError,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: GroupError,
    ErrorCode.INVALID_GROUP_ID: GroupError,
    ErrorCode.UNKNOWN_MEMBER_ID: GroupError,
    ErrorCode.INVALID_SESSION_TIMEOUT: GroupError,
    ErrorCode.REBALANCE_IN_PROGRESS: GroupError,
    ErrorCode.GROUP_MAX_SIZE_REACHED: GroupError,
    ErrorCode.GROUP_ID_NOT_FOUND: GroupError,
    ErrorCode.NON_EMPTY_GROUP: GroupError,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: GroupError,
    ErrorCode.FENCED_MEMBER_EPOCH: GroupError,
    ErrorCode.STALE_MEMBER_EPOCH: GroupError,
    ErrorCode.UNSUPPORTED_ASSIGNOR: GroupError,
    ErrorCode.UNRELEASED_INSTANCE_ID: FencedInstance,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstance,
    ErrorCode.INVALID_PRODUCER_EPOCH: FencedError,
    ErrorCode.PRODUCER_FENCED: FencedError,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: FencedError,
    ErrorCode.INVALID_TXN_STATE: TransactionError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: TransactionError,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: TransactionError,
    ErrorCode.TRANSACTION_ABORTABLE: TransactionError,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: TransactionError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: RecordError,
    ErrorCode.UNKNOWN_PRODUCER_ID: RecordError,
    ErrorCode.INVALID_RECORD: RecordError,
    ErrorCode.INVALID_TIMESTAMP: RecordError,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: RecordError,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: RecordError,
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLarge,
    ErrorCode.RECORD_LIST_TOO_LARGE: RecordTooLarge,
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersion,
    ErrorCode.UNKNOWN_SERVER_ERROR: KafkaError,
}


def error_for(code: int, message: str | None = None) -> KafkaError:
    """The error of an answer's code; codes of brokers newer than the table are unknown errors."""
    known = ErrorCode(code)
    if known != code:
        return KafkaError(f"error code {code}: {message or 'unknown to this client'}")
    found = _TYPES.get(known, RetriableError if known.retriable else RequestError)
    return found(message, known)


def error_about(code: int, what: str) -> KafkaError:
    """The error of an answer's code about something, with the code's own text."""
    return error_for(code, f"{what}: {ErrorCode(code).text}")


def raise_for(code: int, message: str | None = None) -> None:
    """Raises the error of a code, unless the code is NONE."""
    if code:
        raise error_for(code, message)


def unanswered(what: object) -> KafkaError:
    """The error of a requested item that the response does not contain."""
    return NetworkError(f"the answer says nothing of {what}")


def in_words(error: object) -> str:
    """A reason in plain words: `Connection refused`, without its number and an event loop's text
    around it."""
    if not isinstance(error, OSError):
        return str(error)
    # Those of names have negative numbers, which are nobody's but their own.
    number = error.errno or 0
    if number > 0:
        return os.strerror(number)
    return reason_of(error)
