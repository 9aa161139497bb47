"""WriteTxnMarkers (27), versions 1 and 2: a coordinator, or an operator, ends a transaction in
partitions that this broker leads.

Decisions of this broker's coordinator take the same path without a request. Version 2 names the
version of transactions that the markers are checked by.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from odradek.coordinator.runtime.batches import EndMarker
from odradek.coordinator.transactions.markers import MarkerWrite
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.model import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    TransactionResult,
)


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when every marker is committed or refused."""
    markers = list(request.body().markers)
    if any(_is_of_nobody(each) and _is_here(context, each) for each in markers):
        # As in Kafka, where making the marker fails for partitions that the broker has.
        fail(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    answer = _Answer(request, markers)
    # All at once: no later request may come in between.
    context.markers.write_each([_write(context, request, answer, at) for at in range(len(markers))])
    answer.send_if_empty()


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    markers = list(request.body().markers)
    _send(request, markers, [dict.fromkeys(_partitions(each), code) for each in markers])


def _write(context: HandlerContext, request: Request, answer: "_Answer", index: int) -> MarkerWrite:
    def take(partition: TopicPartition, code: ErrorCode) -> None:
        # As in Kafka, whether or not the partition exists elsewhere.
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and not _is_hosted(context, partition):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer.take(index, partition, code)

    return _marker(answer.markers[index]), answer.partitions[index], request.guard(take)


def _is_of_nobody(data: Any) -> bool:
    return bool(data.producer_id == NO_PRODUCER_ID or data.producer_epoch == NO_PRODUCER_EPOCH)


def _is_here(context: HandlerContext, data: Any) -> bool:
    return any(_is_hosted(context, each) for each in _partitions(data))


def _is_hosted(context: HandlerContext, partition: TopicPartition) -> bool:
    return context.replicas.partitions.find(partition) is not None


def _marker(data: Any) -> EndMarker:
    return EndMarker(
        data.producer_id,
        data.producer_epoch,
        data.coordinator_epoch,
        TransactionResult.COMMIT if data.transaction_result else TransactionResult.ABORT,
        getattr(data, "transaction_version", 0),
    )


def _partitions(data: Any) -> list[TopicPartition]:
    return list(
        dict.fromkeys(
            TopicPartition(topic.name, index)
            for topic in data.topics
            for index in topic.partition_indexes
        )
    )


class _Answer:
    """Gathers the outcomes of every marker in every partition."""

    def __init__(self, request: Request, markers: list[Any]) -> None:
        self._request = request
        self.markers = markers
        self.partitions = [_partitions(each) for each in markers]
        self._codes: list[dict[TopicPartition, ErrorCode]] = [{} for _ in markers]
        self._missing = sum(map(len, self.partitions))

    def take(self, index: int, partition: TopicPartition, code: ErrorCode) -> None:
        """Takes one outcome; the last one sends the response."""
        self._codes[index][partition] = code
        self._missing -= 1
        if self._missing == 0:
            _send(self._request, self.markers, self._codes)

    def send_if_empty(self) -> None:
        """Answers a request without partitions."""
        if not any(self.partitions):
            _send(self._request, self.markers, self._codes)


def _send(
    request: Request, markers: list[Any], codes: list[dict[TopicPartition, ErrorCode]]
) -> None:
    request.answer(
        markers=(
            {"producer_id": marker.producer_id, "topics": _topics(marker.topics, outcome)}
            for marker, outcome in zip(markers, codes, strict=True)
            if outcome
        )
    )


def _topics(
    topics: Iterable[Any], codes: dict[TopicPartition, ErrorCode]
) -> Iterator[dict[str, object]]:
    return ({"name": each.name, "partitions": _outcomes(each, codes)} for each in topics)


def _outcomes(topic: Any, codes: dict[TopicPartition, ErrorCode]) -> Iterator[dict[str, object]]:
    return (
        {"partition_index": index, "error_code": codes[TopicPartition(topic.name, index)]}
        for index in topic.partition_indexes
    )
