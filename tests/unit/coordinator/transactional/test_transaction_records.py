"""The formats of `__transaction_state`, against bytes that Kafka's definition asks for."""

import pytest

from odradek.coordinator.records.record import RecordError
from odradek.coordinator.records.record_schemas import TRANSACTION_RECORDS
from odradek.coordinator.records.transaction_records import (
    TransactionKey,
    TransactionState,
    TransactionValue,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from odradek.model import TopicPartition
from odradek.protocol.schema import decode

PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 2), TopicPartition("bills", 1))
PLAIN = TransactionValue(7, 3, 60_000, TransactionState.ONGOING, PARTITIONS, 100, 90)
EMPTY = TransactionValue(7, 0, 60_000, TransactionState.EMPTY, None, 100, -1)
TAGGED = PLAIN._replace(
    previous_producer_id=6,
    next_producer_id=8,
    client_transaction_version=2,
    next_producer_epoch=0,
)


@pytest.mark.parametrize("value", [PLAIN, EMPTY, TAGGED])
def test_a_value_comes_back(value: TransactionValue) -> None:
    """Goal: a restart sees what was written."""
    assert decode_transaction_value(encode_transaction_value(value)) == value


def test_a_key_comes_back() -> None:
    """Goal: as for values; the bytes are Kafka's."""
    key = TransactionKey("teller")
    assert encode_transaction_key(key) == b"\x00\x00\x00\x06teller"
    assert decode_transaction_key(encode_transaction_key(key)) == key


def test_the_oldest_version_that_says_everything_is_written() -> None:
    """Goal: older brokers read what they can."""
    assert encode_transaction_value(PLAIN)[:2] == b"\x00\x00"
    assert encode_transaction_value(TAGGED)[:2] == b"\x00\x01"


def test_the_tools_schema_reads_the_same_bytes() -> None:
    """Goal: both descriptions of the format agree."""
    shown = decode(TRANSACTION_RECORDS[0].value, 1, encode_transaction_value(TAGGED), 2)
    assert shown == {
        "producerId": 7,
        "previousProducerId": 6,
        "nextProducerId": 8,
        "producerEpoch": 3,
        "nextProducerEpoch": 0,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": 1,
        "transactionPartitions": [
            {"topic": "orders", "partitionIds": [0, 2]},
            {"topic": "bills", "partitionIds": [1]},
        ],
        "transactionLastUpdateTimestampMs": 100,
        "transactionStartTimestampMs": 90,
        "clientTransactionVersion": 2,
    }


@pytest.mark.parametrize("value", [PLAIN, TAGGED])
def test_what_is_cut_short_is_refused(value: TransactionValue) -> None:
    """Goal: bad bytes are a RecordError, nothing else."""
    data = encode_transaction_value(value)
    for size in range(len(data)):
        with pytest.raises(RecordError):
            decode_transaction_value(data[:size])
    for bad in (b"\x00\x09", b"\x00\x00\x00\x09x"):
        with pytest.raises(RecordError):
            decode_transaction_key(bad)
