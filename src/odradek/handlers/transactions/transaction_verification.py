"""Verifies, before a write, that a producer may write to a partition in its transaction.

Before the first write to a partition the transaction's coordinator is asked: for producers of
version 2 of transactions it adds the partition, for others it verifies that they have added it. So
nothing can be written for a transaction that has ended, and no transaction can hang. Older clients
get errors that they know.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.coordinator.transactions.requests import AddPartitionsRequest, ProducerIdAndEpoch
from odradek.coordinator.transactions.writes import TransactionWrites
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.records.before_append import BeforeAppend, PendingAppend, Refusals
from odradek.model import TopicPartition
from odradek.storage.producers.producer_state import ProducerStateManager
from odradek.timer import Timer, TimerTask

ProducersOf = Callable[[TopicPartition], ProducerStateManager]
"""The producers of a partition's log; raises BrokerError where it is not led."""

TRANSACTION_V2: Final = 2
# Of Produce.
ABORTABLE_VERSION: Final = 11
IMPLICIT_ADD_VERSION: Final = 12

# Of a batch of magic 2: magic (at 16), the lower byte of the attributes (at 22), producer id (43),
# epoch and base sequence.
_PRODUCER: Final = Struct(">16xB5xB20xqhi")
_TRANSACTIONAL_MASK: Final = 0x10


class ClientAbility(IntEnum):
    """The transaction support of a client that a version of a request implies."""

    OLD_ERRORS = 0
    ABORTABLE_ERROR = 1
    IMPLICIT_ADD = 2


def ability(version: int, abortable_version: int, implicit_version: int) -> ClientAbility:
    """The transaction support of a client that sends a request in this version."""
    if version >= implicit_version:
        return ClientAbility.IMPLICIT_ADD
    if version >= abortable_version:
        return ClientAbility.ABORTABLE_ERROR
    return ClientAbility.OLD_ERRORS


def _response_code(code: ErrorCode, client: ClientAbility) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and client is ClientAbility.OLD_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return code


class Write(NamedTuple):
    """A producer's next write to a partition; `sequence` is -1 without numbers."""

    topic_partition: TopicPartition
    producer: ProducerIdAndEpoch
    sequence: int


Codes = Mapping[TopicPartition, ErrorCode]


