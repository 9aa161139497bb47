"""ElectLeaders (43), versions 0 to 2: hands partitions back to their preferred leaders.

Behaviour: a partition that is already led by the replica that the election would choose answers
ELECTION_NOT_NEEDED; if all partitions are requested (null), such ones are left out of their topic.

Version notes: 1 adds the type of election (preferred or unclean) and a top-level error.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from odradek.controller.results import ElectionResult, ElectionType
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.model import TopicPartition
from odradek.protocol.messages import milliseconds

TYPES: Final = frozenset(ElectionType)


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the elected leaders have taken over, or at the time-out."""
    body = request.body()
    election_type = getattr(body, "election_type", ElectionType.PREFERRED)
    if election_type not in TYPES:
        fail(request, ErrorCode.INVALID_REQUEST)
        return

    partitions = _partitions(body)
    topics = context.metadata.image.topics if partitions is None else ()

    def on_elected(results: Sequence[ElectionResult]) -> None:
        _answer(request, results, topics=topics)

    context.controller.elect_leaders(
        ElectionType(election_type),
        partitions,
        milliseconds(body.timeout),
        request.guard(on_elected),
        defer=request.defer,
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with the error at the top and for every partition that was named."""
    partitions = _partitions(request.body()) or []
    _answer(request, [ElectionResult(each, code, code.text) for each in partitions], code)


def _partitions(body: Any) -> list[TopicPartition] | None:
    if body.topic_partitions is None:
        return None
    return [
        TopicPartition(topic.topic, partition)
        for topic in body.topic_partitions
        for partition in topic.partitions
    ]


def _answer(
    request: Request,
    results: Sequence[ElectionResult],
    code: ErrorCode = ErrorCode.NONE,
    topics: Iterable[str] = (),
) -> None:
    by_topic: dict[str, list[ElectionResult]] = {topic: [] for topic in topics}
    for result in results:
        by_topic.setdefault(result.topic_partition.topic, []).append(result)
    request.answer(
        error_code=code,
        replica_election_results=(
            {
                "topic": topic,
                "partition_result": [_result(each) for each in sorted(by_topic[topic])],
            }
            for topic in sorted(by_topic)
        ),
    )


def _result(result: ElectionResult) -> dict[str, object]:
    return {
        "partition_id": result.topic_partition.partition,
        "error_code": result.error_code,
        "error_message": result.message,
    }
