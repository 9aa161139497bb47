"""AlterPartitionReassignments (45), versions 0 and 1: gives partitions other replicas.

Behaviour: answered when the reassignment has begun; ListPartitionReassignments shows its progress.
Null replicas cancel the one in progress; the replicas that a partition has already change nothing.

Version notes: 1 says whether the replication factor may change.
"""

from collections.abc import Mapping

from odradek.controller.replicas.reassigner import Reassignment
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import in_list
from odradek.handlers.request import Request
from odradek.model import TopicPartition


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the new assignments are durable."""
    body = request.body()
    may_change_factor = getattr(body, "allow_replication_factor_change", True)
    requests = (
        Reassignment(
            TopicPartition(topic.name, requested.partition_index),
            None if requested.replicas is None else tuple(requested.replicas),
        )
        for topic in body.topics
        for requested in topic.partitions
    )

    def alter(requests: list[Reassignment]) -> None:
        context.controller.reassigner.alter(
            requests,
            request.guard(on_done),
            allow_replication_factor_change=may_change_factor,
            defer=request.defer,
        )

    def on_done(results: Mapping[TopicPartition, BrokerError | None]) -> None:
        request.answer(
            # Kafka repeats the field, except in an empty response.
            allow_replication_factor_change=may_change_factor or not results,
            responses=(
                {
                    "name": topic.name,
                    "partitions": (
                        _outcome(TopicPartition(topic.name, requested.partition_index), results)
                        for requested in topic.partitions
                    ),
                }
                for topic in body.topics
            ),
        )

    in_list(request, requests, alter)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for the whole, and for every partition, except for NOT_CONTROLLER."""
    failed = {"error_code": code, "error_message": code.text}
    responses = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": each.partition_index, **failed} for each in topic.partitions
            ],
        }
        for topic in request.body().topics
        if code is not ErrorCode.NOT_CONTROLLER
    ]
    request.answer(**failed, responses=responses)


def _outcome(
    topic_partition: TopicPartition, results: Mapping[TopicPartition, BrokerError | None]
) -> dict[str, object]:
    outcome: dict[str, object] = {"partition_index": topic_partition.partition}
    error = results[topic_partition]
    if error is not None:
        outcome |= {"error_code": error.code, "error_message": error.message}
    return outcome
