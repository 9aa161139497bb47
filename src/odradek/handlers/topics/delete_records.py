"""DeleteRecords, versions 0 to 2: move a partition's log start offset up.

Offset -1 stands for the high watermark. The answer carries each partition's low watermark,
the smallest log start among its live replicas, and leaves when all have reached it.

Version notes: 1 changes when quotas throttle, 2 is flexible.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from odradek.controller.slices import OnSlice, slice_by_slice
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import in_list
from odradek.handlers.request import Request
from odradek.model import TopicPartition
from odradek.protocol.messages import milliseconds
from odradek.replication.delayed.delete_records import DeleteRecordsResult

_Entry: TypeAlias = tuple[TopicPartition, int]


def handle(context: HandlerContext, request: Request) -> None:
    """Deletes here, and answers once the other replicas have followed."""
    body = request.body()
    entries = (
        (TopicPartition(topic.name, asked.partition_index), asked.offset)
        for topic in body.topics
        for asked in topic.partitions
    )
    sizes = [(topic.name, len(topic.partitions)) for topic in body.topics]
    deadline_ms = context.clock.monotonic_ms() + milliseconds(body.timeout)

    def delete(some: Sequence[_Entry], on_some: OnSlice[DeleteRecordsResult]) -> None:
        left_ms = max(deadline_ms - context.clock.monotonic_ms(), 0)
        context.replicas.delete_records(left_ms, False, some, request.guard(on_some))

    def delete_all(entries: list[_Entry]) -> None:
        slice_by_slice(entries, delete, on_deleted, request.defer, _at_once)

    def on_deleted(results: list[DeleteRecordsResult]) -> None:
        remaining = iter(results)
        topics = (
            {"name": name, "partitions": (_answer(next(remaining)) for _ in range(size))}
            for name, size in sizes
        )
        request.answer(topics=topics)

    in_list(request, entries, delete_all)


def _at_once(go_on: Callable[[object], None]) -> None:
    """A request that waits for slow replicas does not delay others."""
    go_on(None)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": asked.partition_index,
                    "low_watermark": -1,
                    "error_code": code,
                }
                for asked in topic.partitions
            ],
        }
        for topic in request.body().topics
    ]
    request.answer(topics=topics)


def _answer(result: DeleteRecordsResult) -> dict[str, object]:
    return {
        "partition_index": result.topic_partition.partition,
        "low_watermark": result.low_watermark,
        "error_code": result.error_code,
    }