class TransactionVerifier:
    """Asks the coordinators of transactions."""

    def __init__(
        self,
        coordinators: TransactionWrites,
        producers_of: ProducersOf,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._coordinators = coordinators
        self._producers_of = producers_of
        self._config = config
        self._clock = clock

    def verify(
        self,
        transactional_id: str,
        writes: Sequence[Write],
        client: ClientAbility,
        on_done: Callable[[Codes], None],
    ) -> None:
        """Verifies the writes of a producer that are the first ones in their partitions.

        `on_done` gets the codes of the refused writes, as the client knows them; the others have to
        follow at once. If an end marker has come in between, it ended the previous transaction or
        this one; if each has its own epoch, the coordinator knows which.
        """
        found = [self._first_write(write, client) for write in writes]
        firsts = [first for first in found if first is not None]
        if not firsts:
            on_done({})
            return

        def on_codes(codes: list[ErrorCode]) -> None:
            known = [_response_code(code, client) for code in codes]
            outcomes = [first.checked(code) for first, code in zip(firsts, known, strict=True)]
            if outcomes != known and client is ClientAbility.IMPLICIT_ADD:
                self.verify(transactional_id, writes, client, on_done)
                return
            partitions = [first.topic_partition for first in firsts]
            outcome = zip(partitions, outcomes, strict=True)
            on_done({each: code for each, code in outcome if code is not ErrorCode.NONE})

        adds = client is ClientAbility.IMPLICIT_ADD
        request = AddPartitionsRequest(
            transactional_id,
            writes[0].producer,
            [first.topic_partition for first in firsts],
            TRANSACTION_V2 if adds else 0,
        )
        self._coordinators.add_or_verify(request, not adds, on_codes)

    def _first_write(self, write: Write, client: ClientAbility) -> "_FirstWrite | None":
        """None if no question is needed: the transaction has already written, the append will be
        refused, or the settings switch verification off for producers that add their partitions
        themselves."""
        adds = client is ClientAbility.IMPLICIT_ADD
        if not adds and not self._config["transaction.partition.verification.enable"]:
            return None
        try:
            producers = self._producers_of(write.topic_partition)
        except BrokerError:
            return None
        if producers.is_in_transaction(*write.producer):
            return None
        now_ms = self._clock.wall_ms()
        number = producers.begin_verification(*write.producer, write.sequence, adds, now_ms)
        return _FirstWrite(write, producers, number)


class _FirstWrite:
    """The first write of a transaction to a partition that is led here, while it is verified."""

    def __init__(self, write: Write, producers: ProducerStateManager, number: int) -> None:
        self.topic_partition = write.topic_partition
        self._producer = write.producer
        self._producers = producers
        self._number = number

    def checked(self, code: ErrorCode) -> ErrorCode:
        """The outcome of the verification, unless a transaction has ended here meanwhile."""
        if code is not ErrorCode.NONE:
            return code
        is_valid = self._producers.is_verification_valid(*self._producer, self._number)
        return code if is_valid else ErrorCode.INVALID_TXN_STATE


class TransactionVerification(BeforeAppend):
    """The step before the append of a produce request that is part of a transaction."""

    def __init__(
        self, verifier: TransactionVerifier, config: BrokerConfig, clock: Clock, timer: Timer
    ) -> None:
        self._verifier = verifier
        self._config = config
        self._clock = clock
        self._timer = timer

    def concerns(self, append: PendingAppend) -> bool:
        """See `BeforeAppend`."""
        return append.transactional_id is not None

    def start(self, append: PendingAppend, on_done: Callable[[Refusals], None]) -> None:
        """Verifies the partitions to which the transaction has not written yet."""
        transactional_id = append.transactional_id
        assert transactional_id is not None, "a request without a transaction is verified"
        writes = _transactional_writes(append)
        if len({write.producer for write in writes}) > 1:
            refusal = BrokerError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "Transactional records contained more than one producer ID",
            )
            on_done({each: refusal for each, _ in append.entries})
            return
        client = ability(append.request.api_version, ABORTABLE_VERSION, IMPLICIT_ADD_VERSION)
        patience_ms = self._config["add.partitions.to.txn.retry.backoff.max.ms"]
        until_ms = self._clock.monotonic_ms() + patience_ms

        def ask() -> None:
            self._verifier.verify(transactional_id, writes, client, on_codes)

        def on_codes(codes: Codes) -> None:
            if self._is_patient(codes, client, until_ms):
                backoff_ms = self._config["add.partitions.to.txn.retry.backoff.ms"]
                self._timer.add(TimerTask(backoff_ms, append.request.guard(ask)))
            else:
                on_done({each: _refusal(code, client) for each, code in codes.items()})

        ask()

    def _is_patient(self, codes: Codes, client: ClientAbility, until_ms: int) -> bool:
        """Whether to ask again: the previous transaction may lack markers, or another partition is
        being added. A producer whose writes add its partitions gets that error only when it takes
        long, since it would send all its records again.

        Not on a clock that a test moves: there the client tries again.
        """
        if client is not ClientAbility.IMPLICIT_ADD or not self._clock.keeps_pace:
            return False
        is_early = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
        return is_early and self._clock.monotonic_ms() < until_ms


def _transactional_writes(append: PendingAppend) -> list[Write]:
    """The transactional batches of a request."""
    writes: list[Write] = []
    for topic_partition, batch in append.sources():
        magic, attributes, producer_id, epoch, sequence = _PRODUCER.unpack_from(batch)
        if magic == 2 and attributes & _TRANSACTIONAL_MASK:
            producer = ProducerIdAndEpoch(producer_id, epoch)
            writes.append(Write(topic_partition, producer, sequence))
    return writes


def _refusal(code: ErrorCode, client: ClientAbility) -> BrokerError:
    """The error for a producer: a retriable error that it does not expect of Produce becomes one
    after which it retries."""
    if code is ErrorCode.INVALID_TXN_STATE:
        return BrokerError(code, "Partition was not added to the transaction")
    knows_concurrent = client is ClientAbility.IMPLICIT_ADD
    if code in _RETRIABLE and not (code is ErrorCode.CONCURRENT_TRANSACTIONS and knows_concurrent):
        return BrokerError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}",
        )
    return BrokerError(code)


_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
