"""Gives partitions other replicas: plans the begin, the cancellation and the end of a reassignment.

While one is in progress the partition has both sets of replicas: the target ones, in their new
order, and behind them those to be removed. Adding replicas are not in sync until they have caught
up like any follower; when all of them have, the removing ones are removed in one step, and the
leadership moves if one of them had it. A new reassignment during another starts from the replicas
before the first: an adding replica that is not wanted any more is removed at once.

Pure: an image in, changes or an error out.
"""

from collections.abc import Collection, Iterable

from odradek.controller.replicas.elections import is_live
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage, PartitionImage, ReplicaAssignment
from odradek.metadata.store import PartitionChange
from odradek.model import NO_LEADER, TopicPartition


def plan_reassignment(
    image: MetadataImage,
    topic_partition: TopicPartition,
    target: tuple[int, ...] | None,
    *,
    allow_replication_factor_change: bool = True,
) -> PartitionChange | None:
    """The change that begins a reassignment to the replicas of `target`, or cancels the one in
    progress (None); None when the partition is already as requested.

    Raises:
        BrokerError: the partition is unknown, no reassignment is in progress that could be
            cancelled, or the target is impossible.
    """
    partition = _find(image, topic_partition)
    if target is None:
        return _cancellation(image, topic_partition, partition)
    _check_target(image, target)
    before = _before(partition)
    if not allow_replication_factor_change and len(target) != len(before):
        message = (
            f"The replication factor is changed from {len(before)} to {len(target)}, which the "
            "request does not allow."
        )
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    removing = tuple(replica for replica in before if replica not in target)
    adding = tuple(replica for replica in target if replica not in before)
    assignment = ReplicaAssignment((*target, *removing), adding, removing)
    if assignment == partition.assignment:
        return None
    return _change(image, topic_partition, partition, assignment)


def plan_completions(
    image: MetadataImage, partitions: Iterable[TopicPartition]
) -> list[PartitionChange]:
    """The changes that end the reassignments whose new replicas are all in sync."""
    changes = []
    for topic_partition in partitions:
        partition = image.partition(topic_partition)
        if partition is None or not partition.is_reassigning:
            continue
        change = _change(image, topic_partition, partition, partition.assignment)
        if change.assignment != partition.assignment:
            changes.append(change)
    return changes


def reassignments_in_progress(
    image: MetadataImage, name: str, wanted: Collection[int] | None = None
) -> list[PartitionImage]:
    """The partitions of a topic that are being reassigned: of those that are `wanted`, or all."""
    topic = image.topic(name)
    if topic is None:
        return []
    moving = [partition for partition in topic.partitions if partition.is_reassigning]
    return [each for each in moving if wanted is None or each.partition in wanted]


def _find(image: MetadataImage, topic_partition: TopicPartition) -> PartitionImage:
    topic, index = topic_partition
    if image.topic(topic) is None:
        message = f"Unable to find a topic named {topic}."
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    partition = image.partition(topic_partition)
    if partition is None:
        message = f"Unable to find partition {topic}:{index}."
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return partition


def _check_target(image: MetadataImage, target: tuple[int, ...]) -> None:
    reason = None
    unknown = [replica for replica in target if replica not in image.brokers]
    if not target:
        reason = "it is empty"
    elif len(set(target)) != len(target):
        reason = "it names a broker twice"
    elif unknown:
        reason = f"broker {unknown[0]} is not registered"
    if reason is not None:
        message = f"The assignment cannot be made: {reason}."
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _cancellation(
    image: MetadataImage, topic_partition: TopicPartition, partition: PartitionImage
) -> PartitionChange:
    if not partition.is_reassigning:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    return _change(image, topic_partition, partition, ReplicaAssignment(_before(partition)))


def _before(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas before the reassignment; those that stay are in their new order."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def _change(
    image: MetadataImage,
    topic_partition: TopicPartition,
    partition: PartitionImage,
    assignment: ReplicaAssignment,
) -> PartitionChange:
    """The change to an assignment, which is complete at once if no replica has to catch up."""

    def may_lead(replica: int) -> bool:
        return replica in partition.isr and is_live(image, partition, replica)

    staying = tuple(each for each in assignment.replicas if each not in assignment.removing)
    heirs = [replica for replica in staying if may_lead(replica)]
    if heirs and set(assignment.adding) <= set(heirs):
        assignment = ReplicaAssignment(staying)
    isr = tuple(replica for replica in partition.isr if replica in assignment.replicas)
    if not isr:
        message = f"Nobody of {topic_partition} is in sync but new replicas."
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    leader = partition.leader
    if leader not in isr:
        leader = next((each for each in assignment.replicas if may_lead(each)), NO_LEADER)
    return PartitionChange(topic_partition, partition.partition_epoch, leader, isr, assignment)
