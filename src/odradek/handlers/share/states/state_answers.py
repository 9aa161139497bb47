"""The parts that the five APIs of share states share: one answer for each partition of each topic.

Only brokers send them: the leader of a partition and the coordinator of a group ask the share
coordinator.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share.share_version import serves_share_groups
from odradek.replication.share.persister import SharePartitionKey, StateBatch
from odradek.replication.share.states import RecordState

OnOutcome = Callable[[Any], None]
Ask = Callable[[SharePartitionKey, Any, OnOutcome], None]
"""Asks for one partition, by its part of the request."""
Fields = Callable[[Any], Mapping[str, object]]
"""The response for an outcome that is no error."""


def answer_each(context: HandlerContext, request: Request, ask: Ask, fields: Fields) -> None:
    """Asks for every partition and answers when all outcomes are known."""
    if not serves_share_groups(context):
        fail_each(request, ErrorCode.UNSUPPORTED_VERSION)
        return
    body = request.body()
    if not body.group_id:
        request.answer(results=())  # as Kafka does
        return
    found: dict[tuple[int, int], Mapping[str, object]] = {}
    places = [
        (topic_index, index, topic, partition)
        for topic_index, topic in enumerate(body.topics)
        for index, partition in enumerate(topic.partitions)
    ]
    missing = len(places)

    def take(place: tuple[int, int], outcome: Any) -> None:
        nonlocal missing
        found[place] = _failed(outcome) if isinstance(outcome, BrokerError) else fields(outcome)
        missing -= 1
        if not missing:
            _answer(request, found)

    if not places:
        _answer(request, found)
    for topic_index, index, topic, partition in places:
        key = SharePartitionKey(body.group_id, topic.topic_id or UUID(int=0), partition.partition)
        on_outcome = request.guard(lambda outcome, at=(topic_index, index): take(at, outcome))
        ask(key, partition, on_outcome)


def fail_each(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    failed = _failed(BrokerError(code, code.text))
    _answer(
        request,
        {
            (topic_index, index): failed
            for topic_index, topic in enumerate(request.body().topics)
            for index in range(len(topic.partitions))
        },
    )


def state_batch(data: Any) -> StateBatch:
    """Reads the state of records from a request.

    Raises:
        BrokerError: INVALID_REQUEST, there is no such state.
    """
    if data.delivery_state not in RecordState.__members__.values():
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"{data.delivery_state} is no state of a record"
        )
    state = RecordState(data.delivery_state)
    first, last, count = data.first_offset, data.last_offset, data.delivery_count
    return StateBatch(first, last, state, count, data.due_ms)


def _failed(error: BrokerError) -> Mapping[str, object]:
    return {"error_code": error.code, "error_message": error.message}


def _answer(request: Request, found: Mapping[tuple[int, int], Mapping[str, object]]) -> None:
    request.answer(
        results=[
            {
                "topic_id": topic.topic_id,
                "partitions": [
                    {"partition": partition.partition, **found[topic_index, index]}
                    for index, partition in enumerate(topic.partitions)
                ],
            }
            for topic_index, topic in enumerate(request.body().topics)
        ]
    )
