"""DescribeQuorum (55), versions 0 to 2: the controller, in the form of a Raft quorum.

The quorum of a cluster without one is its controller: leader and only voter of the one partition of
`__cluster_metadata`, in the controller's epoch, with nothing that lags behind. Any other partition
is UNKNOWN_TOPIC_OR_PARTITION. There is no log of the metadata; the number of controllers so far is
shown as its end.

Version notes: 1 adds times of the last fetch, 2 texts of errors and the nodes' listeners.
"""

from typing import Any, Final

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.image import MetadataImage
from odradek.model import CLUSTER_METADATA_TOPIC

NO_ERROR_TEXT: Final = ""


def handle(context: HandlerContext, request: Request) -> None:
    """Answers from the published image."""
    image, now_ms = context.metadata.image, context.clock.wall_ms()
    asked = request.body().topics
    topics = [_topic(topic, image, now_ms) for topic in asked]
    asks_quorum = any(
        _is_quorum(topic.topic_name, each) for topic in asked for each in topic.partitions
    )
    nodes = _nodes(image) if asks_quorum else []
    request.answer(error_message=NO_ERROR_TEXT, topics=topics, nodes=nodes)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error alone."""
    request.answer(error_code=code, error_message=code.text)


def _topic(topic: Any, image: MetadataImage, now_ms: int) -> dict[str, object]:
    return {
        "topic_name": topic.topic_name,
        "partitions": [
            _partition(topic.topic_name, each, image, now_ms) for each in topic.partitions
        ],
    }


def _is_quorum(topic: str, partition: Any) -> bool:
    return topic == CLUSTER_METADATA_TOPIC and partition.partition_index == 0


def _partition(topic: str, asked: Any, image: MetadataImage, now_ms: int) -> dict[str, object]:
    if not _is_quorum(topic, asked):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {
            "partition_index": asked.partition_index,
            "error_code": code,
            "error_message": code.text,
        }
    end_offset = image.controller_epoch
    voter = {
        "replica_id": image.controller_id,
        "log_end_offset": end_offset,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    return {
        "partition_index": asked.partition_index,
        "error_message": NO_ERROR_TEXT,
        "leader_id": image.controller_id,
        "leader_epoch": image.controller_epoch,
        "high_watermark": end_offset,
        "current_voters": [voter],
    }


def _nodes(image: MetadataImage) -> list[dict[str, object]]:
    controller = image.brokers.get(image.controller_id)
    if controller is None:
        return []
    listeners = [
        {"name": each.listener_name, "host": each.host, "port": each.port}
        for each in controller.endpoints
    ]
    return [{"node_id": controller.id, "listeners": listeners}]
