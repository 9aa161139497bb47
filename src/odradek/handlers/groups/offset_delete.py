"""OffsetDelete (47), version 0: forget committed offsets of topics that the group has left.

A topic that a member is subscribed to is GROUP_SUBSCRIBED_TO_TOPIC; partitions that do not
exist are UNKNOWN_TOPIC_OR_PARTITION, though their offsets go with the topic anyway.
"""

from odradek.coordinator.offsets.requests import TopicErrors
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import in_list
from odradek.handlers.request import Request
from odradek.model import TopicPartition


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the offsets are gone."""
    body = request.body()
    image = context.metadata.image
    asked = [
        (topic.name, [each.partition_index for each in topic.partitions]) for topic in body.topics
    ]
    known = (
        (name, [each for each in partitions if image.partition(TopicPartition(name, each))])
        for name, partitions in asked
    )

    def delete(known: list[tuple[str, list[int]]]) -> None:
        context.groups.delete_offsets(body.group_id, known, request.guard(on_deleted))

    def on_deleted(outcome: TopicErrors | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            fail(request, outcome.code)
            return
        codes = {(name, index): code for name, each in outcome for index, code in each}
        _answer(request, asked, codes)

    in_list(request, known, delete)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error of the group."""
    request.answer(error_code=code)


def _answer(
    request: Request,
    asked: list[tuple[str, list[int]]],
    codes: dict[tuple[str, int], ErrorCode],
) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request.answer(
        topics=(
            {
                "name": name,
                "partitions": (
                    {"partition_index": each, "error_code": codes.get((name, each), unknown)}
                    for each in partitions
                ),
            }
            for name, partitions in asked
            if partitions
        )
    )
