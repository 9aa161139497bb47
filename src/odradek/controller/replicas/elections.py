"""Chooses leaders: for administrators, and when replicas come and go.

Pure: an image in, changes or an error out.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from odradek.controller.results import ElectionType
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage, PartitionImage
from odradek.metadata.store import PartitionChange
from odradek.model import NO_LEADER, TopicPartition

MayElectUnclean: TypeAlias = Callable[[MetadataImage, str], bool]
"""Whether a topic's leader may be a replica that is not in sync."""


def plan_failover(
    image: MetadataImage,
    partitions: Iterable[TopicPartition],
    may_elect_unclean: MayElectUnclean,
) -> list[PartitionChange]:
    """The changes after which no dead broker leads a partition that another could lead, and no ISR
    has a dead broker, except as its last member."""
    changes = []
    for topic_partition in partitions:
        partition = image.partition(topic_partition)
        assert partition is not None, f"{topic_partition} is not in the image it came from"
        leader, isr = _after_failure(
            image, partition, partial(may_elect_unclean, image, topic_partition.topic)
        )
        if (leader, isr) != (partition.leader, partition.isr):
            epoch = partition.partition_epoch
            changes.append(PartitionChange(topic_partition, epoch, leader, isr))
    return changes


def plan_controlled_shutdown(image: MetadataImage, broker_id: int) -> list[PartitionChange]:
    """The changes after which `broker_id` can stop unnoticed: other in-sync replicas lead, and no
    acknowledgement waits for it. A partition with no other in-sync replica does not change."""
    changes = []
    for topic in image.topics.values():
        for partition in topic.partitions:
            isr = tuple(replica for replica in partition.isr if replica != broker_id)
            heirs = [
                replica
                for replica in partition.replicas
                if replica in isr and is_live(image, partition, replica)
            ]
            if partition.leader == broker_id and heirs:
                topic_partition = TopicPartition(topic.name, partition.partition)
                epoch = partition.partition_epoch
                changes.append(PartitionChange(topic_partition, epoch, heirs[0], isr))
    return changes


def plan_balance(image: MetadataImage, allowed_percentage: int) -> list[PartitionChange]:
    """The changes that give leaderships back to preferred in-sync replicas, for brokers of whose
    preferred partitions more than `allowed_percentage` are led elsewhere."""
    led_elsewhere: dict[int, list[TopicPartition]] = {}
    counts: Counter[int] = Counter()
    for topic in image.topics.values():
        for partition in topic.partitions:
            preferred = partition.preferred_leader
            counts[preferred] += 1
            if partition.leader != preferred:
                topic_partition = TopicPartition(topic.name, partition.partition)
                led_elsewhere.setdefault(preferred, []).append(topic_partition)
    changes = []
    for broker_id, candidates in led_elsewhere.items():
        if 100 * len(candidates) <= allowed_percentage * counts[broker_id]:
            continue
        for candidate in candidates:
            with suppress(BrokerError):
                changes.append(plan_election(image, candidate, ElectionType.PREFERRED))
    return changes


def _after_failure(
    image: MetadataImage, partition: PartitionImage, may_elect_unclean: Callable[[], bool]
) -> tuple[int, tuple[int, ...]]:
    live = [replica for replica in partition.replicas if is_live(image, partition, replica)]
    in_sync = [replica for replica in live if replica in partition.isr]
    isr = tuple(replica for replica in partition.isr if replica in in_sync)
    if partition.leader in in_sync:
        return partition.leader, isr
    if in_sync:
        return in_sync[0], isr
    if live and may_elect_unclean():
        return live[0], (live[0],)
    return NO_LEADER, partition.isr


def plan_election(
    image: MetadataImage, topic_partition: TopicPartition, election_type: ElectionType
) -> PartitionChange:
    """The change that gives the partition its new leader.

    Raises:
        BrokerError: the partition is unknown, needs no election, or has no eligible replica.
    """
    partition = image.partition(topic_partition)
    if partition is None:
        message = f"No such topic-partition: {topic_partition}"
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if election_type is ElectionType.PREFERRED:
        leader, isr = _preferred(image, partition), partition.isr
    else:
        leader, isr = _unclean(image, partition)
    return PartitionChange(topic_partition, partition.partition_epoch, leader, isr)


def _preferred(image: MetadataImage, partition: PartitionImage) -> int:
    preferred = partition.preferred_leader
    if partition.leader == preferred != NO_LEADER:
        raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED)
    if preferred not in partition.isr or not is_live(image, partition, preferred):
        message = f"The preferred leader {preferred} is not in sync or not available."
        raise BrokerError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
    return preferred


def _unclean(image: MetadataImage, partition: PartitionImage) -> tuple[int, tuple[int, ...]]:
    """A live replica, in sync if possible; another one becomes the only member of the ISR."""
    if partition.leader in image.brokers:
        raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED)
    live = [replica for replica in partition.replicas if is_live(image, partition, replica)]
    if not live:
        raise BrokerError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    in_sync = [replica for replica in live if replica in partition.isr]
    return (in_sync[0], partition.isr) if in_sync else (live[0], (live[0],))


def is_live(image: MetadataImage, partition: PartitionImage, replica: int) -> bool:
    """Whether a replica is available: its broker is alive, and its log directory works."""
    return replica in image.brokers and replica not in partition.offline
