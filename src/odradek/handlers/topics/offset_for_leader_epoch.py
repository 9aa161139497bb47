"""OffsetForLeaderEpoch, versions 2 to 4: the end offset of a leader epoch in this leader's log.

Consumers and followers find by it where their history diverged from the leader's. An epoch that
this log does not know has the end -1.

Version notes: 2 adds the leader epoch that the client knows, 3 the replica id, 4 is flexible.
"""

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.model import TopicPartition


def handle(context: HandlerContext, request: Request) -> None:
    """Answers every partition at once."""
    topics = (
        {
            "topic": topic.topic,
            "partitions": (
                _end_offset(
                    context,
                    TopicPartition(topic.topic, asked.partition),
                    asked.current_leader_epoch,
                    asked.leader_epoch,
                )
                for asked in topic.partitions
            ),
        }
        for topic in request.body().topics
    )
    request.answer(topics=topics)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    topics = [
        {
            "topic": topic.topic,
            "partitions": [_refusal(asked.partition, code) for asked in topic.partitions],
        }
        for topic in request.body().topics
    ]
    request.answer(topics=topics)


def _end_offset(
    context: HandlerContext,
    topic_partition: TopicPartition,
    current_leader_epoch: int,
    leader_epoch: int,
) -> dict[str, object]:
    try:
        partition = context.replicas.partition(topic_partition)
        end = partition.end_offset_of_epoch(leader_epoch, current_leader_epoch, only_leader=True)
    except BrokerError as error:
        return _refusal(topic_partition.partition, error.code)
    return {
        "error_code": ErrorCode.NONE,
        "partition": topic_partition.partition,
        "leader_epoch": end.leader_epoch,
        "end_offset": end.end_offset,
    }


def _refusal(partition: int, code: ErrorCode) -> dict[str, object]:
    return {"error_code": code, "partition": partition, "leader_epoch": -1, "end_offset": -1}
