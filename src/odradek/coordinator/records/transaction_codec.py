"""`TransactionRecordCodec`: the formats of `__transaction_state`.

Which version of the value is written depends on the cluster's version of transactions, since a
cluster that still has version 0 may have brokers that read nothing newer.
"""

from collections.abc import Callable
from typing import cast

from odradek.coordinator.records.record import CoordinatorRecord, RecordCodec
from odradek.coordinator.records.transaction_records import (
    TransactionKey,
    TransactionValue,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from odradek.model import NO_PRODUCER_ID


class TransactionRecordCodec(RecordCodec):
    """Kafka's keys and values; `transaction_version` is the cluster's."""

    def __init__(self, transaction_version: Callable[[], int]) -> None:
        self._transaction_version = transaction_version

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """See `RecordCodec`."""
        key = encode_transaction_key(cast(TransactionKey, record.key))
        if record.value is None:
            return key, None
        value = cast(TransactionValue, record.value)
        if self._transaction_version() == 0:
            value = value._replace(
                previous_producer_id=NO_PRODUCER_ID,
                next_producer_id=NO_PRODUCER_ID,
                client_transaction_version=0,
            )
        return key, encode_transaction_value(value)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """See `RecordCodec`."""
        decoded = None if value is None else decode_transaction_value(value)
        return CoordinatorRecord(decode_transaction_key(key), decoded)
