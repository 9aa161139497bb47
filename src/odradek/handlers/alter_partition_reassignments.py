"""AlterPartitionReassignments (45), versions 0 and 1: gives partitions other replicas.

Behaviour: replicas that a partition has already are nothing to do, and no reassignment is ever in
progress, so that none can be cancelled (null). Other replicas would have to be copied between
brokers, which is not served yet: INVALID_REPLICA_ASSIGNMENT, as for a broker that is not there.

Version notes: 1 says whether the replication factor may change.
"""

from collections.abc import Callable
from typing import Any

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.image import MetadataImage
from odradek.model import TopicPartition


def handle(context: HandlerContext, request: Request) -> None:
    """Answers every partition at once."""
    image = context.metadata.image
    _answer(request, lambda topic, wish: _check(image, topic, wish))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for the whole."""
    request.answer(error_code=code, error_message=code.text)


def _answer(request: Request, check: Callable[[str, Any], None]) -> None:
    body = request.body()
    request.answer(
        allow_replication_factor_change=getattr(body, "allow_replication_factor_change", True),
        responses=[
            {
                "name": topic.name,
                "partitions": [_outcome(topic.name, wish, check) for wish in topic.partitions],
            }
            for topic in body.topics
        ],
    )


def _outcome(topic: str, wish: Any, check: Callable[[str, Any], None]) -> dict[str, object]:
    try:
        check(topic, wish)
    except BrokerError as error:
        return {
            "partition_index": wish.partition_index,
            "error_code": error.code,
            "error_message": error.message,
        }
    return {"partition_index": wish.partition_index}


def _check(image: MetadataImage, topic: str, wish: Any) -> None:
    if image.topic(topic) is None:
        message = f"Unable to find a topic named {topic}."
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    partition = image.partition(TopicPartition(topic, wish.partition_index))
    if partition is None:
        message = f"Unable to find partition {topic}:{wish.partition_index}."
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if wish.replicas is None:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    reason = _fault(image, wish.replicas)
    if reason is None and tuple(wish.replicas) != partition.replicas:
        reason = "replicas cannot be moved between brokers yet"
    if reason is not None:
        message = f"The assignment cannot be made: {reason}."
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _fault(image: MetadataImage, replicas: tuple[int, ...]) -> str | None:
    if not replicas:
        return "it is empty"
    if len(set(replicas)) != len(replicas):
        return "it names a broker twice"
    unknown = [replica for replica in replicas if replica not in image.brokers]
    return f"broker {unknown[0]} is not registered" if unknown else None
