"""The parts that the five APIs of share states share: one answer for each partition of each topic.

Only brokers send them: the leader of a partition and the coordinator of a group ask the share
coordinator.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import do_in_slices
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
    """Asks for every partition, in slices, and answers when all outcomes are known."""
    if not serves_share_groups(context):
        fail_each(request, ErrorCode.UNSUPPORTED_VERSION)
        return
    body = request.body()
    if not body.group_id:
        request.answer(results=())  # as Kafka does
        return
    found: dict[tuple[int, int], Mapping[str, object]] = {}
    places = [
        (topic_index, index)
        for topic_index, topic in enumerate(body.topics)
        for index in range(len(topic.partitions))
    ]

    def take(place: tuple[int, int], outcome: Any) -> None:
        found[place] = _failed(outcome) if isinstance(outcome, BrokerError) else fields(outcome)
        if len(found) == len(places):
            _answer(request, found)

    def ask_one(place: tuple[int, int]) -> None:
        topic = body.topics[place[0]]
        data = topic.partitions[place[1]]
        key = SharePartitionKey(body.group_id, topic.topic_id or UUID(int=0), data.partition)
        ask(key, data, request.guard(partial(take, place)))

    if not places:
        _answer(request, found)
    do_in_slices(request, places, ask_one)


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
    def outcomes(topic_index: int, topic: Any) -> Iterator[dict[str, object]]:
        return (
            {"partition": partition.partition, **found[topic_index, index]}
            for index, partition in enumerate(topic.partitions)
        )

    request.answer(
        results=(
            {"topic_id": topic.topic_id, "partitions": outcomes(topic_index, topic)}
            for topic_index, topic in enumerate(request.body().topics)
        )
    )
