"""The messages of a share partition's state: Kafka's, to the byte, unless records are held back."""

from typing import Any
from uuid import UUID

import pytest

from odradek.protocol import messages
from odradek.protocol.schemas.message_reader import read_message
from odradek.protocol.schemas.message_schemas import load_request_schema, load_response_schema
from odradek.protocol.schemas.message_writer import write_message
from odradek.protocol.share_messages import SHARE_MESSAGES

BATCH = {"first_offset": 5, "last_offset": 6, "delivery_state": 2, "delivery_count": 1}
DUE = {**BATCH, "due_ms": 1_700_000_000_000}
RESULT = {"error_code": 74, "error_message": "old"}


def of(name: str, **values: object) -> dict[str, Any]:
    return {name: [{"topic_id": UUID(int=7), "partitions": [{"partition": 3, **values}]}]}


def read(**batch: object) -> dict[str, Any]:
    """An answer with a state."""
    return of("results", **RESULT, state_epoch=1, start_offset=5, state_batches=[batch])


def write(**batch: object) -> dict[str, Any]:
    """A request for a state to be stored."""
    return {
        "group_id": "g",
        **of("topics", state_epoch=1, leader_epoch=2, start_offset=5, state_batches=[batch]),
    }


MESSAGES = [
    (84, 0, {"group_id": "g", **of("topics", leader_epoch=2)}, read(**BATCH)),
    (85, 0, write(**BATCH), of("results", **RESULT)),
    (85, 1, write(**BATCH), of("results", **RESULT)),
]


@pytest.mark.parametrize(("key", "version", "request_", "response"), MESSAGES)
def test_they_are_kafkas_to_the_byte(
    key: int, version: int, request_: dict[str, Any], response: dict[str, Any]
) -> None:
    """If this fails, our brokers and Kafka's do not understand one another."""
    assert set(SHARE_MESSAGES) == {84, 85}
    kafkas = load_request_schema(key, version)
    assert messages.encode_request(key, version, request_) == write_message(kafkas, request_)
    kafkas = load_response_schema(key, version)
    data = messages.encode_response(key, version, response)
    assert data == write_message(kafkas, response)
    ours = messages.decode_response(key, version, memoryview(data), 0)
    assert ours.results[0].partitions[0].error_code == 74


def test_kafka_passes_over_when_records_are_due() -> None:
    """If this fails, a cluster in which brokers of Kafka are left cannot hold records back."""
    data = messages.encode_request(85, 1, write(**DUE))
    theirs = read_message(load_request_schema(85, 1), memoryview(data), 0)
    assert theirs.topics[0].partitions[0].state_batches[0].delivery_count == 1
    ours = messages.decode_request(85, 1, memoryview(data), 0)
    assert ours.topics[0].partitions[0].state_batches[0].due_ms == DUE["due_ms"]
    at_once = messages.encode_response(84, 0, read(**BATCH))
    answer = messages.decode_response(84, 0, memoryview(at_once), 0)
    assert answer.results[0].partitions[0].state_batches[0].due_ms == 0
