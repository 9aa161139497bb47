"""Whether a producer may write to a partition in its transaction, asked before the write.

Before the first write of a transaction to a partition its coordinator is asked: producers of
version 2 of transactions have the partition added by that, others must have added it, and it is
verified that they have. So nothing can be written for a transaction that has ended, and no
transaction can hang. What older clients do not know is told in words that they do.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final

from odradek.config.broker import BrokerConfig
from odradek.coordinator.transactions.requests import AddPartitionsRequest, ProducerIdAndEpoch
from odradek.coordinator.transactions.writes import OnCodes, TransactionWrites
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.before_append import BeforeAppend, PendingAppend, Refusals
from odradek.model import TopicPartition
from odradek.replication.replica_manager import ReplicaManager
from odradek.storage.producers.producer_state import ProducerStateManager

TRANSACTION_V2: Final = 2
# Of Produce.
ABORTABLE_VERSION: Final = 11
IMPLICIT_ADD_VERSION: Final = 12

# Of a batch of magic 2: magic (at 16), the lower byte of the attributes (at 22), producer id (43)
# and epoch.
_PRODUCER: Final = Struct(">16xB5xB20xqh")
_TRANSACTIONAL_MASK: Final = 0x10


class ClientAbility(IntEnum):
    """What the version of a request says of the client that writes in a transaction."""

    OLD_ERRORS = 0
    ABORTABLE_ERROR = 1
    IMPLICIT_ADD = 2


def ability(version: int, abortable_version: int, implicit_version: int) -> ClientAbility:
    """What a client can that sends a request in this version."""
    if version >= implicit_version:
        return ClientAbility.IMPLICIT_ADD
    if version >= abortable_version:
        return ClientAbility.ABORTABLE_ERROR
    return ClientAbility.OLD_ERRORS


def add_or_verify(
    writes: TransactionWrites,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
    client: ClientAbility,
    on_done: OnCodes,
) -> None:
    """Asks the coordinator; `on_done` gets a code for each partition, as the client knows it."""
    adds = client is ClientAbility.IMPLICIT_ADD
    version = TRANSACTION_V2 if adds else 0
    writes.add_or_verify(
        AddPartitionsRequest(transactional_id, producer, partitions, version),
        not adds,
        lambda codes: on_done([_response_code(code, client) for code in codes]),
    )


def _response_code(code: ErrorCode, client: ClientAbility) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and client is ClientAbility.OLD_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return code


class TransactionVerification(BeforeAppend):
    """The step before the append of a produce request that is part of a transaction."""

    def __init__(
        self, writes: TransactionWrites, replicas: ReplicaManager, config: BrokerConfig
    ) -> None:
        self._writes = writes
        self._replicas = replicas
        self._config = config

    def concerns(self, append: PendingAppend) -> bool:
        """See `BeforeAppend`."""
        return append.transactional_id is not None

    def start(self, append: PendingAppend, on_done: Callable[[Refusals], None]) -> None:
        """Asks about the partitions in which the transaction has written nothing yet."""
        transactional_id = append.transactional_id
        assert transactional_id is not None, "a request without a transaction is verified"
        writers = _writers(append)
        producers = set(writers.values())
        if len(producers) > 1:
            refusal = BrokerError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "Transactional records contained more than one producer ID",
            )
            on_done({each: refusal for each, _ in append.entries})
            return
        client = ability(append.request.api_version, ABORTABLE_VERSION, IMPLICIT_ADD_VERSION)
        firsts: list[FirstWrite] = []
        if self._asks(client):
            found = (first_write(self._replicas, each, writer) for each, writer in writers.items())
            firsts = [first for first in found if first is not None]
        if not firsts:
            on_done({})
            return

        def on_codes(codes: list[ErrorCode]) -> None:
            on_done(_refusals(firsts, codes, client))

        partitions = [first.topic_partition for first in firsts]
        add_or_verify(self._writes, transactional_id, producers.pop(), partitions, client, on_codes)

    def _asks(self, client: ClientAbility) -> bool:
        is_wanted = bool(self._config["transaction.partition.verification.enable"])
        return is_wanted or client is ClientAbility.IMPLICIT_ADD


class FirstWrite:
    """The first write of a transaction to a partition that is led here, while it is verified."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        writer: ProducerIdAndEpoch,
        producers: ProducerStateManager,
    ) -> None:
        self.topic_partition = topic_partition
        self._writer = writer
        self._producers = producers
        self._number = producers.begin_verification(writer.producer_id)

    def checked(self, code: ErrorCode) -> ErrorCode:
        """The outcome of the verification, unless the transaction has ended here meanwhile.

        The write has to follow at once.
        """
        if code is not ErrorCode.NONE:
            self._producers.end_verification(self._writer.producer_id, self._number)
            return code
        is_valid = self._producers.is_verification_valid(*self._writer, self._number)
        return code if is_valid else ErrorCode.INVALID_TXN_STATE


def first_write(
    replicas: ReplicaManager, topic_partition: TopicPartition, writer: ProducerIdAndEpoch
) -> FirstWrite | None:
    """None where the transaction has written already, or where the append will be refused."""
    try:
        producers = replicas.partition(topic_partition).leader_log().producers
    except BrokerError:
        return None
    if producers.is_in_transaction(*writer):
        return None
    return FirstWrite(topic_partition, writer, producers)


def _writers(append: PendingAppend) -> dict[TopicPartition, ProducerIdAndEpoch]:
    """Who writes the transactional batches of a request."""
    writers: dict[TopicPartition, ProducerIdAndEpoch] = {}
    for topic_partition, records in append.entries:
        assert isinstance(records, memoryview), "it is verified before anything is prepared"
        magic, attributes, producer_id, epoch = _PRODUCER.unpack_from(records)
        if magic == 2 and attributes & _TRANSACTIONAL_MASK:
            writers[topic_partition] = ProducerIdAndEpoch(producer_id, epoch)
    return writers


def _refusals(
    firsts: Sequence[FirstWrite], codes: Sequence[ErrorCode], client: ClientAbility
) -> dict[TopicPartition, BrokerError]:
    checked = [(first, first.checked(code)) for first, code in zip(firsts, codes, strict=True)]
    return {
        first.topic_partition: _refusal(code, client)
        for first, code in checked
        if code is not ErrorCode.NONE
    }


def _refusal(code: ErrorCode, client: ClientAbility) -> BrokerError:
    """What a producer is told: retriable errors that it may not know of a produce become one
    that it tries again after."""
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
