"""AlterPartition (56), versions 2 and 3: a leader asks the controller for other in-sync replicas.

Behaviour: NOT_CONTROLLER and STALE_BROKER_EPOCH answer the whole request; else each partition has
its own result, with the state that the controller has written. Topics go by their ids: one that the
controller does not know is UNKNOWN_TOPIC_ID.

Version notes: 3 names the epochs of the replicas, of which ZooKeeper's controller makes no use.
"""

from collections.abc import Sequence
from typing import Any

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.replicas.control_values import controlled
from odradek.handlers.request import Request
from odradek.metadata.control import AlterPartition
from odradek.metadata.image import PartitionImage, TopicImage
from odradek.metadata.store import PartitionChange
from odradek.model import TopicPartition


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the changes are stored."""
    body = request.body()
    image = context.metadata.image
    topics = {topic.topic_id: image.topic_by_id(topic.topic_id) for topic in body.topics}
    known = [
        (topic_image, partition)
        for topic in body.topics
        if (topic_image := topics[topic.topic_id]) is not None
        for partition in topic.partitions
    ]

    def on_done(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            fail(request, outcome.code)
            return
        outcomes = iter(outcome)
        request.answer(
            topics=(
                {
                    "topic_id": topic.topic_id,
                    "partitions": [
                        _outcome(each, None if topics[topic.topic_id] is None else next(outcomes))
                        for each in topic.partitions
                    ],
                }
                for topic in body.topics
            )
        )

    command = AlterPartition(
        body.broker_id,
        body.broker_epoch,
        [_change(body.broker_id, topic_image, partition) for topic_image, partition in known],
        [partition.leader_epoch for _, partition in known],
    )
    controlled(context).on_alter_partition(command, request.guard(on_done))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for the whole."""
    request.answer(error_code=code)


def _change(leader: int, topic: TopicImage, partition: Any) -> PartitionChange:
    if hasattr(partition, "new_isr"):
        isr: Sequence[int] = partition.new_isr
    else:
        isr = [replica.broker_id for replica in partition.new_isr_with_epochs]
    topic_partition = TopicPartition(topic.name, partition.partition_index)
    return PartitionChange(topic_partition, partition.partition_epoch, leader, tuple(isr))


def _outcome(partition: Any, outcome: PartitionImage | BrokerError | None) -> dict[str, object]:
    """The state of a partition; without an outcome its topic is not known."""
    fields: dict[str, object] = {"partition_index": partition.partition_index}
    if outcome is None:
        return fields | {"error_code": ErrorCode.UNKNOWN_TOPIC_ID}
    if isinstance(outcome, BrokerError):
        return fields | {"error_code": outcome.code}
    return fields | {
        "leader_id": outcome.leader,
        "leader_epoch": outcome.leader_epoch,
        "isr": outcome.isr,
        "partition_epoch": outcome.partition_epoch,
    }
