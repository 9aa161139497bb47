"""Whether a producer may write to a partition in its transaction, asked before the write.

Before the first write of a transaction to a partition its coordinator is asked: producers of
version 2 of transactions have the partition added by that, others must have added it, and it is
verified that they have. So nothing can be written for a transaction that has ended, and no
transaction can hang. What older clients do not know is told in words that they do.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

from odradek.coordinator.transactions.requests import AddPartitionsRequest, ProducerIdAndEpoch
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.model import TopicPartition

TRANSACTION_V2: Final = 2


class ClientAbility(IntEnum):
    """What the version of a request says of the client that writes in a transaction."""

    OLD_ERRORS = 0
    ABORTABLE_ERROR = 1
    IMPLICIT_ADD = 2


_OnCodes = Callable[[list[ErrorCode]], None]


def ability(version: int, abortable_version: int, implicit_version: int) -> ClientAbility:
    """What a client can that sends a request in this version."""
    if version >= implicit_version:
        return ClientAbility.IMPLICIT_ADD
    if version >= abortable_version:
        return ClientAbility.ABORTABLE_ERROR
    return ClientAbility.OLD_ERRORS


def add_or_verify(
    context: HandlerContext,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
    client: ClientAbility,
    on_done: _OnCodes,
) -> None:
    """Asks the coordinator; `on_done` gets a code for each partition, as the client knows it."""
    coordinator = context.transactions
    if client is not ClientAbility.IMPLICIT_ADD:
        verified = coordinator.verify_partitions(transactional_id, producer, partitions)
        on_done([_told(code, client) for code in verified])
        return
    coordinator.add_partitions(
        AddPartitionsRequest(transactional_id, producer, partitions, TRANSACTION_V2),
        lambda code: on_done([_told(code, client)] * len(partitions)),
    )


def _told(code: ErrorCode, client: ClientAbility) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and client is ClientAbility.OLD_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return code
